"""Times of a model's batches: what warm-up says, what batches say, and which times there are."""

from dataclasses import replace

import pytest
from segment_fixture import spec

from ringbatch.engine.collector.batch_time_average import FAR
from ringbatch.engine.collector.batch_times import BatchTimes

WARM_UP = 8_000
LONG = WARM_UP * FAR + 1
BOTH = replace(spec(workers=(0, 1)), remote=(1,))
"""A model with a local worker and a remote one."""


def test_nothing_is_known_at_first() -> None:
    times = BatchTimes()
    assert (times.cycle_ns, times.service_ns, times.by_place, times.by_size) == (0, 0, None, None)


def test_warm_up_counts_until_a_batch_is_measured() -> None:
    times = BatchTimes()
    times.learn(WARM_UP, lead_ns=0)
    assert (times.cycle_ns, times.service_ns) == (WARM_UP, WARM_UP)
    times.ran(WARM_UP // 2, 0, WARM_UP // 2, 1, False)
    assert WARM_UP // 2 < times.cycle_ns < WARM_UP


def test_warm_up_of_a_further_worker_changes_nothing() -> None:
    times = BatchTimes()
    times.ran(WARM_UP, 0, WARM_UP, 1, False)
    times.learn(9 * WARM_UP, lead_ns=0)
    assert (times.cycle_ns, times.service_ns) == (WARM_UP, WARM_UP)


def test_one_stalled_batch_counts_as_the_longest_that_does_not_depart() -> None:
    times, usual = BatchTimes(), BatchTimes()
    for one, took_ns in ((times, 100 * LONG), (usual, FAR * WARM_UP)):
        one.ran(WARM_UP, 0, WARM_UP, 1, False)
        one.ran(WARM_UP, WARM_UP, 2 * WARM_UP, 1, False)
        one.ran(took_ns, 2 * WARM_UP, 2 * WARM_UP + took_ns, 1, False)
    assert times.cycle_ns == usual.cycle_ns > WARM_UP


@pytest.mark.parametrize(("lead_ns", "by_size"), [(0, False), (1, True)])
def test_a_worker_that_wants_its_batches_early_has_times_by_size(
    lead_ns: int, by_size: bool
) -> None:
    times = BatchTimes()
    times.learn(0, lead_ns)
    assert (times.by_size is not None) == by_size


def test_a_further_early_worker_keeps_the_times_by_size() -> None:
    times = BatchTimes()
    times.learn(0, lead_ns=1)
    known = times.by_size
    times.learn(0, lead_ns=1)
    assert times.by_size is known


@pytest.mark.parametrize(
    ("remote", "by_place"),
    [((), False), ((1,), True), ((0, 1), False)],
    ids=["all local", "both", "all remote"],
)
def test_only_a_model_with_both_kinds_of_workers_has_times_by_place(
    remote: tuple[int, ...], by_place: bool
) -> None:
    times = BatchTimes()
    times.adjust(replace(spec(workers=(0, 1)), remote=remote))
    assert (times.by_place is not None) == by_place


def test_a_change_of_the_entry_keeps_times_by_place_while_there_are_both() -> None:
    times = BatchTimes()
    times.adjust(BOTH)
    known = times.by_place
    times.adjust(replace(BOTH, workers=(0, 1, 2)))
    assert times.by_place is known
    times.adjust(replace(BOTH, remote=()))
    assert times.by_place is None


def test_a_batch_counts_for_the_place_where_it_ran() -> None:
    times = BatchTimes()
    times.adjust(BOTH)
    times.ran(WARM_UP, 0, WARM_UP, 2, True)
    assert times.by_place is not None
    assert (times.by_place.local_ns, times.by_place.remote_ns) == (0, WARM_UP)
