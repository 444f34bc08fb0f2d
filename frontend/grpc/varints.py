"""Numbers as Protocol Buffers write them, seven bits a byte; pure."""

from typing import Final

_MOST_BYTES: Final = 10


def varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """A number, and where the next byte is.

    Raises:
        IndexError: it does not end within the data, or not where it must.
    """
    value = 0
    for place in range(_MOST_BYTES):
        byte = data[at + place]
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise IndexError
