"""Readiness: red with the reason when work is not done, and green again by itself."""

import os
import signal
from collections.abc import Callable
from typing import Any

from serve.client import Connection, fast, instances, request
from serve.load import CLIENTS, Load
from serve.server import Server, Start

WaitUntil = Callable[..., Any]
LOOP = 3
"""Deaths in a row that make a crash loop."""


def complaint(server: Server) -> str:
    """Why it is not ready; empty where it is."""
    with Connection(server.port) as connection:
        answer = connection.ask(request("/v2/health/ready", method="GET"))
    return "" if answer.status == 200 else answer.error


def test_a_crash_loop_is_said_and_ends_by_itself(start: Start, wait_until: WaitUntil) -> None:
    server = start({"echo": {"path": "moody.py"}})
    for _ in range(LOOP):
        pid = server.role("worker echo/0")
        os.kill(pid, signal.SIGKILL)
        wait_until(
            lambda pid=pid: server.titles().get("ringbatch: worker echo/0", pid) != pid,
            "another worker is there",
        )
    wait_until(lambda: f"come and go: {LOOP} deaths" in complaint(server), "the loop is said")
    # Whoever asks all the same is served.
    with Connection(server.port) as connection:
        answer = connection.ask(fast("echo", instances("still")))
    assert answer.json["predictions"] == ["still"]
    wait_until(lambda: not complaint(server), "it is ready again")


def test_where_no_batch_is_finished_it_is_not_ready_until_one_is(
    start: Start, wait_until: WaitUntil
) -> None:
    server = start({"echo": {"path": "moody.py", "batch_timeout_s": 50.0}})
    assert not complaint(server)
    for role, reason in {
        "worker echo/0": "not finished a batch",
        "collector": "nobody has looked for requests",
    }.items():
        pid = server.role(role)
        os.kill(pid, signal.SIGSTOP)
        try:
            with Connection(server.port) as connection:
                connection.send(fast("echo", instances(role)))
                wait_until(lambda reason=reason: reason in complaint(server), f"the {role} is said")
                os.kill(pid, signal.SIGCONT)
                assert connection.receive().json["predictions"] == [role]
        finally:
            os.kill(pid, signal.SIGCONT)
        wait_until(lambda: not complaint(server), "it is ready again")


def test_frontends_that_are_replaced_on_sighup_lose_no_request(
    start: Start, wait_until: WaitUntil
) -> None:
    """Gunicorn starts new ones, and ends the old ones as a stop does."""
    server = start({"echo": {"path": "moody.py"}}, frontends=2)

    def frontends() -> set[int]:
        titles = server.titles().items()
        return {pid for title, pid in titles if title.startswith("ringbatch: frontend ")}

    load = Load(server)
    wait_until(lambda: load.answered > 20 * CLIENTS, "the load is under way")
    for _ in range(2):
        before = frontends()
        os.kill(server.role("frontends"), signal.SIGHUP)
        wait_until(
            lambda before=before: len(now := frontends()) == 2 and not now & before,
            "all frontends are others",
        )
        wanted = load.answered + 20 * CLIENTS
        wait_until(lambda wanted=wanted: load.answered >= wanted or load.failures, "they answer")
    load.stop()
    assert load.failures == []
    assert load.refused == 0
