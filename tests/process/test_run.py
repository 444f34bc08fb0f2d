"""Obstacles that keep an engine from starting, before any process is made."""

import resource
from collections.abc import Callable

import pytest

from ringbatch.engine.config.settings import Config, ModelConfig, ServerConfig
from ringbatch.engine.process import placement
from ringbatch.engine.supervisor import run as run_module
from ringbatch.engine.supervisor.handover import OldEngine
from ringbatch.shm.errors import StartupError
from ringbatch.shm.host.descriptors import OTHERS
from ringbatch.shm.host.log_lines import FORM_VARIABLE


def nothing(*_: object) -> None:
    """Stand-in for calls that a test must not make on its own process."""


@pytest.fixture(autouse=True)
def _in_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FORM_VARIABLE, "text")
    for name in ("setproctitle", "log_to_stderr"):
        monkeypatch.setattr(run_module, name, nothing)
    monkeypatch.setattr(placement, "wake_without_preempting", nothing)
    monkeypatch.setattr(run_module, "remove_dead_engines", list)


def test_no_engine_is_replaced_by_one_that_would_take_smaller_requests_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setattr(run_module, "free_bytes", lambda: 14 << 20)
    path = tmp_path_factory.mktemp("models") / "model.py"
    config = Config(server=ServerConfig(), models=(ModelConfig(name="m", path=path),))

    def found() -> OldEngine:
        raise AssertionError("the engine that runs is left alone")

    replaces: Callable[[], OldEngine] = found
    words = r"beside the engine that runs, /dev/shm has 14680064 bytes free, .*max_request_bytes"
    with pytest.raises(StartupError, match=words):
        run_module.run(config, replaces=replaces)


def test_a_start_without_proc_is_refused_in_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setattr(run_module, "_OWN_FILES", str(tmp_path_factory.getbasetemp() / "none"))
    with pytest.raises(StartupError, match=r"there is no /proc, .*mount -t proc"):
        run_module.run(Config(server=ServerConfig(), models=()))


class Started(Exception):
    """The start has come to the step behind the checks of the host."""


@pytest.fixture
def _no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def start() -> None:
        raise Started

    monkeypatch.setattr(placement, "wake_without_preempting", start)


@pytest.mark.usefixtures("_no_more")
@pytest.mark.parametrize("hard", [64, OTHERS])
def test_a_start_with_files_for_no_connection_is_refused(
    hard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (hard, hard))
    server = ServerConfig(max_connections=1000)
    words = rf"at most {hard} open files .* needs {OTHERS} for itself, .*; allow {1000 + OTHERS},"
    with pytest.raises(StartupError, match=words):
        run_module.run(Config(server=server, models=()))


@pytest.mark.usefixtures("_no_more")
@pytest.mark.parametrize("hard", [OTHERS + 1, resource.RLIM_INFINITY])
def test_a_start_with_files_for_a_connection_goes_on(
    hard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, hard))
    with pytest.raises(Started):
        run_module.run(Config(server=ServerConfig(), models=()))
