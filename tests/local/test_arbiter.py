"""Gunicorn's arbiter: its counts of the frontends that end, and its log."""

import asyncio
import errno
import logging
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from gunicorn.arbiter import Arbiter
from gunicorn.config import Config
from gunicorn.errors import HaltServer
from segment_fixture import local_segment, spec

from ringbatch.frontend.server.arbiter import CountingArbiter, Log, is_killed
from ringbatch.frontend.server.gunicorn_worker import FrontendWorker
from ringbatch.frontend.server.start_delay import MOST_S
from ringbatch.shm.errors import StartupError
from ringbatch.shm.restarts import EndReason, Restarts, Role, restarts_of
from ringbatch.shm.segment import Segment


@pytest.fixture
def segment() -> Segment:
    return local_segment(spec())


@pytest.fixture
def arbiter(segment: Segment, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Arbiter that never ran, and whose frontends are processes of the test."""

    def reap(arbiter: Any) -> None:
        for pid, worker in [*arbiter.WORKERS.items()]:
            if worker.process.poll() is not None:
                arbiter.WORKERS.pop(pid)
                arbiter.count_end(worker)

    monkeypatch.setattr(Arbiter, "__init__", lambda _arbiter, _app: None)
    monkeypatch.setattr(Arbiter, "reap_workers", reap)
    monkeypatch.setattr(Arbiter, "stop", lambda _arbiter, _graceful: None)
    made: Any = CountingArbiter(None, segment)
    made.WORKERS = {}
    yield made
    for worker in made.WORKERS.values():
        worker.process.communicate()


def frontend(arbiter: Any, *, aborted: bool = False) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    worker = SimpleNamespace(process=process, aborted=aborted, started_s=time.monotonic())
    arbiter.WORKERS[process.pid] = worker
    return process


def end(process: "subprocess.Popen[bytes]", number: int | None = None) -> None:
    """End a process by a signal or by itself, and leave it a zombie."""
    assert process.stdin is not None
    if number is None:
        process.stdin.close()
    else:
        process.send_signal(number)
    with open(f"/proc/{process.pid}/stat") as stat:
        while stat.read().rpartition(") ")[2][0] != "Z":
            stat.seek(0)
    process.stdin.close()


@pytest.mark.parametrize(
    ("number", "aborted", "reason"),
    [
        (signal.SIGKILL, False, EndReason.KILLED),
        (signal.SIGSEGV, False, EndReason.CRASHED),
        (None, False, EndReason.CRASHED),
        (signal.SIGABRT, True, EndReason.HUNG),
        (signal.SIGKILL, True, EndReason.HUNG),
    ],
)
def test_a_frontend_is_counted_by_why_it_ended(
    arbiter: Any, segment: Segment, number: int | None, aborted: bool, reason: EndReason
) -> None:
    other = frontend(arbiter)
    end(frontend(arbiter, aborted=aborted), number)
    arbiter.reap_workers()
    arbiter.reap_workers()
    found = {kind: count for kind, count in restarts_of(segment).items() if count}
    assert found == {(Role.FRONTEND, reason): 1}
    assert other.poll() is None


def test_a_frontend_that_ends_with_the_arbiter_is_not_counted(
    arbiter: Any, segment: Segment
) -> None:
    process = frontend(arbiter)
    arbiter.stop()
    end(process, signal.SIGTERM)
    arbiter.reap_workers()
    assert not any(restarts_of(segment).values())


def test_another_that_fails_to_start_ends_the_arbiter_once(
    arbiter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def halt(_arbiter: Any) -> None:
        raise HaltServer("Worker failed to boot.", 3)

    monkeypatch.setattr(Arbiter, "reap_workers", halt)
    with pytest.raises(HaltServer):
        arbiter.reap_workers()
    arbiter.stop()
    arbiter.reap_workers()


def test_frontends_that_end_as_they_start_are_replaced_after_a_delay(
    arbiter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, starts = [100.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(Arbiter, "spawn_workers", lambda _: starts.append(now_s[0]))
    for _ in range(3):
        end(frontend(arbiter))
        arbiter.reap_workers()
        arbiter.spawn_workers()
    assert starts == [100.0]
    now_s[0] += MOST_S
    end(frontend(arbiter), signal.SIGKILL)
    arbiter.reap_workers()
    arbiter.spawn_workers()
    assert starts == [100.0, 100.0 + MOST_S]


def test_a_frontend_that_cannot_start_says_why_in_a_line_and_ends_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def attend(_worker: FrontendWorker) -> None:
        raise StartupError("no thread for the access log")

    monkeypatch.setattr(FrontendWorker, "_attend", attend)
    worker = FrontendWorker.__new__(FrontendWorker)
    worker.log = logging.getLogger("gunicorn.error")
    with pytest.raises(SystemExit) as ended:
        asyncio.run(worker._serve())
    assert caplog.messages == ["a frontend cannot start: no thread for the access log"]
    assert ended.value.code not in (0, Arbiter.WORKER_BOOT_ERROR, Arbiter.APP_LOAD_ERROR)


@pytest.mark.parametrize("others", [0, 1])
def test_a_frontend_that_finds_no_process_is_tried_again_beside_others(
    arbiter: Any, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    now_s, starts = [100.0], []

    def spawn(_arbiter: Any) -> None:
        starts.append(now_s[0])
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    arbiter.log = logging.getLogger("gunicorn.error")
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(Arbiter, "spawn_workers", spawn)
    for _ in range(others):
        frontend(arbiter)
    with nullcontext() if others else pytest.raises(HaltServer, match=r"pids\.max"):
        arbiter.spawn_workers()
        arbiter.spawn_workers()
        now_s[0] += MOST_S
        arbiter.spawn_workers()
    assert starts == [100.0, 100.0 + MOST_S][: 1 + others]


def test_a_process_that_is_gone_counts_as_not_killed(arbiter: Any) -> None:
    process = frontend(arbiter)
    assert not is_killed(process.pid)
    end(process, signal.SIGKILL)
    assert is_killed(process.pid)
    process.wait()
    assert not is_killed(process.pid)


def test_gunicorns_log_says_no_address_and_nothing_below_info(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = Log(Config())
    assert log.error_log.getEffectiveLevel() == logging.getLogger().level
    log.error_log.addHandler(caplog.handler)
    caplog.set_level(logging.INFO)
    log.info("Listening at: %s (%s)", "http://127.0.0.1:8080", 1)
    log.info("Using worker: %s", "one")
    assert caplog.messages == ["Using worker: one"]


def test_restarts_of_supervisor_and_arbiter_are_added_up(segment: Segment) -> None:
    kinds = [(role, reason) for role in Role for reason in EndReason]
    for number, kind in enumerate(kinds):
        for _ in range(number):
            Restarts.of_supervisor(segment).add(*kind)
        Restarts.of_arbiter(segment).add(*kind)
    assert restarts_of(segment) == {kind: number + 1 for number, kind in enumerate(kinds)}
