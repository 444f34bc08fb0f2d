"""Collector loop: how long it sleeps, and when a wake-up counts as missed."""

import time
from collections.abc import Callable
from typing import cast

import pytest
from collector_harness import CollectorHarness, eager
from segment_fixture import local_segment, spec

from ringbatch.engine.collector.collector import Collector
from ringbatch.engine.collector.loop import GRACE_S, SWEEP_S, Loop
from ringbatch.shm.counters import CollectorCounter, Counters
from ringbatch.shm.wakeup import Wakeup

SPIN_NS = 60_000_000_000
"""Spin limit so long that a loop without a ring would be seen to hang."""


class Scripted:
    """A collector and its doorbell in one, both as the test says."""

    def __init__(self) -> None:
        self.until_ns: int | None = None
        self.in_flight = 0
        self.news = False
        self.may = True
        self.rung_for_requests = True
        self.rings: list[bool] = []
        """For each of the first waits, True if a ring ends it; a ring ends all later ones."""
        self.timeouts: list[float | None] = []
        self.looks = 0
        """Number of looks at the doorbell before a wait."""
        segment = local_segment(spec())
        self.counters = Counters(segment.words, segment.layout.collector_counters())
        self.loop = Loop(cast(Collector, self), cast(Wakeup, self), self.counters, SPIN_NS)

    def step(self, now_ns: int) -> int | None:
        return self.until_ns

    def prepare_to_sleep(self) -> bool:
        return self.may

    def has_news(self) -> bool:
        return self.news

    @property
    def rung(self) -> bool:
        self.looks += 1
        return True

    def wait(self, timeout_s: float | None = None) -> bool:
        self.timeouts.append(timeout_s)
        return self.rings.pop(0) if self.rings else True

    @property
    def missed(self) -> int:
        return self.counters[CollectorCounter.MISSED_WAKEUPS]


def test_with_nothing_under_way_it_steps_all_the_same_to_show_that_it_moves() -> None:
    scripted = Scripted()
    scripted.rings = [False]
    scripted.loop.turn()
    assert scripted.timeouts == [SWEEP_S]


@pytest.mark.parametrize(
    ("in_flight", "rung_for_requests", "looks"), [(0, True, 1), (1, True, 0), (0, False, 0)]
)
def test_it_watches_the_doorbell_only_where_nothing_but_requests_can_ring(
    in_flight: int, rung_for_requests: bool, looks: int
) -> None:
    scripted = Scripted()
    scripted.in_flight, scripted.rung_for_requests = in_flight, rung_for_requests
    scripted.loop.turn()
    assert scripted.looks == looks


def test_with_requests_under_way_it_looks_at_everything_now_and_then() -> None:
    scripted = Scripted()
    scripted.in_flight = 1
    scripted.loop.turn()
    assert scripted.timeouts == [SWEEP_S]


def test_it_sleeps_until_the_instant_that_the_step_named() -> None:
    scripted = Scripted()
    scripted.until_ns = time.monotonic_ns() + int(0.5e9)
    scripted.loop.turn()
    (timeout_s,) = scripted.timeouts
    assert timeout_s is not None
    assert 0 < timeout_s <= 0.5


def test_an_instant_that_is_far_away_does_not_put_off_the_sweep() -> None:
    scripted = Scripted()
    scripted.until_ns = time.monotonic_ns() + int(3600e9)
    scripted.loop.turn()
    assert scripted.timeouts == [SWEEP_S]


def test_an_instant_that_has_passed_is_no_sleep() -> None:
    scripted = Scripted()
    scripted.until_ns = 1
    scripted.loop.turn()
    assert scripted.timeouts == []


def test_with_something_to_do_it_does_not_sleep() -> None:
    scripted = Scripted()
    scripted.may = False
    scripted.loop.turn()
    assert scripted.timeouts == []


def test_without_workers_it_looks_now_and_then_for_requests_of_silent_frontends() -> None:
    scripted = Scripted()
    scripted.rung_for_requests = False
    scripted.loop.turn()
    assert scripted.timeouts == [SWEEP_S]


def test_requests_that_need_not_ring_are_no_missed_wake_ups() -> None:
    scripted = Scripted()
    scripted.in_flight, scripted.news, scripted.rung_for_requests = 1, True, False
    scripted.rings = [False] * 3
    for _ in range(3):
        scripted.loop.turn()
    assert scripted.missed == 0
    assert scripted.timeouts == [SWEEP_S] * 3


MISSES = {
    "news-and-no-ring": ([False, False], True, 1),
    "the-ring-came-right-after": ([False, True], True, 0),
    "nothing-new": ([False], False, 0),
    "rung": ([True], True, 0),
}


@pytest.mark.parametrize(("rings", "news", "missed"), MISSES.values(), ids=MISSES.keys())
def test_a_wake_up_is_missed_where_work_stands_after_a_sweep_and_no_ring_comes(
    rings: list[bool], news: bool, missed: int
) -> None:
    scripted = Scripted()
    scripted.in_flight, scripted.news, scripted.rings = 1, news, rings.copy()
    scripted.loop.turn()
    assert scripted.missed == missed
    assert scripted.timeouts == [SWEEP_S, GRACE_S][: len(rings)]


def test_a_wait_of_less_than_a_sweep_is_not_prolonged_to_find_missed_wakes() -> None:
    scripted = Scripted()
    scripted.until_ns = time.monotonic_ns() + int(0.5e9)
    scripted.news, scripted.rings = True, [False]
    scripted.loop.turn()
    assert len(scripted.timeouts) == 1
    assert scripted.missed == 0


class Silent:
    """Doorbell that does not ring while a sweep lasts; `during` is called in that time."""

    def __init__(self, during: Callable[[], object]) -> None:
        self._during = during

    def wait(self, timeout_s: float | None = None) -> bool:
        if timeout_s == SWEEP_S:
            self._during()
        return False


@pytest.mark.parametrize(("busy", "missed"), [(1, 1), (2, 0)])
def test_a_request_that_did_not_ring_was_missed_only_where_a_worker_was_idle(
    busy: int, missed: int
) -> None:
    harness = CollectorHarness(eager(workers=(0, 1), max_batch_size=1)).begin()
    for number in range(busy):
        harness.send(number)
    counters = Counters(harness.segment.words, harness.segment.layout.collector_counters())
    bell = cast(Wakeup, Silent(lambda: harness.send(9)))
    loop = Loop(harness.collector, bell, counters)
    loop.turn()
    assert counters[CollectorCounter.MISSED_WAKEUPS] == missed
