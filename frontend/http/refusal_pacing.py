"""Pacing of refusals to clients that ask again too early.

A refused client is told when to ask again. One that asks at once asks tens of thousands of times a
second, which takes the cores from the model. So refusals to those that come too early have turns,
and one waits for its turn. A client in a closed loop then asks no faster.
"""

import asyncio
import heapq
import time
from collections.abc import Callable
from itertools import count
from typing import Final, Protocol

from ringbatch.frontend.codec.outcome import Headers

TURN_NS: Final = 1_000_000
"""Time from one turn to the next. A thousand refusals a second take less than a tenth of a core."""
LONGEST_NS: Final = 250_000_000
"""The longest that a refusal waits: a quarter of the least Retry-After."""
LOOK_NS: Final = 10_000_000
"""Time between two looks for refusals whose turn has come. Less is not waited for."""
_DIGITS: Final = 9


class Asker(Protocol):
    """Connection whose refusal is held back."""

    def release(self) -> None:
        """Send the refusal, unless it has been sent or the client has left."""


def leave_ns(now_ns: int, turn_ns: int, retry_ns: int, deadline_ns: int) -> int:
    """Return when a refusal leaves; `now_ns` where it does not wait.

    It waits no longer than until the client may ask again, and for no more than half of the time
    that its request has left.

    Args:
        now_ns: the time.
        turn_ns: the next turn.
        retry_ns: until when the client was told to wait; 0 if it was told nothing.
        deadline_ns: of its request; 0 if that is not known.
    """
    due_ns = min(turn_ns, now_ns + LONGEST_NS, retry_ns)
    if deadline_ns:
        due_ns = min(due_ns, now_ns + (deadline_ns - now_ns) // 2)
    return due_ns if due_ns >= now_ns + LOOK_NS else now_ns


def following_ns(now_ns: int, turn_ns: int) -> int:
    """Return the turn after that one, not much later than a refusal waits at most."""
    return min(max(now_ns, turn_ns), now_ns + LONGEST_NS) + TURN_NS


def retry_after_s(headers: Headers) -> int:
    """Return for how many seconds an answer tells its client to wait; 0 if it names none."""
    for name, value in headers:
        if name == "retry-after" and value.isascii() and value.isdecimal():
            return int(value[:_DIGITS])
    return 0


class RefusalPacing:
    """Turns of the refusals of one process.

    Args:
        clock: monotonic nanoseconds.
        count_held: counts a refusal that waits.
    """

    def __init__(
        self,
        clock: Callable[[], int] = time.monotonic_ns,
        count_held: Callable[[], object] = lambda: None,
    ) -> None:
        self.clock = clock
        self._count_held = count_held
        self._turn_ns = 0
        self._numbers = count()
        self._held: list[tuple[int, int, Asker]] = []
        """Refusals by when they leave. Those of clients that have left stay until then."""
        self._looks = False

    def hold(
        self, asker: Asker, retry_ns: int, deadline_ns: int, loop: asyncio.AbstractEventLoop
    ) -> bool:
        """Hold back a refusal, if it must wait; return whether it must.

        Args:
            asker: whose `release` is called when the refusal is to leave.
            retry_ns, deadline_ns: as for `leave_ns`.
            loop: that runs.
        """
        now_ns = self.clock()
        if retry_ns <= now_ns:
            return False
        due_ns = leave_ns(now_ns, self._turn_ns, retry_ns, deadline_ns)
        self._turn_ns = following_ns(now_ns, self._turn_ns)
        if due_ns == now_ns:
            return False
        if not self._looks:
            self._looks = True
            loop.call_later(LOOK_NS / 1e9, self._look, loop)
        heapq.heappush(self._held, (due_ns, next(self._numbers), asker))
        self._count_held()
        return True

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        timer = loop.call_later(LOOK_NS / 1e9, self._look, loop)
        now_ns, held = self.clock(), self._held
        while held and held[0][0] <= now_ns:
            heapq.heappop(held)[2].release()
        if not held:
            timer.cancel()
            self._looks = False
