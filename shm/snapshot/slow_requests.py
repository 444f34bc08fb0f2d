"""Slowest requests of the last minute, under the names that people read."""

from typing import NamedTuple

from ringbatch.shm.batch_ids import BatchIds
from ringbatch.shm.descriptors import HeaderWords
from ringbatch.shm.latency_breakdown import TIMES
from ringbatch.shm.model_spec import SERVING, titled
from ringbatch.shm.segment import Segment
from ringbatch.shm.slow_requests import slowest


class SlowRequest(NamedTuple):
    """Slow request as commands and the page show it.

    Attributes:
        ended_ns: when it ended, on the monotonic clock.
        took_ns: all of it.
        phases: nanoseconds of each phase, in their order, and of `copy` beside them.
        cause: the main cause of its time.
        model: title of its model; empty if there was no such model.
        protocol: how it came.
        status: as it is counted.
        instances: in it.
        batch: the batch's id, as clients know it; empty if it was in none.
        batch_rows: instances in the batch.
        reason: why that was closed.
        attempts: how many times it was run.
        request_id: the client's, or the one that the frontend gave it.
        trace: the trace that it belongs to; empty if there is none.
    """

    ended_ns: int
    took_ns: int
    phases: dict[str, int]
    cause: str
    model: str
    protocol: str
    status: int
    instances: int
    batch: str
    batch_rows: int
    reason: str
    attempts: int
    request_id: str
    trace: str


def slow_requests(segment: Segment, now_ns: int) -> tuple[SlowRequest, ...]:
    """Return the slow requests, the slowest first.

    Args:
        segment: attached, with its models read.
        now_ns: the time.
    """
    titles: dict[int, str] = {}
    for title, spec in titled(segment.models).items():
        # What loads or retires has the account of what serves.
        if spec.state == SERVING or spec.account not in titles:
            titles[spec.account] = title
    batch_ids = BatchIds(segment.words[HeaderWords.IDENTITY])
    return tuple(
        SlowRequest(
            request.ended_ns,
            request.found.total,
            {name: ns for name, ns in zip(TIMES, request.found.times, strict=True) if ns},
            request.found.cause(request.instances),
            titles.get(request.account, ""),
            request.protocol.name.lower(),
            request.code,
            request.instances,
            batch_ids.text(request.found.batch) if request.found.batch_rows else "",
            request.found.batch_rows,
            request.found.reason,
            request.found.attempts,
            request.request_id,
            request.trace,
        )
        for request in slowest(segment, now_ns)
    )
