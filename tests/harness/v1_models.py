"""Models of one or two inputs, as the V1 codec knows them."""

from collections.abc import Sequence

import pytest

from ringbatch.frontend.v1.protocol import V1Model
from ringbatch.shm.errors import InvalidRequest
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.tensor import Tensor


def spec(
    inputs: Sequence[Tensor] = (), outputs: Sequence[Tensor] = (), max_batch_size: int = 32
) -> ModelSpec:
    return ModelSpec(
        index=0,
        name="m",
        platform="python",
        inputs=tuple(inputs),
        outputs=tuple(outputs) or tuple(inputs),
        max_batch_size=max_batch_size,
        max_latency_ns=0,
        timeout_ns=0,
        policy="eager",
        workers=(0,),
    )


def codec(*inputs: Tensor, max_batch_size: int = 32) -> V1Model:
    """Return the codec of a model with these inputs, and the same as outputs."""
    return V1Model(spec(inputs, max_batch_size=max_batch_size))


def refusal(model: V1Model, text: str | bytes) -> str:
    with pytest.raises(InvalidRequest) as refused:
        model.requests.parse(text.encode() if isinstance(text, str) else text)
    return str(refused.value)


VECTOR = codec(Tensor("x", "FP32", [2]))
MATRIX = codec(Tensor("x", "FP32", [2, 3]))
SCALAR = codec(Tensor("x", "INT64", []))
PAIR = codec(Tensor("a", "INT64", []), Tensor("b", "INT64", []))
UNTYPED = V1Model(spec())
