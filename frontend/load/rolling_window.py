"""Rolling window: values seen a while ago, for comparison with the present ones. Pure."""

from typing import Generic, TypeVar

Seen = TypeVar("Seen")


class Window(Generic[Seen]):
    """Rolling window over looks at a value. It remembers two looks, however many there are.

    Args:
        least_ns: least age of the older look, once there are looks of that age; if looks are
            frequent, it is at most twice as old.
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
