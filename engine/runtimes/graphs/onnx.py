"""The onnx runtime: a graph in an ONNX file, run by onnxruntime.

The file declares inputs and outputs: the first dimension of every tensor is the batch, and a
dimension without a number is open. The file is loaded when it is opened, because onnxruntime
reports them only then.
"""

import os
from pathlib import Path
from typing import Any, Final

from ringbatch.engine.models.batch_dimension import instance_shape
from ringbatch.engine.models.bytes_tensors import decoded
from ringbatch.engine.models.extras import required
from ringbatch.engine.models.model import Model, Options, refusing
from ringbatch.shm.errors import StartupError
from ringbatch.shm.tensor import ANY, Tensor

DATATYPES: Final = {
    "tensor(bool)": "BOOL",
    "tensor(uint8)": "UINT8",
    "tensor(uint16)": "UINT16",
    "tensor(uint32)": "UINT32",
    "tensor(uint64)": "UINT64",
    "tensor(int8)": "INT8",
    "tensor(int16)": "INT16",
    "tensor(int32)": "INT32",
    "tensor(int64)": "INT64",
    "tensor(float16)": "FP16",
    "tensor(float)": "FP32",
    "tensor(double)": "FP64",
    "tensor(string)": "BYTES",
}
"""onnxruntime's names for the types of tensors that it exchanges with numpy."""

_HINTS: Final = {
    "tensor(bfloat16)": "numpy has no bfloat16, so cast it to float in the model",
    "seq(map": "convert a scikit-learn model with the option zipmap=False",
}
_NO_TELEMETRY: Final = "ORT_DISABLE_TELEMETRY"
_CPU: Final = "CPUExecutionProvider"
_CUDA: Final = "CUDAExecutionProvider"
_FATAL: Final = 4


def open_onnx(path: Path, options: Options) -> Model:
    """Load an ONNX file; see `ringbatch.engine.runtimes.opening.open_model`."""
    session = open_session(path, options)
    if not session.get_inputs():
        raise StartupError(f"{path}: the model has no inputs, so there is nothing to ask it")
    inputs, outputs = (
        tuple(_tensor(path, role, node, options.max_batch_size) for node in nodes)
        for role, nodes in (("input", session.get_inputs()), ("output", session.get_outputs()))
    )
    return Model(inputs, outputs, lambda: None, _Predict(session, inputs, outputs))


def open_session(path: Path, options: Options) -> Any:
    """Return onnxruntime's session of a file.

    Raises:
        StartupError: onnxruntime is missing, or cannot load the file for the device.
    """
    # Without this, the import alone writes a host id and a database to the user's home.
    os.environ.setdefault(_NO_TELEMETRY, "1")
    onnxruntime = required("onnxruntime", "onnx", path)
    onnxruntime.disable_telemetry_events()
    providers = _providers(path, options.device, onnxruntime.get_available_providers())
    if len(providers) > 1 and hasattr(onnxruntime, "preload_dlls"):
        # CUDA's libraries may be installed as Python packages, where the loader does not look.
        onnxruntime.preload_dlls()
    with refusing(path, "onnxruntime cannot load it"):
        session = onnxruntime.InferenceSession(
            str(options.readable(path)),
            _settings(onnxruntime, options),
            providers,
            enable_fallback=False,
        )
    if providers[0][0] not in session.get_providers():
        raise StartupError(
            f'{path}: device is "{options.device}", but onnxruntime cannot use it; '
            "the log has its reason"
        )
    return session


class _Predict:
    """Callable that runs a session: an array for each input in, an array for each output out."""

    def __init__(
        self, session: Any, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]
    ) -> None:
        self._run = session.run
        self._inputs = [(tensor.name, tensor.datatype.fixed) for tensor in inputs]
        self._outputs = [tensor.name for tensor in outputs]

    def __call__(self, *arrays: Any) -> Any:
        feed = {
            name: array if fixed else decoded(name, array)
            for (name, fixed), array in zip(self._inputs, arrays, strict=True)
        }
        results = self._run(self._outputs, feed)
        return results[0] if len(results) == 1 else results


def _settings(onnxruntime: Any, options: Options) -> Any:
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    settings.intra_op_num_threads = options.threads
    settings.inter_op_num_threads = 1
    # Threads that spin between batches would take the frontends' cores.
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Errors are raised as well, and logged by the caller.
    settings.log_severity_level = _FATAL
    return settings


def _providers(path: Path, device: str, available: list[str]) -> list[tuple[str, dict[str, str]]]:
    cpu: tuple[str, dict[str, str]] = (_CPU, {})
    if device == "cpu":
        return [cpu]
    if _CUDA not in available:
        raise StartupError(
            f'{path}: device is "{device}", but the onnxruntime that is installed runs on '
            f"{', '.join(available)} only; install onnxruntime-gpu in its place, "
            'or set device = "cpu"'
        )
    return [(_CUDA, {"device_id": device.removeprefix("cuda:")}), cpu]


def _tensor(path: Path, role: str, node: Any, max_batch_size: int) -> Tensor:
    """Return an input or output as the file declares it; `node` has a name, a type and a shape.

    onnxruntime gives a dimension without a number as a text or None, and no dimensions if the file
    names none.
    """
    subject = f"{path}: {role} {node.name!r}"
    datatype = DATATYPES.get(node.type)
    if datatype is None:
        hint = next((hint for start, hint in _HINTS.items() if node.type.startswith(start)), "")
        raise StartupError(
            f"{subject} is {node.type}, which cannot be served"
            + (f"; {hint}" if hint else f"; served are {', '.join(DATATYPES)}")
        )
    shape = [size if isinstance(size, int) else ANY for size in node.shape]
    return Tensor(node.name, datatype, instance_shape(subject, shape, max_batch_size))
