"""Load generator: a loop that sends due requests, takes answers, and sleeps until either comes.

Every request has a connection to itself until it is answered. If no more connections may be opened,
requests wait, and their time counts. Nothing is sent late because the server is slow. How late the
loop itself came to a request is kept apart, as its lag.
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from ringbatch.bench.load.connections import Connections, Poll
from ringbatch.bench.load.exchange import Exchange
from ringbatch.bench.load.outcome import BROKEN, UNANSWERED, Outcome
from ringbatch.bench.load.parts import PartTimes

_UNSENT: Final = -3
_AT_ONCE: Final = 64
"""Requests that are sent before answers are looked for again."""
_PROBLEMS_MAX: Final = 1000
"""Problems after which a closed loop gives up: else it would ask a refusing server forever."""


class Generator:
    """Sends requests when they are due.

    Args:
        address: of the server, as connect takes it.
        exchange: makes one side of a new connection.
        messages: how many different requests there are.
        due_ns: when, from the begin of the run, in order; none for a closed loop.
        first: of the requests, the one that is sent first.
        connections: that may be open at once.
        poll: tells which can be read or written.
        clock_ns: monotonic.
        begin_ns: of the run, by that clock.
        source: own address of connections; empty for the one that the kernel chooses.
        parts: has the parts of answers in events; None where answers come whole.
    """

    def __init__(
        self,
        address: tuple[str, int] | str,
        exchange: Callable[[], Exchange],
        messages: int,
        due_ns: Sequence[int],
        *,
        first: int,
        connections: int,
        poll: Poll,
        clock_ns: Callable[[], int],
        begin_ns: int,
        source: str = "",
        parts: PartTimes | None = None,
    ) -> None:
        self._parts = parts
        self._messages, self._first = messages, first
        self._clock_ns, self._begin_ns = clock_ns, begin_ns
        self._connections = Connections(
            address,
            exchange,
            limit=connections,
            poll=poll,
            clock_ns=clock_ns,
            ended=self._ended,
            source=source,
        )
        self._due_ns = list(due_ns)
        self._took_ns = [0] * len(self._due_ns)
        self._lag_ns = [0] * len(self._due_ns)
        self._statuses = [_UNSENT] * len(self._due_ns)
        self._next = 0
        self._pending = 0
        self._closed_until_ns = 0

    @property
    def finished(self) -> bool:
        """True if every request was sent and has ended."""
        return not self._pending and self._next == len(self._due_ns)

    def warm(self, connections: int) -> None:
        """Open connections before the first request is due."""
        self._connections.warm(connections)

    def begin_closed(self, connections: int, until_ns: int) -> None:
        """Send from so many connections, from each the next as soon as it has an answer."""
        self._closed_until_ns = until_ns
        for _ in range(connections):
            self._send_next()

    def send_due(self) -> int | None:
        """Send what is due by now; nanoseconds until the next is, None where there is none."""
        due, count = self._due_ns, len(self._due_ns)
        now = self._clock_ns() - self._begin_ns
        most = self._next + _AT_ONCE
        while self._next < count:
            number = self._next
            if number == most:
                return 0
            if due[number] > now:
                now = self._clock_ns() - self._begin_ns
                if due[number] > now:
                    return due[number] - now
            self._next += 1
            self._lag_ns[number] = now - due[number]
            self._start(number)
        return None

    def take(self, fd: int, events: int) -> None:
        """Read and write on a connection that the poll reported."""
        self._connections.take(fd, events)

    def outcome(self, seconds: float) -> Outcome:
        """End the run: close connections, and say what became of the requests."""
        now = self._clock_ns() - self._begin_ns
        for number in self._connections.under_way:
            self._end(number, UNANSWERED, now)
        self._connections.close()
        sent = [n for n, status in enumerate(self._statuses) if status != _UNSENT]
        due = [self._due_ns[n] for n in sent]
        return Outcome(
            np.asarray(due, np.int64),
            np.asarray([self._took_ns[n] for n in sent], np.int64),
            np.asarray([self._lag_ns[n] for n in sent], np.int64),
            np.asarray([self._statuses[n] for n in sent], np.int16),
            seconds,
            self._connections.held_back,
            self._connections.most,
            self._connections.problems,
            None if self._parts is None else self._parts.result(sent, due, self._begin_ns),
        )

    def _send_next(self) -> None:
        """Send a request that is due now, in a closed loop."""
        now = self._clock_ns() - self._begin_ns
        if now >= self._closed_until_ns:
            return
        number = len(self._due_ns)
        self._due_ns.append(now)
        self._took_ns.append(0)
        self._lag_ns.append(0)
        self._statuses.append(_UNSENT)
        self._next += 1
        self._start(number)

    def _start(self, number: int) -> None:
        self._pending += 1
        if not self._connections.start(number, (self._first + number) % self._messages):
            self._end(number, BROKEN, self._clock_ns() - self._begin_ns)

    def _ended(self, number: int, status: int, at_ns: int, _: bytes) -> None:
        # As in `_end`, without another call: it is done for every answer.
        self._took_ns[number] = at_ns - self._begin_ns - self._due_ns[number]
        self._statuses[number] = status
        self._pending -= 1
        if self._closed_until_ns and (status != BROKEN or self._may_go_on()):
            self._send_next()

    def _may_go_on(self) -> bool:
        return sum(self._connections.problems.values()) < _PROBLEMS_MAX

    def _end(self, number: int, status: int, now_ns: int) -> None:
        self._took_ns[number] = now_ns - self._due_ns[number]
        self._statuses[number] = status
        self._pending -= 1
