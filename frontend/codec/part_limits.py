"""Time limits of answers in parts: to the first part, and between two parts. Pure.

A model has both as settings. A request may ask for shorter ones by two headers, which over gRPC
are metadata of the call. They have the form of X-Request-Timeout. In V2 and over gRPC, a request
may also have them as parameters, by the names of the settings.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from ringbatch.frontend.codec.json_to_tensor import shown
from ringbatch.frontend.codec.request_timeout import limit_ns, timeout_ns_of
from ringbatch.shm.errors import DeadlineExceeded, InvalidRequest, Overloaded
from ringbatch.shm.lateness import lateness_ns
from ringbatch.shm.model_spec import ModelSpec

FIRST_HEADER: Final = "x-first-part-timeout"
GAP_HEADER: Final = "x-part-gap-timeout"
FIRST_PARAMETER: Final = "first_part_timeout_s"
GAP_PARAMETER: Final = "part_gap_timeout_s"


class PartLimits(NamedTuple):
    """Limits of one answer; 0 is none.

    Attributes:
        first_ns: from the request's acceptance to its first part.
        gap_ns: from each part to the next, or to the end of the answer.
    """

    first_ns: int = 0
    gap_ns: int = 0


NO_LIMITS: Final = PartLimits()


def limits_in(value_of: Callable[[str], str | None]) -> PartLimits:
    """Return the limits that a request asks for.

    Args:
        value_of: returns the value of a header by its name in lower case; None if it is not there.

    Raises:
        InvalidRequest: a value is no number of seconds above 0.
    """
    return PartLimits(
        timeout_ns_of(value_of(FIRST_HEADER), "X-First-Part-Timeout"),
        timeout_ns_of(value_of(GAP_HEADER), "X-Part-Gap-Timeout"),
    )


def limits_given(parameters: Mapping[str, Any]) -> PartLimits:
    """Return the limits among the parameters of a request: numbers, or texts as of a header.

    Raises:
        InvalidRequest: a value is no number of seconds above 0.
    """
    return PartLimits(_given_ns(parameters, FIRST_PARAMETER), _given_ns(parameters, GAP_PARAMETER))


def limits_asked(
    first_part_timeout_s: float | None, part_gap_timeout_s: float | None
) -> PartLimits:
    """Return the limits that a program asks for, in seconds; raises as `limit_ns`."""
    return PartLimits(
        limit_ns(FIRST_PARAMETER, first_part_timeout_s),
        limit_ns(GAP_PARAMETER, part_gap_timeout_s),
    )


def limits_of(spec: ModelSpec, *asked: PartLimits) -> PartLimits:
    """Return the shortest ones of a model's limits and those that a request asks for."""
    first_ns, gap_ns = spec.first_part_timeout_ns, spec.part_gap_timeout_ns
    for own in asked:
        first_ns, gap_ns = _shorter(first_ns, own.first_ns), _shorter(gap_ns, own.gap_ns)
    return PartLimits(first_ns, gap_ns)


def first_deadline_ns(limits: PartLimits, accepted_ns: int, until_ns: int) -> int:
    """Return when the first part is to be there, of an answer that is to be there at `until_ns`."""
    return min(until_ns, accepted_ns + limits.first_ns) if limits.first_ns else until_ns


def no_part(limits: PartLimits, spec: ModelSpec, *, begun: bool) -> DeadlineExceeded:
    """Return the error for a request whose next part is late; `begun` says if it has had one."""
    return (no_further_part if begun else no_first_part)(limits, spec)


def no_first_part(limits: PartLimits, spec: ModelSpec) -> DeadlineExceeded:
    """Return the error for a request whose first part is late."""
    return DeadlineExceeded(
        f"no part of the answer came within {_first_words(limits.first_ns, spec)}"
    )


def no_further_part(limits: PartLimits, spec: ModelSpec) -> DeadlineExceeded:
    """Return the error for a request whose next part is late."""
    most_ns, setting_ns = limits.gap_ns, spec.part_gap_timeout_ns
    words = _words(GAP_PARAMETER, most_ns, setting_ns, "between two parts")
    return DeadlineExceeded(f"no further part of the answer came within {words}")


def too_long_a_wait_for_parts(
    wait_ns: int, left_ns: int, limits: PartLimits, spec: ModelSpec
) -> Overloaded | None:
    """Return the error for a request that waits too long for its first part; None if it does not.

    Args:
        wait_ns: the least time that it is expected to wait until the model begins it.
        left_ns: until its first part is to be there.
        limits: of the request.
        spec: of the model.
    """
    late_ns = lateness_ns(wait_ns, left_ns)
    if late_ns <= 0:
        return None
    return Overloaded(
        f"so many requests wait that the first part would take {round(wait_ns / 1e9, 3)} s, "
        f"too long for {_first_words(limits.first_ns, spec)}",
        retry_after_s=-(-late_ns // 1_000_000_000),
    )


def _first_words(limit_ns: int, spec: ModelSpec) -> str:
    setting_ns = spec.first_part_timeout_ns
    return _words(FIRST_PARAMETER, limit_ns, setting_ns, "to the first part")


def _words(setting: str, most_ns: int, setting_ns: int, where: str) -> str:
    """Return the words for a limit: the model's setting, or what the request asks for."""
    limit = f"{most_ns / 1e9:g}"
    own = f"the {limit} s {where} that it asked for"
    return f"{setting} = {limit}" if most_ns == setting_ns else own


def _given_ns(parameters: Mapping[str, Any], name: str) -> int:
    value = parameters.get(name)
    if value is None:
        return 0
    where = f'parameter "{name}"'
    if isinstance(value, str):
        return timeout_ns_of(value, where)
    # To Python, true is a number.
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise InvalidRequest(f"{where} is {shown(value)}, not a number of seconds above 0")
    return limit_ns(name, value)


def _shorter(setting_ns: int, asked_ns: int) -> int:
    return min(setting_ns, asked_ns) if setting_ns and asked_ns else setting_ns or asked_ns
