"""Requests with a short time, beside a client that has much more waiting than fits into it."""

import statistics
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from load.impatient import crowd
from serve.client import Connection, instances, predict_target, request
from serve.server import Server, Start
from tiers import exhaustive

FLOODER, POLITE = "127.0.0.2", "127.0.0.3"
CONNECTIONS: Final = 60
NAP_S: Final = 0.01
TIMEOUT_S: Final = 0.2
"""Less than what the flood has waiting takes, and much more than a turn."""
BODY: Final = instances({"nap_s": NAP_S})


@contextmanager
def flood(server: Server) -> Iterator[None]:
    """Keep a request on each of many connections until the end."""
    text, over = request(predict_target("nap"), BODY), threading.Event()

    def ask(connections: list[Connection]) -> None:
        for connection in connections:
            connection.send(text)
        while not over.is_set():
            # The requests of one client are answered in the order in which they came.
            for connection in connections:
                assert connection.receive().status == 200
                connection.send(text)
        for connection in connections:
            connection.receive()

    with ExitStack() as stack:
        own = [stack.enter_context(Connection(server.port, FLOODER)) for _ in range(CONNECTIONS)]
        thread = threading.Thread(target=ask, args=(own,))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def statuses(server: Server, source: str) -> Counter[int]:
    """Count the statuses of a client that sends one request after the other, with `TIMEOUT_S`."""
    headers = {"X-Request-Timeout": str(TIMEOUT_S)}
    text = request(predict_target("nap"), BODY, headers=headers)
    with Connection(server.port, source) as connection:
        return Counter(connection.ask(text).status for _ in range(30))


def test_a_short_time_is_enough_beside_a_flood_of_another_account(
    start: Start, wait_until: Callable[..., Any]
) -> None:
    server = start({"nap": {"path": "nap.py", "max_batch_size": 1}})

    def much_waits() -> bool:
        return server.status().models["nap"].answer_ms > 2_000 * TIMEOUT_S

    with flood(server):
        wait_until(much_waits, "more waits than fits into the time")
        polite, flooder = statuses(server, POLITE), statuses(server, FLOODER)
        assert much_waits()
    # A machine that stands still for a while makes late what was expected in time.
    assert set(polite) <= {200, 504}
    assert polite[200] > 15
    assert flooder[503] > 15


SLEEPS_20_MS: Final = Path(__file__).parents[2] / "bench" / "models" / "sleep_20ms.py"
CLIENTS: Final = 40


@exhaustive
def test_clients_that_are_refused_and_ask_again_at_once_do_not_come_in_bursts(
    start: Start,
) -> None:
    model = {"path": str(SLEEPS_20_MS), "max_batch_size": 2, "timeout_s": 60}
    # Shorter than two batches: each of them takes all that is let in.
    server = start({"sleep": {**model, "max_queue_wait_s": 0.03}})
    found = crowd(server.port, "/v1/models/sleep:predict", CLIENTS, 1.0, 4.0, once=False)
    right = [each for each in found.attempts if each.right]
    assert any(each.status == 503 for each in found.attempts)
    assert len(right) > CLIENTS
    waits = [(each.asked_s, each.asked_s + each.took_s) for each in right]
    in_company = [
        sum(asked_s <= other_s < ended_s for asked_s, ended_s in waits) for other_s, _ in waits
    ]
    assert statistics.median(in_company) < CLIENTS / 3
