"""Commands, flags and arguments of an argparse parser, as values. Pure.

argparse has no public way to ask for this. Its names that are used here have stayed the same since
it was written, and `tests/pure/test_completion.py` holds them.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

_FILES: Final = ("FILE", "DIR", "MODEL")
_WIDE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Argument:
    """A flag, or a word without one.

    Attributes:
        flags: its names; none for a word.
        value: what stands for its value in the help; empty if it has none.
        words: of which one is its value; empty if others are legal.
        about: a sentence.
    """

    flags: Sequence[str]
    value: str
    words: Sequence[str]
    about: str

    @property
    def is_file(self) -> bool:
        """True if its value is a path."""
        return self.value in _FILES


@dataclass(frozen=True, slots=True)
class Command:
    """A command.

    Attributes:
        name: of the program, or the word that asks for the command.
        about: in a few words.
        usage: in one line.
        arguments: that it takes.
        epilog: what its help ends with.
        commands: those below it.
    """

    name: str
    about: str
    usage: str
    arguments: Sequence[Argument]
    epilog: str
    commands: Sequence["Command"] = ()


def usage_of(parser: argparse.ArgumentParser) -> Command:
    """Return a program's commands and arguments."""
    return _command(parser, parser.prog, parser.description or "", tuple(_commands(parser)))


def _commands(parser: argparse.ArgumentParser) -> Iterator[Command]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for choice in action._choices_actions:
                yield _command(action.choices[choice.dest], choice.dest, choice.help or "")


def _command(
    parser: argparse.ArgumentParser, name: str, about: str, commands: Sequence[Command] = ()
) -> Command:
    usage = " ".join(_usage(parser).removeprefix("usage: ").split())
    arguments = tuple(
        _argument(parser, action)
        for action in parser._actions
        if not isinstance(action, argparse._SubParsersAction) and action.help != argparse.SUPPRESS
    )
    return Command(name, about, usage, arguments, parser.epilog or "", commands)


def _usage(parser: argparse.ArgumentParser) -> str:
    # The parser's own is as wide as the terminal, and loses the bars of a group where it breaks it.
    formatter = parser._get_formatter()
    formatter._width = _WIDE
    formatter.add_usage(parser.usage, parser._actions, parser._mutually_exclusive_groups)
    return formatter.format_help()


def _argument(parser: argparse.ArgumentParser, action: argparse.Action) -> Argument:
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    words = tuple(action.choices or ())
    if metavar.startswith("{"):
        words = tuple(metavar.strip("{}").split(","))
    takes = action.nargs != 0
    value = (metavar or "{" + ",".join(words) + "}") if takes else ""
    about = parser._get_formatter()._expand_help(action) if action.help else ""
    return Argument(tuple(action.option_strings), value, words, " ".join(about.split()))
