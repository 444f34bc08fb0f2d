"""Arguments that name a running engine, or the model that a new one serves."""

import argparse
from contextlib import suppress
from typing import Any, Final

from ringbatch.shm.engine_name import WORDS, is_engine_name

_MOST_S: Final = 1_000_000
"""Eleven days. Python and the kernel refuse to wait for much longer."""


class ModelsAction(argparse.Action):
    """Argparse action for MODEL: accepts one file or address, or several addresses."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        *_: object,
    ) -> None:
        if len(values) > 1 and not all("://" in value for value in values):
            parser.error(
                f"{' '.join(values[1:])}: one MODEL can be served so; for several, write a section "
                "[models.NAME] with a path for each into a file, and give it with --config"
            )
        namespace.model = values


def add_flags(command: argparse._ActionsContainer, default: str) -> Any:
    """Add ``--engine`` and ``--pid``, which both set `engine`.

    Args:
        command: the parser to add them to.
        default: for the help, which is meant without them.

    Returns:
        The group of which one alone may be given.
    """
    group = command.add_mutually_exclusive_group()
    group.add_argument(
        "--engine",
        type=_engine,
        metavar="ENGINE",
        help=f"the engine's name, or the process id of its supervisor (default: {default})",
    )
    group.add_argument(
        "--pid", type=count, dest="engine", metavar="PID", help="the same, a process id alone"
    )
    return group


def add_flags_and_word(command: argparse.ArgumentParser, default: str) -> None:
    """Add the flags, and a word without a flag that can mean nothing else; it sets `named`."""
    add_flags(command, default).add_argument(
        "named", nargs="?", type=_engine, metavar="ENGINE", help="the same as --engine ENGINE"
    )


def count(text: str) -> int:
    """Return a whole number from 1, as argparse has types.

    Raises:
        argparse.ArgumentTypeError: the text is none.
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f'found "{text}", but it must be a whole number from 1')
    return int(text)


def number(text: str) -> int | float | str:
    """Return the number that a flag's text spells; other text as it is, to be refused in words."""
    for read in (int, float):
        with suppress(ValueError):
            return read(text)
    return text


def seconds(text: str) -> float:
    """Return a time that can be waited for, as argparse has types.

    Raises:
        argparse.ArgumentTypeError: the text is none.
    """
    with suppress(ValueError):
        if 0 < (found := float(text)) <= _MOST_S:
            return found
    raise argparse.ArgumentTypeError(
        f'found "{text}", but it must be a number of seconds above 0, at most {_MOST_S}'
    )


def _engine(text: str) -> str | int:
    if is_engine_name(text):
        return text
    if text.isdecimal() and int(text):
        return int(text)
    raise argparse.ArgumentTypeError(
        f'found "{text}", but it must be the name of an engine, {WORDS}, or a process id'
    )
