"""Batch closing: a pure function of pending requests, workers and time.

Requests that may share a batch wait in one queue, oldest first; those whose batch was lost with
its worker wait in groups of their own, to be run once more. Asked about either, `decide` says
"close, because" or "wait until this instant", so that nobody has to poll: asked again at that
instant, with nothing else changed, it closes. Nothing else closes a batch.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final, NamedTuple

from ringbatch.engine.ipc.shaping import worthwhile_rows
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.slot import Reason


@dataclass(frozen=True, slots=True)
class Policy:
    """Batching policy of one model.

    Attributes:
        max_batch_size: the most instances a batch may hold; a cap, not only a trigger.
        max_latency_ns: the longest wait of the oldest request for more to share its batch, while a
            worker is idle, under ``fixed``; ``eager`` does not use it.
        eager: close as soon as a worker is idle.
        sizes: the numbers of rows that a batch is padded to, ascending; none if every number is
            right.
        costs_ns: how long a batch of each of these sizes runs; none if that is unknown.
    """

    max_batch_size: int
    max_latency_ns: int
    eager: bool
    sizes: tuple[int, ...] = ()
    costs_ns: tuple[int, ...] = ()


class Pending(NamedTuple):
    """Requests that wait in one queue, or to be run once more.

    Attributes:
        requests: number of requests.
        rows: instances in all of them.
        oldest_ns: when the oldest was accepted.
        deadline_ns: the earliest deadline among them; read only while a worker is idle.
        others: True if requests of the same model wait that may not join, as their shapes are
            different.
        full: True if a batch is full before it has `max_batch_size` rows; read only while a worker
            is idle.
        retry: True if these were in a batch before, whose worker died.
    """

    requests: int
    rows: int
    oldest_ns: int
    deadline_ns: int
    others: bool = False
    full: bool = False
    retry: bool = False


class Wait(NamedTuple):
    """Nothing to do before `until_ns`, unless a request or a worker comes first; None is ever."""

    until_ns: int | None


_FOR_A_WORKER: Final = Wait(None)


def decide(
    pending: Pending,
    now_ns: int,
    policy: Policy,
    idle_workers: int,
    takes_next: bool = False,
    next_ns: int | None = None,
    service_ns: int = 0,
    usual_ns: int = 0,
    draining: bool = False,
    linger_until_ns: int = 0,
) -> Reason | Wait:
    """Return the reason to close a batch of `pending` now, or the time to wait.

    How long a request waits at most, from its acceptance until its batch closes:

        policy   a worker idle                          all workers busy
        -------  -------------------------------------  --------------------------------------
        fixed    `max_latency_ns`, the rule of KServe's until a worker is idle and no request
                 batcher; less where the batch is full  is left that goes before it, if that
                 before, a deadline is near, or the     is after `max_latency_ns`
                 engine drains
        eager    not at all; where clients are about    until a worker is idle and no request
                 to come back until `linger_until_ns`   is left that goes before it
        (retry)  not at all, under either policy        until a worker is idle and no group is
                                                        left that was to run again before it

    Where n batches go before it and w workers are busy, that is after n // w + 1 runs at most; and
    never after the request's deadline, when it is answered without having run. While all workers
    are busy a batch stays open and grows up to `max_batch_size`, so that no small one is frozen
    behind a busy worker; a full one cannot grow, and `takes_next` closes it at once. What a batch
    leaves behind because its size would not pay has waited its time, and is the first of the next.

    A worker on a device counts as idle from `next_ns` on, shortly before its batch is expected to
    end, because the next one's rows are copied meanwhile. So a batch waits for such a worker until
    that instant at most, and then for the rest of the run before it: as long as the copies take if
    the run ends when it should, and until its end if it takes longer. What runs again is never
    given to a worker that is busy.

    Args:
        pending: what waits; not nothing.
        now_ns: the time, on the clock of the other instants.
        policy: the model's.
        idle_workers: workers that could run a batch at once.
        takes_next: whether, with none idle, a busy one takes a full batch to run after its own.
        next_ns: with none idle, the instant from which a busy one takes any batch to run after its
            own; None if none does.
        service_ns: the time that a batch leaves for its run, see `latest_start_ns`.
        usual_ns: how long a batch runs on average.
        draining: whether no further request will come.
        linger_until_ns: under ``eager``, the instant until which it pays to wait for clients that
            were just answered, see `ringbatch.engine.collector.lingering`; past where it does not.
    """
    if not idle_workers:
        if pending.retry:
            return _FOR_A_WORKER
        if takes_next and pending.rows >= policy.max_batch_size:
            return Reason.FULL
        if next_ns is None:
            return _FOR_A_WORKER
        if now_ns < next_ns:
            return Wait(next_ns)
    if pending.retry:
        return Reason.RETRY
    if pending.full or pending.rows >= policy.max_batch_size:
        return Reason.FULL
    if draining:
        return Reason.DRAIN
    urgent_ns = latest_start_ns(pending.oldest_ns, pending.deadline_ns, service_ns, usual_ns)
    if policy.eager:
        if pending.others:
            return Reason.SHAPE
        until_ns = min(linger_until_ns, urgent_ns)
        return Wait(until_ns) if now_ns < until_ns else Reason.IDLE
    due_ns = pending.oldest_ns + policy.max_latency_ns
    if now_ns >= due_ns:
        return Reason.LATENCY
    if now_ns >= urgent_ns:
        return Reason.DEADLINE
    return Wait(min(due_ns, urgent_ns))


def latest_start_ns(oldest_ns: int, deadline_ns: int, service_ns: int, usual_ns: int) -> int:
    """Return the instant after which a batch would probably miss its earliest deadline.

    If even a start at once leaves less than `service_ns`, it would still be too late for the
    longest runs, and cost every batch its company. Then the average counts.

    Args:
        oldest_ns: when the oldest request was accepted.
        deadline_ns: the earliest deadline.
        service_ns: the time for a run; 0 if none is known. Half of the time is then for the run,
            because a batch that never starts teaches nothing.
        usual_ns: how long a batch runs on average.
    """
    most_ns = max(deadline_ns - oldest_ns, 0)
    if not service_ns:
        return deadline_ns - most_ns // 2
    return deadline_ns - (service_ns if service_ns <= most_ns else min(usual_ns, service_ns))


def taking(rows: int, policy: Policy) -> int:
    """Return the most waiting rows that a batch closed now takes.

    Args:
        rows: that wait.
        policy: the model's.
    """
    if rows >= policy.max_batch_size:
        return policy.max_batch_size
    return worthwhile_rows(rows, policy.sizes, policy.costs_ns)


def fitting(rows: Iterable[int], max_batch_size: int) -> int:
    """Return how many of the oldest requests a batch may take; at least the first.

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


def bounded(policy: Policy, spec: ModelSpec) -> Policy:
    """Return a policy with the bounds of an entry of the table."""
    return replace(
        policy,
        max_batch_size=spec.cap,
        max_latency_ns=spec.max_latency_ns,
        eager=spec.policy == "eager",
        sizes=spec.allowed_batch_sizes or policy.sizes,
    )
