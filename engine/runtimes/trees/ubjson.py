"""UBJSON check: tests that bytes are one whole value (https://ubjson.org, draft 12).

XGBoost trusts the lengths in such a file, and reads on behind the end of a truncated one: at best
it finds nonsense there, at worst the process dies. So this module walks through a file first. An
array with a type and a count, as all large ones are, is one step.
"""

from typing import Final

_FIXED: Final = {
    **dict.fromkeys("ZNTF", 0),
    **dict.fromkeys("iUC", 1),
    "I": 2,
    **dict.fromkeys("ld", 4),
    **dict.fromkeys("LD", 8),
}
"""Bytes behind the marker of a value of one length."""
_INTEGERS: Final = "iUIlL"
_TEXTS: Final = "SH"
_MAX_DEPTH: Final = 64


class NotWhole(ValueError):
    """The bytes are not one whole value: too few, too many, or not UBJSON; the text says where."""


def walk(content: bytes) -> None:
    """Walk through the one value that `content` should be.

    Raises:
        NotWhole: it is something else.
    """
    walker = _Walker(content)
    walker.value(walker.marker(), 0)
    if walker.at != len(content):
        raise NotWhole(f"it should end at byte {walker.at:,} of {len(content):,}")


class _Walker:
    """A position in bytes.

    Attributes:
        at: the next byte.
    """

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.at = 0

    def marker(self) -> str:
        self._skip(1)
        return chr(self._content[self.at - 1])

    def value(self, marker: str, depth: int) -> None:
        """Move behind a value whose marker was read."""
        if marker in _FIXED:
            self._skip(_FIXED[marker])
        elif marker in _TEXTS:
            self._skip(self._length(self.marker()))
        elif marker in "[{" and depth < _MAX_DEPTH:
            self._container(marker == "{", depth + 1)
        else:
            raise NotWhole(f"no value begins with {marker!r}, at byte {self.at - 1:,}")

    def _container(self, keyed: bool, depth: int) -> None:
        end = "}" if keyed else "]"
        marker = self.marker()
        kind = None
        if marker == "$":
            kind, marker = self.marker(), self.marker()
            if marker != "#":
                raise NotWhole(f"a type without a count, at byte {self.at - 1:,}")
        if marker == "#":
            self._counted(self._length(self.marker()), kind, keyed, depth)
            return
        while marker != end:
            if keyed:
                self._skip(self._length(marker))
                marker = self.marker()
            self.value(marker, depth)
            marker = self.marker()

    def _counted(self, count: int, kind: str | None, keyed: bool, depth: int) -> None:
        if kind in _FIXED and not keyed:
            self._skip(count * _FIXED[kind])
            return
        for _ in range(count):
            if keyed:
                self._skip(self._length(self.marker()))
            self.value(kind or self.marker(), depth)

    def _length(self, marker: str) -> int:
        if marker not in _INTEGERS:
            raise NotWhole(f"no length begins with {marker!r}, at byte {self.at - 1:,}")
        start = self.at
        self._skip(_FIXED[marker])
        length = int.from_bytes(self._content[start : self.at], "big", signed=marker != "U")
        if length < 0:
            raise NotWhole(f"a length of {length}, at byte {start:,}")
        return length

    def _skip(self, count: int) -> None:
        self.at += count
        if self.at > len(self._content):
            raise NotWhole(f"it ends at byte {len(self._content):,}, within a value")
