"""A model server that does as a script says, and requests to it."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from ringbatch.engine.models.model import ServerFailed
from ringbatch.engine.runtimes.upstreams.connection import (
    Address,
    Answer,
    Bound,
    Upstream,
    description_bound,
)

FAR_NS = 3_600_000_000_000
"""Deadline beyond any test."""
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
Serve = Callable[[socket.socket], None]


def request_of(connection: socket.socket) -> bytes:
    """Return the next whole request; empty if the connection ends first."""
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
    """Return a server that takes a request for each answer, and waits for the end."""

    def handle(connection: socket.socket) -> None:
        for answer in answers:
            assert request_of(connection)
            connection.sendall(answer)
        connection.recv(1)

    return handle


def post(upstream: Upstream, body: bytes = b"body", left_ns: int = FAR_NS) -> Answer:
    return upstream.post(b"/p?q=1", b"A: b\r\n", body, time.monotonic_ns() + left_ns)


def failure(upstream: Upstream, left_ns: int = FAR_NS, body: bytes = b"body") -> ServerFailed:
    with pytest.raises(ServerFailed) as caught:
        post(upstream, body, left_ns)
    return caught.value
