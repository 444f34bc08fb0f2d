"""``ringbatch manual``: the manual page, in the language of troff. Pure."""

from collections.abc import Iterator

from ringbatch.engine.command.usage import Argument, Command


def page(program: Command, version: str) -> str:
    """Return the manual page of a program.

    Args:
        program: with all its commands.
        version: version of the program.
    """
    return "\n".join([*_lines(program, version), ""])


def _lines(program: Command, version: str) -> Iterator[str]:
    name = program.name
    yield f'.TH {name.upper()} 1 "" "{name} {version}" "User Commands"'
    # No hyphens at the ends of lines, and no spaces between words to make lines equal.
    yield ".nh\n.ad l"
    yield f".SH NAME\n{name} \\- {_text(program.about[:1].lower() + program.about[1:].rstrip('.'))}"
    yield f".SH SYNOPSIS\n{_text(program.usage)}"
    yield from _arguments(program)
    yield from _epilog(program)
    for command in program.commands:
        yield f'.SH "{name} {command.name}"\n{_text(command.about)}\n.PP\n{_text(command.usage)}'
        yield from _arguments(command)
        yield from _epilog(command)


def _arguments(command: Command) -> Iterator[str]:
    for argument in command.arguments:
        yield f".TP\n{_heading(argument)}\n{_text(argument.about) or '.br'}"


def _heading(argument: Argument) -> str:
    value = f"\\fI{_text(argument.value)}\\fR" if argument.value else ""
    flags = ", ".join(f"\\fB{_text(flag)}\\fR" for flag in argument.flags)
    return f"{flags} {value}".strip()


def _epilog(command: Command) -> Iterator[str]:
    if command.epilog:
        lines = map(_text, command.epilog.rstrip().splitlines())
        yield "\n".join([".PP", ".nf", *lines, ".fi"])


def _text(text: str) -> str:
    """Escape a text for roff: nothing in it is a request, and its dashes can be copied."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text
