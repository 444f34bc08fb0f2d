"""HPACK decoder (RFC 7541): the header blocks of one connection to fields, with its dynamic table.

Clients put deadlines, ids and traces into the table. So few blocks are like an earlier one, and
each call has a block to decode. The package hpack takes 25 µs for a block of ten fields, this
module 3. The package decodes Huffman's code, and the tests compare the rest with it.
"""

from typing import Final

from hpack import HPACKError
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

from ringbatch.frontend.http2.frames import COMPRESSION_ERROR, ConnectionFault
from ringbatch.frontend.http2.header_rules import FIELD_BYTES, Fields

MOST_LIST_BYTES: Final = 1 << 17
"""The largest list of fields that is decoded, as SETTINGS_MAX_HEADER_LIST_SIZE counts it."""
MOST_TABLE_BYTES: Final = 4096
"""The default of SETTINGS_HEADER_TABLE_SIZE, which is not sent (RFC 9113, section 6.5.2)."""
MOST_RESIZES: Final = 2
"""The most size updates in a block: the smallest size since the last block, and the current one
(RFC 7541, section 4.2)."""
_STATIC: Final[tuple[tuple[bytes, bytes], ...]] = HeaderTable.STATIC_TABLE
_INDEXED: Final = 0x80
_ENTERS: Final = 0x40
_RESIZE: Final = 0x20
_HUFFMAN: Final = 0x80
_MOST_SHIFT: Final = 28
"""The shift of the bits in a number's last byte: no length and no index takes more."""


class HeaderDecoder:
    """An HPACK decoder with its dynamic table.

    Attributes:
        changes: how often the table has changed.
        list_bytes: the size of the last block's fields, as SETTINGS_MAX_HEADER_LIST_SIZE counts.
    """

    __slots__ = ("_entries", "_table_bytes", "_table_room", "changes", "list_bytes")

    def __init__(self) -> None:
        self._entries: Fields = []
        """The entries of the table, the newest last."""
        self._table_bytes = 0
        self._table_room = MOST_TABLE_BYTES
        self.changes = 0
        self.list_bytes = 0

    def decode(self, block: bytes, begun_bytes: int = 0) -> Fields:
        """Return the fields of a block, in order.

        Args:
            block: a header block, or the rest of one.
            begun_bytes: the size of the fields before the rest; 0 if there are none.

        Raises:
            ConnectionFault: the data are no block, or its fields are larger than `MOST_LIST_BYTES`.
        """
        try:
            return self._decode(block, begun_bytes)
        except (IndexError, HPACKError):
            raise _fault("a header block cannot be decoded") from None

    def _decode(self, block: bytes, begun_bytes: int) -> Fields:
        found: Fields = []
        list_bytes = begun_bytes
        resizes = at = 0
        end = len(block)
        while at < end:
            first = block[at]
            at += 1
            if first >= _INDEXED:
                index = first & 0x7F
                if index == 0x7F:
                    index, at = _number(block, at, index)
                field = self._entry(index)
            elif first & _ENTERS or not first & _RESIZE:
                most = 0x3F if first & _ENTERS else 0x0F
                index = first & most
                if index == most:
                    index, at = _number(block, at, index)
                if index:
                    name = self._entry(index)[0]
                else:
                    name, at = _text(block, at)
                value, at = _text(block, at)
                field = name, value
                if first & _ENTERS:
                    self._enter(field)
            else:
                size = first & 0x1F
                if size == 0x1F:
                    size, at = _number(block, at, size)
                resizes += 1
                if list_bytes or resizes > MOST_RESIZES or size > MOST_TABLE_BYTES:
                    raise _fault("the header table is resized too often, too late or too much")
                self._resize(size)
                continue
            list_bytes += len(field[0]) + len(field[1]) + FIELD_BYTES
            if list_bytes > MOST_LIST_BYTES:
                raise _fault(f"header fields take more than {MOST_LIST_BYTES} bytes")
            found.append(field)
        self.list_bytes = list_bytes
        return found

    def _entry(self, index: int) -> tuple[bytes, bytes]:
        if index > len(_STATIC):
            return self._entries[len(_STATIC) - index]
        if index == 0:
            raise IndexError
        return _STATIC[index - 1]

    def _enter(self, field: tuple[bytes, bytes]) -> None:
        self.changes += 1
        self._entries.append(field)
        self._table_bytes += len(field[0]) + len(field[1]) + FIELD_BYTES
        self._shrink()

    def _resize(self, size: int) -> None:
        if size != self._table_room:
            self.changes += 1
            self._table_room = size
            self._shrink()

    def _shrink(self) -> None:
        """Drop the oldest entries until the rest has room (RFC 7541, section 4.4)."""
        while self._table_bytes > self._table_room:
            name, value = self._entries.pop(0)
            self._table_bytes -= len(name) + len(value) + FIELD_BYTES


def _number(block: bytes, at: int, value: int) -> tuple[int, int]:
    """Return a number whose first bits are all set, and its end (RFC 7541, section 5.1)."""
    for shift in range(0, _MOST_SHIFT + 1, 7):
        more = block[at]
        at += 1
        value += (more & 0x7F) << shift
        if more < 0x80:
            return value, at
    raise _fault("a number in a header block is too long")


def _text(block: bytes, at: int) -> tuple[bytes, int]:
    """Return a string, and the place behind it (RFC 7541, section 5.2)."""
    first = block[at]
    at += 1
    size = first & 0x7F
    if size == 0x7F:
        size, at = _number(block, at, size)
    end = at + size
    if end > len(block):
        raise IndexError
    text = block[at:end]
    if first & _HUFFMAN:
        text = bytes(decode_huffman(text))
    return text, end


def _fault(text: str) -> ConnectionFault:
    return ConnectionFault(COMPRESSION_ERROR, text)
