"""Model files of every kind, made on the spot: one linear model in each, and small ONNX graphs.

The linear model takes ``x``, FP32 [3], and returns ``y``, FP32 [2], in whatever file it lies.
"""

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import skops.io
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from sklearn.linear_model import LinearRegression

from ringbatch.shm.tensor import Tensor

Array = NDArray[Any]
Shape = Sequence[int | str | None]

WEIGHTS: Final = np.array([[1.0, -2.0], [0.5, 0.25], [-3.0, 4.0]], np.float32)
BIAS: Final = np.array([10.0, -20.0], np.float32)
INPUTS: Final = (Tensor("x", "FP32", [3]),)
OUTPUTS: Final = (Tensor("y", "FP32", [2]),)
ROWS: Final = np.arange(21, dtype=np.float32).reshape(7, 3) / 4

_OPSET: Final = 17
_FORMAT: Final = 8
"""Versions that every onnxruntime in use reads."""


def expected(rows: Array) -> Array:
    """What the linear model answers for rows, shape [n, 3]; shape [n, 2]."""
    answers: Array = rows @ WEIGHTS + BIAS
    return answers


def graph(
    inputs: dict[str, tuple[int, Shape | None]],
    outputs: dict[str, tuple[int, Shape | None]],
    nodes: Sequence[tuple[str, Sequence[str], Sequence[str]]],
    constants: dict[str, Array] | None = None,
    **attributes: Any,
) -> bytes:
    """An ONNX file.

    Args:
        inputs: the element type of `onnx.TensorProto` and the shape of each, by name.
        outputs: the same for the outputs.
        nodes: an operator, what it takes and what it gives, each.
        constants: by name.
        attributes: of the operators, all of which then have them.
    """
    made = helper.make_graph(
        [helper.make_node(op, takes, gives, **attributes) for op, takes, gives in nodes],
        "graph",
        [helper.make_tensor_value_info(name, *info) for name, info in inputs.items()],
        [helper.make_tensor_value_info(name, *info) for name, info in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", _OPSET)]
    model = helper.make_model(made, opset_imports=opsets, ir_version=_FORMAT)
    return bytes(model.SerializeToString())


def identity(kind: int, shape: Shape | None, gives: Shape | None = None) -> bytes:
    """An ONNX file with the model that returns its input ``x`` as ``y``."""
    given = shape if gives is None else gives
    return graph({"x": (kind, shape)}, {"y": (kind, given)}, [("Identity", ["x"], ["y"])])


def linear_onnx(rows: int | str = "n") -> bytes:
    """The linear model as an ONNX file; `rows` is the size of its batch dimension."""
    return graph(
        {"x": (TensorProto.FLOAT, [rows, 3])},
        {"y": (TensorProto.FLOAT, [rows, 2])},
        [("MatMul", ["x", "w"], ["xw"]), ("Add", ["xw", "b"], ["y"])],
        {"w": WEIGHTS, "b": BIAS},
    )


def linear_estimator() -> LinearRegression:
    """The linear model as scikit-learn holds it."""
    estimator = LinearRegression()
    estimator.coef_, estimator.intercept_, estimator.n_features_in_ = WEIGHTS.T, BIAS, 3
    return estimator


def linear_skops() -> bytes:
    """The linear model as a skops file."""
    return bytes(skops.io.dumps(linear_estimator()))


def linear_python() -> bytes:
    """The linear model as a python model file."""
    return f"""
import numpy as np
from ringbatch.engine import Tensor
inputs = [Tensor("x", "FP32", [3])]
outputs = [Tensor("y", "FP32", [2])]
def predict(x):
    return x @ np.array({WEIGHTS.tolist()}, "f4") + np.array({BIAS.tolist()}, "f4")
""".encode()


def linear_torch() -> bytes:
    """The linear model as an exported program."""
    import torch_models

    return torch_models.exported(torch_models.Linear(), "x: batch 3")


LINEAR: Final[dict[str, tuple[str, Callable[[], bytes]]]] = {
    "python": ("linear.py", linear_python),
    "onnx": ("linear.onnx", linear_onnx),
    "sklearn": ("linear.skops", linear_skops),
    "torch": ("linear.pt2", linear_torch),
}
"""A file's name and what it holds, by the runtime that is to run it."""

OPTIONAL: Final = ("torch",)
"""Runtimes whose packages are too large for everybody who runs the tests."""


def installed(runtime: str) -> bool:
    """Whether the packages of a runtime are there; all but the optional ones must be."""
    return runtime not in OPTIONAL or importlib.util.find_spec(runtime) is not None


EVERY: Final = pytest.mark.parametrize(
    "runtime",
    [
        pytest.param(
            runtime,
            marks=pytest.mark.skipif(not installed(runtime), reason=f"{runtime} is not installed"),
        )
        for runtime in LINEAR
    ],
)
"""Each runtime, or the reason why it cannot be tried here."""


def written(folder: Path, runtime: str) -> Path:
    """The path of a new file with the linear model."""
    name, make = LINEAR[runtime]
    path = folder / name
    path.write_bytes(make())
    return path
