"""Python model files that take and return tensors of torch.

Tests engine/runtimes/device_tensors.py.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from cuda_on_cpu import Site  # noqa: E402

from ringbatch.engine.models.model import InvalidInput, Model, Options  # noqa: E402
from ringbatch.engine.runtimes import device_tensors  # noqa: E402
from ringbatch.engine.runtimes.opening import open_model  # noqa: E402
from ringbatch.engine.runtimes.torch import runtime  # noqa: E402
from ringbatch.engine.worker.graph_check import capture  # noqa: E402
from ringbatch.shm.errors import StartupError  # noqa: E402

HEAD = """
import torch
from ringbatch.engine import InvalidInput, Tensor
inputs = [Tensor("x", "FP32", [2]), Tensor("n", "BF16", [])]
outputs = [Tensor("y", "FP32", [2]), Tensor("m", "BF16", [])]
on_device = True
"""
PREDICT = """
def predict(x, n):
    assert torch.is_inference_mode_enabled()
    if n.dtype is not torch.bfloat16:
        raise TypeError(n.dtype)
    if (x < 0).any():
        raise InvalidInput("below 0")
    return {returned}
"""


def opened(folder: Path, text: str, **options: Any) -> Model:
    path = folder / "m.py"
    path.write_text(text)
    return open_model("python", path, Options(**{"max_batch_size": 8, "threads": 1, **options}))


@pytest.mark.parametrize(
    "returned", ["(x * n[:, None], n + 1)", "{'m': n + 1, 'y': x * n[:, None]}"]
)
def test_tensors_come_and_go(tmp_path: Path, returned: str) -> None:
    model = opened(tmp_path, HEAD + PREDICT.replace("{returned}", returned))
    x, n = np.ones((3, 2), "f4"), np.array([1, 2, 3], "f4")
    answers = model.predict(x, n)
    y, m = answers.values() if isinstance(answers, dict) else answers
    if isinstance(answers, dict):
        y, m = answers["y"], answers["m"]
    assert y.tolist() == [[1, 1], [2, 2], [3, 3]]
    assert (m.tolist(), m.dtype) == ([2, 3, 4], np.float32)
    with pytest.raises(InvalidInput, match="below 0"):
        model.predict(-x, n)


def test_they_take_the_devices_way_and_are_captured_if_the_file_says_so(tmp_path: Path) -> None:
    text = HEAD + PREDICT.replace("{returned}", "x * n[:, None], n + 1")
    text = text.replace("    if (x < 0).any():\n", "    if False:\n")
    own = Site(opened(tmp_path, text + "cuda_graph = True\n"))
    own.straight()

    def values(rows: int, first: int) -> Any:
        x = np.arange(first, first + 2 * rows).reshape(rows, 2).astype("f4")
        return x, np.full(rows, first + 1, "f4")

    assert capture(own.run, own.outputs, [4, 2], values) == ""
    y, m = own.run.predict(*values(2, 5))
    assert (y.tolist(), m.tolist()) == ([[30, 36], [42, 48]], [7, 7])


def test_a_model_without_a_batch_dimension_gets_one_instance(tmp_path: Path) -> None:
    text = HEAD + PREDICT.replace("{returned}", "x * n, n")
    model = opened(tmp_path, text, max_batch_size=0)
    y, _ = model.predict(np.ones(2, "f4"), np.array(3, "f4"))
    assert y.tolist() == [3, 3]


SHORT = "from ringbatch.engine import Tensor\non_device = True\n"
TYPED = SHORT + 'inputs = [Tensor("x", "FP32", [])]\noutputs = [Tensor("y", "FP32", [])]\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SHORT + "def predict(x): return x", "declares no inputs"),
        (TYPED + "def predict(x, request): return x", "takes request"),
        (TYPED + "def predict(x): yield x", "answers in parts"),
        (
            TYPED.replace('"x", "FP32"', '"x", "BYTES"') + "def predict(x): return x",
            "declares BYTES",
        ),
    ],
)
def test_other_kinds_of_models_stay_on_the_cpu(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(StartupError, match=f"m.py: `on_device` is True, but the model {words}"):
        opened(tmp_path, text)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("on_device = True", "on_device = 1", "`on_device` is an int, but it must be a bool"),
        ("on_device = True", "cuda_graph = True", "`cuda_graph` is True, so `on_device` must be"),
    ],
)
def test_switches_that_make_no_sense_are_refused(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    with pytest.raises(StartupError, match=words):
        opened(tmp_path, TYPED.replace(old, new) + "def predict(x): return x")


def test_a_device_that_is_not_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(StartupError, match="has no CUDA"):
        opened(tmp_path, TYPED + "def predict(x): return x", device="cuda:0")


@pytest.mark.parametrize(
    ("more", "why"),
    [("", "the model file has no cuda_graph = True"), ("cuda_graph = True\n", "")],
)
def test_the_device_knows_whether_the_file_wants_graphs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str, why: str
) -> None:
    def made(_torch: Any, device: Any, _predict: Any, no_graphs: str) -> Any:
        return f"{device}: {no_graphs}"

    monkeypatch.setattr(runtime, "CudaDevice", made)
    monkeypatch.setattr(device_tensors, "check_device", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)
    model = opened(tmp_path, TYPED + more + "def predict(x): return x", device="cuda:0")
    found: Any = model.device
    assert found == f"cuda:0: {why}"
