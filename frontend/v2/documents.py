"""What V2 says of the server and its models: metadata, statistics, the index. Pure.

Statistics have the shape of Triton's extension. What is not measured is 0, and lists are empty.
"""

from typing import Any, Final, Protocol

from ringbatch.shm.counters import ModelCounter
from ringbatch.shm.descriptors import CounterWords
from ringbatch.shm.model_spec import LOADING, RETIRING, ModelSpec
from ringbatch.shm.slot import Reason
from ringbatch.shm.tensor import ANY, Tensor

EXTENSIONS: Final = ("binary_tensor_data", "parameters", "statistics")
CLASSIFICATION: Final = "classification"
SHARED_MEMORY: Final = "system_shared_memory"
MODEL_CONTROL: Final = "model_repository"

Json = dict[str, Any]
_STATES: Final = {LOADING: "LOADING", RETIRING: "UNLOADING"}


class Counted(Protocol):
    """A model's block of counters."""

    def __getitem__(self, counter: int) -> int: ...


def server_metadata(
    version: str,
    *,
    shared_memory: bool = False,
    classification: bool = False,
    model_control: bool = False,
) -> Json:
    """The server's, of that version of ringbatch; whether clients may share memory with it, want
    classes, and load and unload models."""
    more = [CLASSIFICATION] * classification + [SHARED_MEMORY] * shared_memory
    more += [MODEL_CONTROL] * model_control
    return {"name": "ringbatch", "version": version, "extensions": [*EXTENSIONS, *more]}


def model_metadata(spec: ModelSpec, versions: list[str]) -> Json:
    """A model's, of which those versions serve; its tensors have the batch dimension in front, if
    the model has one."""
    return {
        "name": spec.name,
        "versions": versions,
        "platform": spec.platform,
        "inputs": [_described(spec, tensor) for tensor in spec.inputs],
        "outputs": [_described(spec, tensor) for tensor in spec.outputs],
    }


def model_statistics(spec: ModelSpec, counted: Counted) -> Json:
    """A model's, since the engine started.

    A success is a request that went into a batch, and a failure one whose time was over before;
    those that the model itself failed are not told apart. `compute_infer` counts batches.
    """
    expired = counted[ModelCounter.EXPIRED]
    dispatched = counted[ModelCounter.REQUESTS] - expired - counted[ModelCounter.CANCELLED]
    batches = sum(counted[CounterWords.BATCHES_BY_REASON + reason] for reason in Reason)
    return {
        "name": spec.name,
        "version": spec.version,
        "last_inference": 0,
        "inference_count": counted[ModelCounter.ROWS],
        "execution_count": batches,
        "inference_stats": {
            "success": _duration(dispatched - counted[ModelCounter.PARTS]),
            "fail": _duration(expired),
            "queue": _duration(dispatched, counted[ModelCounter.WAIT_NS]),
            "compute_input": _duration(),
            "compute_infer": _duration(batches, counted[ModelCounter.RUN_NS]),
            "compute_output": _duration(),
            "cache_hit": _duration(),
            "cache_miss": _duration(),
        },
        "response_stats": {},
        "batch_stats": [],
        "memory_usage": [],
    }


def index_entry(spec: ModelSpec, unready: str) -> Json:
    """A model's line in the repository index.

    Args:
        spec: the model.
        unready: why it is not ready; empty where it is.
    """
    state = _STATES.get(spec.state, "UNAVAILABLE" if unready else "READY")
    return {"name": spec.name, "version": spec.version, "state": state, "reason": unready}


def _described(spec: ModelSpec, tensor: Tensor) -> Json:
    fields = tensor.to_json()
    return fields | {"shape": [ANY, *fields["shape"]]} if spec.batched else fields


def _duration(count: int = 0, total_ns: int = 0) -> Json:
    return {"count": count, "ns": total_ns}
