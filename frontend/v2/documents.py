"""V2 documents about the server and its models: metadata, statistics, the index. Pure.

Statistics have the shape of Triton's extension. There is no cache, and the memory of a model is
unknown: these are 0 and empty.
"""

from collections.abc import Sequence
from typing import Any, Final, Protocol

from ringbatch.shm.counters import ModelCounter
from ringbatch.shm.default_values import plain
from ringbatch.shm.model_spec import FILE_DIFFERS, LOADING, RETIRING, ModelSpec
from ringbatch.shm.tensor import ANY, Tensor

EXTENSIONS: Final = (
    "binary_tensor_data",
    "parameters",
    "statistics",
    "classification",
    "model_configuration",
    "trace",
    "logging",
)
SHARED_MEMORY: Final = "system_shared_memory"
MODEL_CONTROL: Final = "model_repository"

Json = dict[str, Any]
_STATES: Final = {LOADING: "LOADING", RETIRING: "UNLOADING"}


class Size(Protocol):
    """See `ringbatch.shm.model_counters.BatchStatistics`."""

    @property
    def rows(self) -> int: ...
    @property
    def batches(self) -> int: ...
    @property
    def input_ns(self) -> int: ...
    @property
    def infer_ns(self) -> int: ...
    @property
    def output_ns(self) -> int: ...


class Counted(Protocol):
    """See `ringbatch.shm.model_counters.Counted`."""

    def __getitem__(self, counter: int) -> int: ...
    @property
    def wait_ns(self) -> int: ...
    @property
    def waits(self) -> list[int]: ...
    @property
    def runs(self) -> list[int]: ...
    @property
    def sizes(self) -> Sequence[Size]: ...


class Ends(Protocol):
    """See `ringbatch.shm.tallies.Ends`."""

    answered: int
    answered_ns: int
    ended: int
    ended_ns: int
    instances: int


def server_metadata(
    version: str,
    *,
    shared_memory: bool = False,
    model_control: bool = False,
) -> Json:
    """Return the server's metadata, for that version of ringbatch.

    Two flags say if clients may share memory with it, and load and unload models.
    """
    more = [SHARED_MEMORY] * shared_memory + [MODEL_CONTROL] * model_control
    return {"name": "ringbatch", "version": version, "extensions": [*EXTENSIONS, *more]}


def model_metadata(spec: ModelSpec, versions: list[str]) -> Json:
    """Return a model's metadata, with the versions that serve.

    Its tensors have the batch dimension in front, if the model has one.
    """
    return {
        "name": spec.name,
        "versions": versions,
        "platform": spec.platform,
        "inputs": [_described(spec, tensor) for tensor in spec.inputs],
        "outputs": [_described(spec, tensor) for tensor in spec.outputs],
    }


def model_statistics(spec: ModelSpec, counted: Counted, ends: Ends, epoch_ns: int) -> Json:
    """Return a model's statistics since the engine started, as Triton counts them.

    Successes and failures are requests, as their clients saw them. Waits and times in a worker
    are counted for each part of a request, with the time of the whole batch: the three counts
    of computing are always equal.

    Args:
        spec: the model.
        counted: of its account.
        ends: of its account.
        epoch_ns: added to the monotonic clock for the time since 1970.
    """
    latest_ns = counted[ModelCounter.LATEST_NS]
    executed = counted[ModelCounter.EXECUTED]
    return {
        "name": spec.name,
        "version": spec.version,
        "last_inference": (latest_ns + epoch_ns) // 1_000_000 if latest_ns else 0,
        "inference_count": ends.instances,
        "execution_count": sum(counted.runs),
        "inference_stats": {
            "success": _duration(ends.answered, ends.answered_ns),
            "fail": _duration(ends.ended, ends.ended_ns),
            "queue": _duration(sum(counted.waits), counted.wait_ns),
            "compute_input": _duration(executed, counted[ModelCounter.INPUT_NS]),
            "compute_infer": _duration(executed, counted[ModelCounter.INFER_NS]),
            "compute_output": _duration(executed, counted[ModelCounter.OUTPUT_NS]),
            "cache_hit": _duration(),
            "cache_miss": _duration(),
        },
        "response_stats": {},
        "batch_stats": [
            {
                "batch_size": size.rows,
                "compute_input": _duration(size.batches, size.input_ns),
                "compute_infer": _duration(size.batches, size.infer_ns),
                "compute_output": _duration(size.batches, size.output_ns),
            }
            for size in counted.sizes
        ],
        "memory_usage": [],
    }


def readiness(spec: ModelSpec) -> Json:
    """Return what V1 and V2 say of a model that is ready."""
    ready: Json = {"name": spec.name, "ready": True}
    return ready | {"model_file": FILE_DIFFERS} if spec.file_differs else ready


def index_entry(spec: ModelSpec, unready: str) -> Json:
    """Return a model's line in the repository index.

    Args:
        spec: the model.
        unready: why it is not ready; empty if it is.
    """
    state = _STATES.get(spec.state, "UNAVAILABLE" if unready else "READY")
    return {"name": spec.name, "version": spec.version, "state": state, "reason": unready}


def _described(spec: ModelSpec, tensor: Tensor) -> Json:
    shape = [ANY, *tensor.shape] if spec.batched else [*tensor.shape]
    found: Json = {"name": tensor.name, "datatype": tensor.datatype.name, "shape": shape}
    if tensor.default is not None:
        # After MLServer, whose tensors have parameters in their metadata.
        found["parameters"] = {"default": plain(tensor.default)}
    if tensor.padding is not None:
        found["parameters"] = {"padding": plain(tensor.padding)}
    return found


def _duration(count: int = 0, total_ns: int = 0) -> Json:
    return {"count": count, "ns": total_ns}
