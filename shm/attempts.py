"""Word ATTEMPTS of a slot: runs of a batch, and the time of its copies to and from a device. Pure.

The lower bits count runs. The upper bits have the time in nanoseconds, up to 18 minutes. They are 0
if no device copied the batch, so a worker without a device stores its number of runs alone.
"""

from typing import Final

RUN_BITS: Final = 24
RUN_MASK: Final = (1 << RUN_BITS) - 1
MOST_COPY_NS: Final = (1 << (64 - RUN_BITS)) - 1


def with_copy(word: int, copy_ns: int) -> int:
    """Return the word after one more run's copies; their time stays at `MOST_COPY_NS`.

    Args:
        word: as it was.
        copy_ns: how long they took; below 0 counts as 0.
    """
    whole_ns = min(copy_ns_in(word) + max(copy_ns, 0), MOST_COPY_NS)
    return whole_ns << RUN_BITS | word & RUN_MASK


def runs_in(word: int) -> int:
    """Return how many times the batch was run."""
    return word & RUN_MASK


def copy_ns_in(word: int) -> int:
    """Return how long copies to and from a device took, in all of these runs."""
    return word >> RUN_BITS
