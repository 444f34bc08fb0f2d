"""Elements of a BYTES tensor: each has a 4-byte little-endian length before it."""

import struct
from collections.abc import Iterable
from typing import Final

LENGTH_BYTES: Final = 4

_length = struct.Struct("<I").unpack_from


class Unsound(ValueError):
    """The lengths do not fit the bytes; says how."""


class Overlong(Unsound):
    """Error for more bytes than the elements take."""


def joined(texts: Iterable[bytes]) -> bytes:
    """Return the tensor of these elements."""
    pieces: list[bytes] = []
    for text in texts:
        pieces += (len(text).to_bytes(LENGTH_BYTES, "little"), text)
    return b"".join(pieces)


def elements(
    memory: bytes | bytearray | memoryview, offset: int, size: int, count: int
) -> list[tuple[int, int]]:
    """Start and end of each element's own bytes.

    Args:
        memory: holds the tensor.
        offset: where it starts.
        size: bytes it takes.
        count: elements it has.

    Raises:
        Unsound: that many elements do not fill exactly so many bytes.
    """
    found = []
    at, end = offset, offset + size
    for number in range(count):
        start = at + LENGTH_BYTES
        if start > end:
            raise Unsound(f"its bytes end before element {number} of {count}")
        at = start + _length(memory, at)[0]
        if at > end:
            raise Unsound(f"element {number} is said to be longer than what is left of its bytes")
        found.append((start, at))
    if at != end:
        raise Overlong(f"it has {end - at} bytes more than its {count} elements take")
    return found
