"""A bounded memory of what was read, by what it was read from. Pure."""

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

MOST_BYTES: Final = 2048
"""Of what is read: longer texts are rare, and would fill the memory."""


class Remembered(Generic[K, V]):
    """See the module. A full memory forgets everything, which costs less than to keep an order.

    Args:
        most: entries.
    """

    __slots__ = ("_known", "_most")

    def __init__(self, most: int) -> None:
        self._known: dict[K, V] = {}
        self._most = most

    def get(self, key: K) -> V | None:
        """Return what was read from the key; None if it is not known."""
        return self._known.get(key)

    def put(self, key: K, value: V, size: int) -> None:
        """Remember a value, unless it was read from more than `MOST_BYTES` bytes."""
        if size > MOST_BYTES:
            return
        if len(self._known) >= self._most:
            self._known.clear()
        self._known[key] = value

    def clear(self) -> None:
        """Forget everything."""
        self._known.clear()
