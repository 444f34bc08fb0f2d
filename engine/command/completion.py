"""``ringbatch completion``: scripts that complete its commands in a shell. Pure."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ringbatch.engine.command.usage import Argument, Command

_BASH: Final = """\
# ringbatch completion bash
_{name}() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} words=
    if [[ $COMP_CWORD -eq 1 ]]; then
        words={commands}
    else
        case ${{COMP_WORDS[1]}} in
{cases}
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o bashdefault -o default -F _{name} {name}
"""
_ZSH: Final = """\
#compdef {name}
_{name}() {{
    if (( CURRENT == 2 )); then
        local -a commands=({commands})
        _describe command commands
        return
    fi
    local command=$words[2]
    shift words
    (( CURRENT-- ))
    case $command in
{cases}
    esac
}}
if [[ $funcstack[1] == _{name} ]]; then
    _{name} "$@"
else
    compdef _{name} {name}
fi
"""


def bash(program: Command) -> str:
    """Return the script for bash, which offers files if it has nothing else to offer."""
    cases = []
    for command in program.commands:
        flags = [a for a in command.arguments if a.flags and a.value]
        free = "|".join(flag for a in flags if not a.words for flag in a.flags)
        values = [(free, "")] if free else []
        values += [("|".join(a.flags), f"words={_words(a.words)}") for a in flags if a.words]
        words = _words([word for a in command.arguments for word in (a.flags or a.words)])
        may_be_file = any(a.is_file for a in command.arguments if not a.flags)
        unless = "[[ $word != -* ]] || " if may_be_file else ""
        values.append(("*", f"{unless}words={words}"))
        lines = [f"            {pattern}) {then} ;;" for pattern, then in values]
        cases += [f"        {command.name}) case $before in", *lines, "            esac ;;"]
    names = _words([command.name for command in program.commands])
    return _BASH.format(name=program.name, commands=names, cases="\n".join(cases))


def _words(words: Sequence[str]) -> str:
    return shlex.quote(" ".join(words))


def zsh(program: Command) -> str:
    """Return the script for zsh."""
    commands = [shlex.quote(f"{c.name}:{_zsh_text(c.about)}") for c in program.commands]
    cases = []
    for command in program.commands:
        specs = [spec for a in command.arguments for spec in _zsh_specs(a)]
        lines = " \\\n            ".join(map(shlex.quote, specs))
        cases.append(f"    {command.name})\n        _arguments -s \\\n            {lines} ;;")
    return _ZSH.format(name=program.name, commands=" ".join(commands), cases="\n".join(cases))


def _zsh_specs(argument: Argument) -> list[str]:
    action = "_files" if argument.is_file else f"({' '.join(argument.words)})"
    value = f":{_zsh_text(argument.value)}:{action}" if argument.value else ""
    if not argument.flags:
        return [f":{value}"]
    # Given once or often: some are lists.
    return [f"*{flag}[{_zsh_text(argument.about)}]{value}" for flag in argument.flags]


def _zsh_text(text: str) -> str:
    for special in ("\\", "[", "]", ":"):
        text = text.replace(special, f"\\{special}")
    return text


def fish(program: Command) -> str:
    """Return the script for fish."""
    first = f"complete -c {program.name} -n __fish_use_subcommand -f"
    lines = [f"# {program.name} completion fish"]
    lines += [f"{first} -a {c.name} -d {_fish_text(c.about)}" for c in program.commands]
    for command in program.commands:
        where = f"complete -c {program.name} -n '__fish_seen_subcommand_from {command.name}'"
        lines += [f"{where} {_fish_argument(a)}" for a in command.arguments]
    return "\n".join([*lines, ""])


def _fish_argument(argument: Argument) -> str:
    parts = []
    for flag in argument.flags:
        kind = "-l" if flag.startswith("--") else "-s" if len(flag) == 2 else "-o"
        parts.append(f"{kind} {flag.lstrip('-')}")
    if argument.value:
        parts.append("-F" if argument.is_file else "-f")
        parts += ["-r"] * bool(argument.flags)
    if argument.words:
        parts.append(f"-a {_fish_text(' '.join(argument.words))}")
    return " ".join([*parts, f"-d {_fish_text(argument.about)}"])


def _fish_text(text: str) -> str:
    text = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"


SHELLS: Final[Mapping[str, Callable[[Command], str]]] = {"bash": bash, "zsh": zsh, "fish": fish}
"""Makers of each shell's script."""
