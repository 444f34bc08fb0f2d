"""Lane and its holders, in one process."""

from dataclasses import dataclass, field

from ringbatch.shm.engine_slots import BatchMark, EngineSlots, Request
from ringbatch.shm.lane import Lane
from ringbatch.shm.layout import PAGE, Layout
from ringbatch.shm.model_spec import ModelSpec, dumps
from ringbatch.shm.ring import Consumer
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import (
    Reason,
    Status,
    without_part,
)

MODEL = ModelSpec(0, "m", "python", (), (), 1, 0, 1, "eager", (0,))
MARK = BatchMark(7, 3, Reason.LATENCY, 11, 21, 31, 41, 2)
LANES, SLOTS, LANE_BYTES = 2, 4, 4 * PAGE
WORKER, COLLECTOR = 0, 1
LAYOUT = Layout(
    lanes=LANES,
    slots=SLOTS,
    lane_bytes=LANE_BYTES,
    workers=1,
    models=1,
    model_table_bytes=len(dumps((MODEL,))),
)


def ask(lane: Lane, request: bytes = b"request", result_bytes: int = 100) -> int:
    """Claim a slot, write the request and publish it."""
    slot = lane.claim(len(request), result_bytes, 0)
    assert slot is not None
    start = lane.request_offset[slot]
    lane.memory[start : start + len(request)] = request
    lane.publish(slot, 0, 1, 5, 6, len(request))
    return slot


@dataclass
class Harness:
    """Lane with the holders of a worker and of the collector, over a process-local segment."""

    segment: Segment = field(default_factory=lambda: Segment.local(LAYOUT, (MODEL,)))
    lane_wakes: list[int] = field(default_factory=list)
    collector_wakes: list[None] = field(default_factory=list)
    index: int = 0

    def __post_init__(self) -> None:
        self.lane = self.next_owner()
        self.worker = EngineSlots(self.segment, WORKER, self.lane_wakes.append)
        self.collector = EngineSlots(self.segment, COLLECTOR, self.lane_wakes.append)
        ring = LAYOUT.submission_ring(self.index)
        self.submissions = Consumer(self.segment.words, ring, SLOTS)

    def next_owner(self) -> Lane:
        return Lane(self.segment, self.index, lambda: self.collector_wakes.append(None))

    def requests(self) -> list[Request]:
        references = dict.fromkeys(map(without_part, self.submissions.take()))
        found = [self.worker.read(ref) for ref in references]
        return [request for request in found if request is not None]

    def serve(self) -> None:
        """Answer each open request with its own bytes in upper case."""
        for request in self.requests():
            if self.worker.is_open(request.ref):
                self.answer(request)
        self.worker.flush()

    def answer(self, request: Request, engine_slots: EngineSlots | None = None) -> None:
        start, memory = request.request_offset, self.segment.memory
        result = bytes(memory[start : start + request.request_bytes]).upper()
        memory[request.result_offset : request.result_offset + len(result)] = result
        (engine_slots or self.worker).answer(request.ref, Status.OK, len(result), MARK, 12)

    def result(self, slot: int, lane: Lane | None = None) -> bytes:
        owner = lane or self.lane
        start = owner.result_offset[slot]
        return bytes(owner.memory[start : start + owner.answer(slot).size])

    def slot_word(self, slot: int, field: int) -> int:
        return LAYOUT.slot(self.index * SLOTS + slot) + field
