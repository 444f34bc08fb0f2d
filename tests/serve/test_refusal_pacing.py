"""Clients that are refused and ask again at once, against whole servers."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from load.impatient import crowd
from serve.client import Connection, fast, instances
from serve.server import Server, Start
from serve.steps_client import samples
from tiers import exhaustive

from ringbatch.frontend.http.refusal_pacing import LOOK_NS, TURN_NS

SLEEPS_20_MS: Final = Path(__file__).parents[2] / "bench" / "models" / "sleep_20ms.py"
CLIENTS: Final = 40
PATIENCE_S, SECONDS = 1.0, 4.0
ASKS: Final = 500
REQUEST: Final = fast("matmul", instances([1.0] * 16))


def rare(start: Start) -> Server:
    """Start a server on which a client may ask once in a hundred seconds."""
    return start({"matmul": {"path": "matmul.py"}}, account_requests_per_s=0.01, control_port=0)


def most(took_s: float, clients: int) -> float:
    """Return the most refusals of a frontend: by turns, and those that come as told."""
    turns = took_s * 1e9 / TURN_NS + LOOK_NS // TURN_NS + 1
    return turns + clients * (1 + took_s)


@exhaustive
def test_a_crowd_that_asks_again_at_once_is_refused_by_turns(start: Start) -> None:
    model = {"path": str(SLEEPS_20_MS), "max_batch_size": 2, "timeout_s": 60}
    server = start({"sleep": {**model, "max_queue_wait_s": 0.1}})
    path = "/v1/models/sleep:predict"
    found = crowd(server.port, path, CLIENTS, PATIENCE_S, SECONDS, once=False)
    refused = [each for each in found.attempts if each.status == 503]
    ended_s = max(each.asked_s + each.took_s for each in found.attempts)
    assert CLIENTS < len(refused) < most(ended_s, CLIENTS)
    assert sum(each.right for each in found.attempts) > CLIENTS


def test_a_client_beyond_its_limit_is_refused_by_turns(
    start: Start, wait_until: Callable[..., float]
) -> None:
    server, asks = rare(start), ASKS
    with ExitStack() as stack:
        connections = [stack.enter_context(Connection(server.port)) for _ in range(CLIENTS)]
        assert connections[0].ask(REQUEST).status == 200
        began_s = time.monotonic()
        for _ in range(ASKS):
            answer = connections[0].ask(REQUEST)
            assert answer.status == 429
            assert int(answer.headers["retry-after"]) > 1
        assert most(time.monotonic() - began_s, 1) > ASKS

        # On a busy machine no turn is over before a lone client asks again.
        def held() -> float:
            nonlocal asks
            for connection in connections:
                connection.send(REQUEST)
            assert {connection.receive().status for connection in connections} == {429}
            asks += CLIENTS
            return samples(server)["ringbatch_lane_refusals_held_total"]

        assert 0 < wait_until(held, "refusals to be held") < asks


@exhaustive
def test_a_stop_answers_the_clients_that_wait_for_their_turns(start: Start) -> None:
    server = rare(start)
    with ExitStack() as stack:
        connections = [stack.enter_context(Connection(server.port)) for _ in range(2 * CLIENTS)]
        first, *others = [connection.ask(REQUEST).status for connection in connections]
        assert (first, set(others)) == (200, {429})
        for connection in connections[1:]:
            connection.send(REQUEST)
        # The first to be refused at once shows that the frontend has begun to read.
        assert connections[1].receive().status == 429
        assert server.stop() == 0
        # One that the frontend had not read yet may meet the stop itself.
        assert {connection.receive().status for connection in connections[2:]} <= {429, 503}
