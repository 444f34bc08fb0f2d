"""Refusal of requests that the collector takes no further than out of their lane."""

from typing import NamedTuple

from ringbatch.engine.collector.models import Model
from ringbatch.engine.collector.quarantine import Quarantine
from ringbatch.shm.engine_slots import Request
from ringbatch.shm.lateness import lateness_ns, overload_text, too_long_a_queue, too_long_a_wait
from ringbatch.shm.slot import Status


class Refusal(NamedTuple):
    """Answer to a request that is not taken in: its status, and a text for the client."""

    status: Status
    text: str


def may_be_late(model: Model, rows: int, earliest_ns: int, now_ns: int) -> bool:
    """Return whether one of several new requests may be late behind all that waits.

    Callers leave out requests of the account of all that waits, because a frontend has looked.

    Args:
        model: for which they are.
        rows: instances of all of them but the last.
        earliest_ns: the earliest of their deadlines.
        now_ns: the time.
    """
    waiting = model.queues.rows
    if not waiting:
        return False
    left_ns = earliest_ns - now_ns
    most_ns = min(left_ns, model.backlog.most_ns or left_ns)
    return lateness_ns(model.expected(waiting + rows).answer_ns, most_ns) > 0


def late(model: Model, request: Request, now_ns: int) -> Refusal | None:
    """Return the refusal of a request that its account's turn makes too late; None if it is not.

    A request whose deadline has come is not refused: it expires.
    """
    left_ns = request.deadline_ns - now_ns
    if left_ns <= 0 or not may_be_late(model, 0, request.deadline_ns, now_ns):
        return None
    answer_ns = model.expected(model.queues.rows_before(request)).answer_ns
    most_ns = model.backlog.most_ns
    if most_ns and most_ns < left_ns and lateness_ns(answer_ns, most_ns) > 0:
        bound = too_long_a_queue(answer_ns, most_ns, model.spec.max_queue_wait_ns)
        return Refusal(Status.OVERLOADED, overload_text(bound))
    if lateness_ns(answer_ns, left_ns) <= 0:
        return None
    limit_ns = request.deadline_ns - request.accepted_ns
    error = too_long_a_wait(answer_ns, left_ns, limit_ns, model.spec.timeout_ns)
    return Refusal(Status.OVERLOADED, overload_text(error))


def refusal(model: Model, request: Request, quarantine: Quarantine, now_ns: int) -> Refusal | None:
    """Return the refusal of a request, or None.

    Args:
        model: for which it is.
        request: the request.
        quarantine: knows the requests that workers died of.
        now_ns: the time.
    """
    if request.rows > model.most_rows:
        return Refusal(Status.INVALID, f"a request may hold {model.most_rows} instances")
    if quarantine.count and quarantine.knows(request, now_ns):
        text = "the worker processes that ran the same request a moment ago died"
        return Refusal(Status.WORKER_DIED, text)
    return None if request.account == model.queues.word else late(model, request, now_ns)
