"""What the segment says of its models, so that a frontend needs no model file.

The supervisor writes the manifest once, as JSON, when it makes the segment; everyone else reads
it. A model's place in it is its index, the number that slots and tasks carry.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any

from ringbatch.shm.tensor import Tensor


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One model as frontends, collector and workers know it.

    Attributes:
        index: its place in the manifest.
        name: what requests call it.
        platform: informative, such as ``python``.
        inputs: empty for an untyped model, which takes and returns lists of JSON values.
        outputs: empty exactly where `inputs` is.
        max_batch_size: the cap on instances in one batch; 0 where the model has no batch dimension,
            so that each instance runs alone.
        max_latency_ns: the longest wait of the oldest request for company.
        timeout_ns: from acceptance to the deadline, unless the request names less.
        policy: ``eager`` or ``fixed``.
        workers: the numbers of the workers that hold it.
        kserve_errors: failures are answered as KServe's own batcher answers them.
        batch_timeout_ns: a worker that runs one batch for longer is taken for hung.
    """

    index: int
    name: str
    platform: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    max_batch_size: int
    max_latency_ns: int
    timeout_ns: int
    policy: str
    workers: tuple[int, ...]
    kserve_errors: bool = False
    batch_timeout_ns: int = 1 << 62

    @property
    def typed(self) -> bool:
        """Whether values travel as tensors rather than as JSON text."""
        return bool(self.inputs)

    @property
    def batched(self) -> bool:
        """Whether tensors have a batch dimension, in front of those of their signature."""
        return self.max_batch_size > 0

    @property
    def cap(self) -> int:
        """The most instances that one run of the model takes."""
        return self.max_batch_size or 1


def dumps(models: tuple[ModelSpec, ...]) -> bytes:
    """The manifest as the bytes that stand in the segment."""
    return json.dumps([_to_json(model) for model in models]).encode()


def loads(text: bytes) -> tuple[ModelSpec, ...]:
    """The models of a manifest that `dumps` wrote."""
    return tuple(_from_json(fields) for fields in json.loads(text))


def _to_json(model: ModelSpec) -> dict[str, Any]:
    return asdict(model) | {
        "inputs": [tensor.to_json() for tensor in model.inputs],
        "outputs": [tensor.to_json() for tensor in model.outputs],
    }


def _from_json(fields: dict[str, Any]) -> ModelSpec:
    tensors = {key: tuple(Tensor(**t) for t in fields[key]) for key in ("inputs", "outputs")}
    return ModelSpec(**fields | tensors | {"workers": tuple(fields["workers"])})
