"""Bisection: finds the requests of a batch that make the model raise, by halves. Pure.

A run that raises says only that one of its requests is to blame, or the model itself. So the batch
is halved and run again until every request that fails is alone: k of them among n cost about 2k
log2(n / k) runs. A model that raises for any request would cost 2n, for every batch it gets. So if
the whole and both halves have raised, a few requests from all over the batch are run alone next,
which is no run wasted. If all of these raise in the same way, the rest fails with them. A request
that fails wrongly so was in a batch of which nearly everything is bad: of ten batches of which half
is, it happens in none.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final, Generic, TypeVar

PROBES: Final = 8
"""Requests that run alone before the model is blamed."""
_WHOLE_AND_HALVES: Final = 3
_STRIDE: Final = 5
"""Prime to 8, so that the places differ."""

T = TypeVar("T")


class Search(Generic[T]):
    """The runs that one batch takes.

    Every group that `next` gives is to be run, and what came of it to be said by `succeeded`,
    `failed` or `failed_alone`.
    """

    def __init__(self, requests: Sequence[T]) -> None:
        self._groups: deque[list[T]] = deque([list(requests)] if requests else [])
        self._failures = 0
        self._probes = 0
        self._kinds: set[object] = set()
        self._any_succeeded = False

    def next(self) -> list[T] | None:
        """Return the requests to run now; None if there are no more."""
        return self._groups.popleft() if self._groups else None

    def succeeded(self) -> None:
        """Record that the group was answered."""
        self._any_succeeded = True

    def failed(self, group: Sequence[T]) -> None:
        """Record that the model raised for a group of several."""
        self._failures += 1
        self.halve(group)
        if self._failures == _WHOLE_AND_HALVES and not self._any_succeeded:
            self._probe()

    def halve(self, group: Sequence[T]) -> None:
        """Run a group again in halves, for a reason that blames nobody."""
        half = len(group) // 2
        self._groups += [list(group[:half]), list(group[half:])]

    def failed_alone(self, kind: object) -> list[T]:
        """Record that the model raised for one request.

        Args:
            kind: of the exception; None if only that one request can be meant.

        Returns:
            The requests that need not be run any more, because they would fail as this one did.
        """
        self._kinds.add(kind)
        self._probes -= 1
        if self._probes or self._any_succeeded or len(self._kinds) > 1 or kind is None:
            return []
        rest = [request for group in self._groups for request in group]
        self._groups.clear()
        return rest

    def _probe(self) -> None:
        rest = [request for group in self._groups for request in group]
        if len(rest) <= PROBES:
            return
        share = len(rest) // PROBES
        # One of each eighth, at another place of each: clients take turns, and so do good and bad.
        chosen = {place * share + (_STRIDE * place) % share for place in range(PROBES)}
        self._probes = PROBES
        self._groups = deque([rest[place]] for place in sorted(chosen))
        self.halve([request for place, request in enumerate(rest) if place not in chosen])
