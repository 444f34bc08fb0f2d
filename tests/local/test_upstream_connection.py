"""The connection to a model server, against servers that answer as no good one does."""

import contextlib
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from ringbatch.engine.models.model import ServerFailed
from ringbatch.engine.runtimes.upstreams.connection import (
    MAX_HEAD_BYTES,
    Address,
    Answer,
    Bound,
    TooLarge,
    Upstream,
    address_of,
    answer_bound,
    description_bound,
    held_bytes,
)
from ringbatch.shm.slot import Status

FAR_NS = 3_600_000_000_000
"""Longer than any test."""
SOON_NS = 50_000_000
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
Serve = Callable[[socket.socket], None]


def request_of(connection: socket.socket) -> bytes:
    """The next request, whole; empty where the connection ends first."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(1 << 16)
        if not more:
            return b""
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
    while len(body) < size:
        body += connection.recv(1 << 16)
    return head + b"\r\n\r\n" + body


class Script:
    """A server whose connections are each handled by the next function of a list."""

    def __init__(self, handlers: Sequence[Serve]) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address("127.0.0.1", self._listener.getsockname()[1], "")
        self.errors: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, args=(handlers,), daemon=True)
        self._thread.start()

    def _run(self, handlers: Sequence[Serve]) -> None:
        for handle in handlers:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # the test has failed
                return
            with connection, contextlib.suppress(ConnectionError):
                handle(connection)

    def abort(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)

    def join(self) -> None:
        self._thread.join()
        self._listener.close()


@contextmanager
def served(*handlers: Serve, bound: Callable[[], Bound] = description_bound) -> Iterator[Upstream]:
    """A connection to a server that behaves so."""
    script = Script(handlers)
    upstream = Upstream(script.address, [script.address.host], bound=bound)
    try:
        yield upstream
    except BaseException:
        script.abort()
        raise
    finally:
        upstream.close()
        script.join()


def answering(*answers: bytes) -> Serve:
    """Takes a request for each answer, and waits for the end."""

    def handle(connection: socket.socket) -> None:
        for answer in answers:
            assert request_of(connection)
            connection.sendall(answer)
        connection.recv(1)

    return handle


def closing(*answers: bytes, reset: bool = False) -> Serve:
    """The same, and closes after another request that stays without answer."""

    def handle(connection: socket.socket) -> None:
        for answer in answers:
            assert request_of(connection)
            connection.sendall(answer)
        assert request_of(connection)
        if reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    return handle


def post(upstream: Upstream, body: bytes = b"body", left_ns: int = FAR_NS) -> Answer:
    return upstream.post(b"/p?q=1", b"A: b\r\n", body, time.monotonic_ns() + left_ns)


def failure(upstream: Upstream, left_ns: int = FAR_NS, body: bytes = b"body") -> ServerFailed:
    with pytest.raises(ServerFailed) as caught:
        post(upstream, body, left_ns)
    return caught.value


def test_what_is_sent_is_one_whole_request() -> None:
    seen = []

    def handle(connection: socket.socket) -> None:
        seen.append(request_of(connection))
        connection.sendall(OK)

    with served(handle) as upstream:
        assert post(upstream) == Answer(200, {"content-length": "2"}, b"ok")
    host = upstream.address.authority.encode()
    expected = b"POST /p?q=1 HTTP/1.1\r\nHost: %b\r\nA: b\r\nContent-Length: 4\r\n\r\nbody" % host
    assert seen == [expected]


def test_a_target_is_sent_as_it_was_written() -> None:
    target = b"//a/../b%2fc:predict?x=%7e|[&y"
    seen = []

    def handle(connection: socket.socket) -> None:
        seen.append(request_of(connection).partition(b"\r\n")[0])
        connection.sendall(OK)

    with served(handle) as upstream:
        upstream.post(target, b"", b"", time.monotonic_ns() + FAR_NS)
    assert seen == [b"POST %b HTTP/1.1" % target]


def test_one_connection_serves_many_requests() -> None:
    with served(answering(OK, OK, OK)) as upstream:
        assert [post(upstream).body for _ in range(3)] == [b"ok"] * 3


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokAND MORE",
    ],
)
def test_a_connection_that_is_at_its_end_is_not_used_again(answer: bytes) -> None:
    with served(answering(answer), answering(OK)) as upstream:
        assert post(upstream).body == b"ok"
        assert post(upstream).body == b"ok"


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n",
            b"abc",
        ),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, b"ok"),
        (b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + OK, b"ok"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    ],
)
def test_every_form_of_an_answer_is_read(answer: bytes, body: bytes) -> None:
    with served(answering(answer, OK)) as upstream:
        assert post(upstream).body == body
        assert post(upstream).body == b"ok"


def test_an_answer_may_end_with_its_connection() -> None:
    def handle(connection: socket.socket) -> None:
        request_of(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\nall of it")

    with served(handle, answering(OK)) as upstream:
        assert post(upstream).body == b"all of it"
        assert post(upstream).body == b"ok"


@pytest.mark.parametrize("reset", [False, True])
def test_a_kept_connection_that_is_closed_without_a_byte_is_tried_once_more(reset: bool) -> None:
    with served(closing(OK, reset=reset), answering(OK)) as upstream:
        assert post(upstream).body == b"ok"
        assert post(upstream).body == b"ok"


def test_a_kept_connection_that_has_been_closed_is_not_used() -> None:
    closed = threading.Event()

    def handle(connection: socket.socket) -> None:
        request_of(connection)
        connection.sendall(OK)
        connection.shutdown(socket.SHUT_WR)
        closed.set()
        assert connection.recv(1) == b"", "a request came over a connection that was closed"

    with served(handle, answering(OK)) as upstream:
        post(upstream)
        closed.wait()
        assert post(upstream).body == b"ok"


@pytest.mark.parametrize("reset", [False, True])
def test_a_new_connection_that_is_closed_without_a_byte_is_not_tried_again(reset: bool) -> None:
    with served(closing(reset=reset)) as upstream:
        error = failure(upstream)
    assert (error.status, error.isolates) == (Status.SERVER_BROKEN, False)
    assert str(error) == "the model server closed the connection without an answer"


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize(
    "begun",
    [
        OK[:-1],
        b"HTTP",
        b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        CHUNKED + b"2\r\nok\r\n",
        CHUNKED + b"2\r\nok\r\n1",
        CHUNKED + b"2\r\nok\r\n0\r\n",
    ],
    ids=["body", "first line", "head", "announcement", "chunks", "size", "trailers"],
)
def test_an_answer_that_breaks_off_is_not_asked_for_again(begun: bytes, kept: bool) -> None:
    def handle(connection: socket.socket) -> None:
        if kept:
            request_of(connection)
            connection.sendall(OK)
        request_of(connection)
        connection.sendall(begun)

    with served(handle) as upstream:
        if kept:
            post(upstream)
        error = failure(upstream)
    assert error.status is Status.SERVER_BROKEN
    assert str(error) == "the model server closed the connection in the middle of its answer"


def test_a_server_that_is_not_there_is_down() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = Address("127.0.0.1", listener.getsockname()[1], "")
    error = failure(Upstream(address, [address.host]))
    assert error.status is Status.SERVER_DOWN
    assert str(error) == "the model server cannot be reached: connection refused"


def test_a_server_that_says_nothing_is_late() -> None:
    done = threading.Event()

    def handle(connection: socket.socket) -> None:
        request_of(connection)
        done.wait()

    with served(handle, answering(OK)) as upstream:
        error = failure(upstream, SOON_NS)
        done.set()
        assert error.status is Status.EXPIRED
        assert post(upstream).body == b"ok"


def test_a_server_that_reads_nothing_is_late() -> None:
    done = threading.Event()

    def handle(_connection: socket.socket) -> None:
        done.wait()

    with served(handle, answering(OK)) as upstream:
        error = failure(upstream, 10 * SOON_NS, bytes(1 << 24))
        done.set()
        assert error.status is Status.EXPIRED
        assert post(upstream).body == b"ok"


def test_a_request_that_the_kernel_has_no_room_for_goes_out_as_it_is_read() -> None:
    body = bytes(range(256)) * (1 << 15)
    seen = []

    def handle(connection: socket.socket) -> None:
        for _ in range(2):
            seen.append(request_of(connection).partition(b"\r\n\r\n")[2])
            connection.sendall(OK)

    with served(handle) as upstream:
        assert [post(upstream, text).body for text in (body, b"short")] == [b"ok"] * 2
    assert seen == [body, b"short"]


def test_a_deadline_may_be_far_beyond_what_the_kernel_counts() -> None:
    with served(answering(OK)) as upstream:
        assert post(upstream, left_ns=1 << 62).body == b"ok"


def test_an_answer_larger_than_one_look_is_whole() -> None:
    body = bytes(range(256)) * 1000
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    with served(answering(answer, OK)) as upstream:
        assert post(upstream).body == body
        assert post(upstream).body == b"ok"


HELD = 1 << 26
OF_MEMORY = ", a 64th of the memory that worker_memory_bytes leaves"
ENDLESS = b"8000\r\n" + bytes(0x8000) + b"\r\n"


@pytest.mark.parametrize(
    ("begun", "drop"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 100001\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\ncontent-length: %b9\r\n\r\n" % (b"9" * 18), b""),
        (b"HTTP/1.1 200 OK\r\ncontent-length: %b100001\r\n\r\n" % (b"0" * 5000), b""),
        (b"HTTP/1.1 200 OK\r\n\r\n", ENDLESS),
        (CHUNKED, ENDLESS),
        (CHUNKED + b"1;a=", b"b" * 1000),
        (CHUNKED + b"0\r\na: ", b"b" * 1000),
    ],
    ids=["length", "longest length", "zeros", "to the end", "chunks", "extension", "trailer"],
)
def test_more_of_an_answer_than_may_be_is_not_taken(begun: bytes, drop: bytes) -> None:
    """Where its length says so, nothing of it."""

    def handle(connection: socket.socket) -> None:
        request_of(connection)
        connection.sendall(begun)
        while drop:
            connection.sendall(drop)
        connection.recv(1)

    with served(handle, answering(OK), bound=lambda: Bound(100_000, ", for a test")) as upstream:
        error = failure(upstream)
        assert isinstance(error, TooLarge)
        assert (error.status, error.isolates) == (Status.SERVER_BROKEN, True)
        assert str(error) == "the model server's answer is over 100000 bytes, for a test"
        assert post(upstream).body == b"ok"


@pytest.mark.parametrize(
    ("lane_bytes", "limit", "bound"),
    [
        (1 << 20, resource.RLIM_INFINITY, Bound(1 << 22, ", 4 times lane_bytes")),
        (1 << 20, HELD + (1 << 30), Bound(1 << 22, ", 4 times lane_bytes")),
        (1 << 25, HELD + (1 << 28), Bound(1 << 22, OF_MEMORY)),
        (1 << 25, HELD, Bound(0, OF_MEMORY)),
        (1 << 25, HELD - 1, Bound(0, OF_MEMORY)),
    ],
)
def test_an_answer_is_bounded_by_lanes_and_by_the_memory_that_is_left(
    monkeypatch: pytest.MonkeyPatch, lane_bytes: int, limit: int, bound: Bound
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _what: (limit, limit))
    monkeypatch.setattr("ringbatch.engine.runtimes.upstreams.connection.held_bytes", lambda: HELD)
    assert answer_bound(lane_bytes)() == bound


def test_what_a_process_holds_is_counted() -> None:
    before = held_bytes()
    # So much is mapped for itself, and counts before it is touched.
    held = bytearray(1 << 28)
    assert held_bytes() - before >= len(held)


def test_no_memory_in_the_parsers_calls_is_no_fault_of_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fill(_reader: object, _piece: bytes) -> None:
        raise MemoryError

    monkeypatch.setattr("ringbatch.engine.runtimes.upstreams.connection._Reader.on_body", fill)
    with served(answering(OK)) as upstream, pytest.raises(MemoryError):
        post(upstream)


@pytest.mark.parametrize(
    ("begun", "drop"),
    [
        (b"HTTP/1.1 200 ", b"O"),
        (b"HTTP/1.1 200 OK\r\n", b"a: b\r\n"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n", b"."),
        (CHUNKED, b"0"),
        (CHUNKED, b"1\r\n.\r\n"),
        (CHUNKED + b"0\r\n", b"a: b\r\n"),
    ],
    ids=["first line", "head", "announcements", "body", "size", "chunks", "trailers"],
)
def test_a_server_that_drips_is_late_as_a_whole(begun: bytes, drop: bytes) -> None:
    """Every byte comes in time, and the answer does not."""

    def handle(connection: socket.socket) -> None:
        request_of(connection)
        connection.sendall(begun)
        while True:
            connection.sendall(drop)
            time.sleep(0.005)

    with served(handle) as upstream:
        assert failure(upstream, SOON_NS).status is Status.EXPIRED


def test_a_deadline_that_has_passed_is_not_begun_with() -> None:
    upstream = Upstream(Address("127.0.0.1", 9, ""), ["127.0.0.1"])
    assert failure(upstream, -1).status is Status.EXPIRED


def test_a_server_that_answers_before_it_has_read_all_is_heard() -> None:
    body = bytes(1 << 24)

    def handle(connection: socket.socket) -> None:
        connection.recv(100)
        connection.sendall(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig")
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 20):
            pass

    with served(handle) as upstream:
        assert post(upstream, body)[::2] == (413, b"big")


@pytest.mark.parametrize("kept", [False, True])
def test_a_server_that_answers_and_reads_no_further_is_not_waited_for(kept: bool) -> None:
    """It keeps the connection open, whose rest it would take for another request."""
    body = bytes(1 << 24)

    def handle(connection: socket.socket) -> None:
        if kept:
            request_of(connection)
            connection.sendall(OK)
        connection.recv(100)
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        connection.sendall(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig")
        done.wait()

    done = threading.Event()
    with served(handle, answering(OK)) as upstream:
        if kept:
            post(upstream)
        try:
            assert post(upstream, body)[::2] == (413, b"big")
        finally:
            done.set()
        assert post(upstream).body == b"ok"


def test_what_follows_a_whole_answer_is_no_part_of_it() -> None:
    other = b"HTTP/1.1 500 Oops\r\nRetry-After: 9\r\ncontent-length: 4\r\n\r\nelse"
    with served(answering(OK + other), answering(OK)) as upstream:
        assert post(upstream) == Answer(200, {"content-length": "2"}, b"ok")
        assert post(upstream) == Answer(200, {"content-length": "2"}, b"ok")


def test_what_is_said_unasked_is_nobodys_answer() -> None:
    was_sent = threading.Event()

    def handle(connection: socket.socket) -> None:
        request_of(connection)
        connection.sendall(OK)
        was_received.wait()
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nelse")
        was_sent.set()
        connection.recv(1)

    was_received = threading.Event()
    with served(handle, answering(OK)) as upstream:
        assert post(upstream).body == b"ok"
        was_received.set()
        was_sent.wait()
        assert post(upstream).body == b"ok"


def test_trailers_are_no_headers() -> None:
    answer = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"2\r\nok\r\n0\r\nContent-Encoding: gzip\r\nTransfer-Encoding: x\r\n\r\n"
    )
    with served(answering(answer, OK)) as upstream:
        assert post(upstream) == Answer(200, {"transfer-encoding": "chunked"}, b"ok")
        assert post(upstream).body == b"ok"


@pytest.mark.parametrize("status", [200, 299, 400, 499, 520, 598, 599])
def test_a_status_need_have_no_name(status: int) -> None:
    with served(answering(OK.replace(b"200 OK", b"%d Nobody Knows" % status))) as upstream:
        assert post(upstream)[::2] == (status, b"ok")


@pytest.mark.parametrize("status", [b"000", b"099", b"600", b"799", b"999", b"1000", b"99", b"-1"])
def test_what_is_no_status_is_no_answer(status: bytes) -> None:
    with served(answering(OK.replace(b"200", status)), answering(OK)) as upstream:
        assert failure(upstream).status is Status.SERVER_BROKEN
        assert post(upstream).body == b"ok"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "the model server's answer is not HTTP/1.1: "),
        (
            b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
            "the model server's",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nok",
            "the model server's answer is not HTTP/1.1: ",
        ),
        (
            b"HTTP/1.1 200 OK\r\nX: " + b"x" * (1 << 20) + b"\r\ncontent-length: 0\r\n\r\n",
            f"the head of the model server's answer is over {MAX_HEAD_BYTES} bytes",
        ),
    ],
    ids=["other protocol", "upgrade", "two lengths", "megabyte header"],
)
def test_what_is_no_answer_is_told_in_words(answer: bytes, words: str) -> None:
    def handle(connection: socket.socket) -> None:
        request_of(connection)
        connection.sendall(answer)
        connection.recv(1)

    with served(handle, answering(OK)) as upstream:
        error = failure(upstream)
        assert error.status is Status.SERVER_BROKEN
        assert str(error).startswith(words)
        assert post(upstream).body == b"ok"


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:8501", Address("127.0.0.1", 8501, "")),
        ("http://models", Address("models", 80, "")),
        ("http://[::1]:1/a/b:predict", Address("::1", 1, "/a/b:predict")),
        ("http://h:1/", Address("h", 1, "")),
    ],
)
def test_an_address_has_host_port_and_path(url: str, address: Address) -> None:
    assert address_of(url) == address


@pytest.mark.parametrize(
    "url",
    [
        "ftp://h:1",
        "http://",
        "h:1",
        "http://u@h",
        "http://h?q",
        "http://h:99999",
        "http://h/ü",
        "http://" + "h" * 64,
        "http://a..b",
    ],
)
def test_another_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        address_of(url)


def test_an_ipv6_address_stands_in_brackets() -> None:
    assert Address("::1", 80, "").url == "http://[::1]:80"
