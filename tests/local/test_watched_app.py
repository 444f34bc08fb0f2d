"""What an application sees of a request's id and trace, and what it cannot say itself."""

import asyncio
import time
from typing import Any

import pytest
from segment_fixture import local_segment, spec

from ringbatch.frontend.access.choice import AccessSettings
from ringbatch.frontend.access.recorder import recording
from ringbatch.frontend.http.watched_app import WatchedApp
from ringbatch.frontend.load.reports import LoadReports
from ringbatch.frontend.request.gateway import Gateway
from ringbatch.frontend.request.service import Service
from ringbatch.shm.lane import Lane
from ringbatch.shm.tallies import Protocol

TRACE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


THEIRS = [(b"x-request-id", b"own"), (b"endpoint-load-metrics", b"theirs")]


def passed(
    *headers: tuple[bytes, bytes], load_report: bool = False
) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
    """What the application is given, and what the client gets, of one that has its own id."""
    given: dict[bytes, bytes] = {}
    got: dict[bytes, bytes] = {}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        given.update(scope["headers"])
        await send({"type": "http.response.start", "status": 200, "headers": THEIRS})
        await send({"type": "http.response.body", "body": b"x"})

    async def send(message: dict[str, Any]) -> None:
        got.update(message.get("headers", ()))

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    async def run() -> None:
        segment = local_segment(spec(), slots=8)
        gateway = Gateway(Lane(segment, 0, lambda: None), asyncio.get_running_loop())
        service = Service(segment, gateway, time.monotonic_ns)
        reports = LoadReports(segment, time.monotonic_ns)
        recorder, _ = recording(
            AccessSettings(load_report=load_report), service.engine, "f", reports
        )
        watched = WatchedApp(app, recorder, service.tallies.nobody[Protocol.HTTP])
        scope = {"type": "http", "method": "GET", "path": "/other", "headers": [*headers]}
        await watched(scope, receive, send)

    asyncio.run(run())
    return given, got


def test_a_server_behind_gets_the_id_that_the_client_gets() -> None:
    for headers in ((), ((b"x-request-id", b"mine"),), ((b"x-request-id", b"a b"),)):
        given, got = passed(*headers)
        assert given[b"x-request-id"] == got[b"x-request-id"] not in (b"own", b"a b")
    assert passed((b"x-request-id", b"mine"))[1][b"x-request-id"] == b"mine"


@pytest.mark.parametrize(("sent", "expected"), [(TRACE, TRACE), (TRACE.upper(), None)])
def test_a_trace_is_passed_on_only_where_it_is_one(sent: bytes, expected: bytes | None) -> None:
    given, _ = passed((b"traceparent", sent))
    assert given.get(b"traceparent") == expected


def test_who_asks_is_told_the_time_of_what_was_passed_on() -> None:
    _, got = passed((b"x-server-timing", b"1"))
    assert got[b"server-timing"].startswith(b"wait;dur=")
    assert b"server-timing" not in passed()[1]


def test_every_client_is_told_of_the_load_where_that_is_configured() -> None:
    assert passed(load_report=True)[1][b"endpoint-load-metrics"].startswith(b"TEXT ")
    _, got = passed((b"endpoint-load-metrics-format", b"json"), load_report=True)
    assert got[b"endpoint-load-metrics"].startswith(b"JSON ")
    # What another server says of its own load is passed on only where nothing is said of ours.
    assert passed()[1][b"endpoint-load-metrics"] == b"theirs"
