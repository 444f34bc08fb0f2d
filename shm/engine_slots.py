"""The engine's end of the slots: reading requests, answering them.

The holder of a request answers it: the collector until it has dispatched it, the worker after
that. Everything read here was written by a frontend and is checked against the limits of that
frontend's own lane before it is used; a frontend can spoil its own requests and nothing else.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from ringbatch.shm.account import lane_identities, word_of_lane
from ringbatch.shm.awaited import AwaitedRequests
from ringbatch.shm.batch_ids import BatchIds
from ringbatch.shm.descriptors import SlotWords
from ringbatch.shm.layout import ALIGNMENT, SLOT_BYTES, WORD
from ringbatch.shm.memory_order import acquiring, release_fence, releasing
from ringbatch.shm.model_spec import INDEX_MASK
from ringbatch.shm.part_notices import PartNotices
from ringbatch.shm.parts import PartWriter, part_is_out, wants_parts
from ringbatch.shm.ring import Producer
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import (
    DROPPED,
    FLAG_BITS,
    SLOT_BITS,
    Reason,
    State,
    Status,
    done_word,
    done_words,
    generation_in,
    is_latest,
    is_open,
    is_wanted,
    reference,
    slot_of,
    slots_of,
    state_of,
    wanted_words,
)
from ringbatch.shm.slot_arrays import done_array
from ringbatch.shm.slot_structs import (
    ANSWER_DETAILS,
    BATCH_DETAILS,
    FIRST_INSTANTS,
    LAST_DETAILS,
    PACKED_BATCH,
    PACKED_DETAILS,
    PACKED_INSTANTS,
)
from ringbatch.shm.tuples import unchecked_tuple
from ringbatch.shm.uniform_batch import MAX_KEY_BYTES, UniformBatch, UniformBatchReader

_store_details: Final = ANSWER_DETAILS.pack_into
_SLOT_WORDS: Final = SlotWords.SIZE
_CONTROL: Final = SlotWords.CONTROL
_MODEL: Final = SlotWords.MODEL
_HEADER_END: Final = SlotWords.ACCOUNT + 1
_DONE: Final = SlotWords.DONE
_RESULT_BYTES: Final = SlotWords.RESULT_BYTES


class Request(NamedTuple):
    """A slot's header, checked: every offset lies in the payload memory of the slot's lane."""

    ref: int
    model: int
    rows: int
    request_bytes: int
    key_bytes: int
    result_capacity: int
    request_offset: int
    result_offset: int
    accepted_ns: int
    deadline_ns: int
    account: int = 0


Opened = tuple[list[Request], list[int], list[int], int]
"""Result of `EngineSlots.read_open`: the readable requests; references to slots with invalid words;
those of readable requests that are cancelled; how many name no slot of the lane that sent them."""


def columns(requests: Sequence[Request]) -> tuple[tuple[int, ...], ...]:
    """Return the fields of one or more requests as columns."""
    return tuple(zip(*requests, strict=True))


class BatchMark(NamedTuple):
    """Facts of a batch that all its answers carry: the words BATCH to ATTEMPTS of `SlotWords`.

    The last four are the worker's, and 0 from any other process.
    """

    batch: int
    rows: int
    reason: Reason
    dispatched_ns: int
    began_ns: int = 0
    gathered_ns: int = 0
    ran_ns: int = 0
    attempts: int = 0


class EngineSlots:
    """Reads and answers requests of every lane, for one producer of answers.

    Args:
        segment: where the lanes lie.
        producer: whose completion rings to use: a worker's number, or the number of workers
            for the collector.
        wake_lane: rings the doorbell of a lane.

    Attributes:
        batch_ids: what clients call batches.
        read_uniform, all_wait: see `UniformBatchReader.read` and `AwaitedRequests.all_wait`.
    """

    def __init__(self, segment: Segment, producer: int, wake_lane: Callable[[int], None]) -> None:
        layout = segment.layout
        self.memory = segment.memory
        self._words = words = segment.words
        self._load_acquire, self._store_release = acquiring(words), releasing(words)
        self._wake_lane = wake_lane
        self.batch_ids = BatchIds(segment.identity)
        self._payload, self._lane_bytes = layout.payload_byte, layout.lane_bytes
        self._first_word, self._models = layout.slots_word, layout.models
        self._slot_count = layout.lanes * layout.slots
        self._lane_shift = layout.slots.bit_length() - 1
        self._identities = lane_identities(
            layout.frontend_lanes, layout.client_lanes, fair=segment.shares_fairly
        )
        self._completions = [
            Producer(words, layout.completion_ring(lane, producer), layout.completion_words)
            for lane in range(layout.lanes)
        ]
        self._notices = PartNotices(self._completions, layout.slots, wake_lane)
        self.read_uniform = UniformBatchReader(segment).read
        self.all_wait = AwaitedRequests(segment).all_wait
        shape = self._slot_count, SlotWords.SIZE
        slots = np.ndarray(shape, np.uint64, segment.memory, self._first_word * WORD)
        self._dones = slots[:, SlotWords.DONE]
        self._details = slots[:, SlotWords.RESULT_BYTES : SlotWords.FINISHED_NS + 1]
        self._answered: dict[int, list[int]] = {}

    def read(self, ref: int) -> Request | None:
        """Return the request that a reference names; None if its slot's words make no sense."""
        slot = slot_of(ref)
        if slot >= self._slot_count:
            return None
        first = self._first_word + slot * _SLOT_WORDS
        header = self._words[first + _MODEL : first + _HEADER_END].tolist()
        lane = slot >> self._lane_shift
        low = self._payload + lane * self._lane_bytes
        return self._request(ref, header, low, low + self._lane_bytes, self._identities[lane])

    def read_open(self, lane: int, references: list[int]) -> Opened:
        """Return the requests among a lane's references that have no answer yet."""
        words, load_acquire, shift = self._words, self._load_acquire, self._lane_shift
        low = self._payload + lane * self._lane_bytes
        high, own = low + self._lane_bytes, self._identities[lane]
        requests, spoilt, flags, strays = [], [], 0, 0
        for ref, slot in zip(references, slots_of(references), strict=True):
            if slot >> shift != lane:
                strays += 1
                continue
            first = self._first_word + slot * _SLOT_WORDS
            control = load_acquire[first + _CONTROL]
            # As `is_open` says; each call would take 50 ns.
            if control >> FLAG_BITS == ref >> SLOT_BITS != load_acquire[first + _DONE] >> FLAG_BITS:
                header = words[first + _MODEL : first + _HEADER_END].tolist()
                request = self._request(ref, header, low, high, own)
                if request is None:
                    spoilt.append(ref)
                else:
                    requests.append(request)
                    flags |= control
        cancelled = []
        if flags & DROPPED:
            cancelled = [request.ref for request in requests if not self.wanted(request.ref)]
        return requests, spoilt, cancelled, strays

    def _request(
        self, ref: int, header: list[int], low: int, high: int, own: int
    ) -> Request | None:
        """Return a header as a request between two bounds, of the lane's own account if not -1."""
        model, rows, size, key, capacity, start, result, accepted, deadline, account = header
        if (
            model & INDEX_MASK >= self._models
            or rows == 0
            or key > MAX_KEY_BYTES
            or key > size
            or (start | result) % ALIGNMENT
            or not low <= start <= start + size <= high
            or not low <= result <= result + capacity <= high
        ):
            return None
        if own >= 0:
            account = word_of_lane(account, own)
        # Calling the class takes twice as long.
        return unchecked_tuple(
            Request,
            (ref, model, rows, size, key, capacity, start, result, accepted, deadline, account),
        )

    def read_all(
        self, references: Sequence[int], mark: BatchMark, clock_ns: Callable[[], int]
    ) -> list[Request]:
        """Return the requests that references name; answer those whose words make no sense."""
        requests = []
        for ref in references:
            request = self.read(ref)
            if request is None:
                self.answer(ref, Status.CORRUPT, 0, mark, clock_ns())
            else:
                requests.append(request)
        return requests

    def requests(self, uniform: UniformBatch) -> list[Request]:
        """Return the requests of a uniform batch one by one, without their accounts.

        Workers call this, and the order of requests is the collector's.
        """
        references, slots, sizes, starts, distance = uniform
        first, step = self._first_word + SlotWords.ACCEPTED_NS, SlotWords.SIZE
        requests = []
        places = zip(np.asarray(slots).tolist(), np.asarray(starts).tolist(), strict=True)
        for ref, (slot, start) in zip(references, places, strict=True):
            times = first + slot * step
            accepted_ns, deadline_ns = self._words[times], self._words[times + 1]
            requests.append(Request(ref, *sizes, start, start + distance, accepted_ns, deadline_ns))
        return requests

    def lane_of(self, ref: int) -> int:
        """Return the lane of a reference's slot; beyond all lanes if there is no such slot."""
        return slot_of(ref) >> self._lane_shift

    def published(self) -> Iterator[tuple[int, State]]:
        """Yield the latest request of every slot that ever held one, and the slot's state."""
        for slot in range(self._slot_count):
            control, done = self._state_words(slot)
            if control:
                yield reference(generation_in(control), slot), state_of(control, done)

    def _state_words(self, slot: int) -> tuple[int, int]:
        """Return CONTROL and DONE of a slot."""
        first, load_acquire = self._first_word + slot * _SLOT_WORDS, self._load_acquire
        return load_acquire[first + _CONTROL], load_acquire[first + _DONE]

    def is_open(self, ref: int) -> bool:
        """Return whether this request is published and not answered."""
        return is_open(ref, *self._state_words(slot_of(ref)))

    def open_ones(self, references: Sequence[int]) -> list[int]:
        """Return the references for which `is_open` is true."""
        load_acquire = self._load_acquire
        control, done = self._first_word + _CONTROL, self._first_word + _DONE
        return [
            ref
            for ref, slot in zip(references, slots_of(references), strict=True)
            if load_acquire[control + slot * _SLOT_WORDS] >> FLAG_BITS
            == ref >> SLOT_BITS
            != load_acquire[done + slot * _SLOT_WORDS] >> FLAG_BITS
        ]

    def repeat(self, ref: int) -> bool:
        """Post once more an answer that stands in its slot; False if none does.

        For the answers of a worker that died between writing and posting them. A frontend
        that has seen the answer drops the repetition.
        """
        if self.is_open(ref):
            return False
        self._answered.setdefault(self.lane_of(ref), []).append(ref)
        return True

    def wanted(self, ref: int) -> bool:
        """Return whether the frontend still waits for this request."""
        return is_wanted(ref, self._state_words(slot_of(ref))[0])

    def all_wanted(self, references: Sequence[int]) -> bool:
        """Return whether the frontends still wait for all of these requests."""
        load_acquire, control = self._load_acquire, self._first_word + _CONTROL
        found = [load_acquire[control + slot * _SLOT_WORDS] for slot in slots_of(references)]
        return found == wanted_words(references)

    def given_up(self, references: Sequence[int], now_ns: int) -> list[int]:
        """Return the references whose clients have given up, or whose deadlines have passed."""
        words, load_acquire, found = self._words, self._load_acquire, []
        slots, wanted = slots_of(references), wanted_words(references)
        for ref, slot, control in zip(references, slots, wanted, strict=True):
            first = self._first_word + slot * _SLOT_WORDS
            waits = load_acquire[first + _CONTROL] == control
            if not waits or words[first + SlotWords.DEADLINE_NS] <= now_ns:
                found.append(ref)
        return found

    def answer(
        self, ref: int, status: Status, size: int, mark: BatchMark, finished_ns: int
    ) -> None:
        """Write the answer's words; `flush` makes the frontend see it.

        Args:
            ref: the request.
            status: how it ended.
            size: bytes of result or text that stand in the result memory already.
            mark: what to say of the batch.
            finished_ns: now, on the monotonic clock.
        """
        slot = slot_of(ref)
        first = self._first_word + slot * _SLOT_WORDS
        _store_details(
            self.memory,
            (first + _RESULT_BYTES) * WORD,
            size,
            mark.batch,
            mark.rows,
            mark.reason,
            mark.dispatched_ns,
            mark.began_ns,
            mark.gathered_ns,
            mark.ran_ns,
            mark.attempts,
            finished_ns,
        )
        self._store_release[first + _DONE] = done_word(ref, status)
        self._answered.setdefault(slot >> self._lane_shift, []).append(ref)

    def store_first_step_start(self, references: Sequence[int], mark: BatchMark) -> None:
        """Store when the first step of requests for a chain began; this is not an answer.

        Args:
            references: the requests, whose first step is done.
            mark: of their batch.
        """
        memory, store = self.memory, PACKED_INSTANTS.pack_into
        instants = FIRST_INSTANTS.pack(mark.dispatched_ns, mark.began_ns, mark.gathered_ns)
        first = (self._first_word + SlotWords.DISPATCHED_NS) * WORD
        for slot in slots_of(references):
            store(memory, first + slot * SLOT_BYTES, instants)

    def answer_later_step(
        self,
        references: Sequence[int],
        status: Status,
        size: int,
        mark: BatchMark,
        finished_ns: int,
    ) -> None:
        """Answer requests in a later step of their chain; the first step's stamps stay."""
        memory, store_release = self.memory, self._store_release
        head = BATCH_DETAILS.pack(size, mark.batch, mark.rows, mark.reason)
        tail = LAST_DETAILS.pack(mark.ran_ns, mark.attempts, finished_ns)
        first_head = (self._first_word + SlotWords.RESULT_BYTES) * WORD
        first_tail = (self._first_word + SlotWords.RAN_NS) * WORD
        first_done = self._first_word + SlotWords.DONE
        dones = done_words(references, status)
        for ref, slot, word in zip(references, slots_of(references), dones, strict=True):
            PACKED_BATCH.pack_into(memory, first_head + slot * SLOT_BYTES, head)
            PACKED_INSTANTS.pack_into(memory, first_tail + slot * SLOT_BYTES, tail)
            store_release[first_done + slot * _SLOT_WORDS] = word
            self._answered.setdefault(slot >> self._lane_shift, []).append(ref)

    def store_answer_start(self, references: Sequence[int], start: int) -> None:
        """Store how many bytes precede the answers of requests, which follow."""
        first, step = self._first_word + SlotWords.ANSWER_START, SlotWords.SIZE
        for slot in slots_of(references):
            self._words[first + slot * step] = start

    def wants_parts(self, ref: int) -> bool:
        """Return whether a request wants its answer in parts, see `ringbatch.shm.parts`."""
        return wants_parts(self._words, self._first_word + slot_of(ref) * _SLOT_WORDS, ref)

    def part_is_out(self, ref: int) -> bool:
        """Return whether a part of a request's answer is out, so that it must not run again."""
        return part_is_out(self._words, self._first_word + slot_of(ref) * _SLOT_WORDS, ref)

    def part_writer(self, request: Request, batch: int) -> PartWriter:
        """Return the writing end of a request that wants parts, for its batch's worker."""
        words, first = self._words, self._first_word + slot_of(request.ref) * _SLOT_WORDS
        words[first + SlotWords.BATCH] = batch
        return PartWriter(self.memory, words, first, request.result_offset, request.result_capacity)

    def post_part(self, ref: int) -> None:
        """Have `flush` post that a part of a request's answer is out."""
        self._notices.add(slot_of(ref) >> self._lane_shift, ref)

    def store_overtaken(self, ref: int, since_ns: int) -> None:
        """Store from when on later requests of others went before a request; no answer."""
        first = self._first_word + slot_of(ref) * _SLOT_WORDS
        self._words[first + SlotWords.OVERTAKEN] = ref
        self._words[first + SlotWords.OVERTAKEN_NS] = since_ns

    def answer_uniform(
        self, uniform: UniformBatch, status: Status, size: int, mark: BatchMark, finished_ns: int
    ) -> None:
        """`answer` for requests that are alike, all in the same way."""
        references, slots = uniform.references, uniform.slots
        if isinstance(slots, list):
            details = ANSWER_DETAILS.pack(size, *mark, finished_ns)
            memory, store = self.memory, PACKED_DETAILS.pack_into
            store_release = self._store_release
            step, done = SlotWords.SIZE, self._first_word + SlotWords.DONE
            first_byte = (self._first_word + SlotWords.RESULT_BYTES) * WORD
            for slot, word in zip(slots, done_words(references, status), strict=True):
                store(memory, first_byte + slot * step * WORD, details)
                store_release[done + slot * step] = word
        else:
            # Each item is stored whole, as through memoryview.
            refs = np.array(references, dtype=np.uint64)
            self._details[slots] = np.array([size, *mark, finished_ns], dtype=np.uint64)
            release_fence()
            self._dones[slots] = done_array(refs, status)
            slots = slots.tolist()
        lane = -1
        for ref, slot in zip(references, slots, strict=True):
            if slot >> self._lane_shift != lane:
                lane = slot >> self._lane_shift
                own = self._answered.setdefault(lane, [])
            own.append(ref)

    def fail(
        self,
        request: Request,
        status: Status,
        text: str,
        mark: BatchMark,
        finished_ns: int,
        *,
        kept_bytes: int | None = None,
    ) -> None:
        """Answer with a text for the client, cut to the room there is.

        Args:
            request: the request to answer.
            status, mark, finished_ns: as for `answer`.
            text: for the client.
            kept_bytes: for a chain in a step behind the first, what earlier steps keep. The text
                stands behind that: who writes it may die before the answer is there, and then the
                step is run again.
        """
        ref, skipped = request.ref, kept_bytes or 0
        if self.part_is_out(ref):
            # It would stand where parts are read.
            text = ""
        message = text.encode(errors="replace")[: request.result_capacity - skipped]
        start = request.result_offset + skipped
        self.memory[start : start + len(message)] = message
        self.store_answer_start([ref], skipped)
        if kept_bytes is None:
            self.answer(ref, status, len(message), mark, finished_ns)
        else:
            self.answer_later_step([ref], status, len(message), mark, finished_ns)

    def give_up(self, request: Request, late: str, mark: BatchMark, now_ns: int) -> Status:
        """Answer a request without a run, and return its status.

        The text is `late` if its deadline has come, else empty, as the client no longer waits.
        """
        expired = request.deadline_ns <= now_ns
        status = Status.EXPIRED if expired else Status.CANCELLED
        self.fail(request, status, late if expired else "", mark, now_ns)
        return status

    def flush(self) -> None:
        """Publish the answers written since the last call, one wake-up for each lane.

        A lane's ring is full if its owner does not collect while collectors follow one another,
        each of which posts all answers anew. Answers that find no room wait for the next call.
        """
        if self._notices.waiting:
            self._notices.post(self._answered)
        answered = self._answered
        if not answered:
            return
        self._answered = {}
        for lane, references in answered.items():
            if not self._completions[lane].offer(references):
                rest = self._offer_singly(lane, references)
                # If a slot has been published again, its frontend has the answer. So no more
                # answers wait than the lane has slots, even if the frontend lies.
                if rest := [*filter(self._is_latest, dict.fromkeys(rest))]:
                    self._answered[lane] = rest
            self._wake_lane(lane)

    def _is_latest(self, ref: int) -> bool:
        return is_latest(ref, self._state_words(slot_of(ref))[0])

    @property
    def delayed(self) -> int:
        """Answers and notices that found no room and wait for the next `flush`."""
        return len(self._notices) + sum(map(len, self._answered.values()))

    def _offer_singly(self, lane: int, references: list[int]) -> list[int]:
        for count, ref in enumerate(references):
            if not self._completions[lane].offer([ref]):
                return references[count:]
        return []
