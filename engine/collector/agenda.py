"""The models that have something to do: the next step of the collector looks at no other.

A model is on the agenda once something of it has changed, or at the instant for which it asked
when it was looked at last. Models that are forgotten here starve, and their clients with them.
"""

from collections.abc import Iterable

from ringbatch.engine.collector.instants import Instants


class Agenda:
    """Models by their references."""

    __slots__ = ("_changed", "_ringing", "_until_ns")

    def __init__(self) -> None:
        self._changed: dict[int, None] = {}
        self._until_ns = Instants()
        self._ringing: set[int] = set()

    def add(self, reference: int) -> None:
        """Have the next step look at a model, because something of it has changed."""
        self._changed[reference] = None

    def add_all(self, references: Iterable[int]) -> None:
        """`add` for several models."""
        self._changed.update(dict.fromkeys(references))

    def take(self, now_ns: int) -> Iterable[int]:
        """Remove the models that are to be looked at now, those that changed in front."""
        found = self._changed
        if self._until_ns.at_ns:
            for reference in self._until_ns.take(now_ns):
                found[reference] = None
        if found:
            self._changed = {}
        return found

    def wait(self, reference: int, until_ns: int | None) -> None:
        """Look at a model at this instant if nothing of it changes before; None for never."""
        if until_ns is None:
            self._until_ns.drop(reference)
        else:
            self._until_ns.put(reference, until_ns)

    def ring(self, reference: int, *, rings: bool) -> None:
        """Note whether a request for a model is to wake the collector."""
        if rings:
            self._ringing.add(reference)
        else:
            self._ringing.discard(reference)

    def forget(self, reference: int) -> None:
        """Remove a model that is gone."""
        self._changed.pop(reference, None)
        self._until_ns.drop(reference)
        self._ringing.discard(reference)

    @property
    def rings(self) -> bool:
        """Whether a request for any model is to wake the collector."""
        return bool(self._ringing)

    @property
    def until_ns(self) -> int | None:
        """The earliest instant for which a model asked; None if none did."""
        return self._until_ns.first()[0] if self._until_ns.at_ns else None
