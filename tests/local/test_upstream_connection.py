"""The connection to a model server, against servers that answer as no good one does."""

import socket
import struct
import threading
import time

import pytest
from scripted_upstream import (
    CHUNKED,
    FAR_NS,
    OK,
    Serve,
    answering,
    failure,
    post,
    request_of,
    served,
)

from ringbatch.engine.runtimes.upstreams.connection import (
    Address,
    Answer,
    Upstream,
    address_of,
)
from ringbatch.shm.slot import Status

SOON_NS = 50_000_000


def closing(*answers: bytes, reset: bool = False) -> Serve:
    """Return a server that answers, and closes after one more request without an answer."""

    def handle(connection: socket.socket) -> None:
        for answer in answers:
            assert request_of(connection)
            connection.sendall(answer)
        assert request_of(connection)
        if reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    return handle


def test_one_whole_request_is_sent() -> None:
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


def test_a_server_that_is_not_there_is_down(free_port: int) -> None:
    address = Address("127.0.0.1", free_port, "")
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


def test_a_deadline_may_be_far_beyond_the_kernels_range() -> None:
    with served(answering(OK)) as upstream:
        assert post(upstream, left_ns=1 << 62).body == b"ok"


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
