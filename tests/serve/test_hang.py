"""Workers that stop without dying: found, ended, replaced, and their requests answered."""

import os
import signal
from collections.abc import Callable
from typing import Any

from serve.client import Connection, fast, instances
from serve.load import CLIENTS, Load
from serve.server import Server, Start

WaitUntil = Callable[..., Any]
LIMIT_S = 1.5
"""How long a batch may run in these tests."""


def replaced(server: Server, role: str, pid: int) -> bool:
    """Whether another process has that role now."""
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
    assert "hangs and is ended" in server.stderr
    # What faulthandler wrote: the line of the model that never came back.
    assert 'nap.py", line 8 in predict' in server.stderr


def test_a_worker_that_is_stopped_under_load_fails_no_request(
    start: Start, wait_until: WaitUntil
) -> None:
    server = start({"echo": {"path": "moody.py", "batch_timeout_s": LIMIT_S}})
    load = Load(server)
    wait_until(lambda: load.answered > 20 * CLIENTS, "the load is under way")
    stopped = server.role("worker echo/0")
    # It cannot even write down where it stands.
    os.kill(stopped, signal.SIGSTOP)
    wait_until(lambda: replaced(server, "worker echo/0", stopped), "another worker is there")
    wanted = load.answered + 50 * CLIENTS
    wait_until(lambda: load.answered >= wanted or load.failures, "more requests are answered")
    load.stop()
    assert (load.failures, load.retried) == ([], 0)
    assert server.status().collector["worker_deaths"] == 1
