"""Requests of a chain at their next step."""

from collections.abc import Iterable

from ringbatch.shm.engine_slots import Request
from ringbatch.shm.tuples import unchecked_tuple


def advance_requests(
    requests: Iterable[Request], word: int, start: int, size: int, now_ns: int
) -> list[Request]:
    """Return requests for a chain as they wait for a later step.

    Args:
        requests: as they were at the step before.
        word: names the model and this step.
        start: of its key in their result memory.
        size: bytes of the key.
        now_ns: since when they wait.
    """
    moved = []
    for ref, _, rows, _, _, room, _, result, _, deadline_ns, account in requests:
        # What a frontend wrote may have changed, and leave no room for a key.
        key = size if start + size <= room else 0
        at = result + start if key else result
        fields = (ref, word, rows, key, key, room, at, result, now_ns, deadline_ns, account)
        moved.append(unchecked_tuple(Request, fields))
    return moved
