"""The payload log in the control process: the file, the server, and the thread of both."""

import asyncio
import http.server
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import orjson
import payload_ends
import pytest
from payload_ends import Ends

from ringbatch.frontend.payloads import log as log_module
from ringbatch.frontend.payloads import messages
from ringbatch.frontend.payloads.events import Event, as_line
from ringbatch.frontend.payloads.file_sink import FileSink
from ringbatch.frontend.payloads.http_sink import HttpSink
from ringbatch.frontend.payloads.log import PayloadLog
from ringbatch.frontend.payloads.passage import MOST_BYTES, send
from ringbatch.shm.host import delivering
from ringbatch.shm.host.delivering import NotTakenError

# The file


def event(number: int, size: int = 2) -> Event:
    attributes = {"id": str(number), "datacontenttype": "text/plain", "bodybytes": str(size)}
    return Event(attributes, bytes(size))


def line(number: int, size: int = 2) -> bytes:
    return as_line(event(number, size))


def ids(path: Path) -> list[int]:
    return [int(json.loads(line)["id"]) for line in path.read_text().splitlines()]


def test_a_full_file_is_renamed_and_the_oldest_goes(tmp_path: Path) -> None:
    path = tmp_path / "log"
    sink = FileSink(path, 1000, 2)
    for number in range(10):
        assert sink.deliver([line(number, 400)]) == ""
    names = sorted(found.name for found in tmp_path.iterdir())
    assert names == ["log", "log.1", "log.2"]
    found = [number for name in ("log.2", "log.1", "log") for number in ids(tmp_path / name)]
    assert found == list(range(found[0], 10))
    assert all(file.stat().st_size <= 1000 for file in tmp_path.iterdir())
    sink.close()


def test_lines_of_a_message_are_divided_among_files(tmp_path: Path) -> None:
    sizes = [400, 400, 100, 5000, 2, 2]
    lines = b"".join(line(number, size) for number, size in enumerate(sizes))
    sink = FileSink(tmp_path / "log", 1000, 9)
    for block, weight, count in sink.entries(message_of(lines)):
        assert (len(block), block.count(b"\n")) == (weight, count)
        sink.deliver([block])
    found = sorted(tmp_path.iterdir(), reverse=True)
    assert [number for file in found for number in ids(file)] == list(range(len(sizes)))
    longer = [ids(file) for file in found if file.stat().st_size > 1000]
    assert longer == [[sizes.index(5000)]]
    sink.close()


def test_a_long_body_becomes_a_line_where_the_file_is(tmp_path: Path) -> None:
    sink = FileSink(tmp_path / "log", 1 << 20, 1)
    message = message_of(line(1)) + message_of(event(2, 9000)) + message_of(line(3))
    ((block, _, count),) = sink.entries(message)
    assert (block, count) == (line(1) + line(2, 9000) + line(3), 3)


def message_of(content: Event | bytes) -> bytes:
    if isinstance(content, bytes):
        return b"".join(messages._record(b"", content))
    return b"".join(messages._record(orjson.dumps(content.attributes), content.data))


def test_a_line_longer_than_a_file_is_written_all_the_same(tmp_path: Path) -> None:
    sink = FileSink(tmp_path / "log", 1000, 0)
    sink.deliver([line(1, 5000)])
    sink.deliver([line(2)])
    assert [ids(file) for file in tmp_path.iterdir()] == [[2]]
    sink.close()


def test_a_file_that_is_renamed_or_removed_is_begun_again(tmp_path: Path) -> None:
    path = tmp_path / "log"
    sink = FileSink(path, 1 << 20, 2)
    sink.deliver([line(1)])
    path.rename(tmp_path / "rotated")
    sink.deliver([line(2)])
    path.unlink()
    sink.deliver([line(3)])
    assert (ids(tmp_path / "rotated"), ids(path)) == ([1], [3])
    assert path.stat().st_mode & 0o777 == 0o640 & ~_umask()
    sink.close()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_two_engines_may_write_to_one_file(tmp_path: Path) -> None:
    """As during a handover: each line is in one file, and no file is longer than it may be."""
    sinks = [FileSink(tmp_path / "log", 2000, 99) for _ in range(2)]
    for number in range(100):
        sinks[number % 2].deliver([line(number, 300)])
    found = sorted(number for file in tmp_path.iterdir() for number in ids(file))
    assert found == list(range(100))
    for sink in sinks:
        sink.close()


def test_a_full_disk_leaves_no_half_of_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = FileSink(tmp_path / "log", 1 << 20, 1)
    sink.deliver([line(1)])
    real = os.write

    def write(descriptor: int, data: Any) -> int:
        if len(data) > 10:
            return real(descriptor, data[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(OSError, match="No space left"):
        sink.deliver([line(2), line(3)])
    monkeypatch.setattr(os, "write", real)
    sink.deliver([line(4)])
    assert ids(tmp_path / "log") == [1, 4]
    sink.close()


# The server


class Receiver(http.server.BaseHTTPRequestHandler):
    """Receiver that answers with the next status and keeps the requests."""

    protocol_version = "HTTP/1.1"
    statuses: ClassVar[list[int]] = []
    got: ClassVar[list[tuple[str, dict[str, str], bytes]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.got.append((self.path, headers, body))
        self.send_response(self.statuses.pop(0) if self.statuses else 204)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[http.server.ThreadingHTTPServer]:
    Receiver.statuses, Receiver.got = [], []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def test_an_event_is_one_request_in_binary_content_mode(
    server: http.server.ThreadingHTTPServer,
) -> None:
    sink = HttpSink(f"http://127.0.0.1:{server.server_port}/a/b", None)
    assert sink.deliver([event(7)]) == ""
    assert sink.deliver([event(8)]) == ""
    sink.close()
    (path, headers, body), _ = Receiver.got
    assert (path, headers["ce-id"], headers["content-type"]) == ("/a/b", "7", "text/plain")
    assert body == bytes(2)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (200, None),
        (202, None),
        (429, OSError),
        (503, OSError),
        (400, NotTakenError),
        (302, NotTakenError),
    ],
)
def test_a_status_says_whether_an_event_is_taken_refused_or_sent_again(
    server: http.server.ThreadingHTTPServer, status: int, error: type[Exception] | None
) -> None:
    Receiver.statuses = [status]
    sink = HttpSink(f"http://127.0.0.1:{server.server_port}", None)
    if error is None:
        sink.deliver([event(1)])
    else:
        with pytest.raises(error):
            sink.deliver([event(1)])
    # The connection is good for the next one.
    sink.deliver([event(2)])
    assert [headers["ce-id"] for _, headers, _ in Receiver.got] == ["1", "2"]
    sink.close()


def test_a_server_that_is_gone_is_an_error_of_the_system(
    free_port_factory: Callable[[], int],
) -> None:
    sink = HttpSink(f"http://127.0.0.1:{free_port_factory()}", None)
    with pytest.raises(ConnectionRefusedError):
        sink.deliver([event(1)])


# The thread that takes messages and delivers their events


ends = payload_ends.ends


class HeldSink:
    """A sink whose entries are the bytes of messages, each one event; it waits until it may go on.

    Attributes:
        taken: the entries that were delivered.
        may: set while it takes entries.
        has: set once it has one.
    """

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.may, self.has = threading.Event(), threading.Event()

    def entries(self, message: bytes) -> Iterator[tuple[bytes, int, int]]:
        yield message, len(message), message.count(b"\n")

    def deliver(self, entries: Sequence[bytes]) -> str:
        self.has.set()
        self.may.wait()
        self.taken += entries
        return ""


def log_to(sink: HeldSink, reader: socket.socket) -> PayloadLog[bytes]:
    log = PayloadLog("/there", sink, reader, frontends_end=lambda: True)
    log.start()
    return log


def is_alive(log: PayloadLog[bytes]) -> bool:
    """Return whether the payload log's thread runs."""
    assert log._thread is not None
    return log._thread.is_alive()


@pytest.mark.parametrize("size", [100, MOST_BYTES + 1])
def test_a_sink_that_takes_nothing_costs_messages_and_no_time(
    ends: Ends, size: int, wait_until: Callable[..., object]
) -> None:
    reader, writer = ends
    sink, message = HeldSink(), b"x" * size + b"\n"
    log = log_to(sink, reader)
    assert send(writer, message)
    assert sink.has.wait()
    passed = 1
    while send(writer, message):
        passed += 1
    assert sink.taken == []
    sink.may.set()
    wait_until(lambda: log.delivered == passed, "all that were passed on are delivered")
    assert (sink.taken, log.dropped) == ([message] * passed, {"queue_full": 0, "failed": 0})
    log.close()


def test_events_beyond_the_bound_are_counted(
    ends: Ends, monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., object]
) -> None:
    reader, writer = ends
    monkeypatch.setattr(log_module, "MOST_WAITING_BYTES", 250)
    sink, message = HeldSink(), b"x" * 98 + b"\n\n"
    log = log_to(sink, reader)
    assert send(writer, message)
    assert sink.has.wait()
    # One turn takes four of them, for two of which there is room.
    assert all(send(writer, message) for _ in range(4))
    sink.may.set()
    wait_until(lambda: log.delivered + log.full == 10, "each is delivered or counted")
    assert (log.delivered, log.dropped) == (6, {"queue_full": 4, "failed": 0})
    log.close()


def test_an_event_heavier_than_the_bound_has_room_alone(
    ends: Ends, monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., object]
) -> None:
    reader, writer = ends
    monkeypatch.setattr(log_module, "MOST_WAITING_BYTES", 10)
    sink = HeldSink()
    sink.may.set()
    log = log_to(sink, reader)
    assert send(writer, b"x" * 99 + b"\n")
    wait_until(lambda: log.delivered == 1, "it is delivered")
    log.close()


def test_the_last_messages_are_delivered_at_the_end(ends: Ends) -> None:
    reader, writer = ends
    sink = HeldSink()
    log = log_to(sink, reader)
    sent = [b"%d\n" % number for number in range(20)]
    assert send(writer, sent[0])
    assert sink.has.wait()
    assert all(send(writer, message) for message in sent[1:])
    sink.may.set()
    asyncio.run(log.finish())
    assert (sink.taken, log.delivered) == (sent, 20)
    assert not is_alive(log)


def test_the_end_waits_for_no_sink_that_takes_nothing(
    ends: Ends, monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., object]
) -> None:
    monkeypatch.setattr(delivering, "CLOSE_S", 0.01)
    reader, writer = ends
    sink = HeldSink()
    log = log_to(sink, reader)
    assert send(writer, b"x\n")
    assert sink.has.wait()
    log.close()
    assert sink.taken == []
    sink.may.set()
    wait_until(lambda: not is_alive(log), "the thread ends")
