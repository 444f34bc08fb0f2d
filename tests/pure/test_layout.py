"""The table of regions in `layout` is the specification; here it is held against the arithmetic."""

import re
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.shm import layout as specified
from ringbatch.shm.descriptors import (
    LAYOUT_VERSION,
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
from ringbatch.shm.layout import (
    MAX_BYTES,
    MAX_LANES,
    MAX_REGIONS,
    MAX_SLOTS,
    PAGE,
    WORD,
    Layout,
    aligned,
    ring_size,
)
from ringbatch.shm.model_metric_words import OwnMetricWords
from ringbatch.shm.region_words import RegionWords, RegistryWords
from ringbatch.shm.upstream_words import UPSTREAMS, AskingWords, UpstreamWords

SPECIFICATION = specified.__doc__ or ""


def regions() -> list[str]:
    """The names of the regions in the order that the specification gives them."""
    lines = SPECIFICATION[SPECIFICATION.index("region  ") :].splitlines()[2:]
    return [line.split()[0] for line in lines[: lines.index("")]]


layouts = st.builds(
    Layout,
    lanes=st.integers(1, 9),
    slots=st.integers(0, 7).map(lambda power: 1 << power),
    lane_bytes=st.integers(1, 5).map(lambda pages: pages * PAGE),
    workers=st.integers(1, 9),
    models=st.integers(1, 9),
    model_table_bytes=st.integers(1, 3 * PAGE),
    traced=st.integers(0, 20),
)


def spans(layout: Layout) -> dict[str, tuple[int, int]]:
    """First word of every region and the word behind it, computed from the last thing in it."""
    last_lane, last_worker = layout.lanes - 1, layout.workers - 1
    table_end = layout.model_table_byte + 2 * layout.model_table_bytes
    return {
        "header": (0, HeaderWords.SIZE),
        "model_table": (layout.model_table_byte // WORD, aligned(table_end, WORD) // WORD),
        "lanes": (layout.lanes_word, layout.lane(last_lane) + LaneWords.SIZE),
        "workers": (layout.workers_word, layout.worker(last_worker) + WorkerWords.SIZE),
        "cost_profiles": (
            layout.cost_profiles_word,
            layout.cost_profile(last_worker) + CostProfileWords.SIZE,
        ),
        "own_metrics": (
            layout.own_metrics_word,
            layout.own_metrics(last_worker) + OwnMetricWords.SIZE,
        ),
        "models": (layout.models_word, layout.model(layout.models - 1) + ModelWords.SIZE),
        "counters": (layout.counters_word, layout.arbiter_counters() + CounterWords.SIZE),
        "accounts": (
            layout.accounts_word,
            layout.model_counters(layout.models - 1) + ModelCounterWords.SIZE,
        ),
        "scalings": (
            layout.scalings_word,
            layout.scaling(layout.models - 1) + ScalingWords.SIZE,
        ),
        "tallies": (layout.tallies_word, layout.tally(last_lane, layout.models) + TallyWords.SIZE),
        "slow_requests": (
            layout.slow_requests_word,
            layout.slow_requests(last_lane) + SLOW_REQUESTS * RequestRecordWords.SIZE,
        ),
        "traced": (
            layout.traced_word,
            layout.traced_requests(layout.frontend_lanes - 1)
            + layout.traced * RequestRecordWords.SIZE,
        ),
        "submissions": (
            layout.submissions_word,
            layout.submission_ring(last_lane) + ring_size(layout.slots),
        ),
        "completions": (
            layout.completions_word,
            layout.completion_ring(last_lane, layout.workers) + ring_size(layout.completion_words),
        ),
        "tasks": (layout.tasks_word, layout.task_ring(last_worker) + ring_size(TASK_WORDS)),
        "reports": (layout.reports_word, layout.report_ring(last_worker) + ring_size(REPORT_WORDS)),
        "asking": (layout.asking_word, layout.asking(last_worker) + AskingWords.SIZE),
        "upstreams": (
            layout.upstreams_word,
            layout.upstream(last_worker, UPSTREAMS - 1) + UpstreamWords.SIZE,
        ),
        "device_notes": (
            layout.device_notes_word,
            layout.device_note(last_worker) + DeviceNoteWords.SIZE,
        ),
        "registry": (
            layout.registry_word,
            layout.registry_word + RegistryWords.SIZE + MAX_REGIONS * RegionWords.SIZE,
        ),
        "slots": (layout.slots_word, layout.slot(layout.lanes * layout.slots - 1) + SlotWords.SIZE),
        "payload": (
            layout.payload_byte // WORD,
            (layout.lane_payload_byte(last_lane) + layout.lane_bytes) // WORD,
        ),
    }


def test_the_regions_of_the_specification_are_those_of_the_layout() -> None:
    assert regions() == list(spans(Layout(1, 1, PAGE, 1, 1, 1)))


@given(layouts)
def test_regions_are_in_order_on_pages_of_their_own_and_do_not_overlap(layout: Layout) -> None:
    ordered = [spans(layout)[name] for name in regions()]
    for (start, end), (following, _) in pairwise(ordered):
        assert start < end <= following or (start == end == following and not layout.traced)
    assert all(start * WORD % PAGE == 0 for start, _ in ordered)
    assert ordered[-1][1] * WORD == layout.size


def written(layout: Layout) -> Iterator[tuple[str, int, int]]:
    """Yield every stretch that one process writes while the engine runs: writer, start, size."""
    copies = layout.model_table_copy(0), layout.model_table_copy(1)
    start, end = min(copy.start for copy in copies), max(copy.stop for copy in copies)
    yield "supervisor", start // WORD, aligned(end - start, WORD) // WORD
    for lane in range(layout.lanes):
        frontend = f"frontend {lane}"
        yield frontend, layout.lane(lane), LaneWords.SIZE
        yield frontend, layout.lane_counters(lane), CounterWords.SIZE
        for place in range(layout.models + 1):
            yield frontend, layout.tally(lane, place), TallyWords.SIZE
        yield frontend, layout.slow_requests(lane), SLOW_REQUESTS * RequestRecordWords.SIZE
        if layout.traced:
            yield frontend, layout.traced_requests(lane), layout.traced * RequestRecordWords.SIZE
        yield from ring(layout.submission_ring(lane), layout.slots, frontend, "collector")
        for worker in range(layout.workers):
            start = layout.completion_ring(lane, worker)
            yield from ring(start, layout.completion_words, f"worker {worker}", frontend)
        start = layout.completion_ring(lane, layout.workers)
        yield from ring(start, layout.completion_words, "collector", frontend)
        for number in range(layout.slots):
            slot = layout.slot(lane * layout.slots + number)
            yield frontend, slot + SlotWords.CONTROL, SlotWords.DONE - SlotWords.CONTROL
            yield f"holder of {slot}", slot + SlotWords.DONE, SlotWords.SIZE - SlotWords.DONE
    for worker in range(layout.workers):
        name = f"worker {worker}"
        yield name, layout.worker(worker), WorkerWords.SIZE
        yield name, layout.cost_profile(worker), CostProfileWords.SIZE
        yield name, layout.worker_counters(worker), CounterWords.SIZE
        yield name, layout.asking(worker), AskingWords.SIZE
        yield name, layout.upstream(worker, 0), UPSTREAMS * UpstreamWords.SIZE
        yield name, layout.device_note(worker), DeviceNoteWords.SIZE
        yield from ring(layout.task_ring(worker), TASK_WORDS, "collector", name)
        yield from ring(layout.report_ring(worker), REPORT_WORDS, name, "collector")
    yield "registrar", layout.registry_word, RegistryWords.SIZE + MAX_REGIONS * RegionWords.SIZE
    yield "collector", layout.collector_counters(), CounterWords.SIZE
    yield "supervisor", layout.supervisor_counters(), CounterWords.SIZE
    yield "arbiter", layout.arbiter_counters(), CounterWords.SIZE
    for model in range(layout.models):
        yield "collector", layout.model(model), ModelWords.SIZE
        yield "collector", layout.model_counters(model), ModelCounterWords.SIZE
        yield "supervisor", layout.scaling(model), ScalingWords.SIZE


def ring(start: int, capacity: int, producer: str, consumer: str) -> Iterator[tuple[str, int, int]]:
    yield producer, start + RingWords.TAIL, 1
    yield consumer, start + RingWords.HEAD, 1
    yield producer, start + RingWords.ITEMS, capacity


@given(layouts)
def test_no_pair_of_cache_lines_has_two_writers(layout: Layout) -> None:
    owners: dict[int, str] = {}
    for writer, start, size in written(layout):
        for pair in (start // PAIR, (start + size - 1) // PAIR):
            assert owners.setdefault(pair, writer) == writer


@given(layouts)
def test_nothing_that_is_written_overlaps(layout: Layout) -> None:
    stretches = sorted((start, start + size) for _, start, size in written(layout))
    assert all(end <= following for (_, end), (following, _) in pairwise(stretches))


def test_where_the_regions_of_version_32_lie() -> None:
    """A change of a number here changes the layout, and needs another version."""
    assert LAYOUT_VERSION == 32
    layout = Layout(lanes=2, slots=8, lane_bytes=8192, workers=3, models=1, model_table_bytes=100)
    assert {name: start * WORD for name, (start, _) in spans(layout).items()} == {
        "header": 0,
        "model_table": 4096,
        "lanes": 8192,
        "workers": 12288,
        "cost_profiles": 16384,
        "own_metrics": 28672,
        "models": 131072,
        "counters": 135168,
        "accounts": 139264,
        "scalings": 143360,
        "tallies": 147456,
        "slow_requests": 159744,
        "traced": 172032,
        "submissions": 172032,
        "completions": 176128,
        "tasks": 180224,
        "reports": 577536,
        "asking": 778240,
        "upstreams": 782336,
        "device_notes": 819200,
        "registry": 823296,
        "slots": 991232,
        "payload": 995328,
    }
    assert layout.size == 1011712
    assert [layout.completion_ring(1, producer) * WORD for producer in range(4)] == [
        178176,
        178688,
        179200,
        179712,
    ]


@given(st.integers(0, 1 << 50), st.integers(0, 12).map(lambda power: 1 << power))
def test_aligned_is_the_least_multiple_not_below(size: int, alignment: int) -> None:
    result = aligned(size, alignment)
    assert result % alignment == 0
    assert size <= result < size + alignment


GOOD = {
    "lanes": 1,
    "slots": 4,
    "lane_bytes": PAGE,
    "workers": 1,
    "models": 1,
    "model_table_bytes": 1,
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lanes": 0}, "lanes must be from 1 to 1024, not 0"),
        ({"lanes": MAX_LANES + 1}, "lanes must be from 1 to 1024, not 1025"),
        ({"slots": 0}, "slots must be from 1 to 16384, not 0"),
        ({"slots": 2 * MAX_SLOTS}, "slots must be from 1 to 16384, not 32768"),
        ({"slots": 3}, "slots must be a power of two, not 3"),
        ({"lane_bytes": PAGE + 1}, "lane_bytes must be a multiple of 4096, not 4097"),
        ({"lane_bytes": MAX_BYTES + PAGE}, "lane_bytes must be from 1 to"),
        ({"workers": 0}, "workers must be from 1 to 1024, not 0"),
        ({"models": -1}, "models must be from 1 to 1024, not -1"),
        ({"model_table_bytes": 0}, "model_table_bytes must be from 1 to"),
        ({"client_lanes": -1}, "client_lanes must be from 0 to 0, not -1"),
        ({"lanes": 3, "client_lanes": 3}, "client_lanes must be from 0 to 2, not 3"),
        ({"traced": -1}, "traced must be from 0 to 65536, not -1"),
        ({"traced": 65537}, "traced must be from 0 to 65536, not 65537"),
    ],
)
def test_a_size_outside_its_limits_is_refused_by_name(change: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Layout(**GOOD | change)


@pytest.mark.parametrize(
    ("method", "count"),
    [
        ("lane", 4),
        ("worker", 3),
        ("model", 2),
        ("lane_counters", 4),
        ("worker_counters", 3),
        ("model_counters", 2),
        ("submission_ring", 4),
        ("task_ring", 3),
        ("report_ring", 3),
        ("slot", 4 * 8),
        ("lane_payload_byte", 4),
    ],
)
def test_an_index_outside_its_count_is_refused(method: str, count: int) -> None:
    layout = Layout(lanes=4, slots=8, lane_bytes=PAGE, workers=3, models=2, model_table_bytes=1)
    place = getattr(layout, method)
    starts = [place(index) for index in range(count)]
    assert starts == sorted(set(starts))
    for index in (-1, count):
        with pytest.raises(IndexError):
            place(index)


@pytest.mark.parametrize(("lane", "producer"), [(4, 0), (0, 4), (-1, 0), (0, -1)])
def test_a_completion_ring_outside_lanes_and_producers_is_refused(lane: int, producer: int) -> None:
    layout = Layout(lanes=4, slots=8, lane_bytes=PAGE, workers=3, models=2, model_table_bytes=1)
    with pytest.raises(IndexError):
        layout.completion_ring(lane, producer)
