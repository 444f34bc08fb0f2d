"""Times of a device's copies in a life: those of a batch are in its answers, and in no others."""

from simulation.asked import Asked

from ringbatch.shm.attempts import copy_ns_in, runs_in
from ringbatch.shm.slot import Answer


def check_copy(asked: Asked, stamps: Answer | None) -> None:
    """Assert that an answer has the copies of its batch's run, or of all of its runs."""
    assert stamps is not None, f"request {asked.number} is answered out of no slot"
    copy_ns = copy_ns_in(stamps.attempts)
    if asked.copies_ns and runs_in(stamps.attempts) > 1:
        is_own = copy_ns >= min(asked.copies_ns)
    else:
        is_own = copy_ns in (asked.copies_ns or {0})
    assert is_own, f"request {asked.number} has copies of {copy_ns} ns, not {asked.copies_ns}"
