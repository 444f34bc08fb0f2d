"""Requests that differ in nothing but their place, read and checked together.

Most batches are of such requests. What they have in common is looked at once, and for requests
like those of earlier batches not even that: their sizes are known by the bytes they are written
in. What remains for each is whether its memory lies in its own lane. As in
`ringbatch.shm.engine_slots`, every word is read once and checked before it is used.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringbatch.shm.descriptors import SlotWords
from ringbatch.shm.layout import ALIGNMENT, SLOT_BYTES, WORD
from ringbatch.shm.model_spec import INDEX_MASK
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import slots_of
from ringbatch.shm.slot_arrays import slot_array
from ringbatch.shm.slot_structs import REQUEST_SIZES, SIZES_AND_OFFSETS
from ringbatch.shm.tuples import unchecked_tuple

FEW: Final = 24
"""Requests up to which looking at each is faster than handling all as arrays."""
MAX_KEY_BYTES: Final = 4096
"""A key is kept by the collector, outside the lane that pays for it."""
_KINDS_KEPT: Final = 1024
_UNALIGNED: Final = np.uint64(ALIGNMENT - 1)


class Sizes(NamedTuple):
    """Checked sizes that the headers of uniform requests have in common."""

    model: int
    rows: int
    request_bytes: int
    key_bytes: int
    result_capacity: int


class UniformBatch(NamedTuple):
    """Requests of the same sizes, their results equally far behind them, checked.

    Slots and offsets have one element a request, in the order of the references; they are arrays
    if there are more than `FEW`.
    """

    references: list[int]
    slots: list[int] | NDArray[np.intp]
    sizes: Sizes
    request_offsets: Sequence[int] | NDArray[np.uint64]
    distance: int
    """Bytes from the start of a request to the start of its result."""


class UniformBatchReader:
    """Reads the headers of every lane's slots."""

    def __init__(self, segment: Segment) -> None:
        layout = segment.layout
        self._memory = segment.memory
        self._first_header = (layout.slots_word + SlotWords.MODEL) * WORD
        self._slot_count = layout.lanes * layout.slots
        self._lane_shift = layout.slots.bit_length() - 1
        self._lane_bytes = layout.lane_bytes
        self._payload = layout.payload_byte
        self._models = layout.models
        self._kinds: dict[bytes, Sizes] = {}
        self._headers: NDArray[Any] = np.ndarray(
            (self._slot_count,),
            f"V{SIZES_AND_OFFSETS.size}",
            self._memory,
            self._first_header,
            (SLOT_BYTES,),
        )
        self._payloads = np.array(
            [layout.lane_payload_byte(lane) for lane in range(layout.lanes)], dtype=np.uint64
        )

    def read(self, references: list[int]) -> UniformBatch | None:
        """Return the requests that references name if all are alike; else None.

        None does not say what is wrong: `EngineSlots.read` tells, request by request.
        """
        if len(references) > FEW:
            return self._read_many(references)
        memory, unpacked, first = self._memory, SIZES_AND_OFFSETS.unpack_from, self._first_header
        shift = self._lane_shift
        slots = slots_of(references)
        starts: list[int] = []
        common = sizes = None
        lane = -1
        for slot in slots:
            if slot >= self._slot_count:
                return None
            packed, start, result = unpacked(memory, first + slot * SLOT_BYTES)
            if packed != common:
                if common is not None:
                    return None
                common, distance = packed, result - start
                sizes = self._sizes_of(packed)
                if sizes is None:
                    return None
                span = self._span(sizes, distance)
            if slot >> shift != lane:
                lane = slot >> shift
                low = self._payload + lane * self._lane_bytes
                last = low + self._lane_bytes - span
            if result - start != distance or not low <= start <= last or start % ALIGNMENT:
                return None
            starts.append(start)
        if sizes is None:
            return None
        # Calling the class takes thrice as long.
        return unchecked_tuple(UniformBatch, (references, slots, sizes, starts, distance))

    def _read_many(self, references: list[int]) -> UniformBatch | None:
        slots = slot_array(np.array(references, dtype=np.uint64))
        try:
            headers = self._headers[slots].view(np.uint64).reshape(len(references), -1)
        except IndexError:
            return None
        packed = headers[:, :-2].tobytes()
        common = packed[: REQUEST_SIZES.size]
        sizes = self._sizes_of(common)
        if sizes is None or packed != common * len(references):
            return None
        starts = headers[:, -2]
        distances = headers[:, -1] - starts
        distance = int(distances[0])
        span = self._span(sizes, distance)
        # Below its lane's memory a difference wraps round and is larger than any limit.
        within = starts - self._payloads[slots >> self._lane_shift]
        wrong = (distances != distances[0]) | (starts & _UNALIGNED != 0)
        if span > self._lane_bytes or np.count_nonzero(
            wrong | (within > np.uint64(self._lane_bytes - span))
        ):
            return None
        return UniformBatch(references, slots, sizes, starts, distance)

    def _span(self, sizes: Sizes, distance: int) -> int:
        """Return a request's bytes with the result behind it; too many if it lies elsewhere."""
        if distance < 0 or distance % ALIGNMENT:
            return self._lane_bytes + 1
        return max(sizes.request_bytes, distance + sizes.result_capacity)

    def _sizes_of(self, packed: bytes) -> Sizes | None:
        """Return the sizes in a header, if they make sense."""
        sizes = self._kinds.get(packed)
        if sizes is None:
            sizes = Sizes._make(REQUEST_SIZES.unpack(packed))
            if (
                sizes.model & INDEX_MASK >= self._models
                or sizes.rows == 0
                or sizes.key_bytes > min(sizes.request_bytes, MAX_KEY_BYTES)
            ):
                return None
            if len(self._kinds) >= _KINDS_KEPT:
                self._kinds.clear()
            self._kinds[packed] = sizes
        return sizes
