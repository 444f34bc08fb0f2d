"""What a client is told of where the time of its request went: the header ``Server-Timing``; pure.

The form is W3C's Server Timing, section 3.
"""

from typing import Final

from ringbatch.shm.breakdown import PHASES, Breakdown

MILLISECONDS: Final = tuple(b"%.3f" % (us / 1000) for us in range(10_000))
"""As they are written, by microseconds: to look them up takes a third of writing them."""


def header(found: Breakdown, batch_id: str) -> str:
    """The value of ``Server-Timing``, in milliseconds: what is known when the head is written.

    Args:
        found: of the request.
        batch_id: what its client calls the batch; empty where it was in none.
    """
    phases = zip(PHASES, found.phases, strict=True)
    entries = [f"{name};dur={ns / 1e6:.3f}, " for name, ns in phases if ns]
    return f"{''.join(entries)}{about_batch(found, batch_id)}total;dur={found.total / 1e6:.3f}"


def in_worker(found: Breakdown) -> str:
    """Of that value, what all of a batch have in common that stands before `write`."""
    phases = (("gather", found.gather), ("run", found.run), ("scatter", found.scatter))
    return "".join([f"{name};dur={ns / 1e6:.3f}, " for name, ns in phases if ns])


def about_batch(found: Breakdown, batch_id: str) -> str:
    """Of that value, what is said of the batch; arguments as of `header`."""
    if not batch_id:
        return ""
    times = f", {found.attempts} attempts" if found.attempts > 1 else ""
    about = f"{found.batch_rows} instances, closed for {found.reason}{times}"
    return f'batch;desc="{batch_id}, {about}", '
