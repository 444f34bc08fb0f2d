"""Error messages for mistakes on the command line.

Tests engine/command/unknown_commands.py.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_harness import ONE, TWO, VERSIONS, Files, refusal, served

from ringbatch.engine.command import cli
from ringbatch.engine.config.document import (
    Config,
)
from ringbatch.shm.errors import SegmentNotReady

REFUSED: dict[str, tuple[str | None, list[str], str]] = {
    "url": (
        None,
        ["ftp://localhost:9000/v1"],
        'MODEL: found "ftp://localhost:9000/v1", but it must be the path of a model file, or the '
        "address of a model server, http://HOST:PORT or "
        "https://HOST:PORT, or a list of addresses",
    ),
    "h5-missing": (
        None,
        ["sub/m.h5"],
        'MODEL: found "sub/m.h5", but it must be a file that exists; none is at {here}/sub/m.h5',
    ),
    "h5-with-a-runtime": (
        None,
        ["/m.h5", "--runtime", "onnx"],
        'MODEL: found "/m.h5", but it must be a file that exists',
    ),
    "missing": (
        None,
        ["{here}/none.py"],
        'MODEL: found "{here}/none.py", but it must be a file that exists',
    ),
    "address-without-a-scheme": (
        None,
        ["localhost:8501"],
        'MODEL: found "localhost:8501", but it must be http://localhost:8501 for a model server '
        "there",
    ),
    "a-configuration": (
        None,
        ["a.toml"],
        'MODEL: found "a.toml", but it must be a model; a configuration is given with --config',
    ),
    "ending-left-out": (
        None,
        ["{here}/model"],
        'MODEL: found "{here}/model", but it must be a file with its ending; {here}/model.py is '
        "there",
    ),
    "missing-beside-nothing": (
        None,
        ["none.py"],
        'MODEL: found "none.py", but it must be a file that exists; none is at {here}/none.py',
    ),
    "name-of-file-unfit": (
        None,
        ["a b.py"],
        'MODEL: "a b" cannot be the name of a model; give one with --name; a model\'s name must be '
        "1 to 128 letters of ASCII, digits, dots, dashes or underscores, "
        "and not ., .. or stats, which /v2/models/stats has taken",
    ),
    "name-unfit": (
        None,
        ["model.py", "--name", "a/b"],
        '--name: found "a/b", but a model\'s name must be 1 to 128 letters of ASCII, digits, '
        "dots, dashes or underscores, and not ., .. or stats, which /v2/models/stats has taken",
    ),
    "name-of-bundled-unfit": (
        None,
        ["--name", ""],
        '--name: found "", but a model\'s name must be 1 to 128 letters of ASCII, digits, '
        "dots, dashes or underscores, and not ., .. or stats, which /v2/models/stats has taken",
    ),
    "several-flags-at-once": (
        None,
        ["--port", "x", "--workers", "0", "--policy", "lazy", "--drain-s", "nan"],
        '--port: found "x", but it must be a whole number from 0 to 65535\n'
        "--drain-s: found nan, but it must be a number from 0 to 86400\n"
        '--policy: found "lazy", but it must be "eager" or "fixed"\n'
        "--workers: found 0, but it must be a whole number from 1 to 64, "
        "or the fewest and the most, such as 1-8 or 0-8",
    ),
    "relation-with-a-default": (
        None,
        ["--max-latency-ms", "70000"],
        "--max-latency-ms: found 70000 ms, but it must be at most --timeout-s, which is 60 s by "
        "default",
    ),
    "file-and-flag-wrong": (
        "[server]\nport = -1\n" + ONE,
        ["--workers", "0"],
        "{config}: [server] port: found -1, but it must be a whole number from 0 to 65535\n"
        "--workers: found 0, but it must be a whole number from 1 to 64, "
        "or the fewest and the most, such as 1-8 or 0-8",
    ),
    "several-models-and-no-name": (
        TWO,
        ["--max-batch-size", "3"],
        "--max-batch-size: {config} has several models; say with --name which one is meant: "
        "mnist, other",
    ),
    "several-models-a-model-and-no-name": (
        TWO,
        ["model.py"],
        "MODEL: {config} has several models; say with --name which one is meant: mnist, other",
    ),
    "name-not-in-the-file": (
        TWO,
        ["--name", "mnits", "--workers", "2"],
        '--name: found "mnits", but it must be the name of a model in {config}: mnist, other',
    ),
    "name-without-a-use": (
        TWO,
        ["--name", "mnist"],
        "--name: there is no MODEL and no flag for a model that it could be for",
    ),
    "flag-for-a-model-and-none-in-the-file": (
        "[server]\nport = 1\n",
        ["--workers", "2"],
        "--workers: {config} has no model that it could be for",
    ),
    "a-flag-wrong-for-versions": (
        VERSIONS,
        ["--workers", "0"],
        "--workers: found 0, but it must be a whole number from 1 to 64, or the fewest and the "
        "most, such as 1-8 or 0-8",
    ),
    "model-and-paths-of-versions": (
        VERSIONS + 'path = "other.py"\n',
        ["model.py"],
        "MODEL: version 2 of m has a path of its own; leave out MODEL, or that path",
    ),
    "versions-are-no-table": (
        '[models.m]\npath = "model.py"\nversions = 3\n',
        ["model.py"],
        "{config}: [models.m] versions: found 3, but it must be a table, with the header "
        "[models.m.versions.VERSION]",
    ),
    "a-version-is-no-table": (
        '[models.m]\npath = "model.py"\n[models.m.versions]\n1 = 3\n',
        ["model.py"],
        "{config}: [models.m.versions] 1: found 3, but it must be a table, with the header "
        "[models.m.versions.1]",
    ),
    "section-is-no-table": (
        "server = 3\n" + ONE,
        ["--port", "1"],
        "{config}: server: found 3, but it must be a table, with the header [server]",
    ),
}


@pytest.mark.parametrize(("text", "argv", "words"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_command_is_refused_in_words(
    calls: list[tuple[Any, ...]],
    capsys: pytest.CaptureFixture[str],
    files: Files,
    tmp_path: Path,
    text: str | None,
    argv: list[str],
    words: str,
) -> None:
    config = files(text or "")
    argv = [word.format(here=tmp_path) for word in argv]
    argv += ["--config", str(config)] if text else []
    assert refusal(calls, capsys, *argv) == words.format(here=tmp_path, config=config)


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Move to a working directory and remove it."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()


@pytest.mark.parametrize(
    ("argv", "path"),
    [
        (["model.py"], "model.py"),
        (["model.py", "--config", "{here}/c.toml"], "model.py"),
        (["{here}/m.py", "--app", "api:app"], "api:app"),
        (["{here}/m.py", "--warm-up-file", "w.json"], "w.json"),
        (["{here}/m.py", "--tls-key", "k.pem"], "k.pem"),
    ],
)
def test_a_path_from_a_working_directory_that_is_gone_is_refused(
    calls: list[tuple[Any, ...]],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    nowhere: None,
    argv: list[str],
    path: str,
) -> None:
    (tmp_path / "m.py").touch()
    (tmp_path / "c.toml").write_text("[server]\nport = 1\n")
    assert refusal(calls, capsys, *(word.format(here=tmp_path) for word in argv)) == (
        f"{path}: starts at the working directory, which is gone; give the whole path"
    )


def test_a_whole_path_needs_no_working_directory(
    calls: list[tuple[Any, ...]], tmp_path: Path, nowhere: None
) -> None:
    (tmp_path / "m.py").touch()
    assert served(calls, f"{tmp_path}/m.py").models[0].path == tmp_path / "m.py"


def test_a_startup_error_of_the_engine_is_printed_without_a_traceback(
    calls: list[tuple[Any, ...]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(config: Config, reread: Callable[[], Config]) -> int:
        raise SegmentNotReady("first line\nsecond line")

    monkeypatch.setattr(sys.modules["ringbatch.engine.supervisor.run"], "run", fail)
    assert cli.main(["serve"]) == 2
    assert capsys.readouterr().err == "ringbatch: first line\nringbatch: second line\n"


def test_an_interrupt_ends_with_status_130(
    calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(requests: int, clients: int) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["ringbatch.engine.demo.demo"], "run", interrupted)
    assert cli.main(["demo"]) == 130


USAGE = {
    "no-command": ([], "found no COMMAND, such as serve in `ringbatch serve model.py`; `ringbatch"),
    "misspelt-flag-without-command": (
        ["--verison"],
        "ringbatch: error: --verison: unknown flag; did you mean --version?",
    ),
    "flag-of-others-without-command": (["-V"], "-V: unknown flag; known are --help, --version"),
    "misspelt-command": (["sevre"], 'found "sevre"; did you mean serve?'),
    "unknown-command": (["xyz"], 'found "xyz"; it must be one of serve, handover, sidecar'),
    "command-of-others": (["run", "m.py"], 'found "run"; that is here `ringbatch serve`'),
    "model-without-command": (["m.py"], "did you mean `ringbatch serve m.py`?"),
    "address-without-command": (["http://h:1"], "did you mean `ringbatch serve http://h:1`?"),
    "file-without-command": (["a.toml"], "did you mean `ringbatch serve --config a.toml`?"),
    "model-as-a-flag": (
        ["serve", "--model", "m.py"],
        "so is here an argument without a flag, as in `ringbatch serve model.py`",
    ),
    "gpus": (["serve", "--gpus", "1"], "--gpus: unknown flag; what other servers call so is here"),
    "misspelt-flag": (
        ["serve", "--prot", "1"],
        "ringbatch serve: error: --prot: unknown flag; did you mean --port?",
    ),
    "flag-with-a-value": (["serve", "--prot=1"], "--prot: unknown flag; did you mean --port?"),
    "flag-without-its-unit": (
        ["serve", "--lane", "4"],
        "--lane: unknown flag; did you mean --lane-bytes?",
    ),
    "flag-in-the-spelling-of-the-file": (
        ["serve", "--max_batch_size", "4"],
        "--max_batch_size: unknown flag; did you mean --max-batch-size?",
    ),
    "flag-of-another-server": (
        ["serve", "--max-wait-time", "4"],
        "--max-wait-time: unknown flag; what other servers call so is here --max-latency-ms",
    ),
    "flag-alike-and-of-another-server": (
        ["serve", "--ssl-keyfile", "a"],
        "--ssl-keyfile: unknown flag; what other servers call so is here --tls-key",
    ),
    "name-of-another-server": (["serve", "--model-name", "a"], "call so is here --name\n"),
    "flag-of-another-server-for-a-command-with-flags-of-its-own": (
        ["bench", "--config", "a", "--model-name", "a"],
        "--model-name: unknown flag; did you mean --model?",
    ),
    "flag-like-no-other": (
        ["serve", "--zzz"],
        "--zzz: unknown flag; all that there are stand in `ringbatch serve --help`",
    ),
    # "--outputs" is alike by its dashes alone.
    "flag-alike-by-its-dashes": (
        ["serve", "--bogus"],
        "--bogus: unknown flag; all that there are stand in `ringbatch serve --help`",
    ),
    "one-word-too-many": (["demo", "x"], "x: nothing more is expected; `ringbatch demo --help`"),
    "several-model-files": (["serve", "a.py", "b.py"], "b.py: one MODEL can be served so; for"),
    "no-abbreviations": (["serve", "--max-batch", "1"], "--max-batch"),
    "zero-clients": (["demo", "--clients", "0"], "must be a whole number from 1"),
    "negative-pid": (["status", "--pid", "-1"], "must be a whole number from 1"),
    "no-name": (["status", "a.b"], "must be the name of an engine, 1 to 40 letters, digits,"),
    "process-zero": (["reload", "--engine", "0"], "or a process id"),
    "interval-beyond-all-waits": (["top", "--interval", "1e300"], "above 0, at most 1000000"),
    "limit-beyond-all-waits": (["handover", "--timeout", "1e7"], "above 0, at most 1000000"),
    "run-beyond-all-waits": (["bench", "--duration-s", "inf"], "above 0, at most 1000000"),
    "budget-beyond-all-waits": (["tune", "--budget-s", "1e7"], "above 0, at most 1000000"),
    "no-time": (["top", "--interval", "soon"], "above 0, at most 1000000"),
    "no-limit": (["tune", "--p99-ms", "inf"], 'found "inf", but it must be a number above 0'),
    "two-engines": (["status", "prod", "--pid", "1"], "not allowed with argument"),
}


@pytest.mark.parametrize(("argv", "words"), USAGE.values(), ids=USAGE)
def test_wrong_usage_exits_with_status_2(
    capsys: pytest.CaptureFixture[str], argv: list[str], words: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(argv)
    assert caught.value.code == 2
    assert words in capsys.readouterr().err
