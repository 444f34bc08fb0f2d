"""Answers in parts on a connection of `http_harness`: requests for them, and their bytes."""

import json
from collections.abc import Callable
from typing import Any, Final

from http_harness import Connection, Pending, Transport, request
from silent_recorder import recorder_to

from ringbatch.frontend.access.line_writer import Writer
from ringbatch.frontend.access.sampling import AccessSettings
from ringbatch.shm.host.log_lines import LineFormatter

ACCEPT: Final = b"Accept: text/event-stream"
ASK: Final = request(b"{}", ACCEPT)
LAST: Final = b"0\r\n\r\n"


def head(*, close: bool = False) -> bytes:
    """Return the head of an answer in parts."""
    return (
        b"HTTP/1.1 200 OK\r\ndate: today\r\ncontent-type: text/event-stream\r\n"
        b"cache-control: no-store\r\nx-accel-buffering: no\r\n%bx-request-id: made\r\n"
        b"transfer-encoding: chunked\r\n\r\n" % (b"connection: close\r\n" if close else b"")
    )


def chunk(*texts: bytes) -> bytes:
    """Return events with these texts, in one chunk."""
    return framed(b"".join(b"data: %b\n\n" % text for text in texts))


def framed(data: bytes) -> bytes:
    """Return bytes as a chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def asked(connection: Connection, ask: bytes = ASK) -> Pending:
    """Send a request, and return the call that it became."""
    connection.feed(ask)
    return connection.calls[-1]


def logging(
    *, server_timing: bool = False
) -> tuple[Connection, Callable[[], list[tuple[str, int]]]]:
    """Return a connection, and what gives the ids and sizes of the answers that are logged."""
    written: list[bytes] = []
    writer = Writer(LineFormatter("f", "json"), written.append)

    def logged() -> list[tuple[str, int]]:
        writer.write_waiting()
        lines = map(json.loads, b"".join(written).splitlines())
        return [(line["id"], line["bytes_out"]) for line in lines]

    return Connection(
        recorder=recorder_to(writer, AccessSettings("all", server_timing=server_timing))
    ), logged


class Deaf(Transport):
    """A transport whose client reads nothing, of which some bytes wait."""

    def write(self, data: Any) -> None:
        super().write(data)
        self.left_bytes += len(data)
        self.protocol.pause_writing()


def deaf() -> tuple[Connection, Pending]:
    """Return a connection whose client does not read, and its call for events."""
    connection = Connection()
    call = asked(connection)
    transport = Deaf()
    transport.protocol = connection.lane
    connection.lane._transport = connection.transport = transport
    connection.lane._write = transport.write
    assert connection.lane._events is not None
    connection.lane._events._transport = transport
    return connection, call
