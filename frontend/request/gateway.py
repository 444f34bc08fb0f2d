"""Gateway between a frontend's event loop and its lane: submission, answers, deadlines.

The gateway submits to the collector everything that was published or cancelled in one turn of the
event loop: in one store and one wake-up. At the same time it looks for answers, if any can have
come. That costs a few loads from memory, and a busy process mostly finds answers before it looks at
its doorbell. The event loop watches the doorbell among the connections. The gateway cuts a long
turn if half of the requests in flight wait to be submitted. Otherwise all requests would move in
one bunch, and all processes but the one that has it would wait.

While answers are expected soon, the loop does not sleep: it looks for them at every turn, so that
they need no wake-up of a core; see `ringbatch.shm.spinning`.

There is one timer for all requests. It is armed for the earliest deadline and, while anything is
in flight, fires at least once a second. At a deadline the gateway gives up the requests whose time
is over. If a deadline moves as parts come, it looks again at the new one: to move it is one store.
Once a second it looks at everything in flight. If an answer stood in its slot a whole
period unnoticed, the gateway delivers it and counts a missed wake-up. It also puts the deadlines of
the period that begins into a heap. With nothing in flight there is no timer, and nothing runs.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from typing import Any, Final, Protocol

from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.doorbell import Doorbell
from ringbatch.shm.lane import Lane
from ringbatch.shm.parts import move_deadline
from ringbatch.shm.slot import Status
from ringbatch.shm.spinning import SpinPolicy

log = logging.getLogger("ringbatch.frontend")

SWEEP_NS: Final = 1_000_000_000
"""The longest time between two looks at everything in flight."""
RESWEEP_NS: Final = 250_000_000
"""The longest time between two such looks while answers have come without a wake-up."""
BUNCH: Final = 8
"""The fewest requests for which a turn is cut."""
SETTLED_TOGETHER: Final = 64
"""Answers that are passed on before they are counted, while others are to come."""
_NEVER: Final = 1 << 63
_TIMER_GRAIN_S: Final = 0.001
"""The loop's timers count milliseconds and may fire early by a fraction of one."""


class Together(Protocol):
    """Interface of an object that passes on parts of several waiters at once."""

    def pass_on(self, waiters: dict[int, Any], lane: Lane, now_ns: int) -> list[int]:
        """Pass on parts of waiters, by slot; return the slots in which parts may be left."""


class SlotWaiter(Protocol):
    """Interface of an object that waits for the answer in a slot.

    Attributes:
        deadline_ns: when it gives up.
        moves: whether that instant moves as parts come, from the one that was published.
        together: passes on its parts with those of others; None if it has to itself.
    """

    deadline_ns: int
    moves: bool
    together: Together | None

    def answered(self, slot: int) -> None:
        """Read the answer in the slot, and release the slot."""

    def has_parts(self, slot: int) -> None:
        """Read the parts of the answer that are out."""

    def expired(self, slot: int) -> None:
        """Give up: the deadline has passed, and the slot is no longer the waiter's."""


class Gateway:
    """The lane of this process, for its event loop; every method is called on that loop.

    Args:
        lane: this process holds it.
        loop: where waiters are called.
        clock: monotonic nanoseconds.
        spin_ns: how long the loop stays awake for answers, if they usually come as soon; 0 for
            never.
    """

    def __init__(
        self,
        lane: Lane,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], int] = time.monotonic_ns,
        *,
        spin_ns: int = 0,
    ) -> None:
        self.lane = lane
        self._loop = loop
        self._call_soon = loop.call_soon
        self._clock = clock
        self._spin_policy = SpinPolicy(spin_ns)
        self._waited_from_ns = clock()
        """Since when answers have been under way and none has come."""
        self._waiting: list[SlotWaiter | None] = [None] * lane.capacity
        self._turn_is_due = False
        self._unsubmitted = 0
        self._bunch = BUNCH
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = _NEVER
        self._look_ns = _NEVER
        """The time of the next look at everything in flight."""
        self._deadlines: list[tuple[int, int]] = []
        """A heap of the deadlines before that time, with their slots; some may be answered."""
        self._unnoticed: dict[int, SlotWaiter] = {}
        self._doorbell: Doorbell | None = None
        if lane.in_flight:
            # A dead owner left these requests: no client waits, but their slots must come back.
            self._expect(_NEVER, 0)
        self._on_doorbell: Callable[[], None] = _nothing
        self._on_answers: Callable[[], None] = _nothing
        self._unsettled = 0

    def connect(self, on_doorbell: Callable[[], None], on_answers: Callable[[], None]) -> None:
        """Set the callbacks of the service whose requests go through the lane.

        Args:
            on_doorbell: called when the doorbell has rung, before answers are looked for, and at
                every sweep.
            on_answers: called once answers have been passed on: if no others are to come, after
                `SETTLED_TOGETHER`, and at every sweep.
        """
        self._on_doorbell = on_doorbell
        self._on_answers = on_answers

    def listen(self, doorbell: Doorbell) -> None:
        """Have the loop watch the lane's doorbell until `close`."""
        self._doorbell = doorbell
        self._loop.add_reader(doorbell.fileno(), self._answer_doorbell)

    def close(self) -> int:
        """Stop listening, give up all requests in flight, and return how many these were.

        Each batch of a request that makes several counts.
        """
        given_up = sum(waiter is not None for waiter in self._waiting)
        # A turn that is due comes yet, and is the last.
        self._spin_policy = SpinPolicy(0)
        if self._timer is not None:
            self._timer.cancel()
        for slot in range(self.lane.capacity):
            self.cancel(slot)
        self.lane.submit()
        self._settle()
        if self._doorbell is not None:
            self._loop.remove_reader(self._doorbell.fileno())
            self._doorbell.close()
            self._doorbell = None
        return given_up

    def wait_for(self, waiter: SlotWaiter, slot: int) -> None:
        """Have a request submitted that was published in the lane, and its answer passed on.

        Args:
            waiter: gets exactly one call, unless `cancel` comes first.
            slot: where the request is.
        """
        self._waiting[slot] = waiter
        self._unsubmitted += 1
        if not self._turn_is_due:
            self._turn_soon()
        if waiter.deadline_ns < self._look_ns:
            self._expect(waiter.deadline_ns, slot)

    def expect_sooner(self, deadline_ns: int, slot: int) -> None:
        """Give up a slot at a deadline that is earlier than the one of before."""
        if deadline_ns < self._look_ns:
            self._expect(deadline_ns, slot)

    def cancel(self, slot: int) -> None:
        """Cancel a slot's request; do nothing if nobody waits for the slot.

        The collector learns of this within this turn of the loop. It gives back the request if it
        has not dispatched it.
        """
        if self._waiting[slot] is not None:
            self._waiting[slot] = None
            self.lane.cancel(slot)
            self._unsubmitted += 1
            if not self._turn_is_due:
                self._turn_soon()

    def _turn_soon(self) -> None:
        self._turn_is_due = True
        self._call_soon(self._turn)

    def between_requests(self) -> None:
        """Cut a long turn of the event loop; called between requests, when none is half sent."""
        if self._unsubmitted >= self._bunch:
            self._submit()

    def _turn(self) -> None:
        self._turn_is_due = False
        if self._unsubmitted:
            self._submit()
        else:
            self.collect()
        if self._stays_awake():
            self._turn_soon()

    def _submit(self) -> None:
        lane, unsubmitted = self.lane, self._unsubmitted
        unanswered = lane.unanswered
        self._unsubmitted = 0
        self._bunch = max(BUNCH, unanswered >> 1)
        lane.submit()
        if unanswered > unsubmitted:
            self.collect()
        else:
            self._waited_from_ns = self._clock()

    def _stays_awake(self) -> bool:
        """Return whether to look for answers at the next turn of the loop, instead of sleeping."""
        policy = self._spin_policy
        if not (policy.pays and self.lane.unanswered):
            return False
        return self._clock() - self._waited_from_ns < policy.limit_ns

    def collect(self) -> None:
        """Pass on every answer that has come, and every part of one."""
        found = self.lane.collect()
        if found:
            now = self._clock()
            self._spin_policy.learn(now - self._waited_from_ns)
            self._waited_from_ns = now
            waiting, release = self._waiting, self.lane.release
            calls = [
                release if (waiter := waiting[slot]) is None else waiter.answered for slot in found
            ]
            # Before the first call, because one waiter may cancel what another slot holds.
            for slot in found:
                waiting[slot] = None
            self._call_each(zip(calls, found, strict=True))
            self._unsettled += len(found)
            if self._unsettled >= SETTLED_TOGETHER or not self.lane.unanswered:
                self._settle()
        if self.lane.parted:
            self._pass_on_parts()

    def _pass_on_parts(self) -> None:
        slots = [*self.lane.parted]
        self.lane.parted.clear()
        waiting = self._waiting
        left: list[int] = []
        groups: dict[Together, dict[int, SlotWaiter]] = {}
        for slot in slots:
            waiter = waiting[slot]
            if waiter is not None and waiter.together is not None:
                groups.setdefault(waiter.together, {})[slot] = waiter
            else:
                left.append(slot)
        for together, waiters in groups.items():
            try:
                left += together.pass_on(waiters, self.lane, self._clock())
            except Exception:
                log.exception("frontend: parts of answers were not passed on")
        for slot in left:
            # One that another waiter has cancelled has none.
            waiter = waiting[slot]
            if waiter is not None:
                try:
                    waiter.has_parts(slot)
                except Exception:
                    log.exception("frontend: parts of an answer were not passed on")
        self._waited_from_ns = self._clock()

    def _settle(self) -> None:
        self._unsettled = 0
        self._on_answers()

    def _call_each(self, calls: Iterable[tuple[Callable[[int], None], int]]) -> None:
        for call, slot in calls:
            try:
                call(slot)
            except Exception:
                # The caller may serve another request, which must not fail because of this one.
                log.exception("frontend: an answer was not passed on")

    def _answer_doorbell(self) -> None:
        assert self._doorbell is not None
        # The rings are taken before looking: one that comes from here on means another look.
        self._doorbell.hush()
        self._on_doorbell()
        self.collect()

    def _expect(self, deadline_ns: int, slot: int) -> None:
        """Plan a look at a slot at its deadline, if that comes before the look at everything."""
        if self._look_ns == _NEVER:
            self._look_ns = self._clock() + SWEEP_NS
        if deadline_ns < self._look_ns:
            heappush(self._deadlines, (deadline_ns, slot))
        self._arm()

    def _arm(self) -> None:
        """Set the timer for the next look."""
        instant_ns = self._look_ns
        if self._deadlines:
            instant_ns = min(instant_ns, self._deadlines[0][0])
        if instant_ns < self._timer_ns:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_ns = instant_ns
            delay_s = max(instant_ns - self._clock(), 0) / 1e9 + _TIMER_GRAIN_S
            self._timer = self._loop.call_later(delay_s, self.sweep)

    def sweep(self) -> None:
        """Give up what is overdue, find what was missed, and arm the timer for the next time."""
        self._timer, self._timer_ns = None, _NEVER
        if self._unsettled:
            self._settle()
        if self.lane.held_back:
            # Room may have come without an answer, whose ring would have brought another try.
            self.collect()
        self._on_doorbell()
        now = self._clock()
        if now >= self._look_ns:
            self._look(now)
        overdue: list[tuple[Callable[[int], None], int]] = []
        moving: dict[int, SlotWaiter] = {}
        deadlines, waiting = self._deadlines, self._waiting
        while deadlines and deadlines[0][0] <= now:
            deadline_ns, slot = heappop(deadlines)
            waiter = waiting[slot]
            if waiter is None:
                continue
            if waiter.moves:
                moving[slot] = waiter
            elif waiter.deadline_ns == deadline_ns:
                self.cancel(slot)
                overdue.append((waiter.expired, slot))
        if moving:
            overdue += self._overdue_of(moving, now)
        if self.lane.in_flight:
            self._arm()
        else:
            self._look_ns = _NEVER
            deadlines.clear()
        if overdue:
            self.lane.counters.add(LaneCounter.TIMEOUTS, len(overdue))
            self._call_each(overdue)

    def _overdue_of(
        self, moving: dict[int, SlotWaiter], now: int
    ) -> list[tuple[Callable[[int], None], int]]:
        """Give up the slots that are overdue among those whose deadlines move."""
        if any(waiter.deadline_ns <= now for waiter in moving.values()):
            # Parts that stand there already are not late, however late this process looks.
            self.collect()
        overdue: list[tuple[Callable[[int], None], int]] = []
        for slot, waiter in moving.items():
            if self._waiting[slot] is not waiter:
                continue
            if waiter.deadline_ns <= now:
                move_deadline(self.lane, slot, waiter.deadline_ns)
                self.cancel(slot)
                overdue.append((waiter.expired, slot))
            elif waiter.deadline_ns < self._look_ns:
                heappush(self._deadlines, (waiter.deadline_ns, slot))
        return overdue

    def _look(self, now: int) -> None:
        """Look at everything in flight: deliver unnoticed answers and plan the next deadlines."""
        self._deliver_unnoticed()
        lane, unnoticed = self.lane, self._unnoticed
        waiting = [
            (slot, waiter) for slot, waiter in enumerate(self._waiting) if waiter is not None
        ]
        for slot, waiter in waiting:
            if waiter.deadline_ns > now and lane.answer(slot).status is not Status.CORRUPT:
                unnoticed[slot] = waiter
        self._look_ns = look_ns = now + (RESWEEP_NS if unnoticed else SWEEP_NS)
        self._deadlines = [
            (waiter.deadline_ns, slot) for slot, waiter in waiting if waiter.deadline_ns < look_ns
        ]
        heapify(self._deadlines)

    def _deliver_unnoticed(self) -> None:
        # An answer seen at the last sweep may have been on its way to the loop just then. One that
        # is still there has lost its wake-up.
        missed = [slot for slot, waiter in self._unnoticed.items() if self._waiting[slot] is waiter]
        self._unnoticed.clear()
        if missed:
            self.lane.counters.add(LaneCounter.MISSED_WAKEUPS, len(missed))
            self.collect()


def _nothing() -> None:
    pass
