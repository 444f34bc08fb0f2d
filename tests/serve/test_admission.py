"""Requests with a short time, beside a client that has much more waiting than fits into it."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from serve.client import Connection, instances, predict_target, request
from serve.server import Server, Start

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
