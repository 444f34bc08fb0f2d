"""Model files of every kind, made on the spot: one linear model in each, and small ONNX graphs.

The linear model takes ``x``, FP32 [3], and returns ``y``, FP32 [2], in whatever file it lies.
"""

import importlib
import importlib.util
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import pytest
from late import Late
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from ringbatch.engine.config.document import conclude
from ringbatch.engine.models.model import Model, Options
from ringbatch.engine.runtimes.opening import open_model
from ringbatch.shm.tensor import Tensor

Array = NDArray[Any]
Shape = Sequence[int | str | None]
LinearRegression = Late("sklearn.linear_model", "LinearRegression")

WEIGHTS: Final = np.array([[1.0, -2.0], [0.5, 0.25], [-3.0, 4.0]], np.float32)
BIAS: Final = np.array([10.0, -20.0], np.float32)
INPUTS: Final = (Tensor("x", "FP32", [3]),)
OUTPUTS: Final = (Tensor("y", "FP32", [2]),)
_WIDER: Final = {"lightgbm": ("FP64", "FP64"), "catboost": ("FP32", "FP64")}
"""Runtimes in which the linear model takes or returns something else than FP32."""
ROWS: Final = np.arange(21, dtype=np.float32).reshape(7, 3) / 4

_OPSET: Final = 17
_FORMAT: Final = 8
"""Versions that every onnxruntime in use reads."""


def signature(runtime: str) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """The inputs and the outputs of the linear model, as a runtime serves it."""
    if runtime not in _WIDER:
        return INPUTS, OUTPUTS
    takes, gives = _WIDER[runtime]
    return (Tensor("x", takes, [3]),), (Tensor("y", gives, [2]),)


def expected(rows: Array) -> Array:
    """Return the linear model's answers, shape [n, 2], for rows of shape [n, 3]."""
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


def linear_estimator() -> Any:
    """The linear model as scikit-learn holds it."""
    estimator = LinearRegression()
    estimator.coef_, estimator.intercept_, estimator.n_features_in_ = WEIGHTS.T, BIAS, 3
    return estimator


def linear_skops() -> bytes:
    """The linear model as a skops file."""
    # The import takes two seconds, and most tests that import this file do not need it.
    skops = importlib.import_module("skops.io")
    return bytes(skops.dumps(linear_estimator()))


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


def linear_xgboost() -> bytes:
    """Return trees of XGBoost that have learned the linear model's answers for `ROWS` by heart."""
    xgboost = importlib.import_module("xgboost")
    learn = {"learning_rate": 1, "reg_lambda": 0, "min_child_weight": 0, "base_score": 0}
    how = learn | {"tree_method": "exact", "nthread": 1}
    trees = xgboost.train(how, xgboost.DMatrix(ROWS, expected(ROWS)), 1)
    return bytes(trees.save_raw("ubj"))


def linear_lightgbm() -> bytes:
    """Write the linear model as trees of LightGBM."""
    lightgbm = importlib.import_module("lightgbm")
    wanted = expected(ROWS).astype(float)

    def objective(found: Array, _: Any) -> tuple[Array, Array]:
        return found - wanted, np.ones(wanted.shape)

    least = {"min_data_in_leaf": 1, "min_sum_hessian_in_leaf": 0, "min_data_in_bin": 1}
    how = {"objective": objective, "num_class": 2, "learning_rate": 1.0, "num_threads": 1}
    data = lightgbm.Dataset(ROWS.astype(float), np.zeros(len(ROWS)))
    trees = lightgbm.train({**how, **least, "verbose": -1}, data, 1)
    return str(trees.model_to_string()).encode()


def linear_catboost() -> bytes:
    """Write the linear model as trees of CatBoost."""
    catboost = importlib.import_module("catboost")
    model = catboost.CatBoostRegressor(
        iterations=1,
        depth=6,
        learning_rate=1,
        l2_leaf_reg=0,
        loss_function="MultiRMSE",
        bootstrap_type="No",
        random_strength=0,
        thread_count=1,
        allow_writing_files=False,
        verbose=False,
    )
    model.fit(ROWS, expected(ROWS))
    return bytes(model._serialize_model())


def linear_openvino() -> bytes:
    """The linear model as OpenVINO has it; its weights stand in it."""
    openvino = importlib.import_module("openvino")
    operations = importlib.import_module("openvino.opset13")
    x = operations.parameter([-1, 3], np.float32, "x")
    product = operations.matmul(x, operations.constant(WEIGHTS), False, False)
    y = operations.add(product, operations.constant(BIAS))
    for node, name in ((x, "x"), (y, "y")):
        node.output(0).set_names({name})
    with TemporaryDirectory() as folder:
        path = Path(folder) / "linear.xml"
        openvino.save_model(openvino.Model([y], [x], "linear"), path, compress_to_fp16=False)
        BESIDE["linear.xml"] = ("linear.bin", path.with_suffix(".bin").read_bytes())
        return path.read_bytes()


BESIDE: Final[dict[str, tuple[str, bytes]]] = {}
"""Files that must lie beside a model file, by the model file's name."""
LINEAR: Final[dict[str, tuple[str, Callable[[], bytes]]]] = {
    "python": ("linear.py", linear_python),
    "onnx": ("linear.onnx", linear_onnx),
    "sklearn": ("linear.skops", linear_skops),
    "torch": ("linear.pt2", linear_torch),
    "xgboost": ("linear.ubj", linear_xgboost),
    "lightgbm": ("linear.txt", linear_lightgbm),
    "catboost": ("linear.cbm", linear_catboost),
    "openvino": ("linear.xml", linear_openvino),
}
"""A file's name and what it holds, by the runtime that is to run it."""

OPTIONAL: Final = ("torch", "xgboost", "lightgbm", "catboost", "openvino")
"""Runtimes whose packages are too large for everybody who runs the tests."""


def installed(runtime: str) -> bool:
    """Return whether the packages of a runtime are installed; only optional ones may be missing."""
    return runtime not in OPTIONAL or importlib.util.find_spec(runtime) is not None


def _each_of(runtimes: Iterable[str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "runtime",
        [
            pytest.param(
                one, marks=pytest.mark.skipif(not installed(one), reason=f"{one} is not installed")
            )
            for one in runtimes
        ],
    )


EVERY: Final = _each_of(LINEAR)
"""Parameters for each runtime, or the reason why it cannot be tried here."""
EVERY_FORMAT: Final = _each_of(sorted(LINEAR.keys() - {"python"}))
"""Parameters for each runtime whose files are no programs.

Part of a program may be a whole one.
"""


def written(folder: Path, runtime: str) -> Path:
    """The path of a new file with the linear model."""
    name, make = LINEAR[runtime]
    path = folder / name
    path.write_bytes(make())
    if name in BESIDE:
        beside, content = BESIDE[name]
        (folder / beside).write_bytes(content)
    return path


def snapshot(folder: Path, file: Path, *beside: Path) -> Path:
    """Files as Hugging Face's cache has them: links to others whose names are digests.

    Returns:
        The path of the first one, as a configuration has it.
    """
    (folder / "blobs").mkdir()
    (folder / "snapshots").mkdir()
    for number, one in enumerate((file, *beside)):
        one.rename(folder / "blobs" / f"{number:040x}")
        (folder / "snapshots" / one.name).symlink_to(f"../blobs/{number:040x}")
    document = {"models": {"m": {"path": f"snapshots/{file.name}"}}}
    (model,) = conclude(document, source="it", base=folder).models
    return Path(model.path)


def copied_model(error: str, folder: Path) -> Model:
    """The model of the model file that the text of an error ends with, loaded."""
    lines = [line for line in error.splitlines()[1:] if line]
    assert all(line.startswith("    ") for line in lines)
    path = folder / "model.py"
    path.write_text("\n".join(line[4:] for line in error.splitlines()[1:]))
    model = open_model("python", path, Options(max_batch_size=32, threads=1))
    model.load()
    return model
