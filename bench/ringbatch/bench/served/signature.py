"""Made-up requests from the signature of a model. Pure; random numbers are passed in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np
import orjson

ANY_SIZE: Final = 16
"""Size of a made-up dimension, if any size fits."""
_WORDS: Final = ("the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog")
_TOKENS: Final = 64
"""Most tokens of the answer to a made-up request for text."""
_FLOATS: Final = ("FP16", "BF16", "FP32", "FP64")


@dataclass(frozen=True)
class Input:
    """Input of a model.

    Attributes:
        name: its name.
        datatype: its datatype in the Open Inference Protocol.
        shape: shape of one instance.
        batched: whether a dimension for instances comes before that.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    batched: bool


def inputs_of(metadata: Mapping[str, Any]) -> list[Input]:
    """Return the inputs in the metadata of a V2 model; none if it has none.

    Raises:
        ValueError: it is no such metadata.
    """
    try:
        found = []
        for one in metadata.get("inputs") or ():
            shape = [int(size) for size in one["shape"]]
            batched = bool(shape) and shape[0] == -1
            sizes = tuple(ANY_SIZE if size < 0 else size for size in shape[batched:])
            found.append(Input(str(one["name"]), str(one["datatype"]), sizes, batched))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"its metadata cannot be read: {error!r}") from None
    return found


def v1_body(inputs: Sequence[Input], random: np.random.Generator) -> bytes:
    """Return a V1 request of one instance."""
    values = {one.name: _nested(_values(one, random), one.shape) for one in inputs}
    instance = values if len(inputs) > 1 else next(iter(values.values()))
    return orjson.dumps({"instances": [instance]})


def v2_body(inputs: Sequence[Input], random: np.random.Generator) -> bytes:
    """Return a V2 request of one instance, in JSON."""
    tensors = [
        {
            "name": one.name,
            "datatype": one.datatype,
            "shape": [1, *one.shape] if one.batched else [*one.shape],
            "data": _values(one, random),
        }
        for one in inputs
    ]
    return orjson.dumps({"inputs": tensors})


def generate_body(inputs: Sequence[Input], random: np.random.Generator) -> bytes:
    """Return a request of Triton's generate extension, of one instance."""
    values = {one.name: _nested(_values(one, random), one.shape) for one in inputs}
    return orjson.dumps(values)


def completion_body(random: np.random.Generator) -> bytes:
    """Return a request for a completion, without its model."""
    return orjson.dumps({"prompt": _text(random), "max_tokens": _TOKENS})


def chat_body(random: np.random.Generator) -> bytes:
    """Return a request for the next message of a chat, without its model."""
    messages = [{"role": "user", "content": _text(random)}]
    return orjson.dumps({"messages": messages, "max_tokens": _TOKENS})


def protocol_of(body: bytes) -> str:
    """Return the protocol of a request: V1 or V2.

    Raises:
        ValueError: it is neither.
    """
    try:
        found = orjson.loads(body)
    except ValueError as error:
        raise ValueError(f"it is no JSON: {error}") from None
    if isinstance(found, dict) and isinstance(found.get("instances"), list):
        return "v1"
    if isinstance(found, dict) and "inputs" in found:
        tensors = found["inputs"]
        is_v2 = isinstance(tensors, list) and all(
            isinstance(tensor, dict) and "datatype" in tensor for tensor in tensors
        )
        return "v2" if is_v2 else "v1"
    raise ValueError(
        'it has neither "instances" (V1) nor "inputs" (V2); for another form say --protocol'
    )


def _values(one: Input, random: np.random.Generator) -> list[Any]:
    count = prod(one.shape)
    if one.datatype == "BYTES":
        return [_text(random) for _ in range(count)]
    if one.datatype == "BOOL":
        return [bool(value) for value in random.integers(0, 2, count)]
    if one.datatype in _FLOATS:
        return [round(float(value), 4) for value in random.random(count)]
    return [int(value) for value in random.integers(0, 2, count)]


def _text(random: np.random.Generator) -> str:
    return " ".join(random.choice(_WORDS, 3).tolist())


def _nested(values: Sequence[Any], shape: Sequence[int]) -> Any:
    """Return values in nested rows of the shape."""
    if not shape:
        return values[0]
    size = len(values) // max(shape[0], 1)
    parts = range(0, len(values), size) if size else ()
    return [_nested(values[at : at + size], shape[1:]) for at in parts]
