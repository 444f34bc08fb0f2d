"""Connections to the control address beyond those that it may have: which one goes.

Tests frontend/metrics/control_server.py.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from http_harness import Transport
from uvicorn.config import Config
from uvicorn.server import ServerState

from ringbatch.frontend.http.connection_limit import TurnedAway, at_most
from ringbatch.frontend.metrics.control_connections import (
    MAX_CONNECTIONS,
    ControlConnection,
    make_room,
)

ASKING = b"GET /waits HTTP/1.1\r\nHost: h\r\n\r\n"
OTHERS = [f"10.0.0.{n}" for n in range(MAX_CONNECTIONS)]


async def opened(hosts: Sequence[str], sent: Sequence[bytes]) -> list[Transport]:
    """Connections from these hosts, in this order, each of which sends that."""

    async def app(_scope: Any, _receive: Any, _send: Any) -> None:
        await asyncio.Event().wait()

    config = Config(app, lifespan="off", ws="none", interface="asgi3", log_config=None)
    config.load()
    state: Any = ServerState()
    loop = asyncio.get_running_loop()
    make = at_most(
        MAX_CONNECTIONS,
        lambda: ControlConnection(config, state, {}, loop),
        state,
        lambda: make_room(state.connections),
    )
    transports = []
    for host, data in zip(hosts, sent, strict=True):
        transport = Transport()
        transport.extra["peername"] = (host, 1)
        protocol: Any = make()
        transport.protocol = protocol
        protocol.connection_made(transport)
        if data and not isinstance(protocol, TurnedAway):
            protocol.data_received(data)
        transports.append(transport)
    return transports


def gone(hosts: Sequence[str], sent: Sequence[bytes]) -> list[int]:
    """The places of those that are closed in the end."""

    async def run() -> list[int]:
        transports = await opened(hosts, sent)
        found = [n for n, transport in enumerate(transports) if transport.is_closing()]
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        return found

    return asyncio.run(run())


@pytest.mark.parametrize(
    "data", [b"", b"GET", b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n{"]
)
def test_the_oldest_of_those_that_nobody_answers_goes(data: bytes) -> None:
    hosts = [*OTHERS, "10.1.1.1", "10.1.1.2"]
    assert gone(hosts, [ASKING] * 10 + [data] * (len(hosts) - 10)) == [10, 11]


@pytest.mark.parametrize(
    ("own", "theirs"),
    [
        ("10.0.0.1", ["10.0.0.2"]),
        ("2001:db8::1", [f"2001:db8:0:1::{n:x}" for n in range(1, 100)]),
        ("", ["10.0.0.1"]),
    ],
)
def test_of_the_host_that_has_the_most(own: str, theirs: list[str]) -> None:
    many = [theirs[n % len(theirs)] for n in range(MAX_CONNECTIONS + 20)]
    assert gone([own, *many], [b""] * (1 + len(many))) == list(range(1, 22))


def test_where_all_are_being_answered_a_new_one_is_turned_away() -> None:
    hosts = [*OTHERS, "10.1.1.1"]
    assert gone(hosts, [ASKING] * len(hosts)) == [MAX_CONNECTIONS]
