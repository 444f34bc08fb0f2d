"""Layout of the segment: where its regions lie, and every record in them. Arithmetic only.

`ringbatch.shm.descriptors` says what a record holds, and who may touch it. Regions follow one
another in this order, each on a page of its own. L is the number of lanes, S of slots in a lane, W
of places for workers, M of those for models and F of frontends' lanes. T is the number of traced
requests that each of these keeps, 0 without tracing:

    region         holds
    -------------  ---------------------------------------------------------------
    header         `HeaderWords`
    model_table    two copies of the model table, JSON, see ringbatch.shm.model_table
    lanes          L times `LaneWords`
    workers        W times `WorkerWords`
    cost_profiles  W times `CostProfileWords`
    own_metrics    W times `OwnMetricWords`
    models         M times `ModelWords`
    counters       L + W + 3 times `CounterWords`: lanes, workers, collector, supervisor, arbiter
    accounts       M times `ModelCounterWords`: of the collector for each account
    scalings       M times `ScalingWords`: of the supervisor for each account
    tallies        L * (M + 1) times `TallyWords`: of a lane for each account, and for no model
    slow_requests  L * SLOW_REQUESTS times `RequestRecordWords`
    traced         F * T times `RequestRecordWords`
    submissions    L rings of S words: frontend to collector
    completions    L * (W + 1) rings of 2 S words: worker (or, last, collector) to frontend
    tasks          W rings of TASK_WORDS words: collector to worker
    reports        W rings of REPORT_WORDS words: worker to collector
    asking         W times `AskingWords`
    upstreams      W * UPSTREAMS times `UpstreamWords`
    device_notes   W times `DeviceNoteWords`
    registry       `RegistryWords`, and MAX_REGIONS times `RegionWords`
    slots          L * S times `SlotWords`
    payload        L times the payload memory of one lane

The last CLIENT_LANES lanes are for programs that use ringbatch.frontend.client, those before them
for frontends.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from ringbatch.shm.descriptors import (
    PAIR,
    REPORT_WORDS,
    SLOW_REQUESTS,
    TASK_WORDS,
    CostProfileWords,
    CounterWords,
    HeaderWords,
    LaneWords,
    ModelCounterWords,
    ModelWords,
    RequestRecordWords,
    RingWords,
    ScalingWords,
    SlotWords,
    TallyWords,
    WorkerWords,
)
from ringbatch.shm.device_words import DeviceNoteWords
from ringbatch.shm.model_metric_words import OwnMetricWords
from ringbatch.shm.region_words import RegionWords, RegistryWords
from ringbatch.shm.upstream_words import UPSTREAMS, AskingWords, UpstreamWords

WORD: Final = 8
"""Bytes of a word."""
PAGE: Final = 4096
"""Page size of the layout in bytes: each region begins on a page. The kernel's own pages may be
larger, up to 64 KiB on AArch64. The segment is mapped as a whole, so nothing depends on them."""
ALIGNMENT: Final = 64
"""Alignment of every payload in bytes: each tensor starts on a cache line."""
SLOT_BYTES: Final = SlotWords.SIZE * WORD
_PAGE_WORDS: Final = PAGE // WORD

MAX_LANES: Final = 1 << 10
MAX_SLOTS: Final = 1 << 14
MAX_WORKERS: Final = 1 << 10
MAX_MODELS: Final = 1 << 10
MAX_REGIONS: Final = 1 << 8
TRACED_REQUESTS: Final = 256
"""Capacity of the ring of traced requests in each frontend's lane, if requests are traced."""
MAX_TRACED: Final = 1 << 16
MAX_BYTES: Final = 1 << 44


def aligned(size: int, alignment: int = ALIGNMENT) -> int:
    """Return the least multiple of `alignment`, a power of two, that is not below `size`."""
    return (size + alignment - 1) & -alignment


def ring_size(capacity: int) -> int:
    """Return the words of a ring with room for `capacity` items, control words included."""
    return aligned(RingWords.ITEMS + capacity, PAIR)


@dataclass(frozen=True)
class Layout:
    """The sizes of one segment, and the places that follow from them.

    A name that ends in `_word` is the number of a region's first word in the segment, one that ends
    in `_byte` the number of its first byte. Methods return words too, unless their name says byte.

    Raises:
        ValueError: if a size is outside its limits; the text names it and the limits.
    """

    lanes: int
    slots: int
    lane_bytes: int
    workers: int
    models: int
    model_table_bytes: int
    client_lanes: int = 0
    traced: int = 0

    def __post_init__(self) -> None:
        _within("lanes", self.lanes, MAX_LANES)
        _within("slots", self.slots, MAX_SLOTS)
        _within("lane_bytes", self.lane_bytes, MAX_BYTES)
        _within("workers", self.workers, MAX_WORKERS)
        _within("models", self.models, MAX_MODELS)
        _within("model_table_bytes", self.model_table_bytes, MAX_BYTES)
        if self.slots & (self.slots - 1):
            raise ValueError(f"slots must be a power of two, not {self.slots}")
        if self.lane_bytes % PAGE:
            raise ValueError(f"lane_bytes must be a multiple of {PAGE}, not {self.lane_bytes}")
        if not 0 <= self.client_lanes < self.lanes:
            raise ValueError(
                f"client_lanes must be from 0 to {self.lanes - 1}, not {self.client_lanes}"
            )
        if not 0 <= self.traced <= MAX_TRACED:
            raise ValueError(f"traced must be from 0 to {MAX_TRACED}, not {self.traced}")

    @property
    def frontend_lanes(self) -> int:
        """Number of lanes for frontends; those with higher numbers are for clients."""
        return self.lanes - self.client_lanes

    @cached_property
    def model_table_byte(self) -> int:
        return _on_page(HeaderWords.SIZE) * WORD

    @cached_property
    def lanes_word(self) -> int:
        return _on_page((self.model_table_byte + aligned(2 * self.model_table_bytes)) // WORD)

    @cached_property
    def workers_word(self) -> int:
        return _on_page(self.lanes_word + self.lanes * LaneWords.SIZE)

    @cached_property
    def cost_profiles_word(self) -> int:
        return _on_page(self.workers_word + self.workers * WorkerWords.SIZE)

    @cached_property
    def own_metrics_word(self) -> int:
        return _on_page(self.cost_profiles_word + self.workers * CostProfileWords.SIZE)

    @cached_property
    def models_word(self) -> int:
        return _on_page(self.own_metrics_word + self.workers * OwnMetricWords.SIZE)

    @cached_property
    def counters_word(self) -> int:
        return _on_page(self.models_word + self.models * ModelWords.SIZE)

    @cached_property
    def accounts_word(self) -> int:
        blocks = self.lanes + self.workers + 3
        return _on_page(self.counters_word + blocks * CounterWords.SIZE)

    @cached_property
    def scalings_word(self) -> int:
        return _on_page(self.accounts_word + self.models * ModelCounterWords.SIZE)

    @cached_property
    def tallies_word(self) -> int:
        return _on_page(self.scalings_word + self.models * ScalingWords.SIZE)

    @cached_property
    def slow_requests_word(self) -> int:
        return _on_page(self.tallies_word + self.lanes * (self.models + 1) * TallyWords.SIZE)

    @cached_property
    def traced_word(self) -> int:
        return _on_page(
            self.slow_requests_word + self.lanes * SLOW_REQUESTS * RequestRecordWords.SIZE
        )

    @cached_property
    def submissions_word(self) -> int:
        return _on_page(
            self.traced_word + self.frontend_lanes * self.traced * RequestRecordWords.SIZE
        )

    @property
    def completion_words(self) -> int:
        """The capacity of a completion ring.

        Beside the answer to each slot's request it may hold that to the request before: posted
        when the lane's next owner had already emptied the ring and found the slot answered, or
        posted by the collector as well. Notices of parts take a third word for each slot, see
        `ringbatch.shm.part_notices`. With less, an answer could have to wait in its worker, and die
        with it. A ring has a power of two.
        """
        return 4 * self.slots

    @cached_property
    def completions_word(self) -> int:
        return _on_page(self.submissions_word + self.lanes * ring_size(self.slots))

    @cached_property
    def tasks_word(self) -> int:
        rings = self.lanes * (self.workers + 1)
        return _on_page(self.completions_word + rings * ring_size(self.completion_words))

    @cached_property
    def reports_word(self) -> int:
        return _on_page(self.tasks_word + self.workers * ring_size(TASK_WORDS))

    @cached_property
    def asking_word(self) -> int:
        return _on_page(self.reports_word + self.workers * ring_size(REPORT_WORDS))

    @cached_property
    def upstreams_word(self) -> int:
        return _on_page(self.asking_word + self.workers * AskingWords.SIZE)

    @cached_property
    def device_notes_word(self) -> int:
        return _on_page(self.upstreams_word + self.workers * UPSTREAMS * UpstreamWords.SIZE)

    @cached_property
    def registry_word(self) -> int:
        return _on_page(self.device_notes_word + self.workers * DeviceNoteWords.SIZE)

    @cached_property
    def slots_word(self) -> int:
        return _on_page(self.registry_word + RegistryWords.SIZE + MAX_REGIONS * RegionWords.SIZE)

    @cached_property
    def payload_byte(self) -> int:
        return _on_page(self.slots_word + self.lanes * self.slots * SlotWords.SIZE) * WORD

    @cached_property
    def size(self) -> int:
        """Size of the segment in bytes."""
        return self.payload_byte + self.lanes * self.lane_bytes

    def model_table_copy(self, number: int) -> slice:
        """Return the bytes of the copy that holds the model table of that number."""
        start = self.model_table_byte + number % 2 * self.model_table_bytes
        return slice(start, start + self.model_table_bytes)

    def lane(self, lane: int) -> int:
        """Return the start of a lane's words."""
        return self.lanes_word + _index(lane, self.lanes) * LaneWords.SIZE

    def worker(self, worker: int) -> int:
        """Return the start of a worker's words."""
        return self.workers_word + _index(worker, self.workers) * WorkerWords.SIZE

    def cost_profile(self, worker: int) -> int:
        """Return the start of a worker's cost profile."""
        return self.cost_profiles_word + _index(worker, self.workers) * CostProfileWords.SIZE

    def own_metrics(self, worker: int) -> int:
        """Return the start of the metrics of a worker's model code."""
        return self.own_metrics_word + _index(worker, self.workers) * OwnMetricWords.SIZE

    def model(self, model: int) -> int:
        """Return the start of a model's words."""
        return self.models_word + _index(model, self.models) * ModelWords.SIZE

    def lane_counters(self, lane: int) -> int:
        """Return the start of the counters of a lane's frontend."""
        return self.counters_word + _index(lane, self.lanes) * CounterWords.SIZE

    def worker_counters(self, worker: int) -> int:
        """Return the start of a worker's counters."""
        return self.counters_word + (self.lanes + _index(worker, self.workers)) * CounterWords.SIZE

    def collector_counters(self) -> int:
        """Return the start of the collector's own counters."""
        return self.counters_word + (self.lanes + self.workers) * CounterWords.SIZE

    def supervisor_counters(self) -> int:
        """Return the start of the supervisor's counters."""
        return self.collector_counters() + CounterWords.SIZE

    def arbiter_counters(self) -> int:
        """Return the start of the counters of Gunicorn's arbiter."""
        return self.supervisor_counters() + CounterWords.SIZE

    def model_counters(self, place: int) -> int:
        """Return the start of the collector's counters for the account of a place."""
        return self.accounts_word + _index(place, self.models) * ModelCounterWords.SIZE

    def scaling(self, place: int) -> int:
        """Return the start of the supervisor's scaling words for the account of a place."""
        return self.scalings_word + _index(place, self.models) * ScalingWords.SIZE

    def tally(self, lane: int, place: int) -> int:
        """Return the start of a lane's outcomes for the account of a place.

        Requests for no model have the place after the last.
        """
        blocks = _index(lane, self.lanes) * (self.models + 1) + _index(place, self.models + 1)
        return self.tallies_word + blocks * TallyWords.SIZE

    def slow_requests(self, lane: int) -> int:
        """Return the start of a lane's slowest recent requests."""
        return (
            self.slow_requests_word
            + _index(lane, self.lanes) * SLOW_REQUESTS * RequestRecordWords.SIZE
        )

    def traced_requests(self, lane: int) -> int:
        """Return the start of the traced requests of a frontend's lane."""
        return (
            self.traced_word
            + _index(lane, self.frontend_lanes) * self.traced * RequestRecordWords.SIZE
        )

    def submission_ring(self, lane: int) -> int:
        """Return the start of the ring from a lane's frontend to the collector."""
        return self.submissions_word + _index(lane, self.lanes) * ring_size(self.slots)

    def completion_ring(self, lane: int, producer: int) -> int:
        """Return the start of a frontend's ring from a worker, or from the collector (number W)."""
        ring = _index(lane, self.lanes) * (self.workers + 1) + _index(producer, self.workers + 1)
        return self.completions_word + ring * ring_size(self.completion_words)

    def task_ring(self, worker: int) -> int:
        """Return the start of the ring from the collector to a worker."""
        return self.tasks_word + _index(worker, self.workers) * ring_size(TASK_WORDS)

    def report_ring(self, worker: int) -> int:
        """Return the start of the ring from a worker to the collector."""
        return self.reports_word + _index(worker, self.workers) * ring_size(REPORT_WORDS)

    def asking(self, worker: int) -> int:
        """Return the start of the words for a worker's current request to a model server."""
        return self.asking_word + _index(worker, self.workers) * AskingWords.SIZE

    def upstream(self, worker: int, place: int) -> int:
        """Return the start of a worker's record of a model server."""
        number = _index(worker, self.workers) * UPSTREAMS + _index(place, UPSTREAMS)
        return self.upstreams_word + number * UpstreamWords.SIZE

    def device_note(self, worker: int) -> int:
        """Return the start of a worker's note on its device."""
        return self.device_notes_word + _index(worker, self.workers) * DeviceNoteWords.SIZE

    def slot(self, slot: int) -> int:
        """Return the start of a slot; slots are numbered through all lanes, `slots` to each."""
        return self.slots_word + _index(slot, self.lanes * self.slots) * SlotWords.SIZE

    def lane_payload_byte(self, lane: int) -> int:
        """Return the start of a lane's payload memory, in bytes."""
        return self.payload_byte + _index(lane, self.lanes) * self.lane_bytes


def _on_page(word: int) -> int:
    return aligned(word, _PAGE_WORDS)


def _within(name: str, value: int, limit: int) -> None:
    if not 1 <= value <= limit:
        raise ValueError(f"{name} must be from 1 to {limit}, not {value}")


def _index(index: int, count: int) -> int:
    if not 0 <= index < count:
        raise IndexError(f"index {index} outside 0..{count - 1}")
    return index
