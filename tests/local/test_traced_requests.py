"""Traced requests are read once each, in order, and those that were overwritten are counted."""

from collections.abc import Callable
from copy import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from segment_fixture import local_segment, spec

from ringbatch.shm.descriptors import RequestRecordWords
from ringbatch.shm.latency_breakdown import Breakdown
from ringbatch.shm.segment import Segment
from ringbatch.shm.slow_requests import RequestRecord
from ringbatch.shm.tallies import Protocol
from ringbatch.shm.traced_requests import TracedReader, TracedRequests

COUNT = 8
REQUEST = RequestRecord(
    1, 5, Protocol.V2, 200, 3, Breakdown(1, 2), "0af7" * 8, "an-id", "b7ad" * 4, "c0de" * 4
)


def numbered(number: int) -> RequestRecord:
    return REQUEST._replace(ended_ns=number)


def numbers(requests: list[RequestRecord]) -> list[int]:
    return [request.ended_ns for request in requests]


def segment_of(lanes: int = 1) -> Segment:
    return local_segment(spec(), lanes=lanes, traced=COUNT)


def first_of(segment: Segment, place: int) -> int:
    return segment.layout.traced_requests(0) + place * RequestRecordWords.SIZE


def test_a_read_record_is_the_stored_one() -> None:
    segment = segment_of()
    reader = TracedReader(segment)
    TracedRequests(segment, 0).put(REQUEST)
    assert reader.read() == [REQUEST]
    assert reader.read() == []


def test_all_lanes_are_read() -> None:
    segment = segment_of(lanes=3)
    reader = TracedReader(segment)
    for lane in (2, 0, 1):
        TracedRequests(segment, lane).put(numbered(lane))
    assert numbers(reader.read()) == [0, 1, 2]


@given(st.lists(st.integers(0, 3 * COUNT), max_size=12))
def test_each_is_read_once_in_order_or_counted_as_lost(bursts: list[int]) -> None:
    segment = segment_of()
    writer, reader = TracedRequests(segment, 0), TracedReader(segment)
    put, read, lost = 0, 0, 0
    for burst in bursts:
        for _ in range(burst):
            writer.put(numbered(put))
            put += 1
        found = numbers(reader.read())
        # The ring still has the last records, as no writer came in between.
        assert found == list(range(put - min(burst, COUNT), put))
        read += len(found)
        lost += max(burst - COUNT, 0)
        assert reader.lost == lost
    assert read + lost == put


class Interrupting:
    """The bytes of a segment, for a reader that a writer overtakes before it copies, once it has
    found a record whole."""

    def __init__(self, memory: memoryview, act: Callable[[], None]) -> None:
        self._memory = memory
        self._act = act

    def __getitem__(self, place: slice) -> bytes:
        self._act()
        return bytes(self._memory[place])


@given(st.integers(0, 2 * COUNT), st.lists(st.integers(0, 2 * COUNT), max_size=20))
def test_a_writer_that_laps_the_reader_while_it_reads_makes_it_neither_repeat_nor_invent(
    before: int, meanwhile: list[int]
) -> None:
    segment = segment_of()
    writer, reader, seen = TracedRequests(copy(segment), 0), TracedReader(segment), list[int]()
    put, bursts = 0, iter(meanwhile)

    def write(count: int) -> None:
        nonlocal put
        for _ in range(count):
            writer.put(numbered(put))
            put += 1

    write(before)
    reading: Any = segment
    reading.memory = Interrupting(segment.memory, lambda: write(next(bursts, 0)))
    for _ in range(5 * COUNT):
        seen += numbers(reader.read())
    assert seen == sorted(set(seen))
    assert len(seen) + reader.lost == put
    assert seen[-COUNT:] == list(range(put - len(seen[-COUNT:]), put))


def test_a_quicker_writer_does_not_hold_the_reader() -> None:
    segment = segment_of()
    writer, reader = TracedRequests(copy(segment), 0), TracedReader(segment)
    writer.put(REQUEST)
    reading: Any = segment
    reading.memory = Interrupting(segment.memory, lambda: writer.put(REQUEST))
    assert len(reader.read()) <= 2 * COUNT


@pytest.mark.parametrize("before", [0, 1, COUNT - 1, COUNT, COUNT + 3])
def test_one_that_its_writer_died_of_is_not_read_and_the_next_owner_writes_there(
    before: int,
) -> None:
    segment = segment_of()
    dead, reader = TracedRequests(segment, 0), TracedReader(segment)
    for number in range(before):
        dead.put(numbered(number))
    reader.read()
    segment.words[first_of(segment, before % COUNT)] = 2 * before + 1
    assert reader.read() == []
    successor = TracedRequests(segment, 0)
    successor.put(numbered(70))
    successor.put(numbered(71))
    assert numbers(reader.read()) == [70, 71]
    assert reader.lost == max(before - COUNT, 0)


def test_a_later_reader_begins_with_the_records_that_are_left() -> None:
    segment = segment_of()
    writer = TracedRequests(segment, 0)
    for number in range(COUNT + 2):
        writer.put(numbered(number))
    reader = TracedReader(segment)
    assert numbers(reader.read()) == list(range(2, COUNT + 2))
    assert reader.lost == 0, "an earlier reader has had them"


@pytest.mark.parametrize("before", [0, 1, COUNT, 3 * COUNT + 1])
def test_one_that_is_written_while_a_reader_begins_is_read_and_none_is_lost(before: int) -> None:
    segment = segment_of()
    writer = TracedRequests(segment, 0)
    for number in range(before):
        writer.put(numbered(number))
    segment.words[first_of(segment, before % COUNT)] = 2 * before + 1
    reader = TracedReader(segment)
    there = list(range(max(before - COUNT + 1, 0), before))
    assert numbers(reader.read()) == there
    writer.put(numbered(before))
    assert numbers(reader.read()) == [before]
    assert reader.lost == 0


def test_a_record_of_nonsense_is_lost_and_the_next_one_read() -> None:
    segment = segment_of()
    writer, reader = TracedRequests(segment, 0), TracedReader(segment)
    writer.put(numbered(0))
    writer.put(numbered(1))
    segment.words[first_of(segment, 0) + RequestRecordWords.PROTOCOL] = 1 << 40
    assert numbers(reader.read()) == [1]
    assert reader.lost == 1


def test_where_nothing_is_traced_there_is_no_room_for_it() -> None:
    off, on = local_segment(spec(), lanes=2), local_segment(spec(), lanes=2, traced=COUNT)
    assert off.layout.traced_word == off.layout.submissions_word
    assert on.layout.size > off.layout.size
