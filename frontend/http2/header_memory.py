"""Header blocks to what they say: hpack decodes them, and what it said of a block is remembered.

What a block says depends on its bytes and on the dynamic table. Clients soon send their fields as
indices into that table, and then the same bytes with every call. So what a block said holds until
another changes the table, and then all of it is forgotten. There is no second opinion on HPACK
(RFC 7541).
"""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from hpack import Decoder, HPACKError

from ringbatch.frontend.http2.frames import COMPRESSION_ERROR, ConnectionFault
from ringbatch.frontend.http2.header_rules import Fields, Request, request_of
from ringbatch.frontend.http2.patience import (
    FIELD,
    FREE_FIELDS,
    FREE_LIST_BYTES,
    LIST_BYTES,
    MOST_PACKED,
    Patience,
)

H = TypeVar("H")

MOST_LIST_BYTES: Final = 1 << 16
"""Of one block, as SETTINGS_MAX_HEADER_LIST_SIZE counts: more is not decoded."""
_REMEMBERED: Final = 64
_REMEMBERED_BYTES: Final = 2048
_MOST_RESIZES: Final = 2
"""The smallest size that the table had since the last block, and the one that it has (RFC 7541,
section 4.2)."""


class HeaderMemory(Generic[H]):
    """What the header blocks of one connection said.

    Args:
        read: what the server makes of a request.
        patience: of the connection, of which long blocks take.

    Attributes:
        decoded: how many fields were; those of what is remembered are not.
    """

    __slots__ = ("_changed", "_decoder", "_known", "_patience", "_read", "decoded")

    def __init__(self, read: Callable[[Request], H], patience: Patience) -> None:
        self.decoded = 0
        self._patience = patience
        self._decoder = Decoder(MOST_LIST_BYTES)
        self._read = read
        self._known: dict[bytes, tuple[H, int]] = {}
        self._changed = False
        """Whether the last block changed the table."""

    def request(self, block: bytes) -> tuple[H, int]:
        """The head of a request, and the length of its body.

        Raises:
            ConnectionFault: the block cannot be decoded, or was one too many that says much.
            StreamFault: what it says is malformed.
        """
        known = self._known.get(block)
        if known is not None:
            return known
        request = request_of(self.fields(block))
        made = self._read(request), request.content_length
        excess = request.size - FREE_LIST_BYTES - MOST_PACKED * len(block)
        if excess > 0:
            self._patience.spend(excess // LIST_BYTES)
        # What changes the table has to do so every time that it comes, and what is paid for too.
        elif not self._changed and len(block) <= _REMEMBERED_BYTES:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[block] = made
        return made

    def made(self, request: Request) -> H:
        """What the server makes of a request that no block has said."""
        return self._read(request)

    def fields(self, block: bytes) -> Fields:
        """The fields of a block.

        Raises:
            ConnectionFault: it cannot be decoded, or was one too many that is too long.
        """
        if resizes(block) > _MOST_RESIZES:
            raise ConnectionFault(COMPRESSION_ERROR, "the header table is resized too often")
        table = self._decoder.header_table
        entries = table.dynamic_entries
        first = entries[0] if entries else None
        count, room = len(entries), table.maxsize
        try:
            found: Fields = list(self._decoder.decode(block, raw=True))
        except HPACKError:
            # The library's words may name addresses in memory.
            raise ConnectionFault(COMPRESSION_ERROR, "a header block cannot be decoded") from None
        # What enters comes first, as an object of its own.
        now = entries[0] if entries else None
        self._changed = now is not first or len(entries) != count or table.maxsize != room
        if self._changed:
            self._known.clear()
        count = len(found)
        self.decoded += count
        if count > FREE_FIELDS:
            self._patience.spend((count - FREE_FIELDS) * FIELD)
        return found

    def forget(self) -> None:
        """What the server made of requests holds no longer."""
        self._known.clear()


def resizes(block: bytes) -> int:
    """How often a block gives the dynamic table another size before its fields (RFC 7541, section
    6.3); what comes behind them, the decoder refuses. Pure."""
    at, end, count = 0, len(block), 0
    while at < end and block[at] & 0xE0 == 0x20:
        count += 1
        long = block[at] & 0x1F == 0x1F
        at += 1
        while long and at < end:
            long = block[at] >= 0x80
            at += 1
    return count
