"""Answers of model servers: their forms, their bounds, and bytes that are none."""

import resource
import socket
import threading

import pytest
from scripted_upstream import CHUNKED, OK, answering, failure, post, request_of, served

from ringbatch.engine.runtimes.upstreams.connection import (
    MAX_HEAD_BYTES,
    Answer,
    Bound,
    TooLarge,
    answer_bound,
    held_bytes,
)
from ringbatch.shm.slot import Status


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
    """An answer whose length is already too large is not read at all."""

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
    monkeypatch.setattr(resource, "getrlimit", lambda _resource: (limit, limit))
    monkeypatch.setattr("ringbatch.engine.runtimes.upstreams.connection.held_bytes", lambda: HELD)
    assert answer_bound(lane_bytes)() == bound


def test_memory_that_a_process_holds_is_counted() -> None:
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


def test_bytes_behind_a_whole_answer_are_no_part_of_it() -> None:
    other = b"HTTP/1.1 500 Oops\r\nRetry-After: 9\r\ncontent-length: 4\r\n\r\nelse"
    with served(answering(OK + other), answering(OK)) as upstream:
        assert post(upstream) == Answer(200, {"content-length": "2"}, b"ok")
        assert post(upstream) == Answer(200, {"content-length": "2"}, b"ok")


def test_unrequested_bytes_are_nobodys_answer() -> None:
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
def test_an_invalid_status_is_no_answer(status: bytes) -> None:
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
def test_an_invalid_answer_is_described(answer: bytes, words: str) -> None:
    def handle(connection: socket.socket) -> None:
        request_of(connection)
        connection.sendall(answer)
        connection.recv(1)

    with served(handle, answering(OK)) as upstream:
        error = failure(upstream)
        assert error.status is Status.SERVER_BROKEN
        assert str(error).startswith(words)
        assert post(upstream).body == b"ok"
