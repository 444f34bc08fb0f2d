r"""Overrides in a request to load a model, in Triton's form. Pure.

    {"parameters": {"config": "{\"max_batch_size\": 16}"}}

A configuration of Triton's has more than ringbatch takes from a client. So its largest batch
counts, a field that repeats the present value is ignored, and the rest is refused.
"""

from collections.abc import Mapping
from typing import Any, Final

from orjson import JSONDecodeError, loads

from ringbatch.frontend.codec.json_to_tensor import shown
from ringbatch.shm.errors import InvalidRequest

_CONFIG: Final = "config"
_FILE: Final = "file:"
_SIZE: Final = "max_batch_size"


def largest_batch(name: str, parameters: Mapping[str, Any], held: Mapping[str, Any]) -> int | None:
    """Return the `max_batch_size` to load a model with; None if the request has none.

    Args:
        name: the model's.
        parameters: of the request.
        held: the model's present configuration, in Triton's form; its name alone if it does not
            serve.

    Raises:
        InvalidRequest: they ask for more than a client may have, or are not in that form.
    """
    for parameter in parameters:
        if parameter.startswith(_FILE):
            raise InvalidRequest(
                f"failed to load {shown(name)}: parameter {shown(parameter)} is not accepted, as "
                "models are loaded from the server's own files"
            )
    text = parameters.get(_CONFIG)
    if text is None:
        return None
    try:
        wanted = loads(text) if isinstance(text, str) else None
    except JSONDecodeError as error:
        raise InvalidRequest(
            f"failed to load {shown(name)}: its config is no JSON: {error}"
        ) from None
    if not isinstance(wanted, dict):
        raise InvalidRequest(
            f"failed to load {shown(name)}: its config is to be a string with a JSON object"
        )
    for key, value in wanted.items():
        if key != _SIZE and value != held.get(key):
            raise InvalidRequest(
                f"failed to load {shown(name)}: its config may set {_SIZE}, but not {shown(key)}; "
                "everything else stands in the server's own configuration"
            )
    return _whole(name, wanted[_SIZE]) if _SIZE in wanted else None


def _whole(name: str, size: Any) -> int:
    # Protocol Buffers have whole numbers as strings too.
    if isinstance(size, str) and size.isascii() and size.isdecimal() and len(size) < 10:
        return int(size)
    if type(size) is not int:
        raise InvalidRequest(
            f"failed to load {shown(name)}: its {_SIZE} is {shown(size)}, not a whole number"
        )
    return size
