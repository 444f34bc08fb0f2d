"""Header fields as they are sent. Pure.

Each is a literal that enters no table (RFC 7541, section 6.2.2), so a written field is right on
every connection and at any time.
"""

from typing import Final

STATUS_200: Final = b"\x88"
"""``:status: 200``, which the static table has."""
NO_TABLE: Final = b"\x20"
"""Size update before the first field of a block: from here on the dynamic table has no room."""
_ONE_BYTE: Final = 0x7F


def field(name: bytes, value: bytes) -> bytes:
    """Return a field; the name in lower case."""
    return value_after(field_name(name), value)


def field_name(name: bytes) -> bytes:
    """Return the part of a field that is the same for any value."""
    return b"\0" + _sized(name)


def value_after(name: bytes, value: bytes) -> bytes:
    """Return a field of which `field_name` has made the first part."""
    size = len(value)
    if size < _ONE_BYTE:
        return b"%b%c%b" % (name, size, value)
    return name + _sized(value)


def _sized(text: bytes) -> bytes:
    """Return a string without Huffman's code: its length with a prefix of seven bits, then it."""
    size = len(text)
    if size < _ONE_BYTE:
        return bytes((size,)) + text
    size -= _ONE_BYTE
    length = bytearray((_ONE_BYTE,))
    while size >= 0x80:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    length.append(size)
    return bytes(length) + text
