"""Rolling window: values seen a while ago, for comparison with the present ones. Pure."""

from typing import Generic, TypeVar

Seen = TypeVar("Seen")


class Window(Generic[Seen]):
    """See the module. However often somebody looks, two looks are remembered.

    Args:
        least_ns: so long ago it was seen at least, once somebody has looked for so long; and twice
            as long ago at most, where somebody looks often.
    """

    def __init__(self, least_ns: int) -> None:
        self._least_ns = least_ns
        self._before: tuple[int, Seen] | None = None
        self._next: tuple[int, Seen] | None = None
        """Next value of `_before`, once it is old enough itself."""

    def look(self, at_ns: int, now: Seen) -> Seen:
        """Return the older values to compare the present ones with; at first, the present ones."""
        before = self._before or (at_ns, now)
        then = self._next or (at_ns, now)
        if at_ns - then[0] >= self._least_ns:
            before, then = then, (at_ns, now)
        self._before, self._next = before, then
        return before[1]
