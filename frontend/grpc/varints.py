"""Varints of Protocol Buffers: numbers with seven bits in each byte. Pure."""

from typing import Final

_MOST_BYTES: Final = 10


def varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Return a number, and the place of the next byte.

    Raises:
        IndexError: the number does not end within the data, or is too long.
    """
    value = 0
    for shift in range(_MOST_BYTES):
        byte = data[at + shift]
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, at + shift + 1
    raise IndexError
