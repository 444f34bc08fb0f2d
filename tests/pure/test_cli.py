"""The command line: which function gets which configuration, and what a mistake is told."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ringbatch.engine import __main__ as entry
from ringbatch.engine.command import cli
from ringbatch.engine.config.definitions import settings
from ringbatch.engine.config.document import (
    BUNDLED_PATH,
    Config,
    ModelConfig,
    ServerConfig,
    bundled,
)
from ringbatch.shm.errors import SegmentNotReady

STATUS = 7

Files = Callable[..., Path]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What the commands call, recorded instead of run."""
    recorded: list[tuple[Any, ...]] = []

    def record(*given: Any) -> int:
        recorded.append(given)
        return STATUS

    for module, function in (
        ("supervisor.run", "run"),
        ("demo.demo", "run"),
        ("report.status", "main"),
        ("command.reload", "main"),
    ):
        stand_in = ModuleType(module)
        setattr(stand_in, function, record)
        monkeypatch.setitem(sys.modules, f"ringbatch.engine.{module}", stand_in)
    return recorded


@pytest.fixture
def well(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that lacks nothing."""
    stand_in = ModuleType("obstacles")
    setattr(stand_in, "obstacles", lambda _config, *, passed: [])  # noqa: B010
    monkeypatch.setitem(sys.modules, "ringbatch.engine.doctor.obstacles", stand_in)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    """Writes ringbatch.toml, and model.py beside it, into the working directory."""
    monkeypatch.chdir(tmp_path)
    for name in ("model.py", "other.py", "a b.py"):
        (tmp_path / name).touch()

    def write(text: str) -> Path:
        path = tmp_path / "ringbatch.toml"
        path.write_text(text)
        return path

    return write


ONE = '[models.mnist]\npath = "model.py"\nmaxBatchSize = 5\n'
TWO = ONE + '[models.other]\npath = "other.py"\n'


def served(calls: list[tuple[Any, ...]], *argv: str) -> Config:
    assert cli.main(["serve", *argv]) == STATUS
    ((config, reread),) = calls
    assert reread() == config
    assert isinstance(config, Config)
    return config


def refusal(calls: list[tuple[Any, ...]], capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert cli.main(["serve", *argv]) == 2
    assert calls == []
    captured = capsys.readouterr()
    assert captured.out == ""
    assert all(line.startswith("ringbatch: ") for line in captured.err.splitlines())
    return captured.err.removesuffix("\n").replace("ringbatch: ", "")


def test_serve_alone_serves_the_bundled_model(calls: list[tuple[Any, ...]]) -> None:
    assert served(calls) == bundled()


def test_flags_apply_to_the_bundled_model(calls: list[tuple[Any, ...]]) -> None:
    config = served(calls, "--name", "d", "--policy", "fixed", "--port", "0")
    assert config.models == (
        ModelConfig(name="d", runtime="python", path=BUNDLED_PATH, policy="fixed"),
    )
    assert config.server == ServerConfig(port=0)


def test_a_model_is_called_by_the_name_of_its_file(
    calls: list[tuple[Any, ...]], files: Files, tmp_path: Path
) -> None:
    config = served(calls, "model.py")
    path = tmp_path.resolve() / "model.py"
    assert config.models == (ModelConfig(name="model", runtime="python", path=path),)


@pytest.mark.parametrize("model", [".", "../minilm/", "onnx/.."])
def test_a_model_is_called_by_the_name_of_its_folder(
    calls: list[tuple[Any, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    (tmp_path / "minilm/onnx").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "minilm")
    (only,) = served(calls, model).models
    assert (only.name, only.path) == ("minilm", tmp_path / "minilm")


def test_name_wins_over_the_name_of_the_file(calls: list[tuple[Any, ...]], files: Files) -> None:
    assert [m.name for m in served(calls, "model.py", "--name", "mnist").models] == ["mnist"]


def test_every_key_has_a_flag(calls: list[tuple[Any, ...]], files: Files, tmp_path: Path) -> None:
    config = served(
        calls,
        "model.py",
        *("--host", "::1"),
        *("--port", "9000"),
        *("--frontends", "3"),
        *("--max-request-bytes", "1000"),
        *("--max-in-flight", "16"),
        *("--lane-bytes", "8192"),
        *("--shared-memory-prefixes", "/app_"),
        *("--shared-memory-prefixes", "b"),
        *("--drain-s", "2.5"),
        *("--log-level", "warning"),
        *("--max-batch-size", "7"),
        *("--max-latency-ms", "0.5"),
        *("--timeout-s", "9"),
        *("--policy", "fixed"),
        *("--workers", "2"),
        *("--threads", "4"),
        *("--runtime", "sklearn"),
        *("--trusted-types", "a.B"),
        *("--trusted-types", "a.b.C"),
        "--trust-pickle",
        "--kserve-errors",
    )
    assert config.server == ServerConfig(
        host="::1",
        port=9000,
        frontends=3,
        max_request_bytes=1000,
        max_in_flight=16,
        lane_bytes=8192,
        shared_memory_prefixes=("/app_", "b"),
        drain_s=2.5,
        log_level="warning",
    )
    assert config.models == (
        ModelConfig(
            name="model",
            runtime="sklearn",
            path=tmp_path.resolve() / "model.py",
            max_batch_size=7,
            max_latency_ms=0.5,
            timeout_s=9,
            policy="fixed",
            workers=2,
            threads=4,
            trusted_types=("a.B", "a.b.C"),
            trust_pickle=True,
            kserve_errors=True,
        ),
    )


def test_a_runtime_by_flag_wins_over_the_ending(calls: list[tuple[Any, ...]], files: Files) -> None:
    (model,) = served(calls, "model.py", "--runtime", "onnx", "--device", "cuda:3").models
    assert (model.platform, model.device) == ("onnx", "cuda:3")


def test_flags_win_over_the_file(calls: list[tuple[Any, ...]], files: Files) -> None:
    path = files("[server]\nport = 9000\nfrontends = 4\n" + ONE + "kserve_errors = true\n")
    argv = ("--port", "0", "--max-batch-size", "6", "--no-kserve-errors")
    config = served(calls, "--config", str(path), *argv)
    assert (config.server.port, config.server.frontends) == (0, 4)
    assert (config.models[0].max_batch_size, config.models[0].kserve_errors) == (6, False)


VERSIONS = """
[models.m]
path = "model.py"
workers = 2
[models.m.versions.1]
maxBatchSize = 5
workers = 3
[models.m.versions.2]
max_batch_size = 6
"""


def test_flags_win_over_the_sections_of_versions(
    calls: list[tuple[Any, ...]], files: Files
) -> None:
    config = served(calls, "--config", str(files(VERSIONS)), "--max-batch-size", "9")
    assert [(m.max_batch_size, m.workers) for m in config.models] == [(9, 3), (9, 2)]


def test_model_is_that_of_all_versions_that_have_no_path(
    calls: list[tuple[Any, ...]], files: Files
) -> None:
    config = served(calls, "other.py", "--config", str(files(VERSIONS)))
    assert [Path(m.path).name for m in config.models] == ["other.py"] * 2


def test_the_file_alone_is_served_as_it_is(calls: list[tuple[Any, ...]], files: Files) -> None:
    config = served(calls, "--config", str(files(TWO)))
    assert [(m.name, m.max_batch_size) for m in config.models] == [("mnist", 5), ("other", 32)]


def test_name_says_which_model_the_flags_are_for(
    calls: list[tuple[Any, ...]], files: Files
) -> None:
    config = served(calls, "--config", str(files(TWO)), "--name", "other", "--workers", "3")
    assert [m.workers for m in config.models] == [1, 3]


@pytest.mark.parametrize(("text", "workers"), [("3", 3), ("1-8", (1, 8)), ("0-2", (0, 2))])
def test_workers_are_a_number_or_a_range(
    calls: list[tuple[Any, ...]], files: Files, text: str, workers: int | tuple[int, int]
) -> None:
    config = served(calls, "--config", str(files(ONE)), "--workers", text)
    assert config.models[0].workers == workers


def test_model_replaces_the_path_of_the_only_model(
    calls: list[tuple[Any, ...]], files: Files, tmp_path: Path
) -> None:
    config = served(calls, "other.py", "--config", str(files(ONE)))
    assert [(m.name, Path(m.path).name) for m in config.models] == [("mnist", "other.py")]


def test_model_starts_at_the_working_directory_and_not_beside_the_file(
    calls: list[tuple[Any, ...]], files: Files, tmp_path: Path
) -> None:
    (tmp_path / "etc").mkdir()
    path = files(ONE).rename(tmp_path / "etc" / "ringbatch.toml")
    config = served(calls, "model.py", "--config", str(path))
    assert config.models[0].path == tmp_path.resolve() / "model.py"


def test_files_of_the_server_named_by_flags_start_at_the_working_directory(
    calls: list[tuple[Any, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "keys").write_text("")
    (tmp_path / "sub" / "model.py").write_text("")
    (tmp_path / "sub" / "c.toml").write_text('[models.m]\npath = "model.py"\n')
    monkeypatch.chdir(tmp_path)
    config = served(calls, "--config", "sub/c.toml", "--api-keys-file", "keys")
    assert config.server.api_keys_file == tmp_path / "keys"


def test_model_of_a_new_name_is_served_beside_those_of_the_file(
    calls: list[tuple[Any, ...]], files: Files
) -> None:
    config = served(calls, "model.py", "--name", "new", "--config", str(files(TWO)))
    assert [m.name for m in config.models] == ["mnist", "other", "new"]


def test_model_with_a_file_that_sets_the_server_only(
    calls: list[tuple[Any, ...]], files: Files
) -> None:
    config = served(calls, "model.py", "--config", str(files("[server]\nport = 1\n")))
    assert (config.server.port, config.models[0].name) == (1, "model")


ENDINGS = (
    "but it must be a file whose ending says what runs it, .py (python), .onnx (onnx), .skops or "
    ".pkl or .joblib (sklearn), .ubj or .json (xgboost), .txt (lightgbm), .cbm (catboost), "
    ".xml (openvino), .pt2 or .pt or .pth or .ts (torch), or a directory with a tokenizer.json "
    "(text); runtime says what runs a file of another ending, and a model.py can serve whatever "
    "Python can load"
)

REFUSED: dict[str, tuple[str | None, list[str], str]] = {
    "url": (
        None,
        ["ftp://localhost:9000/v1"],
        'MODEL: found "ftp://localhost:9000/v1", but it must be the path of a model file, or the '
        "address of a model server, http://HOST:PORT or "
        "https://HOST:PORT, or a list of addresses",
    ),
    "h5": (None, ["sub/m.h5"], f'MODEL: found "sub/m.h5", {ENDINGS}'),
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
        "1 to 128 letters of ASCII, digits, dots, dashes or underscores, and not . or ..",
    ),
    "name-unfit": (
        None,
        ["model.py", "--name", "a/b"],
        '--name: found "a/b", but a model\'s name must be 1 to 128 letters of ASCII, digits, '
        "dots, dashes or underscores, and not . or ..",
    ),
    "name-of-bundled-unfit": (
        None,
        ["--name", ""],
        '--name: found "", but a model\'s name must be 1 to 128 letters of ASCII, digits, '
        "dots, dashes or underscores, and not . or ..",
    ),
    "several-flags-at-once": (
        None,
        ["--port", "x", "--workers", "0", "--policy", "lazy", "--drain-s", "nan"],
        '--port: found "x", but it must be a whole number from 0 to 65535\n'
        "--drain-s: found nan, but it must be a number from 0 to 86400\n"
        '--policy: found "lazy", but it must be "eager" or "fixed"\n'
        "--workers: found 0, but it must be a whole number from 1 to 64, "
        "or the fewest and the most, such as [1, 8] or [0, 8]",
    ),
    "relation-with-a-default": (
        None,
        ["--max-latency-ms", "70000"],
        "--max-latency-ms: found 70000 ms, but it must be at most timeout_s, which is 60 s by "
        "default",
    ),
    "file-and-flag-wrong": (
        "[server]\nport = -1\n" + ONE,
        ["--workers", "0"],
        "{config}: [server] port: found -1, but it must be a whole number from 0 to 65535\n"
        "--workers: found 0, but it must be a whole number from 1 to 64, "
        "or the fewest and the most, such as [1, 8] or [0, 8]",
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
        "most, such as [1, 8] or [0, 8]",
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
    """A working directory that is gone."""
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


@pytest.mark.parametrize(
    ("argv", "given"),
    [
        (["demo"], (2000, 64)),
        (["demo", "--requests", "10", "--clients", "3"], (10, 3)),
        (["status"], (None,)),
        (["status", "--pid", "4711"], (4711,)),
        (["status", "4711"], (4711,)),
        (["status", "prod"], ("prod",)),
        (["status", "--engine", "prod"], ("prod",)),
        (["status", "--engine", "4711"], (4711,)),
    ],
)
def test_demo_and_status_are_handed_what_was_said(
    calls: list[tuple[Any, ...]], argv: list[str], given: tuple[int | str | None, ...]
) -> None:
    assert cli.main(argv) == STATUS
    assert calls == [given]


USAGE = {
    "no-command": ([], "COMMAND"),
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
    "flag-in-the-spelling-of-the-file": (
        ["serve", "--max_batch_size", "4"],
        "--max_batch_size: unknown flag; did you mean --max-batch-size?",
    ),
    "flag-of-another-server": (
        ["serve", "--max-wait-time", "4"],
        "--max-wait-time: unknown flag; what other servers call so is here max_latency_ms",
    ),
    "flag-like-no-other": (
        ["serve", "--zzz"],
        "--zzz: unknown flag; all that there are stand in `ringbatch serve --help`",
    ),
    "one-word-too-many": (["demo", "x"], "x: nothing more is expected; `ringbatch demo --help`"),
    "several-model-files": (["serve", "a.py", "b.py"], "b.py: one MODEL can be served so; for"),
    "no-abbreviations": (["serve", "--max-batch", "1"], "--max-batch"),
    "zero-clients": (["demo", "--clients", "0"], "must be a whole number from 1"),
    "negative-pid": (["status", "--pid", "-1"], "must be a whole number from 1"),
    "no-name": (["status", "a.b"], "must be the name of an engine, 1 to 40 letters, digits,"),
    "process-zero": (["reload", "--engine", "0"], "or a process id"),
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


def test_check_wants_to_know_of_what(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check"]) == 2
    assert "--config FILE or a MODEL" in capsys.readouterr().err


@pytest.mark.usefixtures("well")
def test_check_takes_a_model_and_flags_as_serve_does(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    model = tmp_path / "mine.py"
    model.write_text("def predict(x): return x\n")
    assert cli.main(["check", str(model), "--max-batch-size", "7"]) == 0
    told = capsys.readouterr().out
    assert "[models.mine]\n" in told
    assert "max_batch_size = 7\n" in told


@pytest.mark.usefixtures("well")
def test_check_prints_the_configuration(capsys: pytest.CaptureFixture[str], files: Files) -> None:
    assert cli.main(["check", "--config", str(files(ONE))]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert "[models.mnist]\n" in captured.out
    assert "max_batch_size = 5\n" in captured.out
    assert "port = 8080\n" in captured.out


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
def test_nothing_is_said_where_the_wait_has_effect_or_is_not_set(
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


def help_of(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    with pytest.raises(SystemExit) as caught:
        cli.main([*argv, "--help"])
    assert caught.value.code == 0
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("section", [ServerConfig, ModelConfig])
def test_help_of_serve_names_every_flag_with_its_default(
    capsys: pytest.CaptureFixture[str], section: type[ServerConfig] | type[ModelConfig]
) -> None:
    text = help_of(capsys, "serve")
    for key, setting in settings(section).items():
        if key == "path":
            continue
        assert f"--{key.replace('_', '-')} " in text or f"--{key.replace('_', '-')}," in text
        if setting.default not in (None, ()) and not isinstance(setting.default, bool):
            assert f"{setting.sentence} (default: {in_help(setting.default)})" in text


def in_help(default: Any) -> str:
    if isinstance(default, tuple):
        return ", ".join(default)
    return f"{default:g}" if isinstance(default, float) else str(default)


@pytest.mark.parametrize("command", ["serve", "demo", "check", "status"])
def test_help_lists_every_command(capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert re.search(rf"\b{command} [a-z]+ ", help_of(capsys))
    assert help_of(capsys, command).startswith(f"usage: ringbatch {command} ")


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["--version"])
    assert caught.value.code == 0
    assert re.fullmatch(r"ringbatch (\d+\.\d+\.\d+.*|\(not installed\))\n", capsys.readouterr().out)


def test_the_console_script_runs_the_same_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "main", lambda: STATUS)
    assert entry.main() == STATUS


def test_the_module_runs_as_a_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ringbatch.engine", "serve", "none.onnx", "--port", "x"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert [line.split(":")[1] for line in done.stderr.splitlines()] == [" --port", " MODEL"]


def test_nothing_heavy_is_loaded_before_the_configuration_is_checked() -> None:
    """Threads of math libraries are set by the environment, so numpy must not be loaded yet."""
    program = (
        "import sys; from ringbatch.engine.command import cli; "
        "from ringbatch.engine.config import document; "
        "from ringbatch.engine.process import placement, respawn; "
        "print(sorted({'numpy', 'uvloop', 'falcon', 'posix_ipc'} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_reload_names_a_model_and_an_engine(calls: list[tuple[Any, ...]]) -> None:
    assert cli.main(["reload"]) == STATUS
    assert cli.main(["reload", "mnist", "--pid", "7"]) == STATUS
    assert cli.main(["reload", "mnist", "--engine", "prod"]) == STATUS
    assert cli.main(["reload", "--engine", "prod"]) == STATUS
    assert calls == [(None, None), (7, "mnist"), ("prod", "mnist"), ("prod", None)]


def test_an_engine_is_called_as_its_file_unless_it_is_said(files: Files) -> None:
    file = files(ONE)
    named = file.with_name("my.models.toml")
    named.write_text(f'[server]\nname = "prod"\n{file.read_text()}')
    file = file.rename(file.with_name("4.7.toml"))
    for argv, name in (
        (["serve"], "ringbatch"),
        (["serve", "--engine-name", "demo"], "demo"),
        (["serve", "--name", "mnist"], "ringbatch"),
        (["serve", "--config", str(file)], "ringbatch-4-7"),
        (["serve", "--config", str(file), "--engine-name", "demo"], "demo"),
        (["serve", "--config", str(named)], "prod"),
        (["serve", "--config", str(named), "--engine-name", "demo"], "demo"),
    ):
        assert cli.configure(cli._parser().parse_args(argv)).server.name == name


def test_a_name_that_no_engine_can_have_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["serve", "--engine-name", "4711"]) == 2
    assert capsys.readouterr().err == (
        'ringbatch: --engine-name: found "4711", but it must be 1 to 40 letters, digits, dashes or '
        "underscores, the first of them a letter\n"
    )


def test_several_addresses_are_one_model(calls: list[tuple[Any, ...]]) -> None:
    assert cli.main(["serve", "http://a:1", "http://b:1", "--name", "m"]) == 7
    (config, _), *_ = calls
    assert [(model.name, model.path) for model in config.models] == [("m", "http://a:1 http://b:1")]
