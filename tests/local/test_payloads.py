"""The payload log: the socket between processes, the file, the server, and what is drawn."""

import http.server
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from frontend_harness import SteppedLoop
from lane_harness import Harness
from silent_recorder import silent_recorder

from ringbatch.frontend.payloads import passage
from ringbatch.frontend.payloads.events import Event
from ringbatch.frontend.payloads.exchange import PayloadExchange, unpacked
from ringbatch.frontend.payloads.file_sink import FileSink
from ringbatch.frontend.payloads.gathering import (
    GATHER_S,
    MOST_GATHERED_BYTES,
    Gathering,
)
from ringbatch.frontend.payloads.http_sink import HttpSink
from ringbatch.frontend.payloads.passage import MOST_BYTES, received, send
from ringbatch.frontend.payloads.recorder import Answered, PayloadRecorder
from ringbatch.frontend.payloads.settings import Keeping
from ringbatch.frontend.request.outcomes import RequestOutcome
from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.host.delivering import NotTakenError
from ringbatch.shm.lane import Lane
from ringbatch.shm.tallies import Protocol, Tally


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    reader, writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with reader, writer:
        yield reader, writer


Ends = tuple[socket.socket, socket.socket]


@pytest.mark.parametrize("size", [1, MOST_BYTES, MOST_BYTES + 1, 5 << 20])
def test_messages_of_any_length_arrive_whole_and_in_order(ends: Ends, size: int) -> None:
    reader, writer = ends
    before = len(os.listdir("/proc/self/fd"))
    messages = [bytes([number]) * size for number in (1, 2)] + [b"last"]
    assert all(send(writer, message) for message in messages)
    assert list(received(reader)) == messages
    assert list(received(reader)) == []
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("size", [1000, MOST_BYTES + 1])
def test_nobody_waits_for_a_reader_that_is_behind(ends: Ends, size: int) -> None:
    reader, writer = ends
    before = len(os.listdir("/proc/self/fd"))
    taken = 0
    while send(writer, bytes(size)):
        taken += 1
    assert taken
    assert not send(writer, bytes(size))
    turns = [list(received(reader)) for _ in range(1 + taken // passage._MOST_IN_TURN)]
    assert [len(message) for turn in turns for message in turn] == [size] * taken
    assert send(writer, b"again")
    assert list(received(reader)) == [b"again"]
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_was_passed_outlives_the_process_that_passed_it(ends: Ends) -> None:
    reader, writer = ends
    other = writer.dup()
    assert send(other, bytes(MOST_BYTES + 1))
    other.close()
    assert [len(message) for message in received(reader)] == [MOST_BYTES + 1]


def test_one_turn_takes_a_bounded_number(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = ends
    monkeypatch.setattr(passage, "_MOST_IN_TURN", 3)
    assert all(send(writer, b"x") for _ in range(5))
    assert [len(list(received(reader))) for _ in range(3)] == [3, 2, 0]


# What a serving process gathers


class Gatherer:
    """A serving process with a lane; its exchanges are names.

    Attributes:
        passed: the names of each message.
        takes: whether messages are taken.
    """

    def __init__(self) -> None:
        self.harness, self.loop = Harness(), SteppedLoop()
        self.passed: list[str] = []
        self.takes = True
        self.start(self.harness.lane)

    def start(self, lane: Lane) -> None:
        self.lane = lane
        loop: Any = self.loop
        self.gathering: Gathering[bytes] = Gathering(b"".join, self._pass_on, lane, loop)

    def _pass_on(self, message: bytes) -> bool:
        if self.takes:
            self.passed.append(message.decode())
        return self.takes

    def put(self, names: bytes, size: int = 1) -> None:
        for name in names:
            self.gathering.put(bytes([name]), size)

    def pass_time(self, seconds: float) -> None:
        self.loop.advance(round(seconds * 1e9))

    @property
    def lost(self) -> int:
        return self.lane.counters[LaneCounter.PAYLOADS_LOST]


def test_exchanges_of_a_while_are_one_message() -> None:
    process = Gatherer()
    process.put(b"a")
    process.pass_time(GATHER_S / 2)
    process.put(b"bc")
    assert process.passed == []
    process.pass_time(GATHER_S / 2)
    process.put(b"d")
    assert process.passed == ["abc"]
    process.pass_time(GATHER_S)
    assert process.passed == ["abc", "d"]
    assert not process.loop.armed


def test_many_bytes_do_not_wait() -> None:
    process = Gatherer()
    process.put(b"abc", MOST_GATHERED_BYTES // 2)
    assert process.passed == ["ab"]
    process.gathering.flush()
    assert process.passed == ["ab", "c"]
    process.pass_time(GATHER_S)
    assert len(process.passed) == 2


def test_each_exchange_that_is_not_taken_is_counted() -> None:
    process = Gatherer()
    process.takes = False
    process.put(b"ab")
    assert process.lost == 0
    process.gathering.flush()
    process.takes = True
    process.put(b"c")
    process.gathering.flush()
    assert (process.lost, process.passed) == (2, ["c"])


def test_each_exchange_that_no_message_can_be_made_of_is_counted() -> None:
    process = Gatherer()
    process.gathering.put("no bytes", 1)  # type: ignore[arg-type]
    process.put(b"a")
    with pytest.raises(TypeError):
        process.gathering.flush()
    process.put(b"b")
    process.pass_time(GATHER_S)
    assert (process.lost, process.passed) == (2, ["b"])


def test_the_next_owner_of_a_lane_counts_what_a_dead_one_had_gathered() -> None:
    process = Gatherer()
    process.put(b"ab")
    process.gathering.flush()
    process.put(b"cde")
    process.start(process.harness.next_owner())
    assert process.lost == 3
    process.put(b"f")
    process.gathering.flush()
    process.start(process.harness.next_owner())
    assert (process.lost, process.passed) == (3, ["ab", "f"])


def test_the_last_exchanges_of_a_process_are_passed_on_and_cut_off() -> None:
    passed: list[list[PayloadExchange]] = []

    def pass_on(message: bytes) -> bool:
        passed.append(unpacked(message))
        return True

    loop: Any = SteppedLoop()
    keeping = Keeping(1.0, 4, frozenset({"x"}))
    recorder = PayloadRecorder(
        keeping, silent_recorder(), pass_on, Harness().lane, loop, wall_s=lambda: 9.0
    )
    tally = Tally(memoryview(bytearray(1 << 12)).cast("Q"), 0, 0, "m", "1", Protocol.V1)
    ending = RequestOutcome(tally, 200, 1_000_000_000, 1_500_000_000, 1, None)
    headers = {b"x": b"y", b"ce-id": b"mine", b"authorization": b"secret"}
    recorder.ended(recorder.kept(headers, b"request"), ending, b"r", Answered(b"answer", 6))
    assert passed == []
    recorder.close()
    json_type = "application/json"
    assert passed == [
        [
            PayloadExchange(
                *("mine", "r", "", "m", "1", "v1", 200, 8.5, 9.0, json_type, json_type, "", ""),
                *(7, 6, None, None, {"x": "y"}, b"requ", b"answ"),
            )
        ]
    ]


# The file


def event(number: int, size: int = 2) -> Event:
    attributes = {"id": str(number), "datacontenttype": "text/plain"}
    return Event(attributes, bytes(size), whole=True)


def ids(path: Path) -> list[int]:
    return [int(json.loads(line)["id"]) for line in path.read_text().splitlines()]


def test_a_full_file_is_renamed_and_the_oldest_goes(tmp_path: Path) -> None:
    path = tmp_path / "log"
    sink = FileSink(path, 1000, 2)
    for number in range(10):
        assert sink.deliver([event(number, 400)]) == ""
    names = sorted(found.name for found in tmp_path.iterdir())
    assert names == ["log", "log.1", "log.2"]
    found = [number for name in ("log.2", "log.1", "log") for number in ids(tmp_path / name)]
    assert found == list(range(found[0], 10))
    assert all(file.stat().st_size <= 1000 for file in tmp_path.iterdir())
    sink.close()


def test_a_line_longer_than_a_file_is_written_all_the_same(tmp_path: Path) -> None:
    sink = FileSink(tmp_path / "log", 1000, 0)
    sink.deliver([event(1, 5000)])
    sink.deliver([event(2)])
    assert [ids(file) for file in tmp_path.iterdir()] == [[2]]
    sink.close()


def test_a_file_that_is_renamed_or_removed_is_begun_again(tmp_path: Path) -> None:
    path = tmp_path / "log"
    sink = FileSink(path, 1 << 20, 2)
    sink.deliver([event(1)])
    path.rename(tmp_path / "rotated")
    sink.deliver([event(2)])
    path.unlink()
    sink.deliver([event(3)])
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
        sinks[number % 2].deliver([event(number, 300)])
    found = sorted(number for file in tmp_path.iterdir() for number in ids(file))
    assert found == list(range(100))
    for sink in sinks:
        sink.close()


def test_a_full_disk_leaves_no_half_of_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = FileSink(tmp_path / "log", 1 << 20, 1)
    sink.deliver([event(1)])
    real = os.write

    def write(descriptor: int, data: Any) -> int:
        if len(data) > 10:
            return real(descriptor, data[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(OSError, match="No space left"):
        sink.deliver([event(2), event(3)])
    monkeypatch.setattr(os, "write", real)
    sink.deliver([event(4)])
    assert ids(tmp_path / "log") == [1, 4]
    sink.close()


# The server


class Receiver(http.server.BaseHTTPRequestHandler):
    """Answers with the next status, and keeps what it was sent."""

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
