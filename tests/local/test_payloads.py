"""The payload log: the socket between processes, and exchanges that a process gathers."""

from collections.abc import Sequence
from typing import Any

import payload_ends
import pytest
from frontend_harness import SteppedLoop
from lane_harness import Harness
from open_files import none_left_open
from payload_ends import Ends
from silent_recorder import silent_recorder

from ringbatch.frontend.payloads import passage
from ringbatch.frontend.payloads.events import REQUEST_TYPE, RESPONSE_TYPE, Event
from ringbatch.frontend.payloads.gathering import (
    GATHER_S,
    MOST_GATHERED_BYTES,
    RECORDED_AT_ONCE,
    Gathering,
)
from ringbatch.frontend.payloads.messages import contents
from ringbatch.frontend.payloads.passage import MOST_BYTES, received, send
from ringbatch.frontend.payloads.recorder import Answered, PayloadRecorder
from ringbatch.frontend.payloads.settings import ALL, EventSettings, Keeping
from ringbatch.frontend.request.outcomes import RequestOutcome
from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.lane import Lane
from ringbatch.shm.tallies import PartTimes, Protocol, Tally

ends = payload_ends.ends


@pytest.mark.parametrize("size", [1, MOST_BYTES, MOST_BYTES + 1, 5 << 20])
def test_messages_of_any_length_arrive_whole_and_in_order(ends: Ends, size: int) -> None:
    reader, writer = ends
    messages = [bytes([number]) * size for number in (1, 2)] + [b"last"]
    with none_left_open():
        assert all(send(writer, message) for message in messages)
        assert list(received(reader)) == messages
        assert list(received(reader)) == []


@pytest.mark.parametrize("size", [1000, MOST_BYTES + 1])
def test_nobody_waits_for_a_reader_that_is_behind(ends: Ends, size: int) -> None:
    reader, writer = ends
    taken = 0
    with none_left_open():
        while send(writer, bytes(size)):
            taken += 1
        assert taken
        assert not send(writer, bytes(size))
        turns = [list(received(reader)) for _ in range(1 + taken // passage._MOST_IN_TURN)]
        assert [len(message) for turn in turns for message in turn] == [size] * taken
        assert send(writer, b"again")
        assert list(received(reader)) == [b"again"]


def test_a_passed_message_outlives_the_process_that_passed_it(ends: Ends) -> None:
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
        recorded: the number of exchanges in each call that makes records.
        takes: whether messages are taken.
    """

    def __init__(self) -> None:
        self.harness, self.loop = Harness(), SteppedLoop()
        self.passed: list[str] = []
        self.recorded: list[int] = []
        self.takes = True
        self.start(self.harness.lane)

    def start(self, lane: Lane) -> None:
        self.lane = lane
        loop: Any = self.loop
        self.gathering: Gathering[bytes] = Gathering(self._records, self._pass_on, lane, loop)

    def _records(self, names: Sequence[bytes]) -> bytes:
        self.recorded.append(len(names))
        return b"".join(names)

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


def test_records_are_made_of_a_few_exchanges_at_a_time() -> None:
    process = Gatherer()
    names = bytes(range(ord("A"), ord("A") + RECORDED_AT_ONCE))
    process.put(names)
    assert process.recorded == [RECORDED_AT_ONCE]
    process.put(b"z")
    assert (process.recorded, process.passed) == ([RECORDED_AT_ONCE], [])
    assert process.lane.gathered_payloads == RECORDED_AT_ONCE + 1
    process.pass_time(GATHER_S)
    assert (process.recorded, process.passed) == ([RECORDED_AT_ONCE, 1], [f"{names.decode()}z"])
    assert process.lane.gathered_payloads == 0


def test_exchanges_without_an_event_are_neither_passed_on_nor_lost() -> None:
    process = Gatherer()
    process.gathering.put(b"", 1)
    process.pass_time(GATHER_S)
    assert (process.lost, process.passed, process.lane.gathered_payloads) == (0, [], 0)


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


def test_records_that_are_made_are_passed_on_when_later_ones_fail() -> None:
    process = Gatherer()
    process.put(b"a" * RECORDED_AT_ONCE)
    process.gathering.put("no bytes", 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        process.gathering.flush()
    assert (process.lost, process.passed) == (1, ["a" * RECORDED_AT_ONCE])
    assert process.lane.gathered_payloads == 0


def test_the_next_owner_of_a_lane_counts_the_events_that_a_dead_one_had_gathered() -> None:
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
    passed: list[list[Event | bytes]] = []

    def pass_on(message: bytes) -> bool:
        passed.append(list(contents(message)))
        return True

    loop: Any = SteppedLoop()
    events = EventSettings(ALL, True, {"source": "/s"}, lines=False)
    keeping = Keeping(1.0, 4, frozenset({"x"}), events)
    recorder = PayloadRecorder(
        keeping, silent_recorder(), pass_on, Harness().lane, loop, wall_s=lambda: 9.0
    )
    words = memoryview(bytearray(1 << 12)).cast("Q")
    tally = Tally(words, 0, 0, "m", "1", Protocol.V1, PartTimes(words, 0))
    ending = RequestOutcome(tally, 200, 1_000_000_000, 1_500_000_000, 1, None)
    headers = {b"x": b"y", b"ce-id": b"mine", b"authorization": b"secret"}
    recorder.ended(recorder.kept(headers, b"request"), ending, b"r", Answered(b"answer", 6))
    assert passed == []
    recorder.close()
    shared = {
        **{"id": "mine", "requestid": "r", "modelname": "m", "modelversion": "1"},
        **{"source": "/s", "specversion": "1.0", "protocol": "v1", "metadata": '{"x":["y"]}'},
        "datacontenttype": "application/json",
    }
    request = {"type": REQUEST_TYPE, "time": "1970-01-01T00:00:08.500000Z", "bodybytes": "7"}
    answer = {"type": RESPONSE_TYPE, "time": "1970-01-01T00:00:09.000000Z", "bodybytes": "6"}
    assert passed == [
        [
            Event(shared | request, b"requ"),
            Event(shared | answer | {"statuscode": "200"}, b"answ"),
        ]
    ]
