"""Queries of one run, their ends, and the completions for LoadGen. Pure.

LoadGen knows only that a query is complete, and waits for every one of them. So those without an
answer are completed last, when they are later than the limit: then LoadGen counts them as late.
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from ringbatch.bench.load.outcome import UNANSWERED
from ringbatch.bench.loadgen.judgement import Sent

Complete = Callable[[Sequence[tuple[int, bytes]]], None]
"""Tells LoadGen of queries, by their ids, and of what was answered."""
_ANSWERED: Final = 200
_UNDER_WAY: Final = -3
_AT_ONCE: Final = 16
"""Answers after which LoadGen is told of them: until then their times go on."""


class Queries:
    """The queries of one run, by number, from 0.

    Args:
        complete: tells LoadGen.
    """

    def __init__(self, complete: Complete) -> None:
        self._complete = complete
        self._ids: list[int] = []
        self._issued_ns: list[int] = []
        self._lag_ns: list[int] = []
        self._took_ns: list[int] = []
        self._statuses: list[int] = []
        self._answered: list[tuple[int, bytes]] = []
        self._failed: list[int] = []
        self.under_way = 0
        """Queries without end; they are the caller's."""

    def begin(self, query: int, issued_ns: int, now_ns: int) -> int:
        """Record that a query is sent; return its number.

        Args:
            query: its id.
            issued_ns: when LoadGen called.
            now_ns: on the same clock.
        """
        self._ids.append(query)
        self._issued_ns.append(issued_ns)
        self._lag_ns.append(now_ns - issued_ns)
        self._took_ns.append(0)
        self._statuses.append(_UNDER_WAY)
        self.under_way += 1
        return len(self._ids) - 1

    def end(self, number: int, status: int, now_ns: int, answer: bytes) -> None:
        """Record that a query has ended; ignore a second end, as LoadGen forgets the query."""
        if self._statuses[number] != _UNDER_WAY:
            return
        self._statuses[number] = status
        self._took_ns[number] = now_ns - self._issued_ns[number]
        self.under_way -= 1
        if status == _ANSWERED:
            self._answered.append((self._ids[number], answer))
            if len(self._answered) >= _AT_ONCE:
                self.tell()
        else:
            self._failed.append(number)

    def tell(self) -> None:
        """Tell LoadGen of the answers that have come."""
        if self._answered:
            told, self._answered = self._answered, []
            self._complete(told)

    def finish(self, now_ns: int, late_ns: int, give_up_ns: int) -> None:
        """Complete what has no answer, once it is too late for one; LoadGen issues no more.

        Args:
            now_ns: on the clock of `begin`.
            late_ns: from when on every query is later than the limit.
            give_up_ns: from when on answers are no longer waited for.
        """
        if now_ns >= give_up_ns and self.under_way:
            for number, status in enumerate(self._statuses):
                if status == _UNDER_WAY:
                    self.end(number, UNANSWERED, now_ns, b"")
        if now_ns >= late_ns and not self.under_way and self._failed:
            failed, self._failed = self._failed, []
            self._complete([(self._ids[number], b"") for number in failed])

    def sent(self, problems: dict[str, int], held_back: int) -> Sent:
        """Return the ends of all queries.

        Args:
            problems: faults of connections, in words, and how often each came.
            held_back: queries that waited for a connection.
        """
        statuses, counts = np.unique(np.asarray(self._statuses, np.int64), return_counts=True)
        return Sent(
            dict(zip(statuses.tolist(), counts.tolist(), strict=True)),
            problems,
            float(np.quantile(self._lag_ns, 0.99)) / 1e6 if self._lag_ns else 0.0,
            float(np.mean(self._took_ns)) / 1e6 if self._took_ns else 0.0,
            held_back,
        )
