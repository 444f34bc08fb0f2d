"""ONNX files: what is read from them, what goes in and out, and the words that bad ones get.

Tests engine/models/batch_dimension.py.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from model_files import Shape, graph, identity, linear_onnx, snapshot
from onnx import TensorProto, helper

from ringbatch.engine.models.model import InvalidInput, Model, Options
from ringbatch.engine.runtimes.opening import open_model
from ringbatch.shm.errors import StartupError
from ringbatch.shm.tensor import Tensor

F = TensorProto.FLOAT


def opened(folder: Path, data: bytes, max_batch_size: int = 32, **more: Any) -> Model:
    path = folder / "model.onnx"
    path.write_bytes(data)
    return open_model("onnx", path, Options(max_batch_size=max_batch_size, threads=1, **more))


def refused(folder: Path, data: bytes, max_batch_size: int = 32, **more: Any) -> str:
    with pytest.raises(StartupError) as caught:
        opened(folder, data, max_batch_size, **more)
    text = str(caught.value)
    assert text.startswith(f"{folder / 'model.onnx'}: ")
    assert "\n" not in text
    return text.removeprefix(f"{folder / 'model.onnx'}: ")


@pytest.mark.parametrize(
    ("kind", "datatype", "values"),
    [
        (TensorProto.BOOL, "BOOL", np.array([True, False])),
        (TensorProto.UINT8, "UINT8", np.array([0, 255], "u1")),
        (TensorProto.UINT16, "UINT16", np.array([0, 65535], "u2")),
        (TensorProto.UINT32, "UINT32", np.array([0, 2**32 - 1], "u4")),
        (TensorProto.UINT64, "UINT64", np.array([0, 2**64 - 1], "u8")),
        (TensorProto.INT8, "INT8", np.array([-128, 127], "i1")),
        (TensorProto.INT16, "INT16", np.array([-(2**15), 2**15 - 1], "i2")),
        (TensorProto.INT32, "INT32", np.array([-(2**31), 2**31 - 1], "i4")),
        (TensorProto.INT64, "INT64", np.array([-(2**63), 2**63 - 1], "i8")),
        (TensorProto.FLOAT16, "FP16", np.array([1.5, -65504], "f2")),
        (TensorProto.FLOAT, "FP32", np.array([1.5, 3e38], "f4")),
        (TensorProto.DOUBLE, "FP64", np.array([1.5, 1e300], "f8")),
    ],
)
def test_numbers_of_every_datatype_go_in_and_out_unchanged(
    tmp_path: Path, kind: int, datatype: str, values: Any
) -> None:
    model = opened(tmp_path, identity(kind, ["n"]))
    assert (model.inputs, model.outputs) == (
        (Tensor("x", datatype, []),),
        (Tensor("y", datatype, []),),
    )
    returned = model.predict(values)
    assert returned.dtype == values.dtype
    assert np.array_equal(returned, values)


def objects(*values: bytes | str) -> Any:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def test_strings_are_utf_8_with_any_content(tmp_path: Path) -> None:
    model = opened(tmp_path, identity(TensorProto.STRING, ["n"]))
    assert model.inputs == (Tensor("x", "BYTES", []),)
    texts = ["", "plain", "ä\0ö", "日本語 🙂"]
    assert list(model.predict(objects(*(text.encode() for text in texts)))) == texts
    square = objects(b"a", b"b", b"c", b"d").reshape(2, 2)
    square_model = opened(tmp_path, identity(TensorProto.STRING, ["n", 2]))
    assert square_model.predict(square).tolist() == [["a", "b"], ["c", "d"]]
    with pytest.raises(InvalidInput, match="'x' holds bytes that are not UTF-8 text"):
        model.predict(objects(b"fine", b"\xff"))


@pytest.mark.parametrize(
    ("declared", "shape"),
    [(["n"], []), (["n", 3], [3]), ([None, None, 4], [-1, 4]), ([-1, "a", "b"], [-1, -1])],
)
def test_the_first_dimension_is_the_batch_and_symbolic_ones_are_open(
    tmp_path: Path, declared: Shape, shape: list[int]
) -> None:
    model = opened(tmp_path, identity(F, declared))
    assert (model.inputs, model.outputs) == (
        (Tensor("x", "FP32", shape),),
        (Tensor("y", "FP32", shape),),
    )


@pytest.mark.parametrize(
    ("declared", "shape"), [([], []), (["n", 3], [-1, 3]), ([1, 3], [1, 3]), ([8, 3], [8, 3])]
)
def test_without_a_batch_dimension_all_dimensions_are_the_models(
    tmp_path: Path, declared: Shape, shape: list[int]
) -> None:
    model = opened(tmp_path, identity(F, declared), max_batch_size=0)
    assert model.inputs == (Tensor("x", "FP32", shape),)
    values = np.ones([abs(size) for size in shape], np.float32)
    assert np.array_equal(model.predict(values), values)


def test_a_batch_dimension_of_one_goes_with_batches_of_one(tmp_path: Path) -> None:
    model = opened(tmp_path, linear_onnx(rows=1), max_batch_size=1)
    assert model.inputs == (Tensor("x", "FP32", [3]),)
    assert model.predict(np.zeros((1, 3), np.float32)).tolist() == [[10, -20]]


def test_several_inputs_and_outputs_keep_the_order_of_the_file(tmp_path: Path) -> None:
    model = opened(
        tmp_path,
        graph(
            {"b": (F, ["n"]), "a": (F, ["n"]), "t": (TensorProto.STRING, ["n"])},
            {"difference": (F, ["n"]), "t2": (TensorProto.STRING, ["n"]), "sum": (F, ["n"])},
            [
                ("Sub", ["b", "a"], ["difference"]),
                ("Add", ["b", "a"], ["sum"]),
                ("Identity", ["t"], ["t2"]),
            ],
        ),
    )
    assert [t.name for t in model.inputs] == ["b", "a", "t"]
    assert [t.name for t in model.outputs] == ["difference", "t2", "sum"]
    b, a = np.array([5, 7], "f4"), np.array([1, 2], "f4")
    difference, texts, total = model.predict(b, a, objects(b"p", b"q"))
    assert (difference.tolist(), list(texts), total.tolist()) == ([4, 5], ["p", "q"], [6, 9])


def test_an_input_with_a_default_in_the_file_is_none(tmp_path: Path) -> None:
    data = graph(
        {"x": (F, ["n"]), "c": (F, [1])},
        {"y": (F, ["n"])},
        [("Add", ["x", "c"], ["y"])],
        {"c": np.array([2], np.float32)},
    )
    model = opened(tmp_path, data)
    assert [t.name for t in model.inputs] == ["x"]
    assert model.predict(np.array([1, 2], "f4")).tolist() == [3, 4]


@pytest.mark.parametrize("linked", [False, True])
def test_weights_may_lie_in_a_file_beside_it(tmp_path: Path, linked: bool) -> None:
    path = tmp_path / "model.onnx"
    model = onnx.load_from_string(linear_onnx())
    onnx.save(model, path, save_as_external_data=True, location="weights", size_threshold=0)
    assert (tmp_path / "weights").stat().st_size
    if linked:
        path = snapshot(tmp_path, path, tmp_path / "weights")
    opened_model = open_model("onnx", path, Options(max_batch_size=32, threads=1))
    assert opened_model.predict(np.zeros((1, 3), np.float32)).tolist() == [[10, -20]]


CUT = "export the model with a dynamic batch dimension, "
ALONE = "or set max_batch_size = 0 to run each request alone, with its tensors as they are"
BAD: dict[str, tuple[bytes, str]] = {
    "fixed-batch-of-one": (
        linear_onnx(rows=1),
        "input 'x' has a first dimension of 1, but max_batch_size is 32; "
        f"{CUT}set max_batch_size = 1, {ALONE}",
    ),
    "fixed-batch-of-eight": (
        linear_onnx(rows=8),
        f"input 'x' has a first dimension of 8, but max_batch_size is 32; {CUT}{ALONE}",
    ),
    "no-dimension-at-all": (
        identity(F, []),
        f"input 'x' has no batch dimension in the file; export the model with one, {ALONE}",
    ),
    "one-input-without-a-batch": (
        graph(
            {"x": (F, ["n"]), "scale": (F, [])}, {"y": (F, ["n"])}, [("Mul", ["x", "scale"], ["y"])]
        ),
        f"input 'scale' has no batch dimension in the file; export the model with one, {ALONE}",
    ),
    "an-output-without-a-batch": (
        graph({"x": (F, ["n"])}, {"y": (F, [])}, [("ReduceSum", ["x"], ["y"])], keepdims=0),
        f"output 'y' has no batch dimension in the file; export the model with one, {ALONE}",
    ),
    "bfloat16": (
        identity(TensorProto.BFLOAT16, ["n"]),
        "input 'x' is tensor(bfloat16), which cannot be served; "
        "numpy has no bfloat16, so cast it to float in the model",
    ),
    "no-inputs": (
        graph({}, {"y": (F, ["n"])}, [("Identity", ["c"], ["y"])], {"c": np.zeros(2, "f4")}),
        "the model has no inputs, so there is nothing to ask it",
    ),
}


@pytest.mark.parametrize(("data", "words"), BAD.values(), ids=BAD)
def test_a_file_that_cannot_be_served_is_refused_in_words(
    tmp_path: Path, data: bytes, words: str
) -> None:
    assert refused(tmp_path, data) == words


def test_an_operator_that_onnxruntime_lacks_is_named(tmp_path: Path) -> None:
    data = graph({"x": (F, ["n"])}, {"y": (F, ["n"])}, [("NoSuchThing", ["x"], ["y"])])
    words = refused(tmp_path, data)
    assert words.startswith("onnxruntime cannot load it: InvalidGraph: ")
    assert "NoSuchThing" in words


def test_maps_of_labels_are_refused_with_the_option_that_avoids_them(tmp_path: Path) -> None:
    zipped = helper.make_node(
        "ZipMap", ["p"], ["z"], domain="ai.onnx.ml", classlabels_int64s=[0, 1]
    )
    label = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(F, []))
    made = helper.make_graph(
        [zipped],
        "graph",
        [helper.make_tensor_value_info("p", F, ["n", 2])],
        [helper.make_value_info("z", helper.make_sequence_type_proto(label))],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    data = helper.make_model(made, opset_imports=opsets, ir_version=8).SerializeToString()
    assert refused(tmp_path, data) == (
        "output 'z' is seq(map(int64,tensor(float))), which cannot be served; "
        "convert a scikit-learn model with the option zipmap=False"
    )


def test_a_session_has_the_threads_of_its_worker(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(linear_onnx())
    program = (
        "import os, onnxruntime; from pathlib import Path\n"
        "from ringbatch.engine.models import model\n"
        "from ringbatch.engine.runtimes.opening import open_model\n"
        "def opened(threads):\n"
        "    options = model.Options(max_batch_size=1, threads=threads)\n"
        f"    return open_model('onnx', Path({str(path)!r}), options)\n"
        "def running():\n"
        "    return len(os.listdir('/proc/self/task'))\n"
        "one = opened(1); alone = running(); three = opened(3)\n"
        "print(running() - alone)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "2\n"


def test_a_device_that_the_installed_onnxruntime_lacks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    assert refused(tmp_path, linear_onnx(), device="cuda:0") == (
        'device is "cuda:0", but the onnxruntime that is installed runs on CPUExecutionProvider '
        'only; install onnxruntime-gpu in its place, or set device = "cpu"'
    )


class FakeSession:
    """Stand-in for a session that notes its arguments, and names the providers that it uses."""

    made: tuple[Any, ...] = ()
    providers: Sequence[str] = ()

    def __init__(self, path: str, settings: Any, providers: Any, enable_fallback: bool) -> None:
        FakeSession.made = (providers, enable_fallback, settings.intra_op_num_threads)

    def get_providers(self) -> Sequence[str]:
        return FakeSession.providers

    def get_inputs(self) -> list[Any]:
        return []

    get_outputs = get_inputs


def test_a_device_has_a_number_and_its_failure_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: both)
    monkeypatch.setattr(onnxruntime, "InferenceSession", FakeSession)
    monkeypatch.setattr(FakeSession, "providers", both[1:])
    words = refused(tmp_path, b"", device="cuda:2")
    assert words == 'device is "cuda:2", but onnxruntime cannot use it; the log has its reason'
    cuda = [("CUDAExecutionProvider", {"device_id": "2"}), ("CPUExecutionProvider", {})]
    assert FakeSession.made == (cuda, False, 1)
    monkeypatch.setattr(FakeSession, "providers", both)
    assert "no inputs" in refused(tmp_path, b"", device="cuda:2")


@pytest.mark.skipif(
    "CUDAExecutionProvider" not in onnxruntime.get_available_providers(),
    reason="this onnxruntime has no CUDA provider",
)
def test_a_model_runs_on_a_cuda_device(tmp_path: Path) -> None:
    model = opened(tmp_path, linear_onnx(), device="cuda:0")
    assert model.predict(np.zeros((2, 3), np.float32)).tolist() == [[10, -20]] * 2


def test_onnxruntime_says_and_keeps_nothing_of_this_host(tmp_path: Path) -> None:
    model, home = tmp_path / "model.onnx", tmp_path / "home"
    model.write_bytes(linear_onnx())
    home.mkdir()
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from ringbatch.engine.models.model import Options\n"
        "from ringbatch.engine.runtimes.opening import open_model\n"
        "open_model('onnx', Path(sys.argv[1]), Options(max_batch_size=32, threads=1))\n"
    )
    for where in (home, tmp_path / "none"):
        ended = subprocess.run(
            [sys.executable, "-c", code, str(model)],
            env={**os.environ, "HOME": str(where)},
            capture_output=True,
            check=True,
            text=True,
        )
        assert (ended.stdout, ended.stderr) == ("", "")
    assert list(home.rglob("*")) == []
