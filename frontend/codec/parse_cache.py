"""Bounded cache of parsed values, by the bytes that they were read from. Pure."""

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

MOST_BYTES: Final = 2048
"""The longest input whose value is remembered. Longer ones are rare, and would fill the memory."""


class ParseCache(Generic[K, V]):
    """A bounded cache. A full one forgets everything, because keeping an order would cost more.

    Args:
        most: entries that it holds.
    """

    __slots__ = ("_known", "_most")

    def __init__(self, most: int) -> None:
        self._known: dict[K, V] = {}
        self._most = most

    def get(self, key: K) -> V | None:
        """Return the value that was read from the key; None if the key is not known."""
        return self._known.get(key)

    def put(self, key: K, value: V, size: int) -> None:
        """Remember a value, unless its input has more than `MOST_BYTES` bytes."""
        if size > MOST_BYTES:
            return
        if len(self._known) >= self._most:
            self._known.clear()
        self._known[key] = value

    def clear(self) -> None:
        """Forget everything."""
        self._known.clear()
