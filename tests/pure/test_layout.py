"""The docstring of `layout` is the specification; here it is held against the constants."""

import re
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.shm import layout as at
from ringbatch.shm.layout import PAGE, PAIR, WORD, Layout, aligned, ring_size

Field = tuple[str, int, int | None, str]
"""Name, offset, size in bytes (None where it is open), who writes it."""

SPECIFICATION = at.__doc__ or ""
TABLES = (
    "Header.",
    "A lane's words.",
    "A worker's words.",
    "A worker's trials",
    "A model's words.",
    "A ring of words.",
    "The registry of clients' memory",
    "A record of the registry",
    "A slot.",
)
NO_FIELDS = {
    "WORD",
    "PAIR",
    "PAGE",
    "ALIGNMENT",
    "MAGIC_VALUE",
    "LAYOUT_VERSION",
    "HEADER_SIZE",
    "LANE_SIZE",
    "WORKER_SIZE",
    "TRIAL_WORDS",
    "TRIALS_SIZE",
    "MODEL_SIZE",
    "REGISTRY_SIZE",
    "REGION_SIZE",
    "SLOT_SIZE",
    "COUNTER_WORDS",
    "COUNTER_BLOCK",
    "TASK_WORDS",
    "REPORT_WORDS",
    "MAX_LANES",
    "MAX_SLOTS",
    "MAX_WORKERS",
    "MAX_TRIALS",
    "MAX_MODELS",
    "MAX_REGIONS",
    "MAX_BYTES",
}
SIZES = {
    "Header.": at.HEADER_SIZE,
    "A lane's words.": at.LANE_SIZE,
    "A worker's words.": at.WORKER_SIZE,
    "A worker's trials": at.TRIALS_SIZE,
    "A model's words.": at.MODEL_SIZE,
    "The registry of clients' memory": at.REGISTRY_SIZE,
    "A record of the registry": at.REGION_SIZE,
    "A slot.": at.SLOT_SIZE,
}


def table(title: str) -> list[Field]:
    """The rows of the table that follows the paragraph beginning with `title`."""
    _, found, rest = SPECIFICATION.partition(f"\n\n{title}")
    assert found, title
    lines = rest[rest.index("offset  size") :].splitlines()[2:]
    rows = []
    for line in lines:
        if not line.strip():
            break
        offset, size, name, *writer = line.split()
        rows.append((name, int(offset), None if size == "-" else int(size), " ".join(writer)))
    return rows


def fields() -> list[Field]:
    return [row for title in TABLES for row in table(title)]


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
    manifest_bytes=st.integers(1, 3 * PAGE),
)


def spans(layout: Layout) -> dict[str, tuple[int, int]]:
    """Start and end of every region, the end computed from the last thing in it."""
    last_lane, last_worker = layout.lanes - 1, layout.workers - 1
    return {
        "header": (0, at.HEADER_SIZE),
        "manifest": (layout.manifest, layout.manifest_copy(1) + layout.manifest_bytes),
        "lanes": (layout.lanes_offset, layout.lane(last_lane) + at.LANE_SIZE),
        "workers": (layout.workers_offset, layout.worker(last_worker) + at.WORKER_SIZE),
        "trials": (layout.trials, layout.worker_trials(last_worker) + at.TRIALS_SIZE),
        "models": (layout.models_offset, layout.model(layout.models - 1) + at.MODEL_SIZE),
        "counters": (layout.counters, layout.model_counters(layout.models - 1) + at.COUNTER_BLOCK),
        "submissions": (
            layout.submissions,
            layout.submission_ring(last_lane) + ring_size(layout.slots),
        ),
        "completions": (
            layout.completions,
            layout.completion_ring(last_lane, layout.workers) + ring_size(layout.completion_words),
        ),
        "tasks": (layout.tasks, layout.task_ring(last_worker) + ring_size(at.TASK_WORDS)),
        "reports": (layout.reports, layout.report_ring(last_worker) + ring_size(at.REPORT_WORDS)),
        "registry": (
            layout.registry,
            layout.registry + at.REGISTRY_SIZE + at.MAX_REGIONS * at.REGION_SIZE,
        ),
        "slots": (
            layout.slots_offset,
            layout.slot(layout.lanes * layout.slots - 1) + at.SLOT_SIZE,
        ),
        "payload": (layout.payload, layout.lane_payload(last_lane) + layout.lane_bytes),
    }


@pytest.mark.parametrize(("name", "offset"), [(name, offset) for name, offset, _, _ in fields()])
def test_a_field_of_the_specification_is_a_constant(name: str, offset: int) -> None:
    assert getattr(at, name) == offset


def test_every_constant_is_a_field_of_the_specification_or_known_not_to_be_one() -> None:
    constants = {
        name for name, value in vars(at).items() if name.isupper() and isinstance(value, int)
    }
    assert constants == {name for name, *_ in fields()} | NO_FIELDS


def test_every_field_has_its_name_once() -> None:
    names = [name for name, *_ in fields()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("title", TABLES)
def test_fields_are_words_in_order_that_do_not_overlap(title: str) -> None:
    rows = table(title)
    assert rows
    for (_, offset, size, _), (_, following, _, _) in pairwise(rows):
        assert size == WORD
        assert offset + size <= following
    assert all(offset % WORD == 0 for _, offset, _, _ in rows)


@pytest.mark.parametrize(("title", "size"), SIZES.items())
def test_fields_lie_within_their_record(title: str, size: int) -> None:
    assert all(offset + (bytes_ or 0) <= size for _, offset, bytes_, _ in table(title))
    assert size % PAIR == 0


@pytest.mark.parametrize("title", TABLES)
def test_fields_with_different_writers_share_no_pair(title: str) -> None:
    writers: dict[int, str] = {}
    for _, offset, _, writer in table(title):
        assert writer
        assert writers.setdefault(offset // PAIR, writer) == writer


def test_the_regions_of_the_specification_are_those_of_the_layout() -> None:
    assert regions() == list(spans(Layout(1, 1, PAGE, 1, 1, 1)))


@given(layouts)
def test_regions_are_in_order_on_pages_of_their_own_and_do_not_overlap(layout: Layout) -> None:
    ordered = [spans(layout)[name] for name in regions()]
    for (start, end), (following, _) in pairwise(ordered):
        assert start < end <= following
    assert all(start % PAGE == 0 for start, _ in ordered)
    assert ordered[-1][1] == layout.size


def written(layout: Layout) -> Iterator[tuple[str, int, int]]:
    """Every stretch that one process writes while the engine runs: writer, start, size."""
    yield "supervisor", layout.manifest, 2 * layout.manifest_bytes
    for lane in range(layout.lanes):
        frontend = f"frontend {lane}"
        yield frontend, layout.lane(lane), at.LANE_SIZE
        yield frontend, layout.lane_counters(lane), at.COUNTER_BLOCK
        yield from ring(layout.submission_ring(lane), layout.slots, frontend, "collector")
        for worker in range(layout.workers):
            start = layout.completion_ring(lane, worker)
            yield from ring(start, layout.completion_words, f"worker {worker}", frontend)
        start = layout.completion_ring(lane, layout.workers)
        yield from ring(start, layout.completion_words, "collector", frontend)
        for number in range(layout.slots):
            slot = layout.slot(lane * layout.slots + number)
            yield frontend, slot + at.CONTROL, at.DONE - at.CONTROL
            yield f"holder of {slot}", slot + at.DONE, at.SLOT_SIZE - at.DONE
    for worker in range(layout.workers):
        name = f"worker {worker}"
        yield name, layout.worker(worker), at.WORKER_SIZE
        yield name, layout.worker_trials(worker), at.TRIALS_SIZE
        yield name, layout.worker_counters(worker), at.COUNTER_BLOCK
        yield from ring(layout.task_ring(worker), at.TASK_WORDS, "collector", name)
        yield from ring(layout.report_ring(worker), at.REPORT_WORDS, name, "collector")
    yield "registrar", layout.registry, at.REGISTRY_SIZE + at.MAX_REGIONS * at.REGION_SIZE
    yield "collector", layout.collector_counters(), at.COUNTER_BLOCK
    for model in range(layout.models):
        yield "collector", layout.model(model), at.MODEL_SIZE
        yield "collector", layout.model_counters(model), at.COUNTER_BLOCK


def ring(start: int, capacity: int, producer: str, consumer: str) -> Iterator[tuple[str, int, int]]:
    yield producer, start + at.RING_TAIL, WORD
    yield consumer, start + at.RING_HEAD, WORD
    yield producer, start + at.RING_WORDS, capacity * WORD


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


def test_the_numbers_of_version_5() -> None:
    """Who changes a number here has changed the layout, and gives it another version."""
    assert at.LAYOUT_VERSION == 5
    assert at.MAGIC_VALUE.to_bytes(8, "little") == b"RNGBTCH1"
    assert {name: offset for name, offset, _, _ in fields()} == {
        "MAGIC": 0,
        "VERSION": 8,
        "SEGMENT_BYTES": 16,
        "LANES": 24,
        "SLOTS": 32,
        "LANE_BYTES": 40,
        "WORKERS": 48,
        "MODELS": 56,
        "MANIFEST_BYTES": 64,
        "IDENTITY": 72,
        "CLIENT_LANES": 80,
        "MODEL_CONTROL": 88,
        "DRAINING": 128,
        "TABLE": 136,
        "COLLECTOR_ERRNO": 144,
        "RING_COLLECTOR": 256,
        "COLLECTOR_NS": 264,
        "LANE_TABLE": 0,
        "WORKER_STATE": 0,
        "WORKER_PID": 8,
        "WORKER_MODEL": 16,
        "WORKER_ERRNO": 128,
        "TRIAL_COUNT": 0,
        "TRIAL_RECORDS": 8,
        "MODEL_READY": 0,
        "MODEL_SERVED": 8,
        "MODEL_ANSWER_NS": 16,
        "MODEL_ROW_NS": 24,
        "MODEL_STUCK_NS": 32,
        "MODEL_UNSTEADY_NS": 40,
        "MODEL_DEATHS": 48,
        "RING_TAIL": 0,
        "RING_HEAD": 128,
        "RING_WORDS": 256,
        "REGISTRY_STAMP": 0,
        "REGION_STAMP": 0,
        "REGION_OFFSET": 8,
        "REGION_BYTES": 16,
        "REGION_DEVICE": 24,
        "REGION_INODE": 32,
        "REGION_NAME_BYTES": 40,
        "REGION_KEY_BYTES": 48,
        "REGION_TEXT": 56,
        "CONTROL": 0,
        "MODEL": 8,
        "ROWS": 16,
        "REQUEST_BYTES": 24,
        "KEY_BYTES": 32,
        "RESULT_CAPACITY": 40,
        "REQUEST_OFFSET": 48,
        "RESULT_OFFSET": 56,
        "ACCEPTED_NS": 64,
        "DEADLINE_NS": 72,
        "DONE": 128,
        "RESULT_BYTES": 136,
        "BATCH": 144,
        "BATCH_ROWS": 152,
        "REASON": 160,
        "DISPATCHED_NS": 168,
        "FINISHED_NS": 176,
    }
    layout = Layout(lanes=2, slots=8, lane_bytes=8192, workers=3, models=1, manifest_bytes=100)
    assert {name: start for name, (start, _) in spans(layout).items()} == {
        "header": 0,
        "manifest": 4096,
        "lanes": 8192,
        "workers": 12288,
        "trials": 16384,
        "models": 28672,
        "counters": 32768,
        "submissions": 36864,
        "completions": 40960,
        "tasks": 45056,
        "reports": 442368,
        "registry": 450560,
        "slots": 618496,
        "payload": 622592,
    }
    assert layout.size == 638976
    assert [layout.completion_ring(1, producer) for producer in range(4)] == [
        42496,
        42880,
        43264,
        43648,
    ]


@given(st.integers(0, 1 << 50), st.integers(0, 12).map(lambda power: 1 << power))
def test_aligned_is_the_least_multiple_not_below(size: int, alignment: int) -> None:
    result = aligned(size, alignment)
    assert result % alignment == 0
    assert size <= result < size + alignment


GOOD = {"lanes": 1, "slots": 4, "lane_bytes": PAGE, "workers": 1, "models": 1, "manifest_bytes": 1}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lanes": 0}, "lanes must be from 1 to 1024, not 0"),
        ({"lanes": at.MAX_LANES + 1}, "lanes must be from 1 to 1024, not 1025"),
        ({"slots": 0}, "slots must be from 1 to 16384, not 0"),
        ({"slots": 2 * at.MAX_SLOTS}, "slots must be from 1 to 16384, not 32768"),
        ({"slots": 3}, "slots must be a power of two, not 3"),
        ({"lane_bytes": PAGE + 1}, "lane_bytes must be a multiple of 4096, not 4097"),
        ({"lane_bytes": at.MAX_BYTES + PAGE}, "lane_bytes must be from 1 to"),
        ({"workers": 0}, "workers must be from 1 to 1024, not 0"),
        ({"models": -1}, "models must be from 1 to 1024, not -1"),
        ({"manifest_bytes": 0}, "manifest_bytes must be from 1 to"),
        ({"client_lanes": -1}, "client_lanes must be from 0 to 0, not -1"),
        ({"lanes": 3, "client_lanes": 3}, "client_lanes must be from 0 to 2, not 3"),
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
        ("lane_payload", 4),
    ],
)
def test_an_index_outside_its_count_is_refused(method: str, count: int) -> None:
    layout = Layout(lanes=4, slots=8, lane_bytes=PAGE, workers=3, models=2, manifest_bytes=1)
    place = getattr(layout, method)
    starts = [place(index) for index in range(count)]
    assert starts == sorted(set(starts))
    for index in (-1, count):
        with pytest.raises(IndexError):
            place(index)


@pytest.mark.parametrize(("lane", "producer"), [(4, 0), (0, 4), (-1, 0), (0, -1)])
def test_a_completion_ring_outside_lanes_and_producers_is_refused(lane: int, producer: int) -> None:
    layout = Layout(lanes=4, slots=8, lane_bytes=PAGE, workers=3, models=2, manifest_bytes=1)
    with pytest.raises(IndexError):
        layout.completion_ring(lane, producer)
