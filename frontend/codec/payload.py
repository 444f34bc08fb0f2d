"""The tensors of a request as the one run of bytes that stands in its slot.

Every protocol ends here, so that equal values are equal bytes and share a batch.
"""

from collections.abc import Sequence, Sized
from typing import NamedTuple, TypeVar

from ringbatch.shm.frame import Frame

Bytes = bytes | bytearray | memoryview
Data = TypeVar("Data", bound=Sized)


class LazyBytes:
    """Bytes that are not in this process yet, and are copied only once, to where they belong.

    No ABC, because every request is asked whether it is one of these, and an ABC takes five times
    as long to say no.
    """

    __slots__ = ()

    def __len__(self) -> int:
        raise NotImplementedError

    def read_into(self, memory: memoryview) -> None:
        """Copy them to memory of their length.

        Raises:
            InvalidRequest: they are no longer there.
        """
        raise NotImplementedError

    @property
    def slot(self) -> int | None:
        """The slot in which they stand already, and nowhere else; None if that is none."""
        return None

    def __bytes__(self) -> bytes:
        return bytes(self.read())

    def read(self) -> bytearray:
        """Copy them to memory of their own; raises as `read_into`."""
        data = bytearray(len(self))
        self.read_into(memoryview(data))
        return data


class Part(NamedTuple):
    """Content of one slot.

    Attributes:
        rows: instances in it.
        payload: laid out by `ringbatch.shm.frame` for a typed model, else the JSON text of a list.
        key_bytes: bytes at the start of the payload that must be equal within a batch.
    """

    rows: int
    payload: bytes | memoryview
    key_bytes: int


RawPart = tuple[int, bytes | memoryview, int]
"""A `Part`, or a plain tuple of the same, which takes a fifth of the time to make."""


class LazyPart(NamedTuple):
    """Content of one slot, as `Part` has it, still at its source."""

    rows: int
    payload: LazyBytes
    key_bytes: int


SlotPart = tuple[int, Bytes | LazyBytes, int]
"""Content of one slot: rows, payload and key bytes, as in `Part` and `LazyPart`."""


class Assembly(LazyBytes):
    """Pieces one behind the other, some of which may be lazy."""

    __slots__ = ("_pieces", "_size")

    def __init__(self, pieces: "Sequence[Bytes | LazyBytes]") -> None:
        self._pieces = pieces
        self._size = sum(map(len, pieces))

    def __len__(self) -> int:
        return self._size

    def read_into(self, memory: memoryview) -> None:
        """As in `LazyBytes`."""
        start = 0
        for piece in self._pieces:
            end = start + len(piece)
            if isinstance(piece, LazyBytes):
                piece.read_into(memory[start:end])
            else:
                memory[start:end] = piece
            start = end


def framed(frame: Frame, rows: int, dimensions: tuple[int, ...], tensors: Sequence[Bytes]) -> bytes:
    """Lay tensors out as the frame has them.

    Args:
        frame: of a model's inputs.
        rows: instances in each tensor.
        dimensions: the open dimensions, in the order of the signature.
        tensors: the bytes of each, in order.

    Raises:
        FrameError: the whole exceeds what memory can hold.
    """
    return b"".join(laid_out(frame, rows, dimensions, tensors))


def laid_out(
    frame: Frame, rows: int, dimensions: tuple[int, ...], tensors: Sequence[Data]
) -> list[Data | bytes]:
    """As `framed`, the pieces one behind the other, without copying any."""
    named = zip(frame.tensors, tensors, strict=True)
    lengths = tuple(len(data) for tensor, data in named if not tensor.datatype.fixed)
    placement = frame.place(rows, dimensions, lengths)
    pieces: list[Data | bytes] = [frame.prefix(dimensions, lengths)]
    end = frame.prefix_bytes
    for placed, data in zip(placement.parts, tensors, strict=True):
        pieces += (bytes(placed.offset - end), data)
        end = placed.offset + placed.size
    return pieces
