"""Frontend's end of its lane: claim, publish, submit, collect, release.

A lane has one owner at a time, the process that holds its lock. The owner alone hands out its
slots and its payload memory, so neither needs a lock; a dead or mad owner harms no other lane.

A request goes through it like this:

    claim     a slot and an extent; private to the owner
    (the owner writes the request into the extent)
    publish   the slot's header, then CONTROL: from here on the slot is the engine's too
    submit    the references of everything published since, in one store, and one wake-up
    collect   the slots whose answers have come
    (the owner reads the answer)
    release   the slot and the extent are free again

The owner calls `cancel` if it no longer wants an answer. That frees nothing, because a worker may
be writing. The next `submit` reports it and wakes the collector, even if no worker is idle. The
slot comes back through `collect` once its holder is done with it: soon if the collector holds it.
"""

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Final

from ringbatch.shm.counters import Counters, LaneCounter
from ringbatch.shm.descriptors import HeaderWords, LaneWords, SlotWords
from ringbatch.shm.errors import NoFreeLane
from ringbatch.shm.layout import SLOT_BYTES, WORD, ring_size
from ringbatch.shm.memory_order import acquiring, full_fence, releasing
from ringbatch.shm.ring import Inbox, Producer
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import (
    DROPPED,
    FLAG_BITS,
    FLAG_MASK,
    PART,
    SLOT_BITS,
    WANTED,
    Answer,
    State,
    Status,
    as_part,
    control_word,
    generation_in,
    is_part,
    reference,
    state_of,
    without_part,
)
from ringbatch.shm.slot_memory import SIZE_BITS, SlotMemory
from ringbatch.shm.slot_structs import OUTCOME, OUTCOME_DETAILS, REQUEST_HEADER

Stamps = tuple[int, int, int, int, int, int, int, int]
"""Words of a slot from BATCH_ROWS to FINISHED_NS, see `SlotWords`."""
_store_header: Final = REQUEST_HEADER.pack_into
_load_outcome: Final = OUTCOME.unpack_from
_RING_COLLECTOR: Final = HeaderWords.RING_COLLECTOR
_REQUESTS: Final = int(LaneCounter.REQUESTS)
_ANSWERS: Final = int(LaneCounter.ANSWERS)
_STATUSES: Final = tuple(Status)
_STATUS_COUNT: Final = len(_STATUSES)
_EXTENT: Final = SlotWords.REQUEST_OFFSET, SlotWords.RESULT_OFFSET, SlotWords.RESULT_CAPACITY
_NO_SLOT: Final = -1
_toggle_part: Final = PART.__xor__
_NO_OUTCOME: Final = (Status.CORRUPT, 0, 0)
_SPOILT: Final = Answer(*_NO_OUTCOME, 0, 0, 0, 0, 0, 0, 0, 0)


class Lane(SlotMemory):
    """Lane as its owner uses it: claims slots, publishes requests and collects answers.

    Attributes:
        words, memory: of the segment.
        finished_words: of each slot, which word says when its answer stood there.
        parted: slots of which a part of the answer is out, found by `collect`; their reader clears
            it.

    Args:
        segment: the segment that holds it.
        index: which lane.
        wake_collector: rings the collector's doorbell.
    """

    __slots__ = (
        "_cancelled",
        "_completions",
        "_expected",
        "_first_answer",
        "_first_slot",
        "_generation",
        "_held_back",
        "_load_acquire",
        "_own_words",
        "_parts",
        "_store_release",
        "_submissions",
        "_unsubmitted",
        "_wake_collector",
        "_withdraws",
        "counters",
        "finished_words",
        "index",
        "memory",
        "parted",
        "words",
    )

    def __init__(self, segment: Segment, index: int, wake_collector: Callable[[], None]) -> None:
        layout = segment.layout
        super().__init__(layout, index)
        self.index = index
        self.memory = segment.memory
        self.counters = Counters(segment.words, layout.lane_counters(index))
        self.words = words = segment.words
        self._load_acquire, self._store_release = acquiring(words), releasing(words)
        self._wake_collector = wake_collector
        self._own_words = layout.lane(index)
        self._first_slot = index * layout.slots
        self._first_answer = (self.first_word + SlotWords.DONE) * WORD
        first = self.first_word + SlotWords.FINISHED_NS
        self.finished_words = [first + slot * SlotWords.SIZE for slot in range(layout.slots)]
        self._submissions = Producer(words, layout.submission_ring(index), layout.slots)
        self._completions = Inbox(
            words,
            layout.completion_ring(index, 0),
            ring_size(layout.completion_words),
            layout.workers + 1,
            layout.completion_words,
        )
        self._unsubmitted: list[int] = []
        self._held_back = False
        """True if the submission ring had no room for unsubmitted requests."""
        self._withdraws = False
        """True if cancelled requests may be among the unsubmitted."""
        self._cancelled: set[int] = set()
        self._parts: set[int] = set()
        """Slots whose requests belong to one that is counted already."""
        self._generation = [0] * layout.slots
        self.parted: set[int] = set()
        self._expected: dict[int, int] = {}
        """The slots that wait for an answer, by the reference each waits for."""
        self.counters.add(LaneCounter.HOLDERS)
        self._take_over()

    @classmethod
    def attach(cls, segment: Segment, wake_collector: Callable[[], None]) -> "Lane":
        """Own the first lane for frontends that no living process holds.

        Raises:
            NoFreeLane: all are held.
        """
        lanes = segment.layout.frontend_lanes
        for index in range(lanes):
            if segment.lock_lane(index):
                return cls(segment, index, wake_collector)
        raise NoFreeLane(
            f"all {lanes} lanes are in use; a lane belongs to one frontend, "
            "and there are twice as many as [server] frontends"
        )

    @classmethod
    def attach_as_client(cls, segment: Segment, wake_collector: Callable[[], None]) -> "Lane":
        """Own the first free lane for clients; a client never takes a frontend's.

        Raises:
            NoFreeLane: all are held, or there are none.
        """
        layout = segment.layout
        for index in range(layout.frontend_lanes, layout.lanes):
            if segment.lock_lane(index):
                return cls(segment, index, wake_collector)
        if not layout.client_lanes:
            raise NoFreeLane("the engine has no lanes for clients; set [server] client_lanes")
        raise NoFreeLane(
            f"all {layout.client_lanes} lanes for clients are in use; each Client holds one until "
            "it is closed, so share one within a process, or raise [server] client_lanes"
        )

    def publish_serving(self) -> None:
        """Tell the supervisor that this process accepts connections from now on."""
        self.words[self._own_words + LaneWords.SERVING] = 1

    @property
    def gathered_payloads(self) -> int:
        """Exchanges for the payload log that the lane's owner, or the last one, holds back."""
        return self.words[self._own_words + LaneWords.PAYLOADS]

    @gathered_payloads.setter
    def gathered_payloads(self, count: int) -> None:
        self.words[self._own_words + LaneWords.PAYLOADS] = count

    @property
    def has_news(self) -> bool:
        """True if `collect` would find an answer."""
        return self._completions.has_items

    @property
    def unanswered(self) -> int:
        """Requests published, cancelled ones too, whose answers have not been collected."""
        return len(self._expected)

    @property
    def held_back(self) -> bool:
        """True if `submit` found no room for published requests; `collect` tries again."""
        return self._held_back

    @property
    def untaken(self) -> int:
        """Requests published that the collector has not taken yet."""
        return self._submissions.backlog + len(self._unsubmitted)

    def send(
        self,
        payload: bytes | bytearray | memoryview,
        result_bytes: int,
        model: int,
        rows: int,
        accepted_ns: int,
        deadline_ns: int,
        key_bytes: int = 0,
        account: int = 0,
    ) -> int | None:
        """`claim`, the request's bytes, and `publish`; None if slots or memory are used up."""
        size = len(payload)
        free = self._free_by_size.get(size << SIZE_BITS | result_bytes)
        slot = free.pop() if free else self.claim(size, result_bytes, model)
        if slot is None:
            return None
        request, header, control, start, result = self._places[slot]
        memory = self.memory
        memory[request] = payload
        _store_header(
            memory,
            header,
            model,
            rows,
            size,
            key_bytes,
            result_bytes,
            start,
            result,
            accepted_ns,
            deadline_ns,
            account,
        )
        self._generation[slot] = generation = self._generation[slot] + 1
        self._store_release[control] = generation << FLAG_BITS | WANTED
        ref = generation << SLOT_BITS | self._first_slot + slot
        self._expected[ref] = slot
        self._unsubmitted.append(ref)
        return slot

    def publish(
        self,
        slot: int,
        model: int,
        rows: int,
        accepted_ns: int,
        deadline_ns: int,
        request_bytes: int,
        key_bytes: int = 0,
        account: int = 0,
    ) -> None:
        """Hand a claimed slot, its request written, to the engine; `submit` must follow.

        Args:
            slot: what `claim` returned.
            model: the model's reference.
            rows: instances in the request.
            accepted_ns: when the request arrived, on the monotonic clock.
            deadline_ns: after which an answer is worthless, on the same clock.
            request_bytes: how much of the claimed request memory is used.
            key_bytes: how many bytes at its start must be equal within a batch.
            account: the word of `ringbatch.shm.account`.
        """
        slots = (slot,)
        self.publish_many(
            slots, model, rows, accepted_ns, deadline_ns, request_bytes, key_bytes, account
        )

    def publish_many(
        self,
        slots: Sequence[int],
        model: int,
        rows: int,
        accepted_ns: int,
        deadline_ns: int,
        request_bytes: int,
        key_bytes: int = 0,
        account: int = 0,
    ) -> None:
        """`publish` for several slots whose requests differ in nothing but their bytes."""
        memory, store_release = self.memory, self._store_release
        first, step = self.first_word + SlotWords.CONTROL, SlotWords.SIZE
        generations, expected, unsubmitted = self._generation, self._expected, self._unsubmitted
        for slot in slots:
            _store_header(
                memory,
                self._first_header + slot * SLOT_BYTES,
                model,
                rows,
                request_bytes,
                key_bytes,
                self.result_capacity[slot],
                self.request_offset[slot],
                self.result_offset[slot],
                accepted_ns,
                deadline_ns,
                account,
            )
            generations[slot] = generation = generations[slot] + 1
            store_release[first + slot * step] = generation << FLAG_BITS | WANTED
            ref = generation << SLOT_BITS | self._first_slot + slot
            expected[ref] = slot
            unsubmitted.append(ref)

    def next_reference(self, slot: int) -> int:
        """Return the reference of the request that is published next in a slot."""
        return reference(self._generation[slot] + 1, self._first_slot + slot)

    def count_no_more(self, slot: int) -> None:
        """Mark the last published slot as a further part of a request that is already counted."""
        self._unsubmitted[-1] = as_part(self._unsubmitted[-1])
        self._parts.add(slot)

    def submit(self) -> None:
        """Submit all requests published or cancelled since the last call to the collector."""
        if self._unsubmitted:
            withdraws = self._withdraws
            if withdraws:
                self._leave_out_the_needless()
            # The ring has a word for every slot. It is full only if it holds needless words: for
            # requests answered already, submitted by a dead owner and again by the next, found in
            # their slots by a new collector, or cancelled and not taken yet. The next call
            # submits the words that find no room now.
            self._held_back = not self._submissions.offer(self._unsubmitted)
            if not self._held_back:
                count = len(self._unsubmitted)
                if self._parts or withdraws:
                    count -= sum(map(is_part, self._unsubmitted))
                self.counters.add(_REQUESTS, count)
                self._unsubmitted.clear()
            full_fence()
            if withdraws or self.words[_RING_COLLECTOR]:
                self._wake_collector()
            self._withdraws = withdraws and self._held_back

    def _leave_out_the_needless(self) -> None:
        """Leave at most one unsubmitted word for each slot, so that an empty ring has room for all.

        A request that was cancelled before it was submitted has two words: one of them stays. A
        request that is answered already needs none.
        """
        self._forget_answered()
        words = dict.fromkeys(self._unsubmitted)
        self._unsubmitted = [
            ref for ref in words if not is_part(ref) or without_part(ref) not in words
        ]

    def cancel(self, slot: int) -> None:
        """Cancel the request of a slot; `submit` must follow.

        The slot stays in flight until its holder is done.
        """
        generation = self._generation[slot]
        control = control_word(generation, DROPPED)
        self._store_release[self.first_word + slot * SlotWords.SIZE + SlotWords.CONTROL] = control
        self._cancelled.add(slot)
        self._unsubmitted.append(as_part(reference(generation, self._first_slot + slot)))
        self._withdraws = True
        self.counters.add(LaneCounter.CANCELLED)

    def collect(self) -> list[int]:
        """Return the slots whose answers stand in them and are wanted; each must be released.

        Cancelled slots are released here, and answers to earlier generations are dropped.
        """
        found: list[int] = []
        expected = self._expected
        for _, references in self._completions.take():
            if references is None:
                self.counters.add(LaneCounter.CORRUPT_RINGS)
                continue
            # An answer may be posted twice, by a worker that died and by the collector.
            unanswered = len(expected)
            slots = [*map(expected.pop, references, repeat(_NO_SLOT))]
            usual = unanswered - len(expected) == len(slots) and not self._cancelled
            found += slots if usual else self._wanted(references, slots)
        if found:
            count = len(found)
            if self._parts:
                count -= len(self._parts.intersection(found))
                self._parts.difference_update(found)
            self.counters.add(_ANSWERS, count)
        if self._held_back:
            self._forget_answered()
            self.submit()
        return found

    def _wanted(self, references: list[int], slots: list[int]) -> list[int]:
        """Return the slots with a waiting client; release and count the others."""
        # A step's notices come together, mostly alone. With PART, an answer's reference is no key.
        parted = set(map(self._expected.get, map(_toggle_part, references), repeat(_NO_SLOT)))
        if _NO_SLOT not in parted and not self._cancelled:
            self.parted |= parted
            return []
        notices = 0
        if noticed := [without_part(ref) for ref in references if is_part(ref)]:
            taken = set(references)
            for ref in noticed:
                slot = self._expected.get(ref, _NO_SLOT)
                if slot != _NO_SLOT and slot not in self._cancelled:
                    self.parted.add(slot)
                # It may have come together with its answer.
                notices += slot != _NO_SLOT or ref in taken
        wanted = [slot for slot in slots if slot != _NO_SLOT and slot not in self._cancelled]
        for slot in self._cancelled.intersection(slots):
            self._cancelled.remove(slot)
            self._parts.discard(slot)
            self.release(slot)
        self.counters.add(LaneCounter.LATE_ANSWERS, len(slots) - len(wanted) - notices)
        return wanted

    def _forget_answered(self) -> None:
        """Remove requests that are answered already from the unsubmitted."""
        expected = self._expected
        self._unsubmitted = [r for r in self._unsubmitted if without_part(r) in expected]
        self._held_back = self._held_back and bool(self._unsubmitted)

    def answer(self, slot: int) -> Answer:
        """Return the fields beside the answer of a collected slot, checked against its memory."""
        outcome = self.outcome(slot)
        if outcome == _NO_OUTCOME:
            return _SPOILT
        start = self._first_answer + slot * SLOT_BYTES
        details = OUTCOME_DETAILS.unpack_from(self.memory, start)
        return Answer(*outcome, *details)._replace(overtaken_ns=self._overtaken_ns(slot))

    def _overtaken_ns(self, slot: int) -> int:
        """Return from when on the last request of a slot was overtaken; 0 if it was not."""
        first = self.first_word + slot * SlotWords.SIZE
        ref = reference(self._generation[slot], self._first_slot + slot)
        if self.words[first + SlotWords.OVERTAKEN] != ref:
            return 0
        since_ns: int = self.words[first + SlotWords.OVERTAKEN_NS]
        return since_ns

    def account(self, slot: int) -> int:
        """Return the account word of the request that was last published in a slot."""
        word: int = self.words[self.first_word + slot * SlotWords.SIZE + SlotWords.ACCOUNT]
        return word

    def stamps(self, slot: int) -> Stamps:
        """Return the words of `answer` after its first three, as they stand in the slot."""
        start = self._first_answer + slot * SLOT_BYTES
        found: Stamps = OUTCOME_DETAILS.unpack_from(self.memory, start)
        return found

    def outcome(self, slot: int) -> tuple[Status, int, int]:
        """Return the first three of `answer`, in half the time."""
        start = self._first_answer + slot * SLOT_BYTES
        done, size, batch = _load_outcome(self.memory, start)
        flag = done & FLAG_MASK
        if done >> FLAG_BITS != self._generation[slot] or flag >= _STATUS_COUNT:
            return _NO_OUTCOME
        if size > self.result_capacity[slot] and flag != Status.RESULT_TOO_LARGE:
            return _NO_OUTCOME
        return _STATUSES[flag], size, batch

    def answer_start(self, slot: int) -> int:
        """Return the bytes in the result memory before a chain's answer, or before its text."""
        start: int = self.words[self.first_word + slot * SlotWords.SIZE + SlotWords.ANSWER_START]
        # What a worker says is as good as its results, and must lie in the slot's memory.
        return min(start, self.result_capacity[slot])

    def _take_over(self) -> None:
        """Go on where an earlier owner of the lane stopped.

        Requests of a dead owner that the engine still holds keep their slot and their memory
        until they are answered. This cancels each of them, and so submits it again: the owner may
        have died before it submitted it. First this forgets answers that the owner did not
        collect, so that later answers find room.
        """
        self.words[self._own_words + LaneWords.SERVING] = 0
        self._completions.skip()
        for slot in reversed(range(self.capacity)):
            first = self.first_word + slot * SlotWords.SIZE
            control = self.words[first + SlotWords.CONTROL]
            done = self._load_acquire[first + SlotWords.DONE]
            self._generation[slot] = generation_in(control)
            if state_of(control, done) is State.FREE:
                # The owner may have died between its wish for parts and the request.
                self.words[first + SlotWords.PARTS_OF] = 0
                self._free.append(slot)
                continue
            request, result, capacity = (self.words[first + word] for word in _EXTENT)
            self._reserve(slot, request, result, capacity)
            self.cancel(slot)
            self._expected[reference(self._generation[slot], self._first_slot + slot)] = slot
        self.submit()
