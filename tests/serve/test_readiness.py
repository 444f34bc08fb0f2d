"""Readiness: red with the reason when work is not done, and green again by itself."""

import os
import re
import signal
from collections.abc import Callable
from typing import Any

from serve.client import Connection, fast, instances, request
from serve.grpc_stub import Stub, grpc_port
from serve.load import CLIENTS, Load
from serve.server import Server, Start
from tiers import exhaustive

from ringbatch.frontend.grpc.messages import INFERENCE_SERVICE, SCHEMA

WaitUntil = Callable[..., Any]
LOOP = 3
"""Deaths in a row that make a crash loop."""


def complaint(server: Server) -> str:
    """Return the reason why the server is not ready; empty if it is."""
    with Connection(server.port) as connection:
        answer = connection.ask(request("/v2/health/ready", method="GET"))
    return "" if answer.status == 200 else answer.error


@exhaustive
def test_a_crash_loop_is_shown_and_ends_by_itself(start: Start, wait_until: WaitUntil) -> None:
    server = start({"echo": {"path": "moody.py"}})
    for _ in range(LOOP):
        pid = server.role("worker echo/0")
        os.kill(pid, signal.SIGKILL)
        wait_until(
            lambda pid=pid: server.titles().get("ringbatch: worker echo/0", pid) != pid,
            "another worker is there",
        )
    wait_until(lambda: f"come and go: {LOOP} deaths" in complaint(server), "the loop is said")
    # Requests are served all the same.
    with Connection(server.port) as connection:
        answer = connection.ask(fast("echo", instances("still")))
    assert answer.json["predictions"] == ["still"]
    wait_until(lambda: not complaint(server), "it is ready again")


@exhaustive
def test_where_no_batch_is_finished_it_is_not_ready_until_one_is(
    start: Start, wait_until: WaitUntil
) -> None:
    server = start({"echo": {"path": "moody.py", "batch_timeout_s": 50.0}}, hang_timeout_s=3600)
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


@exhaustive
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
    assert all(re.match(r"\d{4}-\d\d-\d\d .* ringbatch ", line) for line in logged(server))


def logged(server: Server) -> list[str]:
    """Return the lines of the server's log."""
    assert server.stderr
    return server.stderr.splitlines()


def readiness(server: Server, stub: Stub) -> dict[str, bool]:
    """Return whether the server or its model is ready, by each way of asking."""
    serves = re.search(r"serving metrics on http://127\.0\.0\.1:(\d+)", server.stdout)
    assert serves is not None, server.stdout
    paths = ("/v2/health/ready", "/v2/models/echo/ready", "/v1/models/echo")
    found = {}
    with Connection(server.port) as connection:
        for path in paths:
            found[path] = connection.ask(request(path, method="GET")).status == 200
    with Connection(int(serves[1])) as connection:
        ready = connection.ask(request("/v2/health/ready", method="GET"))
        assert (ready.status == 200) is ("why" not in ready.json["models"]["echo"])
        found["control"] = ready.status == 200
        metrics = connection.ask(request("/metrics", method="GET")).body.decode()
        found["metrics"] = 'ringbatch_model_ready{model="echo",version="1"} 1\n' in metrics
    methods = SCHEMA.services[INFERENCE_SERVICE]
    name = methods["ModelReady"].request(name="echo").SerializeToString()
    found["ServerReady"] = stub.start(b"", "ServerReady")().response.ready
    found["ModelReady"] = stub.start(name, "ModelReady")().response.ready
    found["Check"] = stub.health().response.status == 1
    return found


@exhaustive
def test_every_way_of_asking_says_that_nothing_is_answered_and_that_it_is_again(
    start: Start, wait_until: WaitUntil
) -> None:
    ports = {"grpc_port": 0, "control_port": 0}
    server = start({"echo": {"path": "moody.py"}}, **ports, hang_timeout_s=3600)
    pid = server.role("collector")
    with Stub(grpc_port(server)) as stub:
        wait_until(lambda: all(readiness(server, stub).values()), "all say that it is ready")
        os.kill(pid, signal.SIGSTOP)
        # Even though no client waits for an answer.
        wait_until(lambda: not any(readiness(server, stub).values()), "all say that it is not")
        os.kill(pid, signal.SIGCONT)
        wait_until(lambda: all(readiness(server, stub).values()), "all say that it is again")
