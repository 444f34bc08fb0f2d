"""The slots and the payload memory of one lane: which of them are free, and what each has.

Only the lane's owner hands them out, so nothing here needs a lock, and all of it is private to the
owner. Requests of one size are the usual case: a free slot keeps its small extent for the next of
that size, until requests of another size need the memory.
"""

from collections.abc import Iterable
from typing import Final

from ringbatch.shm.descriptors import SlotWords
from ringbatch.shm.extents import Extents
from ringbatch.shm.layout import SLOT_BYTES, WORD, Layout, aligned

SIZE_BITS: Final = 44
"""A request's and its result's sizes make one key: the first is shifted by so much."""
_KEPT_SIZE: Final = 1 << 16
"""The largest extent that a free slot keeps."""
_SIZES_KEPT: Final = 64
"""How many pairs of sizes are told apart; beyond that the requests are too various to keep for."""


class SlotMemory:
    """What a lane's owner hands out. `ringbatch.shm.lane.Lane` extends it by the protocol; a part
    of its own would cost a call with every request.

    Args:
        layout: the segment's.
        index: which lane.

    Attributes:
        capacity: how many slots there are.
        lane_bytes: of its payload memory.
        request_offset: where each slot's request starts, in bytes from the start of the segment.
        result_offset: where each slot's result starts.
    """

    __slots__ = (
        "_extent",
        "_extents",
        "_first_header",
        "_first_word",
        "_free",
        "_home",
        "_kept",
        "_payload",
        "_places",
        "_result_capacity",
        "capacity",
        "lane_bytes",
        "request_offset",
        "result_offset",
    )

    def __init__(self, layout: Layout, index: int) -> None:
        self._payload = layout.lane_payload(index)
        self._extents = Extents(layout.lane_bytes)
        self._first_word = layout.slot(index * layout.slots)
        self._first_header = (self._first_word + SlotWords.MODEL) * WORD
        self.capacity = layout.slots
        self.lane_bytes = layout.lane_bytes
        self.request_offset = [0] * layout.slots
        self.result_offset = [0] * layout.slots
        self._places = [(slice(0), 0, 0, 0, 0)] * layout.slots
        """Of each claimed slot its request's memory, where its header is, the number of CONTROL's
        word, and the two offsets: what `Lane.send` needs, in one step."""
        self._extent: list[tuple[int, int] | None] = [None] * layout.slots
        self._result_capacity = [0] * layout.slots
        self._free: list[int] = []
        """Free slots without memory."""
        self._kept: dict[int, list[int]] = {}
        """Free slots that keep their small extent, by the sizes of the requests it is for."""
        self._home: list[list[int] | None] = [None] * layout.slots
        """Where among the kept each slot goes once it is free; None where it is not kept."""

    @property
    def in_flight(self) -> int:
        """Slots that are claimed, published or cancelled."""
        return self.capacity - len(self._free) - sum(map(len, self._kept.values()))

    def claim(self, request_bytes: int, result_bytes: int) -> int | None:
        """A slot with memory for both; None where slots or memory are used up."""
        kept = self._kept.get(request_bytes << SIZE_BITS | result_bytes)
        if kept:
            return kept.pop()
        slot = self._claim_afresh(request_bytes, result_bytes)
        if slot is None and self._kept:
            self._let_go()
            slot = self._claim_afresh(request_bytes, result_bytes)
        return slot

    def claim_many(self, count: int, request_bytes: int, result_bytes: int) -> list[int]:
        """As `claim`, up to `count` slots; fewer, or none, where slots or memory are used up."""
        slots: list[int] = []
        kept = self._kept.get(request_bytes << SIZE_BITS | result_bytes)
        if kept and count > 0:
            slots = kept[-count:]
            del kept[-count:]
        while len(slots) < count:
            slot = self.claim(request_bytes, result_bytes)
            if slot is None:
                break
            slots.append(slot)
        return slots

    def _claim_afresh(self, request_bytes: int, result_bytes: int) -> int | None:
        if not self._free:
            return None
        result = aligned(request_bytes)
        size = result + result_bytes
        extent = self._extents.allocate(size)
        if extent is None:
            return None
        slot = self._free.pop()
        start = self._payload + extent
        self._extent[slot] = (extent, size)
        self.request_offset[slot] = start
        self.result_offset[slot] = start + result
        self._places[slot] = (
            slice(start, start + request_bytes),
            self._first_header + slot * SLOT_BYTES,
            self._first_word + SlotWords.CONTROL + slot * SlotWords.SIZE,
            start,
            start + result,
        )
        self._result_capacity[slot] = result_bytes
        if size <= _KEPT_SIZE:
            if len(self._kept) >= _SIZES_KEPT:
                self._let_go()
            sizes = request_bytes << SIZE_BITS | result_bytes
            self._home[slot] = self._kept.setdefault(sizes, [])
        return slot

    def _let_go(self) -> None:
        """Free the memory of all kept slots: requests of other sizes need it."""
        for slots in self._kept.values():
            for slot in slots:
                self._free_memory(slot)
        self._kept.clear()
        self._home = [None] * self.capacity

    def _free_memory(self, slot: int) -> None:
        extent = self._extent[slot]
        if extent is not None:
            self._extents.free(*extent)
        self._extent[slot] = None
        self._free.append(slot)

    def could_hold(self, requests: Iterable[tuple[int, int]]) -> bool:
        """Whether requests of so many bytes, with so many for their answers, have room together
        where nothing else is in flight."""
        return self._extents.could_hold(
            aligned(request_bytes) + result_bytes for request_bytes, result_bytes in requests
        )

    def abort(self, slot: int) -> None:
        """Give back a claimed slot that was not published."""
        self.release(slot)

    def release(self, slot: int) -> None:
        """Free a collected slot; its memory may be handed out again at once."""
        home = self._home[slot]
        if home is None:
            self._free_memory(slot)
        else:
            home.append(slot)

    def _reserve(self, slot: int, request: int, result: int, capacity: int) -> None:
        """Let a slot have the memory that its header names, for an earlier owner's request.

        Where that is not possible, no owner of this lane can have written the header: the slot
        comes back with no memory.
        """
        start, size = request - self._payload, result + capacity - request
        self._extent[slot] = (start, size) if self._extents.reserve(start, size) else None
