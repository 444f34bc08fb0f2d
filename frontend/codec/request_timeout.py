"""Timeout of a client in its header X-Request-Timeout, or in another of that form.

A number of seconds above 0, such as ``2`` or ``0.25``, in any form in which programs print the rest
of their own time: ``0.30000000000000004``, ``5e-05``. It can only shorten the model's own
`timeout_s`.
"""

import re
from numbers import Real
from typing import Any, Final

from ringbatch.frontend.codec.json_to_tensor import shown
from ringbatch.shm.errors import DeadlineExceeded, InvalidRequest, type_in_words

HEADER: Final = "x-request-timeout"
_SECONDS: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_LONGEST_S: Final = 1e9
"""More than any model's; what is longer, infinity included, is as good."""


def timeout_ns_of(header: str | None, name: str = "X-Request-Timeout") -> int:
    """Return the time in nanoseconds; 0 without a header.

    Args:
        header: the value.
        name: of the header.

    Raises:
        InvalidRequest: it is no such number.
    """
    if header is None:
        return 0
    timeout_s = float(header) if _SECONDS.fullmatch(header) else 0.0
    if not timeout_s:
        raise InvalidRequest(f"{name} is {shown(header)}, not a number of seconds above 0")
    return max(1, round(min(timeout_s, _LONGEST_S) * 1e9))


def limit_ns(name: str, limit_s: Any) -> int:
    """Return a program's time limit in nanoseconds; 0 without one.

    Args:
        name: of the argument.
        limit_s: the limit in seconds, a number; None for none.

    Raises:
        TypeError: it is no number.
        ValueError: it is not above 0.
    """
    if limit_s is None:
        return 0
    if isinstance(limit_s, bool) or not isinstance(limit_s, Real):
        found = type_in_words(limit_s)
        raise TypeError(f"{name} is {found}, not a number of seconds above 0")
    found_s = float(limit_s)
    if not found_s > 0:
        raise ValueError(f"{name} must be above 0, not {limit_s}")
    return max(int(min(found_s, _LONGEST_S) * 1e9), 1)


def shortest_ns(limit_ns: int, first_ns: int, second_ns: int = 0) -> int:
    """Return the shortest of a model's limit and a request's, where 0 is none.

    Raises:
        DeadlineExceeded: a request's is below 0.
    """
    for asked_ns in (first_ns, second_ns):
        if asked_ns < 0:
            raise DeadlineExceeded
        if 0 < asked_ns < limit_ns:
            limit_ns = asked_ns
    return limit_ns
