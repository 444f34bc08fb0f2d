"""Frames: the layout of the tensors of one request, or of its answer, in their extent.

Offsets are bytes from the start of the extent. P is a number that the model's signature alone
decides: one word for each dimension of any size, in order, then one for each BYTES tensor.

    offset                     holds
    -------------------------  ------------------------------------------------------------
    0                          P words: the open dimensions, then the lengths of BYTES tensors
    next multiple of 64        the first tensor: its instances one after the other
    next multiple of 64        the second, and so on

So two requests with equal dimensions and row counts have their tensors at equal distances, and one
numpy call gathers a whole batch. The open dimensions are the key: requests share a batch if the
bytes of their keys are equal. BYTES elements are stored as in V2's binary form, a 4-byte
little-endian length before each.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from ringbatch.shm.layout import MAX_BYTES, WORD, aligned
from ringbatch.shm.tensor import ANY, Tensor

_PLACEMENTS_KEPT: Final = 1024


class FrameError(ValueError):
    """The dimensions or lengths of a frame make no sense."""


@dataclass(frozen=True, slots=True)
class PlacedTensor:
    """Tensor of a placed frame: its offset and size in bytes, and its shape with rows."""

    offset: int
    size: int
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """Offset of each tensor of a frame, and the frame's size in bytes."""

    parts: tuple[PlacedTensor, ...]
    size: int


class Frame:
    """The layout that one side of a model's signature gives to its tensors."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.tensors = tuple(tensors)
        self.open_dimensions = sum(t.shape.count(ANY) for t in self.tensors)
        self.bytes_tensors = sum(not t.datatype.fixed for t in self.tensors)
        self._words = self.open_dimensions + self.bytes_tensors
        self._prefix = struct.Struct(f"<{self._words}Q")
        self._known: dict[tuple[int, tuple[int, ...], tuple[int, ...]], Placement] = {}

    @property
    def key_bytes(self) -> int:
        """Bytes at the start of a frame that decide which requests may share a batch."""
        return self.open_dimensions * WORD

    @property
    def prefix_bytes(self) -> int:
        """Bytes of the words that open a frame."""
        return self._words * WORD

    @property
    def static(self) -> bool:
        """True if a frame's size follows from its rows alone."""
        return not self._words

    def place(
        self, rows: int, dimensions: tuple[int, ...] = (), lengths: tuple[int, ...] = ()
    ) -> Placement:
        """Return the offsets of the tensors.

        Args:
            rows: instances in each tensor.
            dimensions: the open dimensions, in the order of the signature.
            lengths: bytes of each BYTES tensor, in order.

        Raises:
            FrameError: a number is missing, or the whole exceeds any memory.
        """
        wanted = (rows, dimensions, lengths)
        placement = self._known.get(wanted)
        if placement is None:
            if len(self._known) >= _PLACEMENTS_KEPT:
                self._known.clear()
            placement = self._known[wanted] = self._place(rows, dimensions, lengths)
        return placement

    def _place(self, rows: int, dimensions: tuple[int, ...], lengths: tuple[int, ...]) -> Placement:
        if len(dimensions) != self.open_dimensions or len(lengths) != self.bytes_tensors:
            raise FrameError("the frame has other dimensions than the model's signature")
        open_sizes, byte_sizes = iter(dimensions), iter(lengths)
        end = self._words * WORD
        parts = []
        for tensor in self.tensors:
            shape = (rows, *(next(open_sizes) if d == ANY else d for d in tensor.shape))
            size = prod(shape) * tensor.datatype.size if tensor.datatype.fixed else next(byte_sizes)
            start = aligned(end)
            end = start + size
            if end > MAX_BYTES:
                raise FrameError(f"tensor {tensor.name!r} of shape {list(shape)} is too large")
            parts.append(PlacedTensor(start, size, shape))
        return Placement(tuple(parts), end)

    def prefix(self, dimensions: tuple[int, ...], lengths: tuple[int, ...]) -> bytes:
        """Return the words that open a frame."""
        return self._prefix.pack(*dimensions, *lengths)

    def read_prefix(self, memory: memoryview | bytes) -> tuple[tuple[int, ...], ...]:
        """Return the open dimensions and the lengths of the frame in front, unchecked."""
        words = self._prefix.unpack_from(memory)
        return words[: self.open_dimensions], words[self.open_dimensions :]
