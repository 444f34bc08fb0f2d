"""Where every byte of the segment lives. Constants and arithmetic only.

The segment is transient, in native byte order, for one host and one version of ringbatch. All
offsets are bytes from its start. Regions follow one another in this order, each on a page of its
own; L is the number of lanes, S of slots in a lane, W of places for workers, M of those for models:

    region       holds
    -----------  ---------------------------------------------------------------
    header       the words below
    manifest     two copies of the table of models, JSON, see ringbatch.shm.model_table
    lanes        L entries of a lane's words
    workers      W entries of a worker's words
    trials       W tables of a worker's trials
    models       M entries of a model's words
    counters     L + W + 1 + M blocks, see ringbatch.shm.counters
    submissions  L rings of S words: frontend to collector
    completions  L * (W + 1) rings of 2 S words: worker (or, last, collector) to frontend
    tasks        W rings of TASK_WORDS words: collector to worker
    reports      W rings of REPORT_WORDS words: worker to collector
    registry     the registry's words, and MAX_REGIONS records
    slots        L * S slots
    payload      L times the payload memory of one lane

Header. Written by the supervisor when it makes the segment, read by everyone; MAGIC comes last
and says that the rest is complete. RING_COLLECTOR is 0 while the collector does not want to be
woken for requests, because no worker is idle; COLLECTOR_NS is when it last looked for something to
do, which it does at least twice a second; the supervisor makes it 0 where the collector has ended.
The last CLIENT_LANES lanes are for programs that use ringbatch.frontend.client, those before them
for frontends. MODEL_CONTROL is 1 where frontends may ask the supervisor to load and unload models.
TABLE is the number of the table of models that holds; it is in the copy of that number modulo 2.
COLLECTOR_ERRNO is the kernel's reason where no collector can be started, 0 otherwise.

    offset  size  field            written by
    ------  ----  ---------------  ----------
         0     8  MAGIC            supervisor
         8     8  VERSION          supervisor
        16     8  SEGMENT_BYTES    supervisor
        24     8  LANES            supervisor
        32     8  SLOTS            supervisor
        40     8  LANE_BYTES       supervisor
        48     8  WORKERS          supervisor
        56     8  MODELS           supervisor
        64     8  MANIFEST_BYTES   supervisor
        72     8  IDENTITY         supervisor
        80     8  CLIENT_LANES     supervisor
        88     8  MODEL_CONTROL    supervisor
       128     8  DRAINING         supervisor
       136     8  TABLE            supervisor
       144     8  COLLECTOR_ERRNO  supervisor
       256     8  RING_COLLECTOR   collector
       264     8  COLLECTOR_NS     collector

A lane's words. LANE_TABLE is the number of a table of models; what the lane's owner sends from now
on is for models of that table or a later one.

    offset  size  field              written by
    ------  ----  -----------------  ----------
         0     8  LANE_TABLE         frontend

A worker's words. WORKER_STATE is a `WorkerState`; the supervisor stores ABSENT once the worker has
ended. WORKER_MODEL is the reference of the model that it holds. WORKER_ERRNO is the kernel's reason
where no process can be started for it, 0 otherwise.

    offset  size  field              written by
    ------  ----  -----------------  ----------
         0     8  WORKER_STATE       worker
         8     8  WORKER_PID         worker
        16     8  WORKER_MODEL       worker
       128     8  WORKER_ERRNO       supervisor

A worker's trials: what its batches took in warm-up. TRIAL_COUNT says how many of the MAX_TRIALS
records behind it hold one; it is 0 while they are written. A record's words are the rows, the size
of the open dimensions, 0 where there are none, and the nanoseconds of the run.

    offset  size  field              written by
    ------  ----  -----------------  ----------
         0     8  TRIAL_COUNT        worker
         8     -  TRIAL_RECORDS      worker

A model's words. MODEL_READY counts the workers that hold it now; MODEL_SERVED is 1 once one did.
MODEL_ANSWER_NS is how long a request that comes now is expected to take, 0 where nothing is in its
way; MODEL_ROW_NS is how much every instance adds that the collector has not taken yet. From
MODEL_STUCK_NS on, where it is not 0, no batch was finished for too long; until MODEL_UNSTEADY_NS
its workers count as coming and going, after MODEL_DEATHS deaths in a row.

    offset  size  field              written by
    ------  ----  -----------------  ----------
         0     8  MODEL_READY        collector
         8     8  MODEL_SERVED       collector
        16     8  MODEL_ANSWER_NS    collector
        24     8  MODEL_ROW_NS       collector
        32     8  MODEL_STUCK_NS     collector
        40     8  MODEL_UNSTEADY_NS  collector
        48     8  MODEL_DEATHS       collector

A ring of words. TAIL and HEAD count words since the segment was made and never wrap; the word
with number n stands at n modulo the capacity. Each has a cache-line pair of its own.

    offset  size  field       written by
    ------  ----  ----------  ----------
         0     8  RING_TAIL   producer
       128     8  RING_HEAD   consumer
       256     -  RING_WORDS  producer

The registry of clients' memory. It has no writer of its own: the registrar is whichever frontend
holds its lock, see ringbatch.shm.region_registry.

    offset  size  field           written by
    ------  ----  --------------  ----------
         0     8  REGISTRY_STAMP  registrar

A record of the registry, for what the protocol calls a shared memory region. REGION_STAMP is 0
while the record is empty. The text is the region's name and then its key, in UTF-8.

    offset  size  field              written by
    ------  ----  -----------------  ----------
         0     8  REGION_STAMP       registrar
         8     8  REGION_OFFSET      registrar
        16     8  REGION_BYTES       registrar
        24     8  REGION_DEVICE      registrar
        32     8  REGION_INODE       registrar
        40     8  REGION_NAME_BYTES  registrar
        48     8  REGION_KEY_BYTES   registrar
        56     -  REGION_TEXT        registrar

A slot. The first cache-line pair belongs to the frontend, the second to whoever holds the
request: the collector until it dispatches it, then the worker. CONTROL and DONE are the words of
ringbatch.shm.slot. MODEL is the reference of a model, see ringbatch.shm.model_spec.

    offset  size  field            written by
    ------  ----  ---------------  ----------
         0     8  CONTROL          frontend
         8     8  MODEL            frontend
        16     8  ROWS             frontend
        24     8  REQUEST_BYTES    frontend
        32     8  KEY_BYTES        frontend
        40     8  RESULT_CAPACITY  frontend
        48     8  REQUEST_OFFSET   frontend
        56     8  RESULT_OFFSET    frontend
        64     8  ACCEPTED_NS      frontend
        72     8  DEADLINE_NS      frontend
       128     8  DONE             holder
       136     8  RESULT_BYTES     holder
       144     8  BATCH            holder
       152     8  BATCH_ROWS       holder
       160     8  REASON           holder
       168     8  DISPATCHED_NS    holder
       176     8  FINISHED_NS      holder
"""

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Final

WORD: Final = 8
PAIR: Final = 128
"""Two cache lines: the adjacent-line prefetcher pulls them together, so words with different
writers must not share one."""
PAGE: Final = 4096
ALIGNMENT: Final = 64
"""Of every payload, so that a tensor starts on a cache line."""

MAGIC_VALUE: Final = 0x31_48_43_54_42_47_4E_52
"""``RNGBTCH1`` as it stands in memory."""
LAYOUT_VERSION: Final = 5

MAGIC: Final = 0
VERSION: Final = 8
SEGMENT_BYTES: Final = 16
LANES: Final = 24
SLOTS: Final = 32
LANE_BYTES: Final = 40
WORKERS: Final = 48
MODELS: Final = 56
MANIFEST_BYTES: Final = 64
IDENTITY: Final = 72
CLIENT_LANES: Final = 80
MODEL_CONTROL: Final = 88
DRAINING: Final = 128
TABLE: Final = 136
COLLECTOR_ERRNO: Final = 144
RING_COLLECTOR: Final = 256
COLLECTOR_NS: Final = 264
BEAT_S: Final = 0.5
"""How often the collector, and whoever else is watched, shows that it moves."""
HEADER_SIZE: Final = 384

LANE_TABLE: Final = 0
LANE_SIZE: Final = PAIR

WORKER_STATE: Final = 0
WORKER_PID: Final = 8
WORKER_MODEL: Final = 16
WORKER_ERRNO: Final = PAIR
WORKER_SIZE: Final = 2 * PAIR

TRIAL_COUNT: Final = 0
TRIAL_RECORDS: Final = 8
TRIAL_WORDS: Final = 3
MAX_TRIALS: Final = 127

MODEL_READY: Final = 0
MODEL_SERVED: Final = 8
MODEL_ANSWER_NS: Final = 16
MODEL_ROW_NS: Final = 24
MODEL_STUCK_NS: Final = 32
MODEL_UNSTEADY_NS: Final = 40
MODEL_DEATHS: Final = 48
MODEL_SIZE: Final = PAIR

RING_TAIL: Final = 0
RING_HEAD: Final = PAIR
RING_WORDS: Final = 2 * PAIR

REGISTRY_STAMP: Final = 0
REGISTRY_SIZE: Final = PAIR

REGION_STAMP: Final = 0
REGION_OFFSET: Final = 8
REGION_BYTES: Final = 16
REGION_DEVICE: Final = 24
REGION_INODE: Final = 32
REGION_NAME_BYTES: Final = 40
REGION_KEY_BYTES: Final = 48
REGION_TEXT: Final = 56
REGION_SIZE: Final = 5 * PAIR

CONTROL: Final = 0
MODEL: Final = 8
ROWS: Final = 16
REQUEST_BYTES: Final = 24
KEY_BYTES: Final = 32
RESULT_CAPACITY: Final = 40
REQUEST_OFFSET: Final = 48
RESULT_OFFSET: Final = 56
ACCEPTED_NS: Final = 64
DEADLINE_NS: Final = 72
DONE: Final = 128
RESULT_BYTES: Final = 136
BATCH: Final = 144
BATCH_ROWS: Final = 152
REASON: Final = 160
DISPATCHED_NS: Final = 168
FINISHED_NS: Final = 176
SLOT_SIZE: Final = 2 * PAIR

COUNTER_WORDS: Final = 48
COUNTER_BLOCK: Final = COUNTER_WORDS * WORD

TASK_WORDS: Final = 1 << 14
REPORT_WORDS: Final = 1 << 8

MAX_LANES: Final = 1 << 10
MAX_SLOTS: Final = 1 << 14
MAX_WORKERS: Final = 1 << 10
MAX_MODELS: Final = 1 << 10
MAX_REGIONS: Final = 1 << 8
MAX_BYTES: Final = 1 << 44

assert SLOT_SIZE % PAIR == 0
assert DEADLINE_NS + WORD <= DONE
assert DONE % PAIR == RING_HEAD % PAIR == DRAINING % PAIR == 0
assert COUNTER_BLOCK % PAIR == 0
assert MAX_LANES * MAX_SLOTS <= 1 << 24, "a slot number has 24 bits in a reference"


class WorkerState(IntEnum):
    """What a worker says of itself."""

    ABSENT = 0
    LOADING = 1
    READY = 2
    WARMING = 3


def aligned(size: int, alignment: int = ALIGNMENT) -> int:
    """The least multiple of `alignment`, a power of two, that is not below `size`."""
    return (size + alignment - 1) & -alignment


TRIALS_SIZE: Final = aligned(TRIAL_RECORDS + MAX_TRIALS * TRIAL_WORDS * WORD, PAIR)


@dataclass(frozen=True)
class Layout:
    """The sizes of one segment, and the offsets that follow from them.

    Raises:
        ValueError: where a size is outside its limits; the text names it and the limits.
    """

    lanes: int
    slots: int
    lane_bytes: int
    workers: int
    models: int
    manifest_bytes: int
    client_lanes: int = 0

    def __post_init__(self) -> None:
        _within("lanes", self.lanes, MAX_LANES)
        _within("slots", self.slots, MAX_SLOTS)
        _within("lane_bytes", self.lane_bytes, MAX_BYTES)
        _within("workers", self.workers, MAX_WORKERS)
        _within("models", self.models, MAX_MODELS)
        _within("manifest_bytes", self.manifest_bytes, MAX_BYTES)
        if self.slots & (self.slots - 1):
            raise ValueError(f"slots must be a power of two, not {self.slots}")
        if self.lane_bytes % PAGE:
            raise ValueError(f"lane_bytes must be a multiple of {PAGE}, not {self.lane_bytes}")
        if not 0 <= self.client_lanes < self.lanes:
            raise ValueError(
                f"client_lanes must be from 0 to {self.lanes - 1}, not {self.client_lanes}"
            )

    @property
    def frontend_lanes(self) -> int:
        """How many lanes are for frontends; those with higher numbers are for clients."""
        return self.lanes - self.client_lanes

    @cached_property
    def manifest(self) -> int:
        return aligned(HEADER_SIZE, PAGE)

    @cached_property
    def lanes_offset(self) -> int:
        return aligned(self.manifest + 2 * self.manifest_bytes, PAGE)

    @cached_property
    def workers_offset(self) -> int:
        return aligned(self.lanes_offset + self.lanes * LANE_SIZE, PAGE)

    @cached_property
    def trials(self) -> int:
        return aligned(self.workers_offset + self.workers * WORKER_SIZE, PAGE)

    @cached_property
    def models_offset(self) -> int:
        return aligned(self.trials + self.workers * TRIALS_SIZE, PAGE)

    @cached_property
    def counters(self) -> int:
        return aligned(self.models_offset + self.models * MODEL_SIZE, PAGE)

    @cached_property
    def submissions(self) -> int:
        blocks = self.lanes + self.workers + 1 + self.models
        return aligned(self.counters + blocks * COUNTER_BLOCK, PAGE)

    @property
    def completion_words(self) -> int:
        """The capacity of a completion ring.

        Beside the answer to each slot's request it may hold that to the request before: posted
        when the lane's next owner had already emptied the ring and found the slot answered, or
        posted by the collector as well. With less, an answer could have to wait in its worker,
        and die with it.
        """
        return 2 * self.slots

    @cached_property
    def completions(self) -> int:
        return aligned(self.submissions + self.lanes * ring_size(self.slots), PAGE)

    @cached_property
    def tasks(self) -> int:
        rings = self.lanes * (self.workers + 1)
        return aligned(self.completions + rings * ring_size(self.completion_words), PAGE)

    @cached_property
    def reports(self) -> int:
        return aligned(self.tasks + self.workers * ring_size(TASK_WORDS), PAGE)

    @cached_property
    def registry(self) -> int:
        return aligned(self.reports + self.workers * ring_size(REPORT_WORDS), PAGE)

    @cached_property
    def slots_offset(self) -> int:
        return aligned(self.registry + REGISTRY_SIZE + MAX_REGIONS * REGION_SIZE, PAGE)

    @cached_property
    def payload(self) -> int:
        return aligned(self.slots_offset + self.lanes * self.slots * SLOT_SIZE, PAGE)

    @cached_property
    def size(self) -> int:
        return self.payload + self.lanes * self.lane_bytes

    def manifest_copy(self, table: int) -> int:
        """Where the copy starts that the table of models with that number is in."""
        return self.manifest + table % 2 * self.manifest_bytes

    def lane(self, lane: int) -> int:
        """Where the words of a lane start."""
        return self.lanes_offset + _index(lane, self.lanes) * LANE_SIZE

    def worker(self, worker: int) -> int:
        """Where the words of a worker start."""
        return self.workers_offset + _index(worker, self.workers) * WORKER_SIZE

    def worker_trials(self, worker: int) -> int:
        """Where the trials of a worker start."""
        return self.trials + _index(worker, self.workers) * TRIALS_SIZE

    def model(self, model: int) -> int:
        """Where the words of a model start."""
        return self.models_offset + _index(model, self.models) * MODEL_SIZE

    def lane_counters(self, lane: int) -> int:
        """Where the counters written by a lane's frontend start."""
        return self.counters + _index(lane, self.lanes) * COUNTER_BLOCK

    def worker_counters(self, worker: int) -> int:
        """Where the counters written by a worker start."""
        return self.counters + (self.lanes + _index(worker, self.workers)) * COUNTER_BLOCK

    def collector_counters(self) -> int:
        """Where the collector's own counters start."""
        return self.counters + (self.lanes + self.workers) * COUNTER_BLOCK

    def model_counters(self, model: int) -> int:
        """Where the collector's counters of one model start."""
        block = self.lanes + self.workers + 1 + _index(model, self.models)
        return self.counters + block * COUNTER_BLOCK

    def submission_ring(self, lane: int) -> int:
        """Where the ring from a lane's frontend to the collector starts."""
        return self.submissions + _index(lane, self.lanes) * ring_size(self.slots)

    def completion_ring(self, lane: int, producer: int) -> int:
        """Where the ring of a worker, or of the collector as number W, to a frontend starts."""
        ring = _index(lane, self.lanes) * (self.workers + 1) + _index(producer, self.workers + 1)
        return self.completions + ring * ring_size(self.completion_words)

    def task_ring(self, worker: int) -> int:
        """Where the ring from the collector to a worker starts."""
        return self.tasks + _index(worker, self.workers) * ring_size(TASK_WORDS)

    def report_ring(self, worker: int) -> int:
        """Where the ring from a worker to the collector starts."""
        return self.reports + _index(worker, self.workers) * ring_size(REPORT_WORDS)

    def slot(self, slot: int) -> int:
        """Where a slot starts; slots are numbered through all lanes, `slots` to each."""
        return self.slots_offset + _index(slot, self.lanes * self.slots) * SLOT_SIZE

    def lane_payload(self, lane: int) -> int:
        """Where the payload memory of a lane starts."""
        return self.payload + _index(lane, self.lanes) * self.lane_bytes


def ring_size(capacity: int) -> int:
    """Bytes of a ring of `capacity` words, control words included."""
    return aligned(RING_WORDS + capacity * WORD, PAIR)


def _within(name: str, value: int, limit: int) -> None:
    if not 1 <= value <= limit:
        raise ValueError(f"{name} must be from 1 to {limit}, not {value}")


def _index(index: int, count: int) -> int:
    if not 0 <= index < count:
        raise IndexError(f"index {index} outside 0..{count - 1}")
    return index
