"""Processes that stop without dying: found, ended, replaced, and their requests answered."""

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
from serve.client import Connection, fast, instances
from serve.grpc_stub import Stub, grpc_port
from serve.load import CLIENTS, Load
from serve.server import Server, Start
from tiers import exhaustive

WaitUntil = Callable[..., Any]
LIMIT_S = 1.5
"""Limit of a batch's run in these tests, in seconds."""


def replaced(server: Server, role: str, pid: int) -> bool:
    """Return whether another process has that role now."""
    return server.titles().get(f"ringbatch: {role}", pid) != pid


def test_a_request_that_hangs_fails_alone_and_the_log_says_where_it_stood(
    start: Start, wait_until: WaitUntil
) -> None:
    server = start(
        {
            "nap": {
                "path": "nap.py",
                "batch_timeout_s": LIMIT_S,
                "policy": "fixed",
                "max_batch_size": 2,
                "max_latency_ms": 50_000,
            }
        }
    )
    with Connection(server.port) as hanging, Connection(server.port) as innocent:
        hanging.send(fast("nap", instances({"nap_s": 1000})))
        innocent.send(fast("nap", instances({"nap_s": 0})))
        assert innocent.receive().json["predictions"] == [{"nap_s": 0}]
        answer = hanging.receive()
        assert answer.status == 503
        assert "died" in answer.error
    assert server.status().collector["workers_hung"] == 2
    ended = f"hangs and is ended: a batch ran longer than batch_timeout_s = {LIMIT_S}\n"
    assert ended in server.stderr
    # What faulthandler wrote: the line of the model that never came back.
    assert 'nap.py", line 8 in predict' in server.stderr


@exhaustive
def test_a_worker_that_is_stopped_under_load_fails_no_request(
    start: Start, wait_until: WaitUntil
) -> None:
    server = start({"echo": {"path": "moody.py", "batch_timeout_s": LIMIT_S}})
    load = Load(server)
    wait_until(lambda: load.answered > 20 * CLIENTS, "the load is under way")
    stopped = server.role("worker echo/0")
    os.kill(stopped, signal.SIGSTOP)
    wait_until(lambda: replaced(server, "worker echo/0", stopped), "another worker is there")
    wanted = load.answered + 50 * CLIENTS
    wait_until(lambda: load.answered >= wanted or load.failures, "more requests are answered")
    load.stop()
    assert (load.failures, load.retried) == ([], 0)
    assert server.status().collector["worker_deaths"] == 1


@exhaustive
def test_a_collector_that_is_stopped_under_load_fails_no_request(
    start: Start, wait_until: WaitUntil
) -> None:
    server = start({"echo": {"path": "moody.py"}})
    load = Load(server)
    wait_until(lambda: load.answered > 20 * CLIENTS, "the load is under way")
    stopped = server.role("collector")
    os.kill(stopped, signal.SIGSTOP)
    wait_until(lambda: replaced(server, "collector", stopped), "another collector is there")
    wanted = load.answered + 50 * CLIENTS
    wait_until(lambda: load.answered >= wanted or load.failures, "more requests are answered")
    load.stop()
    assert (load.failures, load.retried) == ([], 0)
    assert f"collector [{stopped}] hangs and is ended" in server.stderr
    # faulthandler's dump of a process that cannot move before SIGCONT.
    assert "in turn" in server.stderr


@exhaustive
@pytest.mark.parametrize("role", ["control", "grpc frontend 0"])
def test_a_process_that_is_stopped_is_replaced_though_nobody_asks_it_for_anything(
    start: Start, wait_until: WaitUntil, role: str
) -> None:
    server = start({"echo": {"path": "moody.py"}}, grpc_port=0, control_port=0)
    stopped = server.role(role)
    others = {title: pid for title, pid in server.titles().items() if pid != stopped}
    os.kill(stopped, signal.SIGSTOP)
    wait_until(lambda: replaced(server, role, stopped), "another process is there")
    with Stub(grpc_port(server)) as stub:
        assert stub.health().response.status == 1
    assert f"{role} [{stopped}] hangs and is ended" in server.stderr
    assert server.stderr.count("hangs and is ended") == 1
    assert others.items() <= server.titles().items()


@exhaustive
def test_where_the_supervisor_is_stopped_it_condemns_nobody_for_it(
    start: Start, wait_until: WaitUntil
) -> None:
    server = start({"echo": {"path": "moody.py"}}, grpc_port=0, control_port=0, hang_timeout_s=1)
    before = server.titles()
    for pids in ([server.pid], sorted(before.values(), key=lambda pid: pid == server.pid)):
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(3)
        # The watching processes go on first.
        for pid in reversed(pids):
            os.kill(pid, signal.SIGCONT)
        steps = server.status().collector["steps"]
        wait_until(
            lambda steps=steps: server.status().collector["steps"] > steps + 4,
            "all have been looked at again",
        )
    assert server.titles() == before
    assert "hangs" not in server.stderr
