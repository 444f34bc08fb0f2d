"""Reader of the heads on one connection, with a memory of their fields.

Clients repeat most fields of a head, and give each request some of its own: an id, a trace, a
deadline. Three memories save most of the reading:

    blocks       whole blocks without a field of their own, until the dynamic table changes
    heads        the heads that the server made of repeated fields; it checks and reads the others
                 each time
    beginnings   beginnings of blocks that hold all repeated fields, as an index of one byte each,
                 until the table changes; only the rest of a block is decoded

The last two need a server that knows which fields its requests repeat (`Varying`). Pure.
"""

from collections.abc import Callable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from ringbatch.frontend.codec.parse_cache import ParseCache
from ringbatch.frontend.http2.flood_budget import (
    FIELD,
    FREE_FIELDS,
    FREE_LIST_BYTES,
    LIST_BYTES,
    MOST_PACKED,
    FloodBudget,
)
from ringbatch.frontend.http2.header_decoder import HeaderDecoder
from ringbatch.frontend.http2.header_rules import (
    Fields,
    Http2RequestHead,
    expect_sound,
    request_of,
    size_of,
)

H = TypeVar("H")
Key = tuple[tuple[bytes, bytes], ...]

_REMEMBERED: Final = 64
_PSEUDO: Final = b":"
_INDICES: Final = bytes(range(0x81, 0xFF))
"""Bytes that are a whole field each: an index below 127 into the table (RFC 7541, section 6.1)."""


class Varying(NamedTuple, Generic[H]):
    """The fields of requests that may differ while the rest of a head stays the same.

    Attributes:
        kept: names of the fields by which a head is remembered, pseudo-headers included: all that
            decide how a request is served, and those that clients repeat.
        read: names of other fields, whose values `made` takes and checks.
        unique: those of `read` that mostly differ in each request.
        made: makes the head of a request. It takes the head of the kept fields, the values of
            `read`, and all fields but pseudo-headers. It raises `StreamFault` if a value is not
            allowed in any field.
    """

    kept: frozenset[bytes]
    read: frozenset[bytes]
    unique: frozenset[bytes]
    made: Callable[[H, Mapping[bytes, bytes], Fields], H]


class _Known(NamedTuple, Generic[H]):
    """A remembered head, made of kept fields only.

    Attributes:
        head: of the request.
        content_length: of its body.
        pseudo_headers: how many of the fields are pseudo-headers, which come first.
    """

    head: H
    content_length: int
    pseudo_headers: int


class _Beginning(NamedTuple, Generic[H]):
    """A remembered beginning of blocks, which consists of kept fields only.

    Attributes:
        fields: all of them.
        others: those that are no pseudo-headers.
        list_bytes: the size of `fields`.
        known: the head that was made of them.
    """

    fields: Fields
    others: Fields
    list_bytes: int
    known: _Known[H]


class HeaderReader(Generic[H]):
    """A memory of the heads on one connection.

    Args:
        read: makes a head out of a request.
        patience: the connection's, which long blocks use up.
        varying: None if every field may decide.

    Attributes:
        decoded: how many fields were decoded; remembered blocks need no decoding.
    """

    __slots__ = (
        "_beginnings",
        "_blocks",
        "_decoder",
        "_heads",
        "_patience",
        "_read",
        "_varying",
        "decoded",
    )

    def __init__(
        self,
        read: Callable[[Http2RequestHead], H],
        patience: FloodBudget,
        varying: Varying[H] | None = None,
    ) -> None:
        self.decoded = 0
        self._patience = patience
        self._decoder = HeaderDecoder()
        self._read = read
        self._varying = varying
        self._blocks: ParseCache[bytes, tuple[H, int]] = ParseCache(_REMEMBERED)
        self._heads: ParseCache[Key, _Known[H]] = ParseCache(_REMEMBERED)
        self._beginnings: ParseCache[bytes, _Beginning[H]] = ParseCache(_REMEMBERED)

    def request(self, block: bytes) -> tuple[H, int]:
        """Return the head of a request, and the length of its body.

        Raises:
            ConnectionFault: the block cannot be decoded, or too many blocks were long.
            StreamFault: the head is malformed.
        """
        known = self._blocks.get(block)
        if known is not None:
            return known
        varying, changes = self._varying, self._decoder.changes
        indices = 0 if varying is None else len(block) - len(block.lstrip(_INDICES))
        begun = self._beginnings.get(block[:indices]) if indices else None
        if varying is not None and begun is not None:
            made, unique = self._continued(block[indices:], begun, varying)
        else:
            fields = self.fields(block)
            made, unique = self._read_anew(fields, self._decoder.list_bytes, len(block))
            if varying is not None and unique and changes == self._decoder.changes:
                self._begin(block[:indices], fields[:indices])
        # A block that changes the table must do so every time that it comes.
        if not unique and changes == self._decoder.changes:
            self._blocks.put(block, made, len(block))
        return made

    def made(self, request: Http2RequestHead) -> H:
        """Return the head of a request that came in no block."""
        return self._read(request)

    def fields(self, block: bytes, begun_bytes: int = 0) -> Fields:
        """Return the fields of a block.

        Args:
            block: a header block, or the rest of one.
            begun_bytes: the size of the fields before the rest.

        Raises:
            ConnectionFault: the block cannot be decoded, or too many blocks were long.
        """
        changes = self._decoder.changes
        found = self._decoder.decode(block, begun_bytes)
        if changes != self._decoder.changes:
            self._blocks.clear()
            self._beginnings.clear()
        count = len(found)
        self.decoded += count
        if count > FREE_FIELDS:
            self._patience.spend((count - FREE_FIELDS) * FIELD)
        return found

    def forget(self) -> None:
        """Forget all heads, because the server would make others of the same fields now."""
        self._blocks.clear()
        self._heads.clear()
        self._beginnings.clear()

    def _whole(self, fields: Fields) -> tuple[H, int]:
        request = request_of(fields)
        return self._read(request), request.content_length

    def _read_anew(self, fields: Fields, list_bytes: int, size: int) -> tuple[tuple[H, int], bool]:
        """Read all fields of a block.

        Args:
            fields: all of them.
            list_bytes: their size.
            size: bytes of the block.

        Returns:
            The result of `request`, and whether the block is unlikely to come again.
        """
        excess = list_bytes - FREE_LIST_BYTES - MOST_PACKED * size
        if excess > 0:
            made = self._whole(fields)
            self._patience.spend(excess // LIST_BYTES)
            return made, True
        varying = self._varying
        if varying is None or list_bytes > FREE_LIST_BYTES:
            return self._whole(fields), False
        kept = [field for field in fields if field[0] in varying.kept]
        values = _values([field for field in fields if field[0] not in varying.kept], varying)
        if values is None:
            return self._whole(fields), True
        key = tuple(kept)
        known = self._heads.get(key)
        # In this block, another field may stand before a pseudo-header, which is malformed.
        if known is None or kept[: known.pseudo_headers] != fields[: known.pseudo_headers]:
            request = request_of(fields)
            pseudo_headers = len(fields) - len(request.fields)
            if not all(name.startswith(_PSEUDO) for name, _ in fields[:pseudo_headers]):
                # `request_of` left out a field that is no pseudo-header.
                return self._whole(fields), True
            repeated = [field for field in request.fields if field[0] in varying.kept]
            head = self._read(request._replace(fields=repeated))
            known = _Known(head, request.content_length, pseudo_headers)
            self._heads.put(key, known, size_of(key))
        return _made(known, values, fields[known.pseudo_headers :], varying)

    def _begin(self, indices: bytes, fields: Fields) -> None:
        """Remember the beginning of a block, if its indices stand for all kept fields."""
        known = self._heads.get(tuple(fields))
        if known is not None:
            others = fields[known.pseudo_headers :]
            begun = _Beginning(fields, others, size_of(fields), known)
            self._beginnings.put(indices, begun, len(indices))

    def _continued(
        self, rest: bytes, begun: _Beginning[H], varying: Varying[H]
    ) -> tuple[tuple[H, int], bool]:
        """Read the rest of a block with a remembered beginning; return as `_read_anew` does."""
        own = self.fields(rest, begun.list_bytes)
        list_bytes = self._decoder.list_bytes
        values = _values(own, varying) if list_bytes <= FREE_LIST_BYTES else None
        if values is None:
            size = len(begun.fields) + len(rest)
            return self._read_anew(begun.fields + own, list_bytes, size)
        return _made(begun.known, values, begun.others + own, varying)


def _values(fields: Fields, varying: Varying[H]) -> dict[bytes, bytes] | None:
    """Return the values of varying fields by name; None if a field is a kept one or comes twice.

    Raises:
        StreamFault: a field is not allowed in a request.
    """
    values: dict[bytes, bytes] = {}
    for name, value in fields:
        if name in varying.read:
            if name in values:
                return None
            values[name] = value
        elif name in varying.kept:
            return None
        else:
            expect_sound(name, value)
    return values


def _made(
    known: _Known[H], values: Mapping[bytes, bytes], others: Fields, varying: Varying[H]
) -> tuple[tuple[H, int], bool]:
    """Return as `HeaderReader.request`, and whether the block is unlikely to come again."""
    head = varying.made(known.head, values, others)
    return (head, known.content_length), not varying.unique.isdisjoint(values)
