"""Quarantine: the requests suspected of a worker's death, and those remembered as fatal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.engine.collector.quarantine import (
    MAX_QUARANTINED,
    REMEMBERED_NS,
    Quarantine,
    regroup,
)
from ringbatch.shm.engine_slots import Request

MS = 1_000_000
DEATH_NS = 2_000 * MS


def groups(count: int, run_ms: float, *, first: bool = True, death_ns: int = DEATH_NS) -> list[int]:
    found = regroup(range(count), first=first, run_ns=int(run_ms * MS), death_ns=death_ns)
    assert [request for group in found for request in group] == list(range(count))
    return [len(group) for group in found]


@pytest.mark.parametrize(
    ("count", "run_ms", "sizes"),
    [
        (0, 100, []),
        (1, 1000, [1]),
        (3, 1000, [1, 1, 1]),
        (64, 10, [1] * 64),
        (64, 45, [8] * 8),
        (100, 1000, [10] * 10),
        (7, 1000, [1] * 7),
        (17, 1000, [4, 4, 4, 4, 1]),
    ],
)
def test_groups_are_made_where_single_runs_take_longer_than_a_death(
    count: int, run_ms: float, sizes: list[int]
) -> None:
    assert groups(count, run_ms) == sizes


def test_where_a_death_takes_long_everyone_runs_alone() -> None:
    assert groups(64, 100, death_ns=15_000 * MS) == [1] * 64


def test_after_a_second_death_everyone_runs_alone() -> None:
    assert groups(64, 1000, first=False) == [1] * 64


@given(st.integers(0, 5000), st.integers(0, 10**10), st.booleans(), st.integers(0, 10**11))
def test_nobody_is_left_out_or_run_twice(count: int, run_ns: int, first: bool, death: int) -> None:
    found = regroup(range(count), first=first, run_ns=run_ns, death_ns=death)
    assert [request for group in found for request in group] == list(range(count))
    assert all(found)


class Memory:
    """Payloads, one behind the other."""

    def __init__(self) -> None:
        self.bytes = bytearray(1 << 20)
        self.quarantine = Quarantine(memoryview(self.bytes))
        self._end = 0

    def request(self, payload: bytes, model: int = 0) -> Request:
        start, self._end = self._end, self._end + len(payload)
        self.bytes[start : self._end] = payload
        return Request(1, model, 1, len(payload), 0, 0, start, 0, 0, 0)


LONG = b"x" * 5000


@pytest.mark.parametrize("payload", [b"", b"bad", LONG], ids=["empty", "short", "long"])
def test_a_fatal_request_is_known_again_by_its_bytes_for_a_while(payload: bytes) -> None:
    memory = Memory()
    assert not memory.quarantine.knows(memory.request(payload), 0)
    memory.quarantine.remember(memory.request(payload), 5)
    same = memory.request(payload)
    assert memory.quarantine.knows(same, 5)
    assert memory.quarantine.knows(same, 4 + REMEMBERED_NS)
    assert not memory.quarantine.knows(same, 5 + REMEMBERED_NS)


@pytest.mark.parametrize(
    ("payload", "model"),
    [(LONG[:-1] + b"y", 0), (b"y" + LONG[1:], 0), (LONG[:-1], 0), (LONG + b"x", 0), (LONG, 1)],
    ids=["another-end", "another-beginning", "shorter", "longer", "another-model"],
)
def test_nobody_else_is_taken_for_it(payload: bytes, model: int) -> None:
    memory = Memory()
    memory.quarantine.remember(memory.request(LONG), 0)
    assert not memory.quarantine.knows(memory.request(payload, model), 0)


def test_remembered_requests_are_bounded_and_expired_ones_make_room() -> None:
    memory = Memory()
    requests = [memory.request(b"%d" % number) for number in range(MAX_QUARANTINED + 1)]
    for request in requests:
        memory.quarantine.remember(request, 0)
    assert memory.quarantine.knows(requests[MAX_QUARANTINED - 1], 1)
    assert not memory.quarantine.knows(requests[MAX_QUARANTINED], 1)
    memory.quarantine.remember(requests[MAX_QUARANTINED], REMEMBERED_NS)
    assert memory.quarantine.knows(requests[MAX_QUARANTINED], REMEMBERED_NS + 1)
    assert not memory.quarantine.knows(requests[0], REMEMBERED_NS + 1)


def test_one_that_kills_again_is_remembered_longer_and_counts_once() -> None:
    memory = Memory()
    request = memory.request(b"again")
    for now_ns in range(2 * MAX_QUARANTINED):
        memory.quarantine.remember(request, now_ns)
    other = memory.request(b"other")
    memory.quarantine.remember(other, 0)
    assert memory.quarantine.knows(other, 1)
    assert memory.quarantine.knows(request, REMEMBERED_NS + 1)
