"""When a batch closes: a pure function of what is pending and of the time.

Requests that may share a batch wait in one queue, oldest first. Asked about a queue, `decide`
says either "close, because" or "wait until this instant", so that nobody has to poll: asked again
at that instant, with nothing else changed, it closes.

    policy    a batch closes as soon as a worker is idle and ...
    --------  --------------------------------------------------------------------------
    fixed     it holds `max_batch_size` instances, or its oldest request has waited
              `max_latency_ns`: the rule of KServe's batcher
    eager     at once: while all workers are busy it grows, up to `max_batch_size`

Membership is decided when a worker can take the batch and not before, so that no small batch is
frozen behind a busy worker. The latency bound: with a worker idle, a request waits at most
`max_latency_ns` under ``fixed`` and not at all under ``eager``, counted from its acceptance. What
a batch leaves behind because its size would not pay has waited its time, and is the first of the
next.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from ringbatch.engine.shaping import worthwhile_rows
from ringbatch.shm.slot import Reason


@dataclass(frozen=True, slots=True)
class Policy:
    """How one model's batches are formed.

    Attributes:
        max_batch_size: the most instances a batch may hold; a cap, not only a trigger.
        max_latency_ns: the longest wait of the oldest request under ``fixed``.
        eager: close as soon as a worker is idle.
        sizes: the numbers of rows that a batch is padded to, ascending; none where every number is
            right.
        costs_ns: how long a batch of each of these sizes runs; none where that is not known.
    """

    max_batch_size: int
    max_latency_ns: int
    eager: bool
    sizes: tuple[int, ...] = ()
    costs_ns: tuple[int, ...] = ()


class Pending(NamedTuple):
    """What waits in one queue.

    Attributes:
        requests: how many.
        rows: instances in all of them.
        oldest_ns: when the oldest was accepted.
        deadline_ns: the earliest deadline among them.
        others: whether requests of the same model wait that may not join, their shapes being
            different.
        full: whether a batch is full before it has `max_batch_size` rows.
    """

    requests: int
    rows: int
    oldest_ns: int
    deadline_ns: int
    others: bool = False
    full: bool = False


class Wait(NamedTuple):
    """Nothing to do before `until_ns`, unless a request or a worker comes first; None is ever."""

    until_ns: int | None


def decide(
    pending: Pending,
    now_ns: int,
    policy: Policy,
    idle_workers: int,
    service_ns: int = 0,
    draining: bool = False,
) -> Reason | Wait:
    """Why to close a batch of `pending` now, or how long to wait.

    Args:
        pending: a queue that is not empty.
        now_ns: the time, on the clock of the other instants.
        policy: the model's.
        idle_workers: workers that could run a batch at once.
        service_ns: how long a batch is expected to run; a batch that waits longer than its
            earliest deadline minus this would be late.
        draining: whether no company will come any more.
    """
    if not idle_workers:
        return Wait(None)
    if pending.full or pending.rows >= policy.max_batch_size:
        return Reason.FULL
    if draining:
        return Reason.DRAIN
    if policy.eager:
        return Reason.SHAPE if pending.others else Reason.IDLE
    due_ns = pending.oldest_ns + policy.max_latency_ns
    if now_ns >= due_ns:
        return Reason.LATENCY
    urgent_ns = pending.deadline_ns - service_ns
    if now_ns >= urgent_ns:
        return Reason.DEADLINE
    return Wait(min(due_ns, urgent_ns))


def taking(rows: int, policy: Policy) -> int:
    """The most rows that a batch closed now takes of those that wait.

    Args:
        rows: that wait.
        policy: the model's.
    """
    if rows >= policy.max_batch_size:
        return policy.max_batch_size
    return worthwhile_rows(rows, policy.sizes, policy.costs_ns)


def fitting(rows: Iterable[int], max_batch_size: int) -> int:
    """How many of the oldest requests a batch may take; at least the first.

    Args:
        rows: instances of each request, oldest first.
        max_batch_size: the cap. A request over it never gets here: it is split before.
    """
    count = 0
    for total in accumulate(rows):
        if total > max_batch_size and count:
            break
        count += 1
    return count
