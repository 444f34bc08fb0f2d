"""What happened between two samples of one engine: differences, rates, percentiles. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Final

from ringbatch.shm.snapshot.sample import ModelSample, Sample, WorkerSample
from ringbatch.shm.time_buckets import BOUNDS_S

_NS: Final = 1e-9


def passed_s(before: Sample | None, now: Sample) -> float:
    """The time between them; 0 where there is no earlier one."""
    return 0.0 if before is None else (now.at_ns - before.at_ns) * _NS


def same_model(before: Sample | None, model: ModelSample) -> ModelSample | None:
    """What an earlier sample says of a model, if anything."""
    if before is None:
        return None
    return next((earlier for earlier in before.models if earlier.title == model.title), None)


def same_worker(before: Sample | None, worker: WorkerSample) -> WorkerSample | None:
    """What an earlier sample says of a worker, if anything."""
    if before is None:
        return None
    found = (w for w in before.workers if (w.number, w.model) == (worker.number, worker.model))
    return next(found, None)


def rate(now: int, before: int | None, seconds: float) -> float | None:
    """What was counted a second; None where it is not known."""
    return None if before is None or not seconds else max(now - before, 0) / seconds


def since(now: Sequence[int], before: Sequence[int] | None) -> list[int]:
    """What was counted since; all, where nothing is known of before."""
    if not before:
        return list(now)
    return [max(count - was, 0) for count, was in zip(now, before, strict=True)]


def grown(now: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    """Of counts by name, those that have grown, by how much."""
    found = {name: count - before.get(name, 0) for name, count in now.items()}
    return {name: count for name, count in found.items() if count > 0}


def total(counts: Mapping[str, int]) -> int:
    """Of all names."""
    return sum(counts.values())


def bucket_of(times: Sequence[int], share: float) -> int | None:
    """The bucket of `ringbatch.shm.tallies` that so many of the requests do not exceed.

    Args:
        times: how many there were in each.
        share: of them.

    Returns:
        Its number; None where there were none.
    """
    count = sum(times)
    if not count:
        return None
    return next(number for number, found in enumerate(accumulate(times)) if found >= share * count)


def busy(before: WorkerSample | None, now: WorkerSample, seconds: float) -> float | None:
    """The share of the time that a worker was inside the model; None where it is not known."""
    if before is None or not seconds:
        return None
    return min(max(now.run_ns - before.run_ns, 0) * _NS / seconds, 1.0)


def mean_batch(before: Sample | None, workers: Iterable[WorkerSample]) -> float | None:
    """Instances in a batch; None where none was run."""
    batches = rows = 0
    for worker in workers:
        earlier = same_worker(before, worker)
        batches += worker.batches - (earlier.batches if earlier else 0)
        rows += worker.rows - (earlier.rows if earlier else 0)
    return rows / batches if batches > 0 else None


def bound_s(bucket: int) -> float | None:
    """The time below which a bucket's are; None for the last one."""
    return BOUNDS_S[bucket] if bucket < len(BOUNDS_S) else None
