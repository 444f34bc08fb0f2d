"""Differences between two samples of one engine: deltas, rates, percentiles. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Final

from ringbatch.shm.snapshot.sample import (
    NO_REQUESTS,
    ClassSample,
    ModelSample,
    Sample,
    WorkerSample,
)
from ringbatch.shm.time_buckets import BOUNDS_S

_NS: Final = 1e-9


def interval_s(before: Sample | None, now: Sample) -> float:
    """Return the time between two samples; 0 if there is no earlier one."""
    return 0.0 if before is None else (now.at_ns - before.at_ns) * _NS


def same_model(before: Sample | None, model: ModelSample) -> ModelSample | None:
    """Return an earlier sample of a model, if there is one."""
    if before is None:
        return None
    return next((earlier for earlier in before.models if earlier.title == model.title), None)


def same_worker(before: Sample | None, worker: WorkerSample) -> WorkerSample | None:
    """Return an earlier sample of a worker, if there is one."""
    if before is None:
        return None
    found = (w for w in before.workers if (w.number, w.model) == (worker.number, worker.model))
    return next(found, None)


def rate(now: int, before: int | None, seconds: float) -> float | None:
    """Return the counts a second; None if that is not known."""
    return None if before is None or not seconds else max(now - before, 0) / seconds


def bucket_deltas(now: Sequence[int], before: Sequence[int] | None) -> list[int]:
    """Return the growth of counters since an earlier sample; all of them without one."""
    if not before:
        return list(now)
    return [max(count - was, 0) for count, was in zip(now, before, strict=True)]


def counter_deltas(now: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    """Return the counts that have grown, with their growth, by name."""
    found = {name: count - before.get(name, 0) for name, count in now.items()}
    return {name: count for name, count in found.items() if count > 0}


def class_deltas(
    now: Mapping[str, ClassSample], before: Mapping[str, ClassSample]
) -> dict[str, ClassSample]:
    """Return the growth of the counts of each class since an earlier sample."""
    found = {}
    for name, own in now.items():
        was = before.get(name, NO_REQUESTS)
        found[name] = ClassSample(
            max(own.parts - was.parts, 0),
            max(own.wait_ns - was.wait_ns, 0),
            max(own.run_ns - was.run_ns, 0),
            max(own.refused - was.refused, 0),
        )
    return found


def total(counts: Mapping[str, int]) -> int:
    """Return the sum of the counts of all names."""
    return sum(counts.values())


def bucket_of(times: Sequence[int], share: float) -> int | None:
    """Return the bucket of times that a share of the requests does not exceed.

    Args:
        times: how many there were in each.
        share: part of the requests, 0 to 1.

    Returns:
        Its number; None if there were none.
    """
    count = sum(times)
    if not count:
        return None
    return next(number for number, found in enumerate(accumulate(times)) if found >= share * count)


def busy(before: WorkerSample | None, now: WorkerSample, seconds: float) -> float | None:
    """Return the share of the time that a worker was inside the model; None if it is not known."""
    if before is None or not seconds:
        return None
    return min(max(now.run_ns - before.run_ns, 0) * _NS / seconds, 1.0)


def mean_batch(before: Sample | None, workers: Iterable[WorkerSample]) -> float | None:
    """Return the mean number of instances in a batch; None if none was run."""
    batches = rows = 0
    for worker in workers:
        earlier = same_worker(before, worker)
        batches += worker.batches - (earlier.batches if earlier else 0)
        rows += worker.rows - (earlier.rows if earlier else 0)
    return rows / batches if batches > 0 else None


def bucket_upper_s(bucket: int) -> float | None:
    """Return a bucket's upper bound in seconds; None for the last one."""
    return BOUNDS_S[bucket] if bucket < len(BOUNDS_S) else None
