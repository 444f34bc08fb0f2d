"""The requests that took longest are kept, for a while, and read whole or not at all."""

from collections.abc import Callable
from copy import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from segment_fixture import local_segment, spec

from ringbatch.shm.descriptors import SLOW_REQUESTS, RequestRecordWords
from ringbatch.shm.latency_breakdown import Breakdown
from ringbatch.shm.segment import Segment
from ringbatch.shm.slow_requests import WINDOW_S, RequestRecord, Slowest, slowest
from ringbatch.shm.tallies import Protocol

S = 1_000_000_000
START_NS = 1000 * S
FOUND = Breakdown(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, "deadline", 11, 12, 13)
REQUEST = RequestRecord(START_NS, 5, Protocol.GRPC, 503, 12, FOUND, "0af7" * 8, "an-id")


def took(took_ns: int, ended_ns: int = START_NS) -> RequestRecord:
    return REQUEST._replace(ended_ns=ended_ns, found=Breakdown(0, took_ns))


def times(segment: Segment, now_ns: int = START_NS) -> list[int]:
    return [request.found.total for request in slowest(segment, now_ns, 1 << 10)]


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"trace": ""},
        {"trace": "f" * 32},
        {"parent": "a" * 16, "span": "f" * 16},
        {"request_id": "!" * 128},
        {"found": Breakdown(0, 70)},
        {"code": 200, "instances": 0, "protocol": Protocol.V1},
    ],
)
def test_a_read_record_is_the_stored_one(change: dict[str, Any]) -> None:
    segment, request = local_segment(spec()), REQUEST._replace(**change)
    Slowest(segment, 0).put(request)
    assert slowest(segment, START_NS) == [request]


def test_no_more_of_an_id_is_kept_than_there_is_room_for() -> None:
    segment = local_segment(spec())
    Slowest(segment, 0).put(REQUEST._replace(request_id="x" * 129))
    assert slowest(segment, START_NS)[0].request_id == "x" * 128


@given(st.lists(st.integers(0, 40), min_size=10, max_size=60))
def test_those_that_took_longest_are_kept(took_ns: list[int]) -> None:
    segment = local_segment(spec())
    kept = Slowest(segment, 0)
    for each_ns in took_ns:
        if each_ns > kept.floor_ns:
            kept.put(took(each_ns))
    assert times(segment) == sorted(took_ns, reverse=True)[:SLOW_REQUESTS]


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 5)), min_size=20, max_size=60))
def test_a_missing_request_is_too_old_or_among_slower_ones(
    requests: list[tuple[int, int]],
) -> None:
    segment = local_segment(spec())
    kept = Slowest(segment, 0)
    now_ns, put = START_NS, []
    for took_ns, gap_s in requests:
        now_ns += gap_s * S
        put.append((took_ns, now_ns))
        kept.put(took(took_ns, now_ns))
    shown = [(each.found.total, each.ended_ns) for each in slowest(segment, now_ns)]
    assert shown == sorted(shown, key=lambda each: -each[0])
    assert all(now_ns - ended_ns <= WINDOW_S * S for _, ended_ns in shown)
    missing = list(put)
    for each in shown:
        missing.remove(each)
    for took_ns, ended_ns in missing:
        known = [slower for slower, at_ns in put if at_ns >= ended_ns - WINDOW_S * S]
        enough = sum(slower >= took_ns for slower in known) > SLOW_REQUESTS
        assert now_ns - ended_ns > WINDOW_S * S or enough


def test_a_quick_request_comes_in_once_a_slow_one_is_too_old() -> None:
    segment = local_segment(spec())
    kept = Slowest(segment, 0)
    for _ in range(SLOW_REQUESTS):
        kept.put(took(50))
    assert kept.floor_ns == 50
    kept.put(took(50))
    later_ns = START_NS + WINDOW_S * S + 1
    kept.look(START_NS + WINDOW_S * S)
    assert kept.floor_ns == 50
    kept.look(later_ns)
    assert kept.floor_ns < 0
    kept.put(took(1, later_ns))
    assert times(segment, later_ns) == [1]


def test_all_lanes_are_read() -> None:
    segment = local_segment(spec(), lanes=3)
    for lane in range(3):
        Slowest(segment, lane).put(took(10 + lane))
    assert times(segment) == [12, 11, 10]
    assert len(slowest(segment, START_NS, 2)) == 2


def test_the_next_owner_goes_on_with_the_kept_requests() -> None:
    segment = local_segment(spec())
    before = Slowest(segment, 0)
    for each_ns in range(100, 100 + SLOW_REQUESTS):
        before.put(took(each_ns))
    after = Slowest(segment, 0)
    after.put(took(1))
    after.put(took(500))
    assert times(segment) == [500, *range(99 + SLOW_REQUESTS, 100, -1)]


def test_a_record_that_is_being_written_is_not_read() -> None:
    segment = local_segment(spec())
    Slowest(segment, 0).put(REQUEST)
    segment.words[segment.layout.slow_requests(0) + RequestRecordWords.SEQUENCE] += 1
    assert slowest(segment, START_NS) == []
    # Its owner died; the next one writes there.
    Slowest(segment, 0).put(took(70))
    assert times(segment) == [70]
    assert segment.words[segment.layout.slow_requests(0)] % 2 == 0


class Interrupting:
    """The bytes of a segment, for a reader in whose copying a writer comes between."""

    def __init__(self, memory: memoryview, act: Callable[[], None]) -> None:
        self._memory = memory
        self._act = act

    def __getitem__(self, place: slice) -> bytes:
        copied = bytes(self._memory[place])
        self._act()
        return copied


def test_a_record_that_changes_while_it_is_read_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    segment = local_segment(spec())
    kept = Slowest(copy(segment), 0)
    for _ in range(SLOW_REQUESTS):
        kept.put(took(10))
    written = iter([took(20)])

    def write() -> None:
        for request in written:
            kept.put(request)

    monkeypatch.setattr(segment, "memory", Interrupting(segment.memory, write))
    assert times(segment) == [10] * (SLOW_REQUESTS - 1)
    assert times(segment) == [20] + [10] * (SLOW_REQUESTS - 1)


@pytest.mark.parametrize("word", [RequestRecordWords.PROTOCOL, RequestRecordWords.REASON])
def test_a_record_of_nonsense_is_not_read(word: int) -> None:
    segment = local_segment(spec())
    Slowest(segment, 0).put(REQUEST)
    segment.words[segment.layout.slow_requests(0) + word] = 1 << 40
    assert slowest(segment, START_NS) == []


def test_lengths_and_phases_of_nonsense_harm_nobody() -> None:
    segment = local_segment(spec())
    Slowest(segment, 0).put(REQUEST)
    first = segment.layout.slow_requests(0)
    for word in range(RequestRecordWords.CODE, RequestRecordWords.SIZE):
        if word != RequestRecordWords.REASON:
            segment.words[first + word] = (1 << 64) - 1
    (found,) = slowest(segment, START_NS)
    assert len(found.request_id) == 128
