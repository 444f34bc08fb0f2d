"""OpenVINO's files: what they take and return, precisions, and words for bad ones."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_files import snapshot

from ringbatch.engine.models.model import Model, Options
from ringbatch.engine.runtimes.opening import open_model
from ringbatch.shm.errors import StartupError
from ringbatch.shm.tensor import Tensor

ROWS = np.random.default_rng(0).normal(size=(9, 16)).astype(np.float32)
WEIGHTS = np.random.default_rng(1).normal(size=(16, 4)).astype(np.float32)


def opened(path: Path, **more: Any) -> Model:
    return open_model("openvino", path, Options(**{"max_batch_size": 32, "threads": 1} | more))


def refused(path: Path, **more: Any) -> str:
    with pytest.raises(StartupError) as caught:
        opened(path, **more)
    return str(caught.value).removeprefix(f"{path}: ")


def product(folder: Path, rows: int = -1, *, int8: bool = False, kind: Any = np.float32) -> Path:
    """A file with a product of its input with `WEIGHTS`; as INT8 where that is asked for."""
    openvino = pytest.importorskip("openvino")
    operations = importlib.import_module("openvino.opset13")
    x = operations.parameter([rows, 16], kind, "x")
    weights = operations.constant(WEIGHTS.astype(kind))
    if int8:
        scale = np.float32(np.abs(WEIGHTS).max() / 127)
        kept = operations.constant(np.round(WEIGHTS / scale).astype(np.int8))
        weights = operations.multiply(operations.convert(kept, np.float32), scale)
    y = operations.matmul(x, weights, False, False)
    for node, name in ((x, "x"), (y, "y")):
        node.output(0).set_names({name})
    path = folder / "model.xml"
    openvino.save_model(openvino.Model([y], [x], "m"), path, compress_to_fp16=False)
    return path


def test_fp32_is_calculated_alike_alone_and_in_company(tmp_path: Path) -> None:
    model = opened(product(tmp_path))
    assert (model.inputs, model.outputs) == (
        (Tensor("x", "FP32", [16]),),
        (Tensor("y", "FP32", [4]),),
    )
    together = model.predict(ROWS)
    np.testing.assert_allclose(together, ROWS @ WEIGHTS, rtol=1e-4, atol=1e-5)
    alone = np.concatenate([model.predict(row[np.newaxis]) for row in ROWS])
    np.testing.assert_allclose(alone, together, rtol=1e-5, atol=1e-6)


def test_the_answers_of_one_run_survive_the_next(tmp_path: Path) -> None:
    model = opened(product(tmp_path))
    first = model.predict(ROWS)
    kept = first.copy()
    model.predict(ROWS * 2)
    assert np.array_equal(first, kept)


@pytest.mark.parametrize("autocast", ["off", "BF16"])
def test_weights_of_8_bits_and_calculation_in_16_are_close(tmp_path: Path, autocast: str) -> None:
    model = opened(product(tmp_path, int8=True), autocast=autocast)
    assert model.outputs == (Tensor("y", "FP32", [4]),)
    np.testing.assert_allclose(model.predict(ROWS), ROWS @ WEIGHTS, atol=0.3)


def test_a_fixed_batch_and_one_by_one(tmp_path: Path) -> None:
    path = product(tmp_path, rows=1)
    assert refused(path).startswith("input 'x' has a first dimension of 1, but max_batch_size is")
    assert opened(path, max_batch_size=0).inputs == (Tensor("x", "FP32", [1, 16]),)


def test_weights_that_are_missing_or_not_whole_are_refused(tmp_path: Path) -> None:
    path = product(tmp_path)
    weights = path.with_suffix(".bin")
    weights.write_bytes(weights.read_bytes()[:7])
    assert refused(path).startswith("OpenVINO cannot load it: RuntimeError: ")
    weights.unlink()
    assert refused(path) == f"its weights are missing; they must lie in {weights}"


def test_links_are_followed_to_both_files(tmp_path: Path) -> None:
    path = product(tmp_path)
    model = opened(snapshot(tmp_path, path, path.with_suffix(".bin")))
    np.testing.assert_allclose(model.predict(ROWS), ROWS @ WEIGHTS, rtol=1e-4, atol=1e-5)
