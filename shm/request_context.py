"""Request context: facts of a request for a model that asks for them, and their form in slots.

A typed model has one more tensor behind its inputs, BYTES []. The first row of each slot has a JSON
object, the others are empty. In the list of an untyped model's instances the object comes first,
and is no instance. Slots of other models have none of it.

    {"id": "42", "parameters": {"top_k": 5}, "headers": {"x-tenant": "a"}}
"""

from typing import Final

from ringbatch.shm.tensor import Tensor

REQUEST_CONTEXT: Final = Tensor("request", "BYTES", [])
NOTHING: Final = b"{}"
MOST_BYTES: Final = 1 << 14
"""Longest JSON object of a request, in bytes."""
_LENGTH_BYTES: Final = 4


def as_tensor(text: bytes, rows: int) -> bytes:
    """Return the bytes of that tensor for the rows of one slot."""
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text + bytes(_LENGTH_BYTES * (rows - 1))


def as_list(text: bytes, instances: bytes | memoryview) -> bytes:
    """Return the JSON text of a list of instances with the object in front.

    Args:
        text: of the object.
        instances: the text of a list with at least one element.
    """
    return b"[%b,%b" % (text, bytes(instances[1:]))
