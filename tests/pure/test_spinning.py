"""Spinning: when, and for how long, a waiter watches its doorbell before it sleeps."""

from typing import cast

import pytest

from ringbatch.shm import spinning
from ringbatch.shm.spinning import SpinningWaiter, SpinPolicy, where_cpus_allow
from ringbatch.shm.wakeup import Wakeup

LIMIT_NS = 60_000
LOOK_NS = 1_000
"""Duration of one look at the doorbell."""


class Scripted:
    """A doorbell, and the clock that runs while somebody waits for it.

    Args:
        rings_ns: after which time it is rung.
    """

    def __init__(self, rings_ns: int) -> None:
        self.now_ns = 0
        self.rings_ns = rings_ns
        self.looks = 0
        self.slept_ns: list[int] = []
        self.watched = SpinningWaiter(cast(Wakeup, self), LIMIT_NS, clock_ns=lambda: self.now_ns)

    @property
    def rung(self) -> bool:
        if self.now_ns >= self.rings_ns:
            return True
        self.looks += 1
        self.now_ns += LOOK_NS
        return False

    def wait(self, timeout_s: float | None = None) -> bool:
        self.slept_ns.append(max(self.rings_ns - self.now_ns, 0))
        self.now_ns = max(self.now_ns, self.rings_ns)
        return True


def test_a_quick_ring_is_found_without_sleeping() -> None:
    scripted = Scripted(rings_ns=20 * LOOK_NS)
    scripted.watched.wait()
    assert (scripted.looks, scripted.slept_ns) == (20, [0])


def test_an_earlier_ring_is_found_at_once() -> None:
    scripted = Scripted(rings_ns=0)
    scripted.watched.wait()
    assert (scripted.looks, scripted.slept_ns) == (0, [0])


def test_after_the_limit_it_sleeps() -> None:
    scripted = Scripted(rings_ns=10 * LIMIT_NS)
    scripted.watched.wait()
    assert (scripted.looks, scripted.slept_ns) == (LIMIT_NS // LOOK_NS, [9 * LIMIT_NS])


def test_where_waits_are_long_it_watches_no_more_until_they_are_short_again() -> None:
    scripted = Scripted(rings_ns=0)
    for _ in range(20):
        scripted.rings_ns = scripted.now_ns + 1_000_000_000
        scripted.watched.wait()
    scripted.looks = 0
    scripted.rings_ns = scripted.now_ns + 1_000_000_000
    scripted.watched.wait()
    assert scripted.looks == 0
    waits = 0
    while not scripted.looks:
        scripted.rings_ns = scripted.now_ns + LOOK_NS
        scripted.watched.wait()
        waits += 1
    assert waits < 30, "a long wait counts for no more than a few limits"


@pytest.mark.parametrize(
    ("waits_ns", "pays"),
    [
        ([], True),
        ([LIMIT_NS // 2] * 100, True),
        ([2 * LIMIT_NS] * 100, False),
        ([1 << 60], False),
        ([1 << 60] + [0] * 2, True),
        ([1 << 60] * 9 + [LIMIT_NS // 2] * 30, True),
    ],
)
def test_watching_pays_where_the_usual_wait_is_within_the_limit(
    waits_ns: list[int], pays: bool
) -> None:
    patience = SpinPolicy(LIMIT_NS)
    for waited_ns in waits_ns:
        patience.learn(waited_ns)
    assert patience.pays == pays


def test_with_a_limit_of_0_it_never_watches() -> None:
    patience = SpinPolicy(0)
    patience.learn(0)
    patience.learn(5)
    assert not patience.pays


@pytest.mark.parametrize(("cpus", "limit_ns"), [(1, 0), (2, LIMIT_NS)])
def test_with_one_cpu_nobody_watches(
    monkeypatch: pytest.MonkeyPatch, cpus: int, limit_ns: int
) -> None:
    monkeypatch.setattr(spinning, "usable_cpus", lambda: cpus)
    assert where_cpus_allow(LIMIT_NS) == limit_ns
