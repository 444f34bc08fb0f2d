"""Help texts of commands: each names its exit statuses and examples, and the statuses hold."""

import shlex
from pathlib import Path

import pytest
from generator.commands import PROGRAM, sections, statuses

from ringbatch.engine.command import cli
from ringbatch.engine.command.usage import Command

COMMANDS = {command.name: command for command in PROGRAM.commands}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS.keys())
def test_every_command_has_its_statuses_and_an_example(command: Command) -> None:
    assert statuses(command)[0][0] == 0
    examples = sections(command)["examples"].splitlines()
    assert any(line.startswith(f"  ringbatch {command.name}") for line in examples)


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("completion bash", 0),
        ("manual", 0),
        ("units", 0),
        ("status no-such-engine", 1),
        ("models no-such-engine", 1),
        ("top no-such-engine", 2),
        ("reload --engine no-such-engine", 2),
        ("check missing.py", 2),
        ("serve missing.py", 2),
        ("doctor --config missing.toml", 1),
        ("actors --config missing.toml", 2),
        ("sidecar --enable-puller", 2),
        ("handover --config missing.toml", 2),
        ("bench --compare missing.json missing.json", 2),
        ("tune --config missing.toml", 2),
    ],
)
def test_exit_statuses_are_those_of_the_help(
    line: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name, *arguments = shlex.split(line)
    assert cli.main([name, *arguments]) == status
    assert status in dict(statuses(COMMANDS[name]))
