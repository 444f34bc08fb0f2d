"""Refusal of requests whose answers would come too late. Pure.

A frontend refuses requests that would be late in any turn. The collector refuses requests that the
turn of their account makes too late. Both use the same rule and the same words.
"""

from typing import Final

from ringbatch.shm.errors import Overloaded

_MARGIN: Final = 8
"""Divisor of the expected time: answers may take longer by one part in so many."""


def lateness_ns(answer_ns: int, left_ns: int) -> int:
    """Return by how much an answer may be late; not above 0 if it will be in time.

    Args:
        answer_ns: how long it is expected to take.
        left_ns: until the deadline.
    """
    return answer_ns + answer_ns // _MARGIN - left_ns


def too_long_a_wait(answer_ns: int, left_ns: int, limit_ns: int, timeout_ns: int) -> Overloaded:
    """Return the error for a request whose answer would come after its deadline.

    Args:
        answer_ns: how long it would take.
        left_ns: until the deadline.
        limit_ns: from the request's acceptance to its deadline.
        timeout_ns: the model's own limit.
    """
    left = f"the {left_ns / 1e9:.3g} s that are left of " if left_ns < limit_ns else ""
    return Overloaded(
        f"so many requests wait that an answer would take {round(answer_ns / 1e9, 3)} s, "
        f"too long for {left}{limit_words(limit_ns, timeout_ns)}",
        retry_after_s=-(-lateness_ns(answer_ns, left_ns) // 1_000_000_000),
    )


def least_bound_ns(cycle_ns: int) -> int:
    """Return the least bound that lets a full batch wait while another runs.

    The last request of those that wait is expected to take nearly a third batch, because a frontend
    counts those that the collector has not taken yet one by one.

    Args:
        cycle_ns: time of a batch.
    """
    answer_ns = 3 * cycle_ns
    return answer_ns + answer_ns // _MARGIN


def too_long_a_queue(answer_ns: int, most_ns: int, setting_ns: int) -> Overloaded:
    """Return the error for a request whose answer would take longer than its model's queue may.

    Args:
        answer_ns: how long it would take.
        most_ns: how long it may.
        setting_ns: the model's setting. It is less than `most_ns` if that is `least_bound_ns`.
    """
    return Overloaded(
        f"so many requests wait that an answer would take {round(answer_ns / 1e9, 3)} s, "
        f"too long for max_queue_wait_s = {setting_ns / 1e9:g}",
        retry_after_s=-(-lateness_ns(answer_ns, most_ns) // 1_000_000_000),
    )


def limit_words(waited_ns: int, timeout_ns: int) -> str:
    """Return the words for how long a request waits at most: its model's setting, or its own."""
    waited = f"{waited_ns / 1e9:g}"
    return f"timeout_s = {waited}" if waited_ns >= timeout_ns else f"the {waited} s it asked for"


def overload_text(error: Overloaded) -> str:
    """Return an error as the text for the result memory."""
    return f"{error.retry_after_s} {error}"


def read_overload(text: str) -> Overloaded:
    """Return the error of a text, perhaps a shortened one; of any other, one that says it."""
    seconds, _, words = text.partition(" ")
    return Overloaded(words, int(seconds)) if seconds.isdecimal() else Overloaded(text)
