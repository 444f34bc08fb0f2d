"""The commands' reference, from the argument parsers and their help texts."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from ringbatch.engine.command import cli
from ringbatch.engine.command.setting_spelling import ALL_FLAGS
from ringbatch.engine.command.usage import Argument, Command, usage_of

PROGRAM: Final = usage_of(cli._parser())
_SETTINGS: Final = {flag: key for key, flag in ALL_FLAGS.items()}
_OF_SETTINGS: Final = [
    argument
    for argument in PROGRAM.commands[0].arguments
    if any(flag in _SETTINGS for flag in argument.flags)
]
_SECTION: Final = re.compile(r"^(exit status|examples|try it):\n", re.MULTILINE)
_LITERAL: Final = re.compile(r"(?<![\w`-])(--[a-z][a-z0-9-]*|[a-z]+(?:_[a-z0-9]+)+)(?![\w`])")
_STATUS: Final = re.compile(r"^  (\d+) +(.+(?:\n {5,}.+)*)", re.MULTILINE)
_MARK: Final = "<!-- shown: they need engines and files -->"
_REMARK: Final = re.compile(r" {2,}(\S.*)$")


def index() -> str:
    """Return a table of all commands, with links."""
    rows = [
        f"| [`ringbatch {c.name}`](#ringbatch-{c.name}) | {_sentence(c.about)} |"
        for c in PROGRAM.commands
    ]
    return "\n".join(["| command | |", "|---|---|", *rows])


def details() -> str:
    """Return a section for each command."""
    return "\n\n".join(part for command in PROGRAM.commands for part in _command(command))


def sections(command: Command) -> Mapping[str, str]:
    """Return the parts of a command's help text by heading; the description has an empty one."""
    first, *rest = _SECTION.split(command.epilog)
    return {"": first} | dict(zip(rest[::2], rest[1::2], strict=True))


def statuses(command: Command) -> list[tuple[int, str]]:
    """Return the exit statuses of a command with their meanings."""
    found = _STATUS.findall(sections(command).get("exit status", ""))
    return [(int(status), " ".join(text.split())) for status, text in found]


def _command(command: Command) -> Iterator[str]:
    parts = sections(command)
    yield f"## ringbatch {command.name}"
    yield _sentence(command.about)
    yield f"```text\n{command.usage}\n```"
    for paragraph in filter(None, parts[""].split("\n\n")):
        yield _literals(" ".join(paragraph.split()))
    arguments = [a for a in command.arguments if "--help" not in a.flags]
    own = [a for a in arguments if not _is_setting(a)]
    if own:
        rows = [f"| {_heading(a)} | {_literals(_sentence(a.about))} |" for a in own]
        yield "\n".join(["| argument | |", "|---|---|", *rows])
    taken = [_SETTINGS[a.flags[0]] for a in arguments if _is_setting(a)]
    if len(taken) > len(ALL_FLAGS) // 2:
        yield "Every [setting](settings.md) but `path` has a flag too."
    elif taken:
        links = ", ".join(f"[`{ALL_FLAGS[key]}`](settings.md#{key})" for key in taken)
        yield f"Flags of settings: {links}."
    rows = [f"| {status} | {_literals(_sentence(text))} |" for status, text in statuses(command)]
    yield "\n".join(["| exit status | |", "|---|---|", *rows])
    examples = "\n".join(_shell(line) for line in parts.get("examples", "").strip().splitlines())
    yield f"{_MARK}\n```sh\n{examples}\n```"


def _is_setting(argument: Argument) -> bool:
    """Return whether the argument is a setting's flag as ``serve`` has it."""
    return argument in _OF_SETTINGS


def _heading(argument: Argument) -> str:
    value = argument.value.replace("|", "\\|")
    names = [f"{flag} {value}".rstrip() for flag in argument.flags] or [value]
    return ", ".join(f"`{name}`" for name in names)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:].rstrip('.')}." if text else ""


def _literals(text: str) -> str:
    return _LITERAL.sub(r"`\1`", text).replace("|", "\\|")


def _shell(line: str) -> str:
    return _REMARK.sub(r"  # \1", line.strip())
