"""A model that fails every request gets another process; one that gets bad requests does not."""

import re
import time
from collections.abc import Callable
from typing import Any

from serve.client import Connection, Response, fast, instances, request
from serve.figures import figures
from serve.server import Server, Start
from tiers import exhaustive

from ringbatch.engine.worker.failure_detection import ENOUGH, ENOUGH_NS

WaitUntil = Callable[..., Any]
MEMORY_BYTES = 768 << 20


def ask(server: Server, model: str, instance: object) -> Response:
    with Connection(server.port) as connection:
        return connection.ask(fast(model, instances(instance)))


def complaint(server: Server, model: str) -> str:
    """Return the reason why the model is not ready; empty if it is."""
    with Connection(server.port) as connection:
        answer = connection.ask(request(f"/v2/models/{model}/ready", method="GET"))
    return "" if answer.status == 200 else answer.error


def restarts(server: Server, control_port: int, case: str) -> int:
    """Return the number of workers restarted for that reason."""
    with Connection(control_port) as connection:
        text = connection.ask(request("/metrics", method="GET")).body.decode()
    return sum(
        int(sample.value)
        for sample in figures(text)
        if sample.name == "ringbatch_model_worker_restarts_total" and sample.labels["case"] == case
    )


def fail_for_long(server: Server, model: str, instance: object) -> None:
    """Send requests that the model fails, enough of them for it to be found."""
    end = time.monotonic() + 1.5 * ENOUGH_NS / 1e9
    count = 0
    while time.monotonic() < end or count < 2 * ENOUGH:
        assert ask(server, model, instance).status == 500
        count += 1


def test_a_process_whose_every_call_fails_is_replaced_and_only_once(
    start: Start, wait_until: WaitUntil, free_port_factory: Callable[[], int]
) -> None:
    control_port = free_port_factory()
    server = start({"weary": {"path": "weary.py"}}, control_port=control_port)
    first = server.role("worker weary/0")
    assert ask(server, "weary", "break").status == 500
    wait_until(lambda: ask(server, "weary", "work").status == 200, "another process answers")
    second = server.role("worker weary/0")
    assert first != second
    assert restarts(server, control_port, "failing") == 1
    # Another process is no cure for what one client sends.
    fail_for_long(server, "weary", "fail")
    wait_until(lambda: "fail every request" in complaint(server, "weary"), "readiness tells")
    assert "fails every request" in server.status().states[0]
    assert ask(server, "weary", "fail").status == 500
    assert server.role("worker weary/0") == second
    assert ask(server, "weary", "refuse").status == 400
    assert complaint(server, "weary")
    assert ask(server, "weary", "work").status == 200
    assert not complaint(server, "weary")
    assert restarts(server, control_port, "failing") == 1
    delays = re.findall(r"fails every request, .* it is started anew (.*)", server.stderr)
    assert delays[0] == "now"
    assert re.fullmatch(r"in \d\d s", delays[1])
    assert server.stop() == 0


@exhaustive
def test_a_model_whose_memory_has_leaked_away_gets_another_process(
    start: Start, wait_until: WaitUntil
) -> None:
    model = {"path": "leaky.py", "worker_memory_bytes": MEMORY_BYTES}
    server = start({"leaky": model})
    first = server.role("worker leaky/0")
    wait_until(lambda: ask(server, "leaky", 1).status == 500, "no memory is left")

    def answers() -> bool:
        answer = ask(server, "leaky", 1)
        return answer.status == 200 and answer.json["predictions"] != [first]

    wait_until(answers, "another process answers")
    assert "it ran out of memory; it is started anew now" in server.stderr
    assert server.stop() == 0


@exhaustive
def test_bad_requests_alone_restart_no_model_that_answers_its_warm_up(start: Start) -> None:
    server = start({"fussy": {"path": "fussy.py"}})
    first = server.role("worker fussy/0")
    fail_for_long(server, "fussy", -1)
    assert not complaint(server, "fussy")
    assert server.role("worker fussy/0") == first
    assert ask(server, "fussy", 1).status == 200
    assert "what clients send is to blame" in server.stderr
    assert server.stop() == 0
