"""Clients that leave while all workers are busy keep no slot that another could have."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from serve.client import Connection, fast, instances
from serve.grpc_stub import Held, Stub, grpc_port
from serve.server import Server, Start
from tiers import exhaustive

WaitUntil = Callable[..., Any]

SLOTS = 32
MOST = 24
"""Slots that one of two models may have."""
ROUNDS = 8
AT_ONCE = 10
"""Calls of a round, so few that those of two find room, and so many that those of four do not."""


@pytest.fixture
def held(tmp_path: Path) -> Held:
    return Held(tmp_path / "held.py")


@pytest.fixture
def server(start: Start, held: Held, tmp_path: Path) -> Server:
    """Server with a frontend of each kind, a model that holds its batches, and a free one."""
    models = {
        "held": {"path": held.path, "max_batch_size": 1},
        "free": {"path": Held(tmp_path / "free.py").path},
    }
    return start(models, frontends=1, grpc_port=0, max_in_flight=SLOTS, drain_s=20)


@exhaustive
def test_clients_that_left_over_http_keep_nobody_out(
    server: Server, held: Held, wait_until: WaitUntil
) -> None:
    held.close()
    with ExitStack() as stack:
        first, *others = (stack.enter_context(Connection(server.port)) for _ in range(SLOTS))
        first.send(fast("held", instances(1)))
        wait_until(lambda: server.status().models["held"].batches, "the worker to be busy")
        for number, other in enumerate(others):
            other.send(fast("held", instances(number)))
        wait_until(
            lambda: server.status().models["held"].refused == SLOTS - MOST,
            "every slot that the model may have to be used up",
        )
        newcomer = stack.enter_context(Connection(server.port))
        assert newcomer.ask(fast("held", instances(2))).status == 503
        for other in others:
            other.close()
        wait_until(lambda: server.status().models["held"].dropped == MOST - 1, "all to be counted")
        newcomer.send(fast("held", instances(2)))
        held.open()
        assert first.receive().json["predictions"] == [1]
        assert newcomer.receive().json["predictions"] == [2]


def test_calls_that_were_cancelled_over_grpc_keep_nobody_out(
    server: Server, held: Held, wait_until: WaitUntil
) -> None:
    held.close()
    with Stub(grpc_port(server)) as leaving, Stub(grpc_port(server)) as honest:
        first = leaving.start(held.request())
        wait_until(lambda: server.status().models["held"].batches, "the worker to be busy")
        for number in range(ROUNDS):
            calls = [leaving.start(held.request(n)) for n in range(AT_ONCE)]
            end = honest.start(held.request(number, "free"))()
            assert end.code == "OK", end
            for call in calls:
                call.cancel()
            assert {call().code for call in calls} == {"CANCELLED"}
            wait_until(
                lambda: (
                    server.status().models["held"].requests
                    == server.status().models["held"].dropped + 1
                ),
                "what is cancelled to be given back",
            )
        held.open()
        assert first().code == "OK"
