"""The openvino runtime: an intermediate representation (.xml, its weights in .bin beside it).

The file declares inputs and outputs: the first dimension of every tensor is the batch, and one that
is not static is open. A model with INT8 weights runs as it is. FP32 is calculated in FP32, unless
`autocast` says otherwise; OpenVINO's default is BF16 if the processor has it.
"""

from pathlib import Path
from typing import Any, Final

from ringbatch.engine.models.batch_dimension import instance_shape
from ringbatch.engine.models.extras import required
from ringbatch.engine.models.model import Model, Options, refusing
from ringbatch.shm.errors import StartupError
from ringbatch.shm.tensor import ANY, Tensor

DATATYPES: Final = {
    "boolean": "BOOL",
    "u8": "UINT8",
    "u16": "UINT16",
    "u32": "UINT32",
    "u64": "UINT64",
    "i8": "INT8",
    "i16": "INT16",
    "i32": "INT32",
    "i64": "INT64",
    "f16": "FP16",
    "f32": "FP32",
    "f64": "FP64",
}
"""OpenVINO's names for numpy's types of tensors."""
_PRECISIONS: Final = {"off": "f32", "BF16": "bf16", "FP16": "f16"}


def open_openvino(path: Path, options: Options) -> Model:
    """Load an OpenVINO file; see `ringbatch.engine.runtimes.opening.open_model`."""
    openvino = required("openvino", "openvino", path)
    weights = path.with_suffix(".bin")
    if not weights.is_file():
        raise StartupError(f"{path}: its weights are missing; they must lie in {weights}")
    core = openvino.Core()
    with refusing(path, "OpenVINO cannot load it"):
        model = core.read_model(str(options.readable(path)), str(weights))
        compiled = core.compile_model(
            model,
            "CPU",
            {
                "INFERENCE_NUM_THREADS": options.threads,
                "NUM_STREAMS": 1,
                "PERFORMANCE_HINT": "LATENCY",
                "INFERENCE_PRECISION_HINT": _PRECISIONS[options.autocast],
            },
        )
    inputs, outputs = (
        tuple(_tensor(path, role, index, port, options.max_batch_size) for index, port in ports)
        for role, ports in (
            ("input", list(enumerate(compiled.inputs))),
            ("output", list(enumerate(compiled.outputs))),
        )
    )
    if not inputs:
        raise StartupError(f"{path}: the model has no inputs, so there is nothing to ask it")
    return Model(inputs, outputs, lambda: None, _Predict(compiled, len(outputs)))


class _Predict:
    """Callable that runs a compiled model: an array for each input in, one for each output out."""

    def __init__(self, compiled: Any, outputs: int) -> None:
        self._request = compiled.create_infer_request()
        self._outputs = range(outputs)

    def __call__(self, *arrays: Any) -> Any:
        results = self._request.infer(list(arrays), share_inputs=True)
        found = [results[index] for index in self._outputs]
        return found[0] if len(found) == 1 else found


def _tensor(path: Path, role: str, index: int, port: Any, max_batch_size: int) -> Tensor:
    """Return an input or output as the file declares it."""
    name = min(port.get_names(), default=f"{role}_{index}")
    subject = f"{path}: {role} {name!r}"
    element = port.get_element_type().get_type_name()
    if element not in DATATYPES:
        raise StartupError(
            f"{subject} is {element}, which cannot be served; served are {', '.join(DATATYPES)}"
        )
    sizes = port.get_partial_shape()
    if sizes.rank.is_dynamic:
        raise StartupError(f"{subject} has any number of dimensions, so none is the batch's")
    shape = [size.get_length() if size.is_static else ANY for size in sizes]
    return Tensor(name, DATATYPES[element], instance_shape(subject, shape, max_batch_size))
