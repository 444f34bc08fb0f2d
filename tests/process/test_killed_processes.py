"""Killed and stopped processes of an engine: their successors, and the answers to requests."""

import json
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
import supervised_server
from start_times import start_time_of
from supervised_server import (
    DOUBLE,
    HELD,
    Asking,
    Server,
    Start,
    WaitUntil,
    WriteModel,
    in_engine,
)
from tiers import exhaustive

from ringbatch.engine.report.status import snapshot
from ringbatch.shm.shm_objects import DIRECTORY

APART = f"ringbatch-{os.getpid()}"
SERVES_APART = f"""
import sys
from ringbatch.shm import shm_objects as objects
objects.PREFIX = {APART!r}
from ringbatch.engine.__main__ import main
sys.exit(main())
"""
"""The command, with names in /dev/shm that no other engine's start sweeps up."""

launch, start = supervised_server.launch, supervised_server.start


def runs(server: Server, pid: int) -> bool:
    """Return whether the very process that was seen under that id still runs."""
    return start_time_of(pid) == server.seen[pid]


def stopped_now(pid: int) -> bool:
    """Return whether all threads of a process are stopped.

    One of them takes the signal and stops the others.
    """
    states = []
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # this thread has ended
            states.append(stat.read_text().rpartition(")")[2].split()[0])
    return bool(states) and set(states) == {"T"}


def test_a_worker_killed_in_mid_batch_is_replaced_and_its_requests_are_answered(
    start: Start, tmp_model: WriteModel, wait_until: WaitUntil, tmp_path: Path
) -> None:
    server = start(str(tmp_model(HELD)))
    asking = Asking(server, 5)
    running = tmp_path / "running"
    wait_until(lambda: running.exists() and running.read_text(), "a batch runs")
    wait_until(lambda: in_engine(server) == 5, "all requests are in the engine")
    killed = server.role("worker model/0")
    assert int(running.read_text()) == killed
    os.kill(killed, signal.SIGKILL)
    (tmp_path / "go").touch()
    assert asking.join() == [(200, [number + 1000]) for number in range(5)]
    assert server.role("worker model/0") != killed
    assert "worker model/0" in server.stderr
    assert "was killed by SIGKILL" in server.stderr
    status = snapshot(server.pid)
    assert status.collector["worker_deaths"] == 1
    assert status.models["model"].retried >= 1


def test_a_request_that_kills_every_worker_fails_alone_and_in_words(
    start: Start, tmp_model: WriteModel
) -> None:
    server = start(
        str(
            tmp_model(
                """
                import os
                def predict(instances):
                    if "kill" in instances:
                        os._exit(9)
                    return instances
                """
            )
        )
    )
    status, answer = server.post("/v1/models/model:predict", {"instances": ["kill"]})
    assert status >= 500
    assert "died" in json.dumps(answer)
    assert snapshot(server.pid).collector["worker_deaths"] == 2


@exhaustive
def test_a_killed_collector_is_replaced_and_every_request_is_answered(
    start: Start, tmp_model: WriteModel, wait_until: WaitUntil, tmp_path: Path
) -> None:
    server = start(str(tmp_model(HELD)))
    asking = Asking(server, 8)
    wait_until((tmp_path / "running").exists, "a batch runs")
    wait_until(lambda: in_engine(server) == 8, "all requests are in the engine")
    worker = server.role("worker model/0")
    for _ in range(3):
        wait_until(lambda: {"collector", "standby"} <= server.roles().keys(), "both are there")
        killed = server.role("collector")
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda pid=killed: not runs(server, pid), "it has ended")
    (tmp_path / "go").touch()
    assert asking.join() == [(200, [number + 1000]) for number in range(8)]
    assert server.predict(7) == (200, [1007])
    assert server.role("worker model/0") == worker, "nothing is loaded again"
    assert snapshot(server.pid).models["model"].retried == 0


@exhaustive
def test_the_deaths_of_collector_and_worker_at_once_cost_nobody_an_answer(
    start: Start, tmp_model: WriteModel, wait_until: WaitUntil, tmp_path: Path
) -> None:
    server = start(str(tmp_model(HELD)))
    asking = Asking(server, 8)
    wait_until((tmp_path / "running").exists, "a batch runs")
    wait_until(lambda: in_engine(server) == 8, "all requests are in the engine")
    # Stopped, the supervisor hears of both deaths only when there is another collector.
    os.kill(server.pid, signal.SIGSTOP)
    killed = [server.role(title) for title in ("collector", "worker model/0")]
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    wait_until(
        lambda: server.roles().get("collector", killed[0]) != killed[0],
        "whoever stood by is the collector",
    )
    os.kill(server.pid, signal.SIGCONT)
    (tmp_path / "go").touch()
    assert asking.join() == [(200, [number + 1000]) for number in range(8)]


@exhaustive
def test_a_collector_that_is_stopped_is_not_joined_by_a_second_one(
    start: Start, tmp_model: WriteModel, wait_until: WaitUntil
) -> None:
    server = start(str(tmp_model(DOUBLE)))
    wait_until(lambda: "standby" in server.roles(), "another collector stands by")
    stopped, waits = server.role("collector"), server.role("standby")
    os.kill(stopped, signal.SIGSTOP)
    wait_until(lambda: stopped_now(stopped), "it is stopped")
    assert server.role("standby") == waits
    os.kill(stopped, signal.SIGKILL)
    wait_until(lambda: server.roles().get("collector") == waits, "its turn")
    assert server.predict([1, 2]) == (200, [[2.0, 4.0]])


def test_after_kill_9_of_the_supervisor_no_process_and_no_name_is_left(
    start: Start, tmp_model: WriteModel, wait_until: WaitUntil
) -> None:
    server = start(str(tmp_model(DOUBLE)))
    wait_until(lambda: "standby" in server.roles(), "all are there, another collector stands by")
    os.kill(server.pid, signal.SIGKILL)
    server.process.wait()
    wait_until(server.gone, "everything is gone")


@exhaustive
def test_after_kill_9_in_the_worst_order_the_next_start_sweeps_and_serves(
    start: Start, tmp_model: WriteModel, wait_until: WaitUntil
) -> None:
    """The collector cleans up behind a dead supervisor, or the standby; but both may be killed.

    It is the supervisor that is stopped meanwhile. Stopped collectors would go on for a moment as
    it dies: the kernel continues the members of process groups that become orphans.
    """
    model = str(tmp_model(DOUBLE))
    apart = ("-c", SERVES_APART)
    old = start(model, program=apart)
    wait_until(lambda: "standby" in old.roles(), "another collector stands by")
    collectors = [old.role(title) for title in ("collector", "standby")]
    os.kill(old.pid, signal.SIGSTOP)
    wait_until(lambda: stopped_now(old.pid), "it is stopped")
    for pid in collectors:
        os.kill(pid, signal.SIGKILL)
    os.kill(old.pid, signal.SIGKILL)
    old.process.wait()
    alive = [pid for pid in old.seen if pid != old.pid]
    wait_until(
        lambda: not any(start_time_of(pid) == old.seen[pid] for pid in alive), "all have ended"
    )
    assert old.names()
    new = start(model, port=old.port, program=apart)
    assert old.names() == []
    assert new.predict([1, 2]) == (200, [[2.0, 4.0]])


def remove_all(paths: Sequence[Path]) -> None:
    for path in paths:
        path.unlink()


def replace_segment(paths: Sequence[Path]) -> None:
    segment = min(paths, key=lambda path: (path.name.startswith("sem."), path.name))
    segment.rename(segment.with_name("ringbatch-renamed"))
    segment.touch(mode=0o600)
    segment.with_name("ringbatch-renamed").unlink()


def remove_one_doorbell(paths: Sequence[Path]) -> None:
    next(path for path in paths if path.name.endswith(".l0")).unlink()


@exhaustive
@pytest.mark.parametrize("remove", [remove_all, replace_segment, remove_one_doorbell])
def test_an_engine_without_its_segments_name_answers_its_requests_and_ends_in_words(
    start: Start,
    tmp_model: WriteModel,
    wait_until: WaitUntil,
    tmp_path: Path,
    remove: Callable[[Sequence[Path]], None],
) -> None:
    model = tmp_model(HELD)
    server = start(str(model))
    asking = Asking(server, 4)
    wait_until((tmp_path / "running").exists, "a batch runs")
    wait_until(lambda: in_engine(server) == 4, "all requests are in the engine")
    remove([DIRECTORY / name for name in server.names()])
    wait_until(lambda: "RemoveIPC=no" in server.stderr, "it says what has happened")
    (tmp_path / "go").touch()
    assert asking.join() == [(200, [number + 1000]) for number in range(4)]
    assert server.process.wait() == 1
    assert server.gone()
    assert "Traceback" not in server.stderr
    again = start(str(model), port=server.port)
    assert again.predict(1) == (200, [1001])
