"""Application behind a frontend: request id, trace, and counts.

The application sees the request's id and trace and cannot override them. A request is counted
here only if no other place has counted it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from segment_fixture import local_segment, spec

from ringbatch.frontend.access.recorder import Exchanged, recording
from ringbatch.frontend.access.sampling import AccessSettings
from ringbatch.frontend.http import tracked_app
from ringbatch.frontend.http.asgi_scope import ENDING, EXCHANGES, OUTLET, REFUSED, Exchanges
from ringbatch.frontend.http.tracked_app import TrackedApp
from ringbatch.frontend.load.load_reports import LoadReports
from ringbatch.frontend.proxy.agent_probe import READY_PATH
from ringbatch.frontend.proxy.pass_through import PassThrough
from ringbatch.frontend.request.gateway import Gateway
from ringbatch.frontend.request.service import Service
from ringbatch.shm.errors import Draining
from ringbatch.shm.lane import Lane
from ringbatch.shm.slow_requests import slowest
from ringbatch.shm.tallies import CODE_LABELS, Protocol, ends_of

TRACE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


THEIRS = [(b"x-request-id", b"own"), (b"endpoint-load-metrics", b"theirs")]


def passed(
    *headers: tuple[bytes, bytes], load_report: bool = False
) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
    """Return the headers that the application and the client get for a request with its own id."""
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
        watched = TrackedApp(app, recorder, service.tallies.nobody[Protocol.HTTP])
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


def test_a_client_that_asks_gets_the_time_of_a_passed_request() -> None:
    _, got = passed((b"x-server-timing", b"1"))
    assert got[b"server-timing"].startswith(b"wait;dur=")
    assert b"server-timing" not in passed()[1]


def test_every_client_gets_the_load_if_that_is_configured() -> None:
    assert passed(load_report=True)[1][b"endpoint-load-metrics"].startswith(b"TEXT ")
    _, got = passed((b"endpoint-load-metrics-format", b"json"), load_report=True)
    assert got[b"endpoint-load-metrics"].startswith(b"JSON ")
    # Another server's load report is passed on only without one of our own.
    assert passed()[1][b"endpoint-load-metrics"] == b"theirs"


Asked = Callable[[Service, Any, Any], Awaitable[None]]
"""An application, told the service, the scope and where its answer goes."""


def ended(
    asked: Asked, *headers: tuple[bytes, bytes], path: str = "/other"
) -> tuple[dict[str, int], list[int]]:
    """Return the counts of a request for no model, by status, and the status logged for it."""
    segment = local_segment(spec(), slots=8)

    async def send(_message: Any) -> None:
        pass

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    async def run() -> None:
        gateway = Gateway(Lane(segment, 0, lambda: None), asyncio.get_running_loop())
        service = Service(segment, gateway, time.monotonic_ns)

        async def app(scope: Any, _receive: Any, send: Any) -> None:
            await asked(service, scope, send)

        recorder, _ = recording(AccessSettings(), service.engine, "f")
        watched = TrackedApp(app, recorder, service.tallies.nobody[Protocol.HTTP])
        scope = {"type": "http", "method": "GET", "path": path, "headers": [*headers]}
        await watched(scope | {EXCHANGES: Exchanges()}, receive, send)

    asyncio.run(run())
    codes = ends_of(segment, [segment.layout.models])[segment.layout.models].codes
    assert not any(any(codes[other]) for other in Protocol if other is not Protocol.HTTP)
    found = dict(zip(("200", *CODE_LABELS), codes[Protocol.HTTP], strict=True))
    known = [one.code for one in slowest(segment, time.monotonic_ns())]
    return {code: count for code, count in found.items() if count}, known


async def answer(send: Any, status: int) -> None:
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": b"x"})


REQUEST_HEADERS = (b"x-server-timing", b"1")


@pytest.mark.parametrize("headers", [(), (REQUEST_HEADERS,)])
@pytest.mark.parametrize("status", [200, 503])
def test_a_request_that_is_passed_on_counts_once(
    status: int, headers: tuple[tuple[bytes, bytes], ...]
) -> None:
    async def asked(_service: Service, _scope: Any, send: Any) -> None:
        await answer(send, status)

    assert ended(asked, *headers) == ({str(status): 1}, [status])


@pytest.mark.parametrize(
    ("path", "ours", "kept"),
    [
        ("/v2/health/ready", True, False),
        ("/v2/health/ready", False, False),
        ("/v2/health/live", True, False),
        ("/v2/models/m/ready", True, False),
        ("/v2/models/m/versions/2/ready", True, False),
        ("/v1/models/m", True, False),
        ("/", True, False),
        ("/", False, True),
        ("/report", False, True),
        ("/v1/models", True, True),
        ("/v1/models/m:predict", True, True),
        ("/v2/models/m", True, True),
    ],
)
def test_a_probe_of_health_is_never_among_the_slowest(path: str, ours: bool, kept: bool) -> None:
    async def asked(service: Service, scope: Any, send: Any) -> None:
        if ours:
            service.record_outside(Protocol.HTTP, 200)
            scope[ENDING] = service.last_ending()
        await answer(send, 200)

    assert ended(asked, path=path) == ({"200": 1}, [200] * kept)


@pytest.mark.parametrize("answers", [False, True])
def test_a_request_whose_client_leaves_before_the_answer_has_499(answers: bool) -> None:
    async def asked(_service: Service, scope: Any, send: Any) -> None:
        scope[EXCHANGES].end()
        if answers:
            await answer(send, 200)

    assert ended(asked) == ({"499": 1}, [499])


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit, asyncio.CancelledError])
def test_one_that_nobody_could_serve_has_500(error: type[BaseException]) -> None:
    async def asked(_service: Service, _scope: Any, _send: Any) -> None:
        raise error

    assert ended(asked) == ({"500": 1}, [500])


@pytest.mark.parametrize("headers", [(), (REQUEST_HEADERS,)])
def test_a_request_that_was_counted_elsewhere_is_not_counted_again(
    headers: tuple[tuple[bytes, bytes], ...],
) -> None:
    async def rejecting(service: Service, scope: Any, send: Any) -> None:
        service.record_outside(Protocol.HTTP, 404)
        scope[ENDING] = service.last_ending()
        await answer(send, 404)

    async def refused(service: Service, scope: Any, send: Any) -> None:
        service.record_outside(Protocol.HTTP, 408)
        scope[REFUSED] = True
        await answer(send, 400)

    assert ended(rejecting, *headers) == ({"404": 1}, [404])
    assert ended(refused, *headers) == ({"408": 1}, [])


@pytest.mark.parametrize("headers", [(), (REQUEST_HEADERS,)])
@pytest.mark.parametrize("ready", [True, False])
def test_a_probe_in_front_of_another_server_counts_once(
    ready: bool, headers: tuple[tuple[bytes, bytes], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def other_is_ready(_self: PassThrough) -> None:
        if not ready:
            raise Draining

    monkeypatch.setattr(PassThrough, "_expect_other_ready", other_is_ready)

    async def asked(service: Service, scope: Any, send: Any) -> None:
        async def app(scope: Any, _receive: Any, send: Any) -> None:
            assert scope["path"] == READY_PATH
            service.record_outside(Protocol.HTTP, 200)
            scope[ENDING] = service.last_ending()
            await answer(send, 200)

        async def receive() -> Any:
            raise AssertionError("nothing is read")

        passing = PassThrough(app, "http://other", lambda _: False, lambda _: True, lambda: None)
        await passing(scope, receive, send)

    # Only one that fails is among the slowest.
    expected: tuple[dict[str, int], list[int]] = ({"200": 1}, []) if ready else ({"503": 1}, [503])
    assert ended(asked, *headers) == expected


def test_work_behind_an_applications_answer_keeps_no_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    segment = local_segment(spec(), slots=8)
    now_ns = [10**9]
    taken_ns: list[int] = []

    def record(_ending: Any, _exchanged: Any, take_ns: int, **_: Any) -> None:
        taken_ns.append(take_ns)

    async def nothing(_message: Any = None) -> Any:
        return {"type": "http.request"}

    async def run() -> None:
        gateway = Gateway(Lane(segment, 0, lambda: None), asyncio.get_running_loop())
        service = Service(segment, gateway, lambda: now_ns[0])

        async def app(scope: Any, _receive: Any, send: Any) -> None:
            service.record_outside(Protocol.HTTP, 200)
            scope[ENDING] = service.last_ending()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
            now_ns[0] += 5
            await send({"type": "http.response.body", "body": b"y"})
            now_ns[0] += 10**10

        recorder, _ = recording(AccessSettings(), service.engine, "f")
        monkeypatch.setattr(recorder, "clock", lambda: now_ns[0])
        monkeypatch.setattr(recorder, "record", record)
        scope = {"type": "http", "method": "GET", "path": "/other", "headers": []}
        watched = TrackedApp(app, recorder, service.tallies.nobody[Protocol.HTTP])
        await watched(scope, nothing, nothing)

    asyncio.run(run())
    assert taken_ns == [5]


class Outlet:
    """See `PieceOutlet`."""

    sent_bytes = 0

    def takes(self, size: int) -> bool:
        return True

    def send(self, piece: bytes) -> bool:
        self.sent_bytes += len(piece)
        return True


class Payloads:
    """Log that draws every request."""

    kept: Any = None
    most_bytes = 100

    def draws(self) -> bool:
        return True

    def ended(self, kept: Any, *_more: Any) -> None:
        self.kept = kept


@pytest.mark.parametrize("keeps", [False, True])
def test_pieces_pass_the_application_where_a_log_keeps_them(
    keeps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    outlets: list[bool] = []
    sizes: list[int] = []

    async def app(scope: Any, _receive: Any, send: Any) -> None:
        outlets.append(OUTLET in scope)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        if OUTLET in scope:
            scope[OUTLET].send(b"1234")
        await send({"type": "http.response.body", "body": b"yz"})

    async def send(_message: dict[str, Any]) -> None:
        """Take a message."""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    def noted(*own: Any) -> Exchanged:
        sizes.append(own[-1])
        return Exchanged(*own)

    async def run() -> None:
        segment = local_segment(spec(), slots=8)
        gateway = Gateway(Lane(segment, 0, lambda: None), asyncio.get_running_loop())
        service = Service(segment, gateway, time.monotonic_ns)
        recorder, _ = recording(AccessSettings(), service.engine, "f", None)
        monkeypatch.setattr(tracked_app, "Exchanged", noted)
        payloads: Any = Payloads() if keeps else None
        nobody = service.tallies.nobody[Protocol.HTTP]
        watched = TrackedApp(app, recorder, nobody, payloads)
        scope = {"type": "http", "method": "POST", "path": "/other", "headers": []}
        await watched(scope | {OUTLET: Outlet()}, receive, send)

    asyncio.run(run())
    assert outlets == [not keeps]
    assert sizes == [3 if keeps else 7]
