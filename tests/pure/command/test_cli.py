"""The command line: which function gets which configuration, and what it prints of itself."""

import errno
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_harness import ONE, STATUS, TWO, VERSIONS, Files, served

from ringbatch import __main__ as script
from ringbatch.engine import __main__ as entry
from ringbatch.engine.command import cli
from ringbatch.engine.command.flags import configure
from ringbatch.engine.command.setting_spelling import ALL_FLAGS, in_flags
from ringbatch.engine.config.definitions import settings
from ringbatch.engine.config.document import (
    BUNDLED_PATH,
    ModelConfig,
    ServerConfig,
    bundled,
)


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
def test_demo_and_status_get_their_arguments(
    calls: list[tuple[Any, ...]], argv: list[str], given: tuple[int | str | None, ...]
) -> None:
    assert cli.main(argv) == STATUS
    assert calls == [given]


def help_of(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    return " ".join(lines_of_help(capsys, *argv).split())


def lines_of_help(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    with pytest.raises(SystemExit) as caught:
        cli.main([*argv, "--help"])
    assert caught.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("section", [ServerConfig, ModelConfig])
def test_help_of_serve_names_every_flag_with_its_default(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    section: type[ServerConfig] | type[ModelConfig],
) -> None:
    # A narrow terminal breaks long words.
    monkeypatch.setenv("COLUMNS", "80")
    text = help_of(capsys, "serve")
    for key, setting in settings(section).items():
        if key == "path":
            continue
        assert f"--{key.replace('_', '-')} " in text or f"--{key.replace('_', '-')}," in text
        if setting.default not in (None, ()) and not isinstance(setting.default, bool):
            about = in_flags(setting.sentence, ALL_FLAGS, about=key)
            assert f"{about} (default: {in_help(setting.default)})" in text


@pytest.mark.parametrize("columns", [60, 80, 100, 120])
@pytest.mark.parametrize("command", ["serve", "check", "bench", "tune", "sidecar"])
def test_help_breaks_no_flag_at_a_hyphen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    broken = [line for line in lines_of_help(capsys, command).splitlines() if line.endswith("-")]
    assert not broken


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
    for main in (script.main, entry.main):
        assert main() == STATUS


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
    assert cli.main(["reload", "prod"]) == STATUS
    assert cli.main(["reload", "--model", "mnist", "--pid", "7"]) == STATUS
    assert cli.main(["reload", "mnist", "--engine", "prod"]) == STATUS
    assert calls == [
        (None, None, None),
        (None, "prod", None),
        (7, None, "mnist"),
        ("prod", "mnist", None),
    ]


def test_an_engine_has_the_name_of_its_file_unless_another_is_given(files: Files) -> None:
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
        assert configure(cli._parser().parse_args(argv)).server.name == name


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


def test_handover_says_that_it_stays(
    calls: list[tuple[Any, ...]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["handover", "--engine", "prod"]) == STATUS
    assert capsys.readouterr().err == (
        "ringbatch: starting an engine in the place of prod; once it serves, this command is that "
        "engine, and stays in the foreground until it is stopped\n"
    )
    assert len(calls) == 1
    assert "stays in the foreground" in help_of(capsys, "handover")


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_a_command_without_descriptors_ends_in_words(
    number: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_arguments: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(cli, "_demo", refuse)
    assert cli.main(["demo"]) == 2
    words = capsys.readouterr().err
    assert words.startswith(f"ringbatch: {os.strerror(number)}: this process may have ")
    assert "raise the limit (ulimit -n, LimitNOFILE=)" in words


def test_another_error_of_the_system_is_no_shortage(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_arguments: Any) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(cli, "_demo", refuse)
    with pytest.raises(OSError, match="broken"):
        cli.main(["demo"])
