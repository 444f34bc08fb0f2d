"""Argument parser that suggests the probably meant word with each refusal.

`_check_value` is the one place where argparse says which words are legal, and `_split_lines` is the
one that breaks lines of help. Neither is public. Both are in every Python since argparse was
written, and `tests/pure/command/test_cli.py` holds them.
"""

import argparse
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from ringbatch.engine.command import setting_spelling, unknown_commands
from ringbatch.engine.config import unknown_keys


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """A layout of help texts that keeps flags, such as ``--max-batch-size``, on one line."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


class Parser(argparse.ArgumentParser):
    """The parser of the program, and of each of its commands."""

    def parse_known_args(
        self, args: Iterable[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Return the arguments; each command refuses unknown ones itself."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(self._unexpected(unknown))
        return found, unknown

    def _unexpected(self, unknown: Sequence[str]) -> str:
        for argument in unknown:
            if argument.startswith("-"):
                flag = argument.partition("=")[0]
                known = [name for name in self._option_string_actions if name.startswith("--")]
                words = unknown_keys.words(flag, known, kind="flag", listed=f"`{self.prog} --help`")
                flags = {k: f for k, f in setting_spelling.ALL_FLAGS.items() if f in known}
                return f"{flag}: {setting_spelling.in_flags(words, flags)}"
        return f"{' '.join(unknown)}: nothing more is expected; `{self.prog} --help` says what is"

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known = tuple(map(str, action.choices))
        if "serve" in known and (elsewhere := unknown_commands.command_for(str(value))):
            hint = elsewhere
        elif candidate := unknown_keys.closest(str(value), known):
            hint = f"did you mean {candidate}?"
        else:
            hint = f"it must be one of {', '.join(known)}"
        raise argparse.ArgumentError(action, f'found "{value}"; {hint}')
