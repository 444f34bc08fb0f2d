"""Shares of the priority classes in the run time of a batch. Pure."""

from collections.abc import Sequence

from ringbatch.shm.account import PriorityClass, class_of
from ringbatch.shm.engine_slots import Request


def class_shares(
    requests: Sequence[Request], costs: Sequence[float] | None, run_ns: int
) -> list[tuple[int, int]]:
    """Divide the run time of a batch among the classes of its requests; the sum is exact.

    Args:
        requests: of the batch.
        costs: of each request; None if that is the number of its rows.
        run_ns: the time.
    """
    parts = dict.fromkeys(PriorityClass, 0.0)
    for request, cost in zip(requests, costs or [each.rows for each in requests], strict=True):
        parts[class_of(request.account)] += cost
    whole, left_ns, shares = sum(parts.values()), run_ns, []
    for priority, part in parts.items():
        share_ns = min(round(run_ns * part / whole), left_ns)
        shares.append((int(priority), share_ns))
        left_ns -= share_ns
    last, share_ns = shares[-1]
    shares[-1] = last, share_ns + left_ns
    return shares
