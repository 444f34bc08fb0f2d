"""Agenda of the models that have something to do: the collector's next step looks at no others.

A model enters the agenda when its state changes, or at the instant that its last look asked for.
If the agenda loses a model, that model and its clients starve.
"""

from collections.abc import Iterable

from ringbatch.engine.collector.instants import Instants


class Agenda:
    """Agenda of models, by reference."""

    __slots__ = ("_changed", "_ringing", "_until_ns")

    def __init__(self) -> None:
        self._changed: dict[int, None] = {}
        self._until_ns = Instants()
        self._ringing: set[int] = set()

    def add(self, reference: int) -> None:
        """Have the next step look at a model, because its state has changed."""
        self._changed[reference] = None

    def add_all(self, references: Iterable[int]) -> None:
        """Add several models, as `add` does."""
        self._changed.update(dict.fromkeys(references))

    def take(self, now_ns: int) -> Iterable[int]:
        """Remove and return the models to look at now, changed models first."""
        found = self._changed
        if self._until_ns.at_ns:
            for reference in self._until_ns.take(now_ns):
                found[reference] = None
        if found:
            self._changed = {}
        return found

    def wait(self, reference: int, until_ns: int | None) -> None:
        """Have a step look at a model at this instant, even without a change; None for never."""
        if until_ns is None:
            self._until_ns.drop(reference)
        else:
            self._until_ns.put(reference, until_ns)

    def ring(self, reference: int, *, rings: bool) -> None:
        """Record whether a request for a model wakes the collector."""
        if rings:
            self._ringing.add(reference)
        else:
            self._ringing.discard(reference)

    def forget(self, reference: int) -> None:
        """Remove a model that no longer exists."""
        self._changed.pop(reference, None)
        self._until_ns.drop(reference)
        self._ringing.discard(reference)

    @property
    def rings(self) -> bool:
        """True if a request for any model wakes the collector."""
        return bool(self._ringing)

    @property
    def until_ns(self) -> int | None:
        """The earliest instant that a model asked for; None without any."""
        return self._until_ns.first()[0] if self._until_ns.at_ns else None
