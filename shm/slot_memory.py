"""The slots and the payload memory of one lane: which of them are free, and what each has.

Only the lane's owner hands them out, so nothing here needs a lock, and all of it is private to the
owner. Requests of one size are the usual case: a free slot keeps its small extent for the next of
that size, until requests of another size need the memory.

If there are several models, slots and memory are set aside for those that hold little, see
`ringbatch.shm.division`. They are lent only when no other slot, or no other memory, is left. So the
usual way counts nothing by model.
"""

from collections.abc import Iterable
from typing import Final

from ringbatch.shm.descriptors import SlotWords
from ringbatch.shm.division import UNDIVIDED, Division, division
from ringbatch.shm.extents import Extents
from ringbatch.shm.layout import ALIGNMENT, SLOT_BYTES, WORD, Layout, aligned

SIZE_BITS: Final = 44
"""A request's and its result's sizes make one key: the first is shifted by so much."""
_KEPT_SIZE: Final = 1 << 16
"""The largest extent that a free slot keeps."""
_SIZES_KEPT: Final = 64
"""Most pairs of sizes that are kept apart; beyond them requests are too various."""


class SlotMemory:
    """Allocator of a lane's slots and payload memory, for its owner.

    `ringbatch.shm.lane.Lane` extends it by the protocol; as a separate object it would cost a call
    with every request.

    Args:
        layout: the segment's.
        index: which lane.

    Attributes:
        capacity: how many slots there are.
        lane_bytes: of its payload memory.
        request_offset: where each slot's request starts, in bytes from the start of the segment.
        result_offset: where each slot's result starts.
        result_capacity: the bytes of each slot's result memory.
        first_word: the first word of the lane's first slot.
    """

    __slots__ = (
        "_accounts",
        "_division",
        "_extent",
        "_extents",
        "_first_header",
        "_free",
        "_free_by_size",
        "_home",
        "_lent",
        "_lent_slots",
        "_lent_to",
        "_payload",
        "_places",
        "_spare",
        "capacity",
        "first_word",
        "lane_bytes",
        "request_offset",
        "result_capacity",
        "result_offset",
    )

    def __init__(self, layout: Layout, index: int) -> None:
        self._payload = layout.lane_payload_byte(index)
        self._extents = Extents(layout.lane_bytes)
        self.first_word = layout.slot(index * layout.slots)
        self._first_header = (self.first_word + SlotWords.MODEL) * WORD
        self.capacity = layout.slots
        self.lane_bytes = layout.lane_bytes
        self.request_offset = [0] * layout.slots
        self.result_offset = [0] * layout.slots
        self._places = [(slice(0), 0, 0, 0, 0)] * layout.slots
        """Places of each claimed slot, which `Lane.send` gets in one step: the slice of its
        request's memory, the start of its header, the number of CONTROL's word, and the two
        offsets."""
        self._extent: list[tuple[int, int] | None] = [None] * layout.slots
        self.result_capacity = [0] * layout.slots
        self._free: list[int] = []
        """Free slots without memory."""
        self._free_by_size: dict[int, list[int]] = {}
        """Free slots that keep their small extent, by the sizes of the requests it is for."""
        self._home: list[list[int] | None] = [None] * layout.slots
        """List of kept slots to which each returns; None if it is not kept."""
        self._division: Division = UNDIVIDED
        self._accounts: dict[int, int] = {}
        """Account of each model among which the lane is divided, by reference."""
        self._spare: list[int] = []
        """Free slots, without memory, that are there to be lent."""
        self._lent: dict[int, tuple[int, int, int]] = {}
        """Account that each slot or its memory is lent to, by slot; then 1 if the slot is lent, and
        the bytes if the memory is, else 0."""
        self._lent_to: dict[int, tuple[int, int]] = {}
        """Slots and bytes lent to each account."""
        self._lent_slots = 0

    def divide(self, accounts: dict[int, int]) -> None:
        """Set slots and memory aside for the models that serve.

        Slots in flight stay with their requests. Until enough are set aside, released ones are.

        Args:
            accounts: of each model, by its reference. What is loaded in the place of a model has
                the same part, of which requests that the model still has count.
        """
        self._accounts = accounts
        divided = division(self.capacity, self.lane_bytes, len(accounts))
        if divided != self._division:
            self._division = divided
            self._extents.aside_bytes = divided.memory_bytes
            self._let_go()
            free = self._free + self._spare
            wanted = max(divided.slots - self._lent_slots, 0)
            self._spare, self._free = free[:wanted], free[wanted:]

    @property
    def in_flight(self) -> int:
        """Slots that are claimed, published or cancelled."""
        free = len(self._free) + len(self._spare) + sum(map(len, self._free_by_size.values()))
        return self.capacity - free

    @property
    def most_of_one(self) -> int:
        """The number of slots that one model may have at once."""
        return self.capacity - self._division.slots + self._division.own_slots

    @property
    def most_bytes_of_one(self) -> int:
        """The bytes that the requests for one model may have at once."""
        return self.lane_bytes - self._division.memory_bytes + self._division.own_bytes

    @property
    def has_slots(self) -> bool:
        """True if a slot is free that any model may take."""
        return bool(self._free) or any(self._free_by_size.values())

    @property
    def spare_slots(self) -> int:
        """The number of free slots that are there to be lent."""
        return len(self._spare)

    def claim(self, request_bytes: int, result_bytes: int, model: int) -> int | None:
        """Claim a slot with memory for both; None if slots or memory are used up.

        Args:
            request_bytes, result_bytes: of a request, and for its answer.
            model: the reference of its model.
        """
        free = self._free_by_size.get(request_bytes << SIZE_BITS | result_bytes)
        if free:
            return free.pop()
        slot = self._claim_afresh(request_bytes, result_bytes)
        if slot is None and any(self._free_by_size.values()):
            self._let_go()
            slot = self._claim_afresh(request_bytes, result_bytes)
        if slot is None and self._division.slots:
            slot = self._lend(request_bytes, result_bytes, model)
        return slot

    def claim_many(
        self, count: int, request_bytes: int, result_bytes: int, model: int
    ) -> list[int]:
        """As `claim`, up to `count` slots; fewer, or none, if slots or memory are used up."""
        slots: list[int] = []
        free = self._free_by_size.get(request_bytes << SIZE_BITS | result_bytes)
        if free and count > 0:
            slots = free[-count:]
            del free[-count:]
        while len(slots) < count:
            slot = self.claim(request_bytes, result_bytes, model)
            if slot is None:
                break
            slots.append(slot)
        return slots

    def _claim_afresh(self, request_bytes: int, result_bytes: int) -> int | None:
        if not self._free:
            return None
        size = aligned(request_bytes) + result_bytes
        extent = self._extents.allocate(size)
        if extent is None:
            return None
        slot = self._free.pop()
        self._place(slot, extent, request_bytes, result_bytes)
        if size <= _KEPT_SIZE:
            if len(self._free_by_size) >= _SIZES_KEPT:
                self._let_go()
            sizes = request_bytes << SIZE_BITS | result_bytes
            self._home[slot] = self._free_by_size.setdefault(sizes, [])
        return slot

    def _lend(self, request_bytes: int, result_bytes: int, model: int) -> int | None:
        """Claim from the part set aside; None also if the model has its part already."""
        size = aligned(aligned(request_bytes) + result_bytes) or ALIGNMENT
        account = self._accounts.get(model, model)
        slots, used = self._lent_to.get(account, (0, 0))
        divided, own_slots, own_bytes = self._division, int(not self._free), 0
        if own_slots and (slots >= divided.own_slots or not self._spare):
            return None
        extent = self._extents.allocate(size)
        if extent is None and used + size <= divided.own_bytes:
            own_bytes = size
            extent = self._extents.allocate(size, own=True)
        if extent is None:
            return None
        slot = (self._spare if own_slots else self._free).pop()
        self._place(slot, extent, request_bytes, result_bytes)
        self._lent[slot] = account, own_slots, own_bytes
        self._lent_to[account] = slots + own_slots, used + own_bytes
        self._lent_slots += own_slots
        return slot

    def _place(self, slot: int, extent: int, request_bytes: int, result_bytes: int) -> None:
        """Let a slot have an extent."""
        start, before = self._payload + extent, aligned(request_bytes)
        self._extent[slot] = (extent, before + result_bytes)
        self.request_offset[slot] = start
        self.result_offset[slot] = start + before
        self._places[slot] = (
            slice(start, start + request_bytes),
            self._first_header + slot * SLOT_BYTES,
            self.first_word + SlotWords.CONTROL + slot * SlotWords.SIZE,
            start,
            start + before,
        )
        self.result_capacity[slot] = result_bytes

    def _let_go(self) -> None:
        """Free the memory of all kept slots: requests of other sizes need it."""
        for slots in self._free_by_size.values():
            for slot in slots:
                self._free_memory(slot)
        self._free_by_size.clear()
        self._home = [None] * self.capacity

    def _free_memory(self, slot: int) -> None:
        own_bytes = self._take_back(slot) if slot in self._lent else 0
        extent = self._extent[slot]
        if extent is not None:
            self._extents.free(*extent, own=own_bytes > 0)
        self._extent[slot] = None
        too_few = len(self._spare) + self._lent_slots < self._division.slots
        (self._spare if too_few else self._free).append(slot)

    def _take_back(self, slot: int) -> int:
        """Forget that a slot is lent, and return how much of its memory is."""
        account, own_slots, own_bytes = self._lent.pop(slot)
        slots, used = self._lent_to.pop(account)
        self._lent_slots -= own_slots
        if slots > own_slots or used > own_bytes:
            self._lent_to[account] = slots - own_slots, used - own_bytes
        return own_bytes

    def could_hold(self, requests: Iterable[tuple[int, int]]) -> bool:
        """Return whether requests of these sizes, with their answers, fit into an empty lane."""
        return self._extents.could_hold(
            [aligned(request_bytes) + result_bytes for request_bytes, result_bytes in requests]
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
