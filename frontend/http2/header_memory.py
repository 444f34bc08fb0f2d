"""The heads of requests on one connection, read with a memory of their fields.

Clients repeat most fields of a head, and give each request some of its own: an id, a trace, a
deadline. Two memories save most of the reading:

    blocks    whole blocks that brought no field of their own, until the dynamic table changes
    heads     what the server made of the fields that clients repeat; the others are checked, and
              read each time

The second needs a server that knows which fields its requests repeat (`Varying`). Pure.
"""

from collections.abc import Callable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from ringbatch.frontend.codec.remembered import Remembered
from ringbatch.frontend.http2.header_decoder import HeaderDecoder
from ringbatch.frontend.http2.header_rules import (
    Fields,
    Request,
    expect_sound,
    expect_sound_value,
    request_of,
    size_of,
)
from ringbatch.frontend.http2.patience import (
    FIELD,
    FREE_FIELDS,
    FREE_LIST_BYTES,
    LIST_BYTES,
    MOST_PACKED,
    Patience,
)

H = TypeVar("H")
Key = tuple[tuple[bytes, bytes], ...]

_REMEMBERED: Final = 64
_PSEUDO: Final = b":"


class Varying(NamedTuple, Generic[H]):
    """The fields of a server's requests that may differ while the rest of a head is the same.

    Attributes:
        kept: names of the fields by which a head is remembered, pseudo-headers included: all that
            decide how a request is served, and those that clients repeat.
        read: names of other fields, whose values `made` takes.
        unique: those of `read` that are mostly other ones in each request.
        made: makes the head of a request out of that of its kept fields, the values of `read`, and
            all its fields but pseudo-headers.
    """

    kept: frozenset[bytes]
    read: frozenset[bytes]
    unique: frozenset[bytes]
    made: Callable[[H, Mapping[bytes, bytes], Fields], H]


class _Known(NamedTuple, Generic[H]):
    """A head of which every field was kept.

    Attributes:
        head: of the request.
        content_length: of its body.
        pseudo_headers: how many of the fields these are; all others come behind them.
    """

    head: H
    content_length: int
    pseudo_headers: int


class HeaderMemory(Generic[H]):
    """See the module.

    Args:
        read: what the server makes of a request.
        patience: of the connection, of which long blocks take.
        varying: None if every field may decide.

    Attributes:
        decoded: how many fields were; those of blocks that are remembered are not.
    """

    __slots__ = (
        "_blocks",
        "_decoder",
        "_heads",
        "_patience",
        "_read",
        "_varying",
        "decoded",
    )

    def __init__(
        self, read: Callable[[Request], H], patience: Patience, varying: Varying[H] | None = None
    ) -> None:
        self.decoded = 0
        self._patience = patience
        self._decoder = HeaderDecoder()
        self._read = read
        self._varying = varying
        self._blocks: Remembered[bytes, tuple[H, int]] = Remembered(_REMEMBERED)
        self._heads: Remembered[Key, _Known[H]] = Remembered(_REMEMBERED)

    def request(self, block: bytes) -> tuple[H, int]:
        """Return the head of a request, and the length of its body.

        Raises:
            ConnectionFault: the block cannot be decoded, or was one too many that says much.
            StreamFault: what it says is malformed.
        """
        known = self._blocks.get(block)
        if known is not None:
            return known
        changes = self._decoder.changes
        fields = self.fields(block)
        list_bytes = self._decoder.list_bytes
        excess = list_bytes - FREE_LIST_BYTES - MOST_PACKED * len(block)
        if excess > 0:
            made = self._whole(fields)
            self._patience.spend(excess // LIST_BYTES)
            return made
        varying = self._varying
        unique = False
        if varying is not None and list_bytes <= FREE_LIST_BYTES:
            made, unique = self._varied(fields, varying)
        else:
            made = self._whole(fields)
        # A block that changes the table has to do so every time that it comes.
        if not unique and changes == self._decoder.changes:
            self._blocks.put(block, made, len(block))
        return made

    def made(self, request: Request) -> H:
        """Return what the server makes of a request that no block has said."""
        return self._read(request)

    def fields(self, block: bytes) -> Fields:
        """Return the fields of a block.

        Raises:
            ConnectionFault: it cannot be decoded, or was one too many that is too long.
        """
        changes = self._decoder.changes
        found = self._decoder.decode(block)
        if changes != self._decoder.changes:
            self._blocks.clear()
        count = len(found)
        self.decoded += count
        if count > FREE_FIELDS:
            self._patience.spend((count - FREE_FIELDS) * FIELD)
        return found

    def forget(self) -> None:
        """Forget what the server made of requests: it would make other things of them now."""
        self._blocks.clear()
        self._heads.clear()

    def _whole(self, fields: Fields) -> tuple[H, int]:
        request = request_of(fields)
        return self._read(request), request.content_length

    def _varied(self, fields: Fields, varying: Varying[H]) -> tuple[tuple[H, int], bool]:
        """Return as `request` does, and whether a field is likely not to come again."""
        kept: Fields = []
        values: dict[bytes, bytes] = {}
        before_others = -1
        names, read = varying.kept, varying.read
        for field in fields:
            name, value = field
            if name in names:
                kept.append(field)
                continue
            if before_others < 0:
                before_others = len(kept)
            if name not in read:
                expect_sound(name, value)
            elif name in values:
                return self._whole(fields), True
            else:
                expect_sound_value(value)
                values[name] = value
        key = tuple(kept)
        known = self._heads.get(key)
        if known is None or 0 <= before_others < known.pseudo_headers:
            request = request_of(fields)
            pseudo_headers = len(fields) - len(request.fields)
            if not all(name.startswith(_PSEUDO) for name, _ in fields[:pseudo_headers]):
                # One of the others was left out.
                return self._whole(fields), True
            kept = [field for field in request.fields if field[0] in names]
            head = self._read(request._replace(fields=kept))
            known = _Known(head, request.content_length, pseudo_headers)
            self._heads.put(key, known, size_of(key))
        made = varying.made(known.head, values, fields[known.pseudo_headers :])
        return (made, known.content_length), not varying.unique.isdisjoint(values)
