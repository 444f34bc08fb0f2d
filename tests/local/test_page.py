"""The page's resources, who may have them, and the streams of those who watch."""

import asyncio
import base64
import os
import time
from collections.abc import Coroutine
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from typing import Any

import pytest
from falcon.testing import ASGIConductor, TestClient
from http_harness import Transport, uvicorn_config
from segment_fixture import local_segment, spec
from uvicorn.server import ServerState

from ringbatch.frontend.http.fallback import EXCHANGES, FallbackProtocol
from ringbatch.frontend.http.phases import LIMITS, Phase
from ringbatch.frontend.metrics.control_app import create_control_app
from ringbatch.frontend.metrics.control_keys import basic_password, is_near, names_this_host
from ringbatch.frontend.page import watchers as watchers_module
from ringbatch.frontend.page.feed import BEGINNING, HEARTBEAT
from ringbatch.frontend.page.history import History
from ringbatch.frontend.page.live import PERIOD_S, Live
from ringbatch.frontend.page.watchers import MAX_LAG_S, PIECE_BYTES, Watcher, Watchers
from ringbatch.frontend.security.api_keys import ApiKeys
from ringbatch.shm.breakdown import Breakdown
from ringbatch.shm.descriptors import WorkerState, WorkerWords
from ringbatch.shm.host.credentials import key_digests
from ringbatch.shm.model_spec import LOADING, ModelSpec
from ringbatch.shm.recent import RecentRequest, Slowest
from ringbatch.shm.segment import Segment
from ringbatch.shm.tallies import Protocol

S = 1_000_000_000
WALL_MS = 1_800_000_000_000
KEY = "a-key-of-the-tests-0123456789"
AFAR = "192.0.2.7"


@pytest.fixture(autouse=True)
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment of this process alone has no name to read these from, and no locks."""
    monkeypatch.setattr(Segment, "engine", "prod")
    monkeypatch.setattr(Segment, "pid", os.getpid())
    monkeypatch.setattr(Segment, "serving_lanes", lambda _: 1)


def engine(*models: ModelSpec) -> Segment:
    return local_segment(*(models or (spec(0, name="a"),)), lanes=2)


@pytest.fixture
def keys(tmp_path: Any) -> ApiKeys:
    file = tmp_path / "keys"
    file.write_text(f"{KEY}\n")
    file.chmod(0o600)
    return ApiKeys(key_digests(file))


def client(keys: ApiKeys | None = None, watchers: Watchers | None = None) -> TestClient:
    watchers = watchers or Watchers(History())
    return TestClient(create_control_app(engine(), "1.2.3", watchers, keys))


# What the page is made of


class Links(HTMLParser):
    """The addresses in a document, and what could run or look like something in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.inline: list[str] = []
        self.ids: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.found += [value for key in ("href", "src") if (value := named.get(key))]
        self.ids += [value for value in [named.get("id")] if value]
        if tag == "style" or (tag == "script" and "src" not in named):
            self.inline.append(tag)
        self.inline += [key for key in named if key == "style" or key.startswith("on")]


def test_the_page_asks_for_nothing_but_what_is_shipped_with_it() -> None:
    asked = client()
    answer = asked.simulate_get("/")
    assert answer.status_code == 200
    links = Links(answer.text)
    assert links.inline == [], "the policy would refuse it"
    assert len(links.ids) == len(set(links.ids))
    for link in links.found:
        if link.startswith("#"):
            assert link[1:] in links.ids
        elif link != "metrics":
            assert asked.simulate_get(f"/{link}").status_code == 200, link


MEDIA = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


@pytest.mark.parametrize(
    "name", [file.name for file in files("ringbatch.frontend.page").joinpath("assets").iterdir()]
)
def test_a_part_says_what_it_is_and_is_not_sent_twice(name: str) -> None:
    path, asked = "/" if name == "page.html" else f"/assets/{name}", client()
    answer = asked.simulate_get(path)
    assert answer.headers["content-type"].startswith(MEDIA.get(name.split(".")[-1], "text/plain"))
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-cache"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "//" not in policy
    known = asked.simulate_get(path, headers={"If-None-Match": answer.headers["etag"]})
    assert (known.status_code, known.content) == (304, b"")
    assert asked.simulate_get(path, headers={"If-None-Match": '"other"'}).status_code == 200
    head = asked.simulate_head(path)
    assert (head.status_code, head.content) == (200, b"")


def test_scripts_write_no_html_and_name_no_other_server() -> None:
    for file in files("ringbatch.frontend.page").joinpath("assets").iterdir():
        if file.name.endswith((".js", ".html", ".css")) and not file.name.startswith("uPlot"):
            text = file.read_text()
            for unwanted in ("innerHTML", "outerHTML", "insertAdjacent", "eval(", "http://"):
                assert unwanted not in text, file.name
            assert "https://" not in text, file.name


def test_the_library_is_shipped_with_its_licence() -> None:
    assert "MIT License" in client().simulate_get("/assets/uPlot.LICENSE").text


def test_other_paths_are_nowhere() -> None:
    for path in ("/assets/", "/assets/page.py", "/assets/../feed.py", "/page.html", "/live/x"):
        answer = client().simulate_get(path)
        assert answer.status_code == 404
        assert "error" in answer.json


@pytest.mark.parametrize("path", ["/metrics", "/v2/health/live", "/v2/health/ready"])
def test_what_is_asked_with_head_is_answered_as_with_get_without_its_body(path: str) -> None:
    asked = client()
    whole, head = asked.simulate_get(path), asked.simulate_head(path)
    assert (head.status_code, head.content) == (whole.status_code, b"")
    assert head.headers["content-type"] == whole.headers["content-type"]
    assert int(head.headers["content-length"]) > 0
    assert asked.simulate_post(path).status_code == 405


# Who may have it


def from_afar(
    keys: ApiKeys | None,
    path: str,
    headers: dict[str, str] | None = None,
    peer: str = AFAR,
    host: str = "127.0.0.1",
) -> Any:
    return client(keys).simulate_get(path, headers=headers, remote_addr=peer, host=host)


PATHS = ("/", "/live", "/slowest", "/metrics", "/assets/page.js", "/nothing")


@pytest.mark.parametrize("path", PATHS)
def test_another_host_needs_a_key(keys: ApiKeys, path: str) -> None:
    for headers in ({}, {"X-API-Key": "wrong"}, {"Authorization": f"Basic {KEY}"}):
        answer = from_afar(keys, path, headers)
        assert answer.status_code == 401
        assert "an API key is needed" in answer.json["error"]
        challenge = answer.headers["www-authenticate"]
        assert 'Bearer realm="ringbatch"' in challenge
        assert 'Basic realm="ringbatch"' in challenge


@pytest.mark.parametrize("path", [path for path in PATHS if path != "/live"])
def test_a_key_opens_it_however_it_comes(keys: ApiKeys, path: str) -> None:
    basic = base64.b64encode(f"somebody:{KEY}".encode()).decode()
    for headers in (
        {"Authorization": f"Bearer {KEY}"},
        {"X-API-Key": KEY},
        {"Authorization": f"Basic {basic}"},
    ):
        assert from_afar(keys, path, headers).status_code == (404 if path == "/nothing" else 200)


def test_health_needs_none_nor_does_this_host_nor_anybody_where_there_are_none(
    keys: ApiKeys,
) -> None:
    assert from_afar(keys, "/v2/health/live").status_code == 200
    assert from_afar(keys, "/v2/health/ready").status_code in (200, 503)
    assert from_afar(None, "/metrics").status_code == 200
    for peer in ("127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1"):
        assert from_afar(keys, "/", peer=peer).status_code == 200


def test_keys_that_are_taken_away_open_nothing_any_more(keys: ApiKeys) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    assert from_afar(keys, "/", headers).status_code == 200
    keys.replace([])
    assert from_afar(keys, "/", headers).status_code == 401


@pytest.mark.parametrize(
    ("peer", "near"),
    [
        (None, True),
        ("127.0.0.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:10.0.0.1", False),
        ("10.0.0.1", False),
        ("fe80::1%eth0", False),
        ("2001:db8::1", False),
        ("localhost", False),
        ("", False),
    ],
)
def test_only_this_host_is_near(peer: str | None, near: bool) -> None:
    assert is_near(peer) is near


def test_a_proxy_on_this_host_and_a_name_of_another_site_open_nothing(keys: ApiKeys) -> None:
    near = "127.0.0.1"
    for header in ("X-Forwarded-For", "Forwarded", "X-Real-IP", "Via"):
        assert from_afar(keys, "/", {header: near}, near).status_code == 401
    assert from_afar(keys, "/", None, near, "evil.example").status_code == 401
    assert from_afar(keys, "/", {"X-API-Key": KEY}, near, "evil.example").status_code == 200
    assert from_afar(None, "/", None, near, "evil.example").status_code == 200


def test_who_asks_over_http_1_0_on_this_host_is_taken_for_a_proxy(keys: ApiKeys) -> None:
    def asked(path: str, version: str, **headers: str) -> int:
        answer: Any = client(keys).simulate_get(
            path, headers=headers, remote_addr="127.0.0.1", host="127.0.0.1", http_version=version
        )
        return int(answer.status_code)

    assert asked("/metrics", "1.0") == 401
    assert asked("/metrics", "1.1") == 200
    assert asked("/metrics", "1.0", Authorization=f"Bearer {KEY}") == 200
    assert asked("/v2/health/live", "1.0") == 200


@pytest.mark.parametrize(
    ("host", "own"),
    [
        (None, True),
        ("", True),
        ("localhost", True),
        ("LOCALHOST:9090", True),
        ("ringbatch.localhost:9090", True),
        ("127.0.0.1:9090", True),
        ("127.1.2.3", True),
        ("[::1]:9090", True),
        ("[::1]", True),
        ("localhost.evil.example", False),
        ("notlocalhost", False),
        ("127.0.0.1.evil.example:9090", False),
        ("[2001:db8::1]:9090", False),
        ("10.0.0.1:9090", False),
    ],
)
def test_a_host_header_names_this_host_or_another(host: str | None, own: bool) -> None:
    assert names_this_host(host) is own


@pytest.mark.parametrize(
    ("header", "password"),
    [
        (None, ""),
        ("", ""),
        ("Basic", ""),
        ("Basic ???", ""),
        ("Basic /w==", ""),
        (f"Bearer {base64.b64encode(b'u:p').decode()}", ""),
        (f"Basic {base64.b64encode(b'nothing').decode()}", ""),
        (f"Basic {base64.b64encode(b'u:p').decode()}", "p"),
        (f"bAsIc  {base64.b64encode(b':p:q').decode()}", "p:q"),
    ],
)
def test_what_somebody_typed_is_read(header: str | None, password: str) -> None:
    assert basic_password(header) == password


# Who watches


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 60))


async def told(watcher: Watcher) -> bytes:
    return (await anext(watcher)).serialize()


def admitted(watchers: Watchers, after_ms: int = 0) -> Watcher:
    watcher = watchers.admit(after_ms, set())
    assert watcher is not None
    return watcher


def test_who_comes_is_told_the_past_and_how_things_are_and_then_what_is_new() -> None:
    async def test() -> None:
        watchers = Watchers(History())
        watchers.tell(10, b"one.", state=b"old;")
        watchers.tell(20, b"two.", state=b"now;")
        watcher = admitted(watchers)
        assert await told(watcher) == BEGINNING + b"one.two.now;"
        waiting = asyncio.create_task(told(watcher))
        await asyncio.sleep(0)
        watchers.tell(30, b"three.", state=b"now;")
        assert await waiting == b"three.", "the state is the same"
        watchers.tell(40, None, state=b"other;")
        assert await told(watcher) == b"other;"

    run(test())


def test_who_comes_back_is_told_what_it_missed_alone() -> None:
    async def test() -> None:
        watchers = Watchers(History())
        for at_ms in (10, 20, 30):
            watchers.tell(at_ms, b"%d." % at_ms)
        assert await told(admitted(watchers, 20)) == BEGINNING + b"30."
        assert await told(admitted(watchers, 99)) == BEGINNING

    run(test())


def test_a_long_past_is_told_in_pieces() -> None:
    async def test() -> None:
        watchers = Watchers(History())
        for at_ms in range(1, 10):
            watchers.tell(at_ms, b"x" * (PIECE_BYTES // 4), state=b"s")
        watcher = admitted(watchers)
        pieces = [await told(watcher) for _ in range(3)]
        assert all(len(piece) <= PIECE_BYTES + len(BEGINNING) for piece in pieces)
        assert b"".join(pieces).count(b"x") == 9 * (PIECE_BYTES // 4)
        assert pieces[-1].endswith(b"s")

    run(test())


def test_one_too_many_is_refused_in_words_and_one_that_left_makes_room() -> None:
    async def test() -> None:
        watchers = Watchers(History(), most=2)
        first, _ = admitted(watchers), admitted(watchers)
        assert watchers.admit(0, set()) is None
        app = create_control_app(engine(), "1.2.3", watchers)
        async with ASGIConductor(app) as conductor:
            answer = await conductor.simulate_get("/live")
            assert answer.status_code == 503
            assert "16 pages are open already" in answer.json["error"]
            assert int(answer.headers["retry-after"]) > 0
            assert (await conductor.simulate_get("/metrics")).status_code == 200
        first.gone()
        assert len(watchers) == 1
        admitted(watchers)

    run(test())


def test_a_connection_that_is_closed_is_told_to_its_watcher() -> None:
    async def test() -> None:
        watchers, exchanges = Watchers(History()), set[Any]()
        watcher = watchers.admit(0, exchanges)
        assert watcher is not None
        assert exchanges == {watcher}
        await told(watcher)
        waiting = asyncio.create_task(told(watcher))
        await asyncio.sleep(0)
        for exchange in list(exchanges):
            exchange.gone()
        with pytest.raises(StopAsyncIteration):
            await waiting
        assert (len(watchers), exchanges) == (0, set())

    run(test())


def test_streams_end_with_the_keys_and_with_the_server() -> None:
    async def test() -> None:
        watchers = Watchers(History())
        watcher = admitted(watchers)
        watchers.drop_all()
        with pytest.raises(StopAsyncIteration):
            await told(watcher)
        admitted(watchers)
        watchers.close()
        assert len(watchers) == 0
        assert watchers.admit(0, set()) is None

    run(test())


def test_a_stream_without_news_shows_that_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchers_module, "HEARTBEAT_S", 0.0)

    async def test() -> None:
        watcher = admitted(Watchers(History()))
        assert await told(watcher) == BEGINNING
        assert await told(watcher) == HEARTBEAT

    run(test())


def test_a_watcher_that_takes_too_long_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        loop, watchers = asyncio.get_running_loop(), Watchers(History())
        now_s = loop.time()
        watcher = admitted(watchers)
        watchers.tell(10, b"one.")
        await told(watcher)
        watchers.tell(20, b"two.")
        monkeypatch.setattr(loop, "time", lambda: now_s + MAX_LAG_S - 1)
        assert await told(watcher) == b"two."
        monkeypatch.setattr(loop, "time", lambda: now_s + 3 * MAX_LAG_S)
        watchers.tell(30, b"three.")
        with pytest.raises(StopAsyncIteration):
            await told(watcher)
        assert len(watchers) == 0

    run(test())


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def watching(watchers: Watchers) -> tuple[FallbackProtocol, Transport]:
    """A browser's connection to the control address, which has asked for the stream."""
    app = create_control_app(engine(), "1.2.3", watchers)
    loop, transport = asyncio.get_running_loop(), Transport()
    protocol = FallbackProtocol(uvicorn_config(app), ServerState(), {}, loop)
    transport.protocol = protocol
    protocol.connection_made(transport)
    protocol.data_received(b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    return protocol, transport


def test_one_that_takes_nothing_is_written_nothing_more_and_is_dropped_in_the_end() -> None:
    async def test() -> None:
        watchers = Watchers(History())
        protocol, transport = watching(watchers)
        await settled()
        assert len(watchers) == 1
        transport.left_bytes = 1 << 17
        protocol.pause_writing()
        for at_ms in range(1, 1000):
            watchers.tell(at_ms, b"x" * 1000)
        await settled()
        assert len(transport.written) < 2 * PIECE_BYTES
        for _ in range(int(LIMITS[Phase.TAKING].time_s) + 2):
            protocol.tick()
        assert transport.closed
        assert len(watchers) == 0

    run(test())


def test_one_that_takes_all_of_it_is_never_dropped_for_its_age() -> None:
    async def test() -> None:
        watchers = Watchers(History())
        protocol, transport = watching(watchers)
        for at_ms in range(1, 4000):
            watchers.tell(at_ms, b"%d." % at_ms)
            await asyncio.sleep(0)
            protocol.tick()
        await settled()
        assert not transport.closing
        assert b"3999." in transport.written
        transport.close()
        await settled()
        assert len(watchers) == 0

    run(test())


@pytest.mark.parametrize(
    ("headers", "query", "known"),
    [
        ({}, "", "1.2.3."),
        ({"Last-Event-ID": "1"}, "", "2.3."),
        ({}, "after=2", "3."),
        ({"Last-Event-ID": "2"}, "after=1", "3."),
        ({"Last-Event-ID": "99"}, "", ""),
        ({"Last-Event-ID": "-1"}, "", "1.2.3."),
        ({"Last-Event-ID": "one"}, "", "1.2.3."),
        ({"Last-Event-ID": "9" * 400}, "", "1.2.3."),
        ({"Last-Event-ID": str(1 << 60)}, "", "1.2.3."),
    ],
)
def test_the_stream_goes_on_from_what_is_known(
    headers: dict[str, str], query: str, known: str
) -> None:
    async def test() -> None:
        watchers = Watchers(History())
        for at_ms in (1, 2, 3):
            watchers.tell(at_ms, b"%d." % at_ms)
        app = create_control_app(engine(), "1.2.3", watchers)
        async with (
            ASGIConductor(app) as conductor,
            conductor.simulate_get_stream("/live", headers=headers, query_string=query) as answer,
        ):
            assert answer.headers["content-type"] == "text/event-stream"
            assert answer.headers["cache-control"] == "no-store"
            assert (await answer.stream.read()).decode() == BEGINNING.decode() + known
            watchers.close()

    run(test())


def test_the_stream_is_one_of_its_connection_s_exchanges() -> None:
    exchanges: set[Any] = set()

    async def test() -> None:
        watchers = Watchers(History())
        app = create_control_app(engine(), "1.2.3", watchers)
        conductor = ASGIConductor(app)
        async with (
            conductor,
            conductor.simulate_get_stream("/live", extras={EXCHANGES: exchanges}),
        ):
            (watcher,) = exchanges
            watcher.gone()

    run(test())


# Where it comes from


def looking(segment: Segment) -> tuple[Live, Watchers]:
    watchers = Watchers(History())
    return Live(segment, watchers, {"version": "1.2.3"}), watchers


def test_each_look_is_told_and_the_second_one_says_what_happened() -> None:
    async def test() -> None:
        segment = engine()
        live, watchers = looking(segment)
        live.look(100 * S, WALL_MS)
        segment.words[segment.layout.worker(0) + WorkerWords.STATE] = WorkerState.READY
        segment.words[segment.layout.worker(0) + WorkerWords.PID] = 4711
        live.look(101 * S, WALL_MS + 1000)
        piece = await told(admitted(watchers))
        assert piece.count(b"event: second\n") == 1
        assert f"id: {WALL_MS + 1000}\n".encode() in piece
        for expected in (b"event: terms", b"event: state", b"event: slowest", b"process 4711"):
            assert piece.count(expected) >= 1

    run(test())


def test_a_model_that_comes_and_goes_is_followed() -> None:
    async def test() -> None:
        segment = engine(spec(0, name="a"), spec(1, name="b", workers=(1,)))
        first, second = segment.models
        live, watchers = looking(segment)
        watcher = admitted(watchers)
        live.look(100 * S, WALL_MS)
        segment.model_table.publish((first,))
        live.look(101 * S, WALL_MS + 1000)
        segment.model_table.publish((first, second))
        live.look(102 * S, WALL_MS + 2000)
        piece = await told(watcher)
        assert b"b is gone" in piece
        assert b"b is there" in piece

    run(test())


def test_looks_become_rare_where_they_cost_much() -> None:
    costs = iter([0, 1_000_000, 0, 20_000_000])
    live = Live(engine(), Watchers(History()), {}, lambda: next(costs))
    assert live.look(100 * S, WALL_MS) == PERIOD_S
    assert live.look(101 * S, WALL_MS) == pytest.approx(4.0)


def test_a_look_that_fails_is_said_once_and_the_next_one_may_succeed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    segment = engine()
    live, watchers = looking(segment)
    with monkeypatch.context() as broken:
        broken.setattr(Segment, "read_models", lambda _: 1 / 0)
        for second in range(3):
            assert live.look((100 + second) * S, WALL_MS) >= PERIOD_S
    assert len(caplog.records) == 1
    live.look(104 * S, WALL_MS)
    assert "state" in watchers.latest


def test_the_slowest_are_told_to_programs_too() -> None:
    segment = engine(spec(0, name="a"))
    app = TestClient(create_control_app(segment, "1.2.3", Watchers(History())))
    assert app.simulate_get("/slowest").json == {"slowest": []}

    found = Breakdown(0, 0, queue=2_000_000, run=5_000_000, batch=9, batch_rows=4, reason="full")
    kept = Slowest(segment, 0)
    for account, name in ((segment.models[0].account, "r-1"), (segment.layout.models, "r-2")):
        kept.put(RecentRequest(time.monotonic_ns(), account, Protocol.V1, 200, 1, found, "", name))
    first, second = app.simulate_get("/slowest").json["slowest"]
    assert {first["model"], second["model"]} == {"a", ""}
    assert first["phases"] == {"queue": 2.0, "run": 5.0}
    assert (first["ms"], first["cause"], first["reason"]) == (7.0, "batch", "full")
    assert len(first["batch"]) == 36


def test_what_loads_does_not_take_the_name_of_what_serves() -> None:

    serving = spec(0, name="a")
    loading = replace(serving, index=1, workers=(1,), state=LOADING)
    segment = engine(serving, loading)
    live, watchers = looking(segment)
    live.look(100 * S, WALL_MS)
    state = watchers.latest["state"][1]
    assert b'"title":"a"' in state
    assert b'"title":"a version 1, loading"' in state
