"""Shell completion and the manual page: they have everything that --help has."""

import contextlib
import io
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ringbatch.engine.command import cli, completion, manual
from ringbatch.engine.command.usage import Command, usage_of

PROGRAM = usage_of(cli._parser())
MANUAL = manual.page(PROGRAM, "1.2.3")
CHECKS = {
    "bash": ["bash", "-n"],
    "zsh": ["zsh", "-n"],
    "fish": ["fish", "-n"],
}
END = {"bash": "esac ;;", "zsh": " ;;"}
"""Text behind the last flag of a command in a shell's script."""
OFFERED = {
    "": {"serve", "check", "units", "completion"},
    "se": {"serve"},
    "serve ": set(),
    "serve --pol": {"--policy"},
    "serve --policy ": {"eager", "fixed"},
    "serve --policy f": {"fixed"},
    "serve --no-pad": {"--no-pad-variable-length"},
    "serve --warm-up ": {"required", "try", "off"},
    "serve --config ": set(),
    "serve --port ": set(),
    "doctor --js": {"--json"},
    "status ": {"--engine", "--pid"},
    "completion ": {"bash", "zsh", "fish"},
    "sidecar -component-p": {"-component-port"},
}


def flags_in_help(*command: str) -> set[str]:
    """Return the flags that --help shows."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), pytest.raises(SystemExit):
        cli.main([*command, "--help"])
    heads = re.findall(r"(?m)^  (-.*?)(?:  |$)", printed.getvalue())
    return set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", " ".join(heads)))


def commands() -> list[Command]:
    return [PROGRAM, *PROGRAM.commands]


def run(words: list[str], path: Path) -> None:
    if shutil.which(words[0]) is None:
        pytest.skip(f"there is no {words[0]} here")
    completed = subprocess.run([*words, str(path)], capture_output=True, text=True, check=False)
    assert (completed.returncode, completed.stdout, completed.stderr) == (0, "", "")


@pytest.mark.parametrize("command", PROGRAM.commands, ids=lambda command: command.name)
def test_the_command_that_is_typed_alone_gets_its_arguments(command: Command) -> None:
    typed = usage_of(cli._parser([command.name, "--help"])).commands
    assert [one.name for one in typed] == [one.name for one in PROGRAM.commands]
    for one in typed:
        assert one == command if one.name == command.name else len(one.arguments) == 1


@pytest.mark.parametrize("columns", [20, 40, 80, 500])
def test_the_terminals_width_changes_nothing(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert usage_of(cli._parser()) == PROGRAM
    usages = {command.name: command.usage for command in PROGRAM.commands}
    assert "[--engine ENGINE | --pid PID | ENGINE]" in usages["status"]


def test_the_usage_is_that_of_help() -> None:
    assert len(PROGRAM.commands) >= 11
    for command in commands():
        words = [] if command is PROGRAM else [command.name]
        flags = {flag for argument in command.arguments for flag in argument.flags}
        assert flags == flags_in_help(*words), command.name


@pytest.mark.parametrize("shell", CHECKS)
def test_a_shell_understands_its_script(shell: str, tmp_path: Path) -> None:
    script = tmp_path / shell
    script.write_text(completion.SHELLS[shell](PROGRAM))
    run(CHECKS[shell], script)


@pytest.mark.parametrize("shell", CHECKS)
def test_every_command_and_flag_is_in_each_script(shell: str) -> None:
    script = completion.SHELLS[shell](PROGRAM)
    for command in PROGRAM.commands:
        if shell == "fish":
            part = "\n".join(re.findall(rf"(?m)^.*_from {command.name}'.*$", script))
        else:
            part = script.partition(f" {command.name})")[2].partition(f"{END[shell]}\n")[0]
        assert part, command.name
        for argument in command.arguments:
            for flag in argument.flags:
                shown = re.escape(flag.lstrip("-") if shell == "fish" else flag)
                assert re.search(rf"(?<![\w-]){shown}(?![\w-])", part), f"{command.name} {flag}"
            assert all(word in part for word in argument.words)


@pytest.mark.parametrize("line", OFFERED)
def test_bash_offers_these_words(line: str, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(completion.bash(PROGRAM))
    ask = (
        'source "$1"; shift; COMP_WORDS=(ringbatch "$@"); COMP_CWORD=$#; _ringbatch; '
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    words = ["bash", "--norc", "-c", ask, "-", str(script), *line.split(" ")]
    completed = subprocess.run(words, capture_output=True, text=True, check=True)
    offered = set(completed.stdout.split())
    if line.endswith(" ") or not line:
        assert offered >= OFFERED[line]
        assert OFFERED[line] or not offered
    else:
        assert offered == OFFERED[line]


def test_the_manual_has_every_command_and_flag() -> None:
    parts = dict(zip(re.findall(r'(?m)^\.SH "ringbatch (\w+)"$', MANUAL), sections(), strict=True))
    assert list(parts) == [command.name for command in PROGRAM.commands]
    for command in PROGRAM.commands:
        for argument in command.arguments:
            for flag in argument.flags:
                assert f"\\fB{flag.replace('-', chr(92) + '-')}\\fR" in parts[command.name]
            assert argument.about.replace("-", "\\-") in parts[command.name]


def sections() -> list[str]:
    return re.split(r'(?m)^\.SH "ringbatch \w+"$', MANUAL)[1:]


def test_the_manual_is_sound(tmp_path: Path) -> None:
    path = tmp_path / "ringbatch.1"
    path.write_text(MANUAL)
    run(["groff", "-man", "-ww", "-z"], path)


def test_text_is_never_taken_for_a_request() -> None:
    odd = Command("p", ".so /etc/passwd", "'x", (), "\\fB\n.sh")
    page = manual.page(Command("p", "about", "p", (), "", (odd,)), "1")
    assert "\n\\&.so" in page
    assert "\n\\&'x" in page
    assert "\n\\efB\n\\&.sh" in page


def test_the_commands_print_them(capsys: pytest.CaptureFixture[str]) -> None:
    for shell, script in completion.SHELLS.items():
        assert cli.main(["completion", shell]) == 0
        assert capsys.readouterr().out == script(PROGRAM)
    assert cli.main(["manual"]) == 0
    assert capsys.readouterr().out.startswith('.TH RINGBATCH 1 "" "ringbatch ')
