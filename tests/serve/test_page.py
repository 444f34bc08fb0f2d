"""Page at the control address of a whole server, as readers of its stream see it."""

import base64
import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import pytest
from serve.client import Closed, Connection, Response, fast, instances, predict_target, request
from serve.secure import KEY, OTHER_KEY, bearer, write_private
from serve.server import Server, Start
from tiers import exhaustive

from ringbatch.frontend.metrics.control_connections import MAX_CONNECTIONS
from ringbatch.frontend.page.subscribers import MAX_SUBSCRIBERS

WaitUntil = Callable[..., Any]
Json = dict[str, Any]
ASKED: Final = 7


@pytest.fixture(scope="module")
def server(start_for_module: Start) -> Server:
    return start_for_module({"echo": {"path": "moody.py"}}, control_port=0)


@pytest.fixture
def port(server: Server) -> int:
    return server.control_port


def asking(path: str, headers: dict[str, str] | None = None) -> bytes:
    """Return a request as the browser sends it for the address 127.0.0.1."""
    return request(path, method="GET", headers=headers or {}).replace(b"t: test", b"t: 127.0.0.1")


class Stream(Connection):
    """HTTP connection that watches the page's events.

    Args:
        port: of the control address.
        headers: of its request.

    Attributes:
        head: the lines before the events.
        last_id: of the events that it was told.
        whole: whether the server has ended it, rather than cut it off.
    """

    def __init__(self, port: int, headers: dict[str, str] | None = None) -> None:
        super().__init__(port)
        self.send(asking("/live", headers or {}))
        self.head = self._until(b"\r\n\r\n").decode()
        self.last_id = 0
        self.whole = False
        self._text = b""

    def event(self) -> tuple[str, Any]:
        """Return the next event's kind and contents."""
        while True:
            while b"\n\n" not in self._text:
                self._text += self._chunk()
            block, _, self._text = self._text.partition(b"\n\n")
            lines = dict(line.split(": ", 1) for line in block.decode().split("\n"))
            if "data" in lines:
                self.last_id = int(lines.get("id", self.last_id))
                return lines["event"], json.loads(lines["data"])

    def wait(self, kind: str, wanted: Callable[[Any], object]) -> Any:
        """Wait for the first event of a kind that is as wanted, and return it."""
        while True:
            found, document = self.event()
            if found == kind and wanted(document):
                return document

    def wait_end(self) -> None:
        """Wait until the stream is over."""
        with suppress(Closed):
            while True:
                self.event()

    def _chunk(self) -> bytes:
        size = int(self._until(b"\r\n"), 16)
        if not size:
            self.whole = True
            raise Closed(b"")
        chunk = b""
        while len(chunk) < size + 2:
            if not self._buffer:
                self._more(chunk)
            taken = size + 2 - len(chunk)
            chunk, self._buffer = chunk + self._buffer[:taken], self._buffer[taken:]
        return chunk[:-2]


@pytest.fixture
def stream(port: int) -> Iterator[Stream]:
    with Stream(port) as made:
        yield made


def got(port: int, path: str) -> Response:
    with Connection(port) as connection:
        return connection.ask(asking(path))


def ask(server: Server, count: int) -> None:
    with Connection(server.port) as connection:
        for _ in range(count):
            assert connection.ask(fast("echo", instances(1))).status == 200


def ended(second: Json) -> int:
    own: Json = second["models"].get("echo", {})
    return sum(own.get("codes", {}).values())


def wait_for_marks(stream: Stream, *wanted: str) -> None:
    """Wait until the page has been sent all these marks, in one second or in several."""
    left = set(wanted)
    while left:
        marks = stream.wait("second", lambda second: second["marks"])["marks"]
        left -= {words for words in left if any(words in mark["words"] for mark in marks)}


def test_events_of_clients_are_sent_once(server: Server, stream: Stream) -> None:
    assert stream.head.startswith("HTTP/1.1 200 ")
    assert "text/event-stream" in stream.head
    state = stream.wait("state", lambda state: state["state"] == "ready")
    assert state["pid"] == server.pid
    assert state["public"] == f"http://127.0.0.1:{server.port}"
    ask(server, ASKED)
    counted = 0
    while counted < ASKED:
        counted += ended(stream.wait("second", ended))
    assert counted == ASKED
    stream.wait("second", lambda second: not ended(second))
    (model,) = stream.wait("state", lambda _: True)["models"]
    assert (model["title"], model["ready"], model["why"]) == ("echo", 1, "")


def test_a_late_subscriber_gets_the_past(server: Server, port: int) -> None:
    with Stream(port) as first:
        before = ended(first.wait("second", lambda _: True))
        ask(server, ASKED)
        while before < ASKED:
            before += ended(first.wait("second", ended))
    with Stream(port) as late:
        counted = 0
        while late.last_id < first.last_id:
            counted += ended(late.wait("second", lambda _: True))
        assert counted >= ASKED


def test_a_returning_subscriber_gets_the_missed_events(stream: Stream, port: int) -> None:
    known = stream.wait("second", lambda _: True)["at"]
    later = [stream.wait("second", lambda _: True)["at"] for _ in range(3)]
    with Stream(port, {"Last-Event-ID": str(known)}) as again:
        assert [again.wait("second", lambda _: True)["at"] for _ in range(3)] == later


def test_subscribers_beyond_the_limit_are_refused_and_metrics_go_on(
    port: int, wait_until: WaitUntil
) -> None:
    def opened() -> Stream | None:
        made = Stream(port)
        if made.head.startswith("HTTP/1.1 200 "):
            return made
        made.close()
        return None

    # Those of tests before are noticed to have gone as they are told the next event.
    all_of_them: list[Stream] = []
    while len(all_of_them) < MAX_SUBSCRIBERS:
        all_of_them.append(wait_until(opened, "room for a watcher"))
    refused = got(port, "/live")
    assert refused.status == 503
    assert refused.error == f"{MAX_SUBSCRIBERS} pages are open already; close one of them"
    assert got(port, "/metrics").status == 200
    assert got(port, "/").status == 200
    all_of_them.pop().close()
    all_of_them.append(wait_until(opened, "room for another"))
    for watching in all_of_them:
        watching.close()


def test_one_that_reads_nothing_holds_nobody_up(port: int) -> None:
    with Stream(port) as idle, Stream(port) as reading:
        seen = [reading.wait("second", lambda _: True)["at"] for _ in range(4)]
        assert seen == sorted(set(seen))
        # What it did not read was kept for it all the same.
        instants = [idle.wait("second", lambda _: True)["at"] for _ in range(len(seen))]
        assert instants == sorted(set(instants))


def test_a_worker_that_dies_is_marked(server: Server, stream: Stream) -> None:
    stream.wait("second", lambda _: True)
    os.kill(server.role("worker echo/0"), signal.SIGKILL)
    wait_for_marks(stream, "a worker of echo killed", "worker 0 of echo started as process")
    stream.wait("state", lambda state: state["models"][0]["ready"] == 1)


def test_it_goes_on_without_a_collector_and_says_that_there_is_another(
    server: Server, stream: Stream, port: int
) -> None:
    stream.wait("second", lambda _: True)
    os.kill(server.role("collector"), signal.SIGKILL)
    wait_for_marks(stream, "a collector killed, and started", "another process is the collector")
    assert got(port, "/slowest").status == 200


def test_the_slowest_requests_are_listed(server: Server, stream: Stream, port: int) -> None:
    ask(server, 1)

    def own(requests: list[Json]) -> list[Json]:
        return [request for request in requests if request["model"] == "echo"]

    (slowest, *_) = own(stream.wait("slowest", own))
    assert slowest["cause"] in (*slowest["phases"], "batch", "retry")
    assert slowest["ms"] == pytest.approx(sum(slowest["phases"].values()), abs=0.01)
    listed = got(port, "/slowest").json["slowest"]
    assert slowest["id"] in {request["id"] for request in listed}


def test_a_slow_or_failed_request_like_the_one_before_is_looked_at(
    server: Server, port: int, wait_until: WaitUntil
) -> None:
    """Requests with the same head on a kept connection are the quickest to serve."""
    with Connection(server.port) as connection:
        usual, slow, failed = (
            connection.ask(request(predict_target("echo"), instances(word)))
            for word in ("again", "sleep", "raise")
        )
    assert [answer.status for answer in (usual, slow, failed)] == [200, 200, 500]
    listed = {each["id"]: each for each in got(port, "/slowest").json["slowest"]}
    assert listed[slow.headers["x-request-id"]]["cause"] == "run"
    wait_until(lambda: failed.headers["x-request-id"] in server.stderr, "the failure in the log")


def test_another_control_process_goes_on_where_the_last_one_ended(
    server: Server, stream: Stream, port: int, wait_until: WaitUntil
) -> None:
    stream.wait("second", lambda _: True)
    control = server.role("control")
    os.kill(control, signal.SIGKILL)
    stream.wait_end()
    wait_until(lambda: server.titles().get("ringbatch: control", control) != control, "another")
    with Stream(port, {"Last-Event-ID": str(stream.last_id)}) as again:
        assert again.wait("second", lambda _: True)["at"] > stream.last_id


@exhaustive
def test_a_stop_does_not_wait_for_subscribers(start: Start) -> None:
    server = start({"echo": {"path": "moody.py"}}, control_port=0)
    with Stream(server.control_port) as stream:
        stream.wait("state", lambda _: True)
        assert server.stop() == 0
        stream.wait_end()
        assert stream.whole


def own_address() -> str:
    """Return an address of this host that is not 127.0.0.1."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent: the kernel says by which way it would go.
            probe.connect(("198.51.100.1", 9))
        except OSError:
            pytest.skip("this host has no address but 127.0.0.1")
        found: str = probe.getsockname()[0]
    return found


class FromAfar(Connection):
    """HTTP connection that the server takes for another host's."""

    def __init__(self, address: str, port: int) -> None:
        super().__init__(port)
        self._socket.close()
        self._socket = socket.create_connection((address, port), 60)


def test_beyond_this_host_a_key_is_asked_for_and_the_file_of_keys_is_followed(
    start: Start, tmp_path: Path, wait_until: WaitUntil
) -> None:
    address, keys = own_address(), write_private(tmp_path / "keys", f"{KEY}\n")
    server = start(
        {"echo": {"path": "moody.py"}},
        control_port=0,
        control_host="0.0.0.0",
        api_keys_file=str(keys),
    )
    port = server.control_port

    def status(path: str, headers: dict[str, str]) -> int:
        with FromAfar(address, port) as connection:
            return connection.ask(asking(path, headers)).status

    basic = {"Authorization": f"Basic {base64.b64encode(f'me:{KEY}'.encode()).decode()}"}
    for path in ("/", "/metrics", "/slowest", "/assets/page.js"):
        assert status(path, {}) == 401
        assert status(path, bearer(OTHER_KEY)) == 401
        assert status(path, bearer()) == 200
        assert status(path, basic) == 200
        assert got(port, path).status == 200
    assert status("/v2/health/ready", {}) == 200
    with Stream(port) as stream:
        stream.wait("state", lambda _: True)
        write_private(keys, f"{OTHER_KEY}\n")
        wait_until(lambda: status("/", bearer(OTHER_KEY)) == 200, "the other key")
        assert status("/", bearer()) == 401
        stream.wait_end()


@pytest.mark.parametrize(
    "sent", [b"", b"GET /metrics HT", b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n"]
)
def test_connections_that_ask_for_nothing_keep_nobody_out(port: int, sent: bytes) -> None:
    with Stream(port) as stream, ExitStack() as stack:
        for _ in range(2 * MAX_CONNECTIONS):
            stack.enter_context(Connection(port)).send(sent)
            with Connection(port) as connection:
                assert connection.ask(asking("/metrics")).status == 200
        stream.event()
