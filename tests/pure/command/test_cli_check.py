"""`ringbatch check`, and settings that are said to have no effect."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from command_harness import ONE, Files, served

from ringbatch.engine.command import cli
from ringbatch.engine.config.document import conclude, load
from ringbatch.engine.doctor import obstacles


def test_check_needs_a_configuration_or_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check"]) == 2
    assert "--config FILE or a MODEL" in capsys.readouterr().err


@pytest.mark.usefixtures("well")
def test_check_takes_a_model_and_flags_as_serve_does(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    model = tmp_path / "mine.py"
    model.write_text("def predict(x): return x\n")
    assert cli.main(["check", str(model), "--max-batch-size", "7"]) == 0
    printed = capsys.readouterr().out
    assert "[models.mine]\n" in printed
    assert "max_batch_size = 7\n" in printed


@pytest.mark.usefixtures("well")
def test_check_prints_the_configuration(capsys: pytest.CaptureFixture[str], files: Files) -> None:
    path = str(files(ONE))
    assert cli.main(["check", "--config", path]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    model = Path(path).with_name("model.py").resolve()
    assert captured.out == (
        f'[server]\n\n[models.mnist]\nruntime = "python"\npath = "{model}"\nmax_batch_size = 5\n'
        "# nothing would keep serve from starting here; --load loads the models too, --settings "
        "prints all settings with their defaults\n"
    )
    assert cli.main(["check", "--config", path, "--settings"]) == 0
    captured = capsys.readouterr()
    assert "max_batch_size = 5\n" in captured.out
    assert "port = 8080\n" in captured.out
    document = conclude(tomllib.loads(captured.out), source="printed", base=Path())
    assert document == load(Path(path))


def test_check_names_the_ports_of_the_engine_that_goes_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], files: Files
) -> None:
    held = "[server] port: process 7 has it; stop it first"
    monkeypatch.setattr(obstacles, "outlook", lambda *_, **__: obstacles.Outlook([], [held]))
    assert cli.main(["check", "--config", str(files(ONE))]) == 0
    last = capsys.readouterr().out.splitlines()[-2:]
    assert last[0] == f"# {held}"
    assert last[1].startswith("# nothing else would keep serve from starting here; ")


NO_WAIT = "has no effect, because policy is eager; it is for policy fixed\n"


@pytest.mark.usefixtures("well")
@pytest.mark.parametrize("key", ["max_latency_ms", "maxLatency"])
@pytest.mark.parametrize("policy", ['policy = "eager"\n', ""])
def test_check_and_serve_say_that_a_wait_has_no_effect_under_eager(
    capsys: pytest.CaptureFixture[str],
    calls: list[tuple[Any, ...]],
    files: Files,
    key: str,
    policy: str,
) -> None:
    path = str(files(f"{ONE}{key} = 20\n{policy}"))
    notice = f"ringbatch: {path}: [models.mnist] {key}: {NO_WAIT}"
    assert cli.main(["check", "--config", path]) == 0
    captured = capsys.readouterr()
    assert captured.err == notice
    assert "max_latency_ms = 20.0  # has no effect under policy eager\n" in captured.out
    assert served(calls, "--config", path).models[0].policy == "eager"
    assert capsys.readouterr().err == notice


def test_a_flag_that_has_no_effect_is_named_as_it_was_given(
    capsys: pytest.CaptureFixture[str], calls: list[tuple[Any, ...]]
) -> None:
    served(calls, "--max-latency-ms", "5")
    assert capsys.readouterr().err == f"ringbatch: --max-latency-ms: {NO_WAIT}"


@pytest.mark.usefixtures("well")
@pytest.mark.parametrize("settings", ['policy = "fixed"\nmax_latency_ms = 20\n', ""])
def test_an_effective_or_unset_wait_gets_no_warning(
    capsys: pytest.CaptureFixture[str], files: Files, settings: str
) -> None:
    assert cli.main(["check", "--config", str(files(ONE + settings))]) == 0
    assert capsys.readouterr().err == ""


def test_check_prints_every_problem(capsys: pytest.CaptureFixture[str], files: Files) -> None:
    path = files(ONE + "workers = 0\n[server]\nport = 'x'\n")
    assert cli.main(["check", "--config", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        f'ringbatch: {path}: [server] port: found "x", but it must be a whole number '
        "from 0 to 65535",
        f"ringbatch: {path}: [models.mnist] workers: found 0, but it must be a whole number "
        "from 1 to 64, or the fewest and the most, such as [1, 8] or [0, 8]",
    ]
