"""Turns of refusals: who waits, for how long, and how often a crowd can ask."""

import asyncio
import heapq
import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.frontend.codec.outcome import JSON
from ringbatch.frontend.http.refusal_pacing import (
    LONGEST_NS,
    LOOK_NS,
    TURN_NS,
    RefusalPacing,
    following_ns,
    leave_ns,
    retry_after_s,
)

NOW_NS = 1_000_000_000_000
MS = 1_000_000
S = 1_000 * MS
RETRY_NS = NOW_NS + S

TABLE = {
    "nobody has a turn": (NOW_NS - S, RETRY_NS, 0, 0),
    "its turn is soon": (NOW_NS + LOOK_NS - 1, RETRY_NS, 0, 0),
    "its turn is later": (NOW_NS + LOOK_NS, RETRY_NS, 0, LOOK_NS),
    "its turn is much later": (NOW_NS + S, RETRY_NS, 0, LONGEST_NS),
    "it was told nothing": (NOW_NS + S, 0, 0, 0),
    "it comes when it was told to": (NOW_NS + S, NOW_NS, 0, 0),
    "it comes a little too early": (NOW_NS + S, NOW_NS + 50 * MS, 0, 50 * MS),
    "its request has less time": (NOW_NS + S, RETRY_NS, NOW_NS + 100 * MS, 50 * MS),
    "its request has more time": (NOW_NS + S, RETRY_NS, NOW_NS + S, LONGEST_NS),
    "its request has hardly any time": (NOW_NS + S, RETRY_NS, NOW_NS + LOOK_NS, 0),
    "the time of its request is over": (NOW_NS + S, RETRY_NS, NOW_NS - S, 0),
}
"""By case: the next turn, until when the client was told to wait, the request's deadline, and how
long its refusal waits."""


@pytest.mark.parametrize("case", TABLE)
def test_a_refusal_waits_for_its_turn_within_limits(case: str) -> None:
    turn_ns, retry_ns, deadline_ns, waits_ns = TABLE[case]
    assert leave_ns(NOW_NS, turn_ns, retry_ns, deadline_ns) - NOW_NS == waits_ns


INSTANTS = st.integers(NOW_NS - 2 * S, NOW_NS + 2 * S)


@given(INSTANTS, INSTANTS, st.none() | INSTANTS)
def test_no_refusal_waits_too_long(turn_ns: int, retry_ns: int, deadline_ns: int | None) -> None:
    left_ns = leave_ns(NOW_NS, turn_ns, retry_ns, deadline_ns or 0)
    assert NOW_NS <= left_ns <= NOW_NS + LONGEST_NS
    if left_ns > NOW_NS:
        assert left_ns - NOW_NS >= LOOK_NS
        assert left_ns <= turn_ns
        assert left_ns <= retry_ns
        assert deadline_ns is None or left_ns - NOW_NS <= deadline_ns - left_ns + 1


@given(INSTANTS)
def test_turns_go_on_and_never_run_far_ahead(turn_ns: int) -> None:
    next_ns = following_ns(NOW_NS, turn_ns)
    assert NOW_NS + TURN_NS <= next_ns <= NOW_NS + LONGEST_NS + TURN_NS
    assert next_ns == turn_ns + TURN_NS or not NOW_NS <= turn_ns <= NOW_NS + LONGEST_NS


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("1", 1), ("60", 60), ("0", 0), ("", 0), ("-1", 0), ("1.5", 0), ("\u0661", 0), ("\u00b2", 0)],
)
def test_seconds_alone_are_understood(value: str, seconds: int) -> None:
    assert retry_after_s((*JSON, ("retry-after", value))) == seconds


def test_an_answer_without_seconds_lets_its_client_ask_at_once() -> None:
    assert retry_after_s(JSON) == 0
    assert retry_after_s((("retry-after", "Mon, 30 Nov 2026 00:00:00 GMT"),)) == 0
    assert retry_after_s((("retry-after", "9" * 400),)) == 999_999_999


Timer = tuple[int, int, Callable[..., None], tuple[Any, ...]]


class Loop:
    """Virtual time with timers, as far as pacing needs a loop."""

    def __init__(self) -> None:
        self.now_ns = NOW_NS
        self.timers: list[Timer] = []
        self._numbers = itertools.count()

    def call_later(self, delay_s: float, call: Callable[..., None], *given: Any) -> SimpleNamespace:
        timer = self.now_ns + round(delay_s * 1e9), next(self._numbers), call, given
        heapq.heappush(self.timers, timer)
        return SimpleNamespace(cancel=lambda: self._remove(timer))

    def _remove(self, timer: Timer) -> None:
        self.timers.remove(timer)
        heapq.heapify(self.timers)

    def run(self, until_ns: int) -> None:
        """Run the timers up to that instant."""
        while self.timers and self.timers[0][0] <= until_ns:
            self.now_ns, _, call, given = heapq.heappop(self.timers)
            call(*given)
        self.now_ns = until_ns


class Client:
    """Client in a closed loop, which asks again at once; it is refused always.

    Attributes:
        waited_ns: by refusal, how long it took.
    """

    def __init__(self, loop: Loop, pacing: RefusalPacing) -> None:
        self._loop, self._pacing = loop, pacing
        self._retry_ns = self._asked_ns = 0
        self.waited_ns: list[int] = []

    def ask(self, deadline_ns: int = 0) -> None:
        self._asked_ns = self._loop.now_ns
        loop: Any = self._loop
        if not self._pacing.hold(self, self._retry_ns, deadline_ns, loop):
            self.release()

    def release(self) -> None:
        self.waited_ns.append(self._loop.now_ns - self._asked_ns)
        self._retry_ns = self._loop.now_ns + S
        # Not from here: a client that is refused at once would never end.
        self._loop.call_later(0, self.ask)


@given(st.integers(1, LONGEST_NS // TURN_NS), st.integers(1, 8))
def test_a_crowd_asks_as_often_as_there_are_turns(clients: int, tenths: int) -> None:
    loop = Loop()
    pacing = RefusalPacing(lambda: loop.now_ns)
    crowd = [Client(loop, pacing) for _ in range(clients)]
    for client in crowd:
        client.ask()
    # Each had its first refusal at once.
    assert all(client.waited_ns == [0] for client in crowd)
    took_ns = tenths * 100 * MS
    loop.run(NOW_NS + took_ns)
    refusals = sum(len(client.waited_ns) for client in crowd)
    assert refusals <= len(crowd) + (took_ns + LOOK_NS) // TURN_NS + 1
    assert max(max(client.waited_ns) for client in crowd) <= LONGEST_NS + LOOK_NS
    least = took_ns // (LONGEST_NS + LOOK_NS)
    assert all(len(client.waited_ns) > least for client in crowd)


def test_refusals_leave_in_the_order_of_their_turns() -> None:
    loop = Loop()
    counted: list[int] = []
    pacing = RefusalPacing(lambda: loop.now_ns, lambda: counted.append(loop.now_ns))
    left: list[int] = []

    class Asker:
        def __init__(self, number: int) -> None:
            self.number = number

        def release(self) -> None:
            left.append(self.number)

    any_loop: Any = loop
    held = [n for n in range(100) if pacing.hold(Asker(n), RETRY_NS, 0, any_loop)]
    assert held == list(range(LOOK_NS // TURN_NS, 100))
    assert len(counted) == len(held)
    assert pacing.hold(Asker(100), RETRY_NS, NOW_NS + 2 * LOOK_NS, any_loop)
    assert len(loop.timers) == 1
    loop.run(NOW_NS + LOOK_NS)
    assert left == [held[0], 100]
    loop.run(NOW_NS + LONGEST_NS + LOOK_NS)
    assert left == [held[0], 100, *held[1:]]
    assert not loop.timers, "nothing is held, so nobody looks"
    later = [pacing.hold(Asker(n), 2 * RETRY_NS, 0, any_loop) for n in range(100)]
    assert any(later)
    left.clear()
    loop.run(NOW_NS + S)
    assert len(left) == sum(later)


def test_a_client_that_comes_in_time_takes_no_turn() -> None:
    loop = Loop()
    pacing = RefusalPacing(lambda: loop.now_ns)
    polite, early = Client(loop, pacing), Client(loop, pacing)
    any_loop: Any = loop
    for _ in range(1_000):
        assert not pacing.hold(polite, NOW_NS, 0, any_loop)
    assert not pacing.hold(early, RETRY_NS, 0, any_loop)


def test_a_real_loop_has_it_leave() -> None:
    class Asker:
        def __init__(self) -> None:
            self.left = asyncio.Event()

        def release(self) -> None:
            self.left.set()

    async def ask() -> None:
        pacing, loop = RefusalPacing(), asyncio.get_running_loop()
        retry_ns = pacing.clock() + 1_000 * S
        askers = [Asker() for _ in range(200)]
        held = [each for each in askers if pacing.hold(each, retry_ns, 0, loop)]
        assert held
        for each in held:
            await each.left.wait()

    asyncio.run(ask())
