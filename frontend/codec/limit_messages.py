"""Messages for requests that exceed a limit: the setting, its value, and the request's.

These settings are no secret of the host's: a refused client may ask for another value.
"""

from collections.abc import Sequence
from typing import Final

from ringbatch.shm.errors import (
    DeadlineExceeded,
    InvalidRequest,
    ModelFailed,
    Overloaded,
    RequestTooLarge,
)
from ringbatch.shm.lateness import limit_words

ANY_NUMBER: Final = 1 << 62
"""No limit on batches, for programs that send each one as soon as it has room."""
MAX_CONTROL_BYTES: Final = 1 << 16
"""The longest body, or message, of a request that is no inference request."""


def body_too_large(found: str, max_request_bytes: int) -> RequestTooLarge:
    """Return the error for a body with more bytes than any may have; `found` says how many."""
    return RequestTooLarge(f"{found}; at most max_request_bytes = {max_request_bytes} are accepted")


def no_room_ever(
    request_bytes: int, result_bytes: int, lane_bytes: int, parts: int = 1
) -> RequestTooLarge:
    """Return the error for a request that, with its answer, does not fit into an empty lane."""
    batches = f" in {parts} batches" if parts > 1 else ""
    return RequestTooLarge(
        f"the request takes {request_bytes} bytes and its answer {result_bytes}{batches}, more "
        f"than there is room for; they may take [server] lane_bytes = {lane_bytes} together"
    )


def answer_too_large(result_bytes: int, lane_bytes: int) -> ModelFailed:
    """Return the error for an answer that, with its request, does not fit into an empty lane."""
    return ModelFailed(
        f"the model's answer takes {result_bytes} bytes, more than there is room for; a request "
        f"and its answer may take [server] lane_bytes = {lane_bytes} together"
    )


def expect_batches(rows: int, cap: int, max_in_flight: int) -> None:
    """Refuse a request that makes more batches than may be under way.

    Args:
        rows: instances in the request.
        cap: the most instances of one batch.
        max_in_flight: the most batches under way.

    Raises:
        RequestTooLarge
    """
    if rows > cap * max_in_flight:
        raise too_many_parts(rows, -(-rows // cap), max_in_flight)


def expect_one_batch(rows: Sequence[int], most: int) -> None:
    """Refuse a request for an answer in parts that one batch cannot hold.

    Args:
        rows: instances in each batch that it would take.
        most: the most instances of one batch.

    Raises:
        InvalidRequest
    """
    if len(rows) > 1:
        raise InvalidRequest(
            f"the request has {sum(rows)} instances, but an answer in parts is for at most {most}; "
            "send several requests"
        )


def too_many_parts(
    rows: int, parts: int, max_in_flight: int, most: int | None = None
) -> RequestTooLarge:
    """Return the error for a request that makes more batches than may be under way.

    Args:
        rows: instances in the request.
        parts: its batches.
        max_in_flight: the setting.
        most: the most that one model may have under way, if other models have a part of the slots.
    """
    fit = f"max_in_flight = {max_in_flight} fit"
    if most is not None and most < max_in_flight:
        fit = f"{most} of [server] max_in_flight = {max_in_flight} are for one model"
    return RequestTooLarge(
        f"the request has {rows} instances, which make {parts} batches; at most {fit} at once"
    )


def no_room_now(max_in_flight: int | None, lane_bytes: int, *, aside: bool) -> Overloaded:
    """Return the error for a request that finds no slot or no memory.

    Args:
        max_in_flight: the setting if slots are used up; None if it is memory.
        lane_bytes: the setting.
        aside: whether slots are free that are set aside for other models.
    """
    full = f"max_in_flight = {max_in_flight}" if max_in_flight else f"lane_bytes = {lane_bytes}"
    rest = " but for what is set aside for other models" if aside else ""
    return Overloaded(
        f"too many requests are waiting, [server] {full} is used up{rest}; try again later"
    )


def too_many_texts(most: int) -> Overloaded:
    """Return the error for a request while too many characters wait to be made tokens of."""
    return Overloaded(
        "so many texts wait to be made tokens of that there is no room for more; they may have "
        f"{most} characters together; try again later"
    )


def too_many_large(most: int) -> Overloaded:
    """Return the error for a large body if too many bytes already wait to be read."""
    return Overloaded(
        "so many large requests wait to be read that there is no room for more; they may have "
        f"{most} bytes together; try again later"
    )


def no_thread_now() -> Overloaded:
    """Return the error for a request that needs a thread while the system has none."""
    return Overloaded("the system has no thread for this request now; try again later")


def no_answer(waited_ns: int, timeout_ns: int) -> DeadlineExceeded:
    """Return the error for a request whose deadline has come.

    Args:
        waited_ns: from its acceptance to its deadline.
        timeout_ns: the model's own limit.
    """
    return DeadlineExceeded(f"no answer came within {limit_words(waited_ns, timeout_ns)}")


def too_many_connections(max_connections: int) -> Overloaded:
    """Return the error for a connection beyond the limit."""
    return Overloaded(f"too many connections are open; max_connections = {max_connections}")


def too_many_bodies(limit_bytes: int, bodies: int) -> Overloaded:
    """Return the error for a body without room among those that are being received."""
    return Overloaded(
        "so many large requests are being received that none has room; they may take "
        f"{limit_bytes} bytes, {bodies} times max_request_bytes and no less than 64 MiB"
    )
