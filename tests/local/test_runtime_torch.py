"""PyTorch's files: what is read from them, what goes in and out, the words that bad ones get.

Tests engine/runtimes/torch/program.py and engine/runtimes/torch/script.py.
"""

import logging
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from model_files import INPUTS, OUTPUTS, ROWS, expected

from ringbatch.engine.models.model import InvalidInput, Options
from ringbatch.engine.runtimes.opening import open_model
from ringbatch.shm.tensor import Tensor

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch_models  # noqa: E402
from torch_models import (  # noqa: E402
    SIGNATURE,
    Calling,
    Dropping,
    Greedy,
    Linear,
    Optional,
    Twice,
    Watching,
    exported,
    opened,
    refused,
    saved,
    scripted,
)

EXPORTED_LATELY = pytest.mark.skipif(
    tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13),
    reason="older versions of torch know no name for these in a file",
)

threads_as_before = torch_models.threads_as_before


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_torchscript_runs_with_the_configured_signature(tmp_path: Path, rows: int) -> None:
    model = opened(tmp_path, scripted(Linear()), **SIGNATURE)
    assert (model.inputs, model.outputs) == (INPUTS, OUTPUTS)
    answers = model.predict(ROWS[:rows])
    assert answers.dtype == np.float32
    np.testing.assert_allclose(answers, expected(ROWS[:rows]), rtol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "datatype", "values"),
    [
        ("bool", "BOOL", np.array([True, False])),
        ("uint8", "UINT8", np.array([0, 255], "u1")),
        ("uint16", "UINT16", np.array([0, 65535], "u2")),
        pytest.param("uint32", "UINT32", np.array([0, 2**32 - 1], "u4"), marks=EXPORTED_LATELY),
        pytest.param("uint64", "UINT64", np.array([0, 2**64 - 1], "u8"), marks=EXPORTED_LATELY),
        ("int8", "INT8", np.array([-128, 127], "i1")),
        ("int16", "INT16", np.array([-(2**15), 2**15 - 1], "i2")),
        ("int32", "INT32", np.array([-(2**31), 2**31 - 1], "i4")),
        ("int64", "INT64", np.array([-(2**63), 2**63 - 1], "i8")),
        ("float16", "FP16", np.array([1.5, -65504], "f2")),
        # numpy has no bfloat16; in an array it is float32.
        ("bfloat16", "BF16", np.array([1.5, -3.0], "f4")),
        ("float32", "FP32", np.array([1.5, 3e38], "f4")),
        ("float64", "FP64", np.array([1.5, 1e300], "f8")),
    ],
)
def test_numbers_of_every_datatype_go_in_and_out_unchanged(
    tmp_path: Path, dtype: str, datatype: str, values: Any
) -> None:
    model = opened(tmp_path, exported(Calling(lambda x: x.clone()), f"x {dtype}: batch"))
    assert (model.inputs, model.outputs) == (
        (Tensor("x", datatype, []),),
        (Tensor("y", datatype, []),),
    )
    returned = model.predict(values)
    assert returned.dtype == values.dtype
    assert np.array_equal(returned, values)


class Pair(NamedTuple):
    total: Any
    difference: Any


Returns = Callable[[Any, Any], Any]


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (lambda a, b: a + b, ["y"]),
        (lambda a, b: (a + b,), ["y"]),
        (lambda a, b: (a + b, a - b), ["y0", "y1"]),
        (lambda a, b: {"sum": a + b, "difference": a - b}, ["sum", "difference"]),
        (lambda a, b: {"all": (a + b, a - b)}, ["all_0", "all_1"]),
        (lambda a, b: (a + b, None, 3, a - b), ["y0", "y3"]),
    ],
    ids=["one", "tuple-of-one", "tuple", "dict", "nested", "with-others"],
)
def test_outputs_are_called_by_their_keys_or_places(
    tmp_path: Path, function: Returns, names: list[str]
) -> None:
    model = opened(tmp_path, exported(Calling(function), "a: batch", "b: batch"))
    assert [t.name for t in model.inputs] == ["a", "b"]
    assert [t.name for t in model.outputs] == names
    returned = model.predict(np.array([5, 7], "f4"), np.array([1, 2], "f4"))
    arrays = returned if len(names) > 1 else [returned]
    assert [array.tolist() for array in arrays] == [[6, 9], [4, 5]][: len(names)]


def test_an_exported_constant_stays_as_it_was(tmp_path: Path) -> None:
    module = Calling(lambda x, n, more: x * n + more["m"])
    batch = torch.export.Dim("batch")
    program = torch.export.export(
        module,
        (torch.ones(4, 3), 5, {"m": torch.ones(4, 3)}),
        dynamic_shapes=({0: batch}, None, {"m": {0: batch}}),
    )
    model = opened(tmp_path, saved(program))
    assert [t.name for t in model.inputs] == ["x", "more_m"]
    x = np.ones((2, 3), "f4")
    assert model.predict(x, 10 * x).tolist() == [[15] * 3] * 2


@pytest.mark.parametrize("rows", [1, 3])
def test_a_dimension_found_to_be_dynamic_is_one(tmp_path: Path, rows: int) -> None:
    auto = {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}
    program = torch.export.export(
        Calling(lambda x: x * 2), (torch.ones(4, 5, 2),), dynamic_shapes=(auto,)
    )
    model = opened(tmp_path, saved(program))
    assert model.inputs == (Tensor("x", "FP32", [-1, 2]),)
    x = np.ones((rows, 1, 2), "f4")
    assert np.array_equal(model.predict(x), x * 2)


def test_a_size_beyond_the_files_range_is_the_clients_mistake(tmp_path: Path) -> None:
    model = opened(tmp_path, exported(Calling(lambda x: x * 2), "x: batch length<=8"))
    assert model.inputs == (Tensor("x", "FP32", [-1]),)
    assert model.predict(np.ones((1, 8), "f4")).shape == (1, 8)
    with pytest.raises(InvalidInput) as caught:
        model.predict(np.ones((1, 9), "f4"))
    assert str(caught.value) == (
        "input 'x' has a size of 9 in dimension 1, but the model takes at most 8"
    )


def test_without_a_batch_dimension_all_dimensions_are_the_models(tmp_path: Path) -> None:
    model = opened(tmp_path, exported(Calling(lambda x: x.sum()), "x: 2 length"), max_batch_size=0)
    assert (model.inputs, model.outputs) == (
        (Tensor("x", "FP32", [2, -1]),),
        (Tensor("y", "FP32", []),),
    )
    assert model.predict(np.ones((2, 5), "f4")) == 10


def test_a_batch_dimension_of_one_goes_with_batches_of_one(tmp_path: Path) -> None:
    model = opened(tmp_path, exported(Linear(), "x: 1 3"), max_batch_size=1)
    assert model.inputs == INPUTS
    assert model.predict(np.zeros((1, 3), "f4")).tolist() == [[10, -20]]


CUT = "export the model with a dynamic batch dimension, "
ALONE = "or set max_batch_size = 0 to run each request alone, with its tensors as they are"
BAD: dict[str, tuple[Callable[[], bytes], str]] = {
    "fixed-batch-of-four": (
        lambda: exported(Linear(), "x: 4 3"),
        f"input 'x' has a first dimension of 4, but max_batch_size is 32; {CUT}{ALONE}",
    ),
    "fixed-batch-of-one": (
        lambda: exported(Linear(), "x: 1 3"),
        "input 'x' has a first dimension of 1, but max_batch_size is 32; "
        f"{CUT}set max_batch_size = 1, {ALONE}",
    ),
    "no-dimension-at-all": (
        lambda: exported(Calling(lambda x: x * 2), "x:"),
        f"input 'x' has no batch dimension in the file; export the model with one, {ALONE}",
    ),
    "a-batch-that-ends-too-soon": (
        lambda: exported(Linear(), "x: batch<=8 3"),
        "input 'x' has a batch dimension of at most 8, but max_batch_size is 32; "
        "set max_batch_size = 8",
    ),
    "an-output-without-a-batch": (
        lambda: exported(Calling(lambda x: x.sum()), "x: batch"),
        f"output 'y' has no batch dimension in the file; export the model with one, {ALONE}",
    ),
    "an-output-of-one-row": (
        lambda: exported(Calling(lambda x: x.sum(0, keepdim=True)), "x: batch 3"),
        "output 'y' has a first dimension of 1, but max_batch_size is 32; "
        f"{CUT}set max_batch_size = 1, {ALONE}",
    ),
    "an-output-of-another-size": (
        lambda: exported(Calling(lambda x: x.T.contiguous()), "x: batch length"),
        "output 'y' has a first dimension of",
    ),
    "an-output-of-twice-the-batch": (
        lambda: exported(Calling(lambda x: torch.cat([x, x])), "x: batch 3"),
        "output 'y' has a first dimension of 2*",
    ),
    "no-inputs": (
        lambda: exported(Calling(lambda: torch.ones(3))),
        "the model has no inputs, so there is nothing to ask it",
    ),
    "no-outputs": (lambda: exported(Calling(lambda x: 3), "x: batch"), "the model returns no"),
    "complex": (
        lambda: exported(Calling(lambda x: x * 2), "x complex64: batch"),
        "input 'x' is complex64, which cannot be served",
    ),
}


@pytest.mark.parametrize(("make", "words"), BAD.values(), ids=BAD)
def test_a_program_that_cannot_be_served_is_refused_in_words(
    tmp_path: Path, make: Callable[[], bytes], words: str
) -> None:
    assert refused(tmp_path, make()).startswith(words)


def test_a_program_brings_its_own_signature(tmp_path: Path) -> None:
    assert refused(tmp_path, exported(Linear(), "x: batch 3"), **SIGNATURE) == (
        "inputs and outputs are for TorchScript; an exported program says them itself"
    )


class Runs:
    """Unpickled, it would leave a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def with_record(data: bytes, path: Path, ending: str, content: bytes) -> bytes:
    """An archive with another content of one record."""
    path.write_bytes(data)
    again = path.with_name("again.zip")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(again, "w") as new:
        (found,) = [name for name in old.namelist() if name.endswith(ending)]
        for name in old.namelist():
            new.writestr(name, content if name == found else old.read(name))
    return again.read_bytes()


def test_code_in_the_samples_of_a_program_is_not_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """torch's own loader would run it."""
    # What torch logs of that has fewer places than values, which caplog takes for an error.
    caplog.set_level(logging.CRITICAL, "torch._export.serde.serialize")
    trap = tmp_path / "it-was-run"
    evil = tmp_path / "evil.pt"
    torch.save(((Runs(trap),), {}), evil)
    data = with_record(
        exported(Linear(), "x: batch 3"),
        tmp_path / "program.zip",
        "data/sample_inputs/model.pt",
        evil.read_bytes(),
    )
    assert refused(tmp_path, data) == (
        "a part of it is a pickled Python object, which runs code while it is read; "
        "if you trust where the file comes from, set trust_pickle = true"
    )
    assert not trap.exists()
    assert opened(tmp_path, data, trust_pickle=True).inputs == INPUTS
    assert trap.exists()


def test_the_operators_own_setting_for_pickles_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "0")
    opened(tmp_path, exported(Linear(), "x: batch 3"))
    assert os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] == "0"


def test_torchscript_without_a_signature_is_refused_with_its_parameters(tmp_path: Path) -> None:
    assert refused(tmp_path, scripted(Linear())) == (
        "TorchScript does not say what its tensors look like; set inputs and outputs, "
        'such as inputs = ["x FP32 [3, 224, 224]"]; its forward takes x (Tensor)'
    )


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (["x FP32 [3]", "z FP32 [3]"], "inputs has 2 tensors, but its forward takes 1 (x)"),
        (["x BYTES []"], "'x' is BYTES, but torch has no tensors of it"),
    ],
)
def test_a_signature_that_torchscript_cannot_have_is_refused(
    tmp_path: Path, inputs: list[str], words: str
) -> None:
    assert refused(tmp_path, scripted(Linear()), inputs=inputs, outputs=["y FP32 [2]"]) == words


def test_torchscript_may_have_arguments_to_spare_and_return_by_name(tmp_path: Path) -> None:
    model = opened(
        tmp_path, scripted(Optional()), inputs=["v FP32 []"], outputs=["a FP32 []", "b FP32 []"]
    )
    returned = model.predict(np.array([1, 2], "f4"))
    assert {name: array.tolist() for name, array in returned.items()} == {
        "a": [1, 2],
        "b": [2, 4],
    }


def test_torchscript_is_not_served_as_if_it_were_in_training(tmp_path: Path) -> None:
    signature = {"inputs": ["x FP32 [100]"], "outputs": ["y FP32 [100]"]}
    model = opened(tmp_path, scripted(Dropping(), training=True), **signature)
    x = np.ones((1, 100), "f4")
    assert np.array_equal(model.predict(x), x)


def test_a_run_has_the_threads_of_its_worker(tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    path.write_bytes(exported(Linear(), "x: batch 3"))
    for threads in (3, 1):
        open_model("torch", path, Options(max_batch_size=1, threads=threads))
        assert torch.get_num_threads() == threads


def test_nothing_is_kept_for_a_backward_pass(tmp_path: Path) -> None:
    seen = []
    model = opened(tmp_path, exported(Linear(), "x: batch 3"))
    with Watching(lambda *_: seen.append(torch.is_inference_mode_enabled())):
        model.predict(ROWS)
    assert seen
    assert all(seen)


@pytest.mark.parametrize("kind", ["program", "script"])
@pytest.mark.parametrize(("autocast", "error"), [("BF16", 0.05), ("FP16", 0.005)])
def test_autocast_calculates_in_less_and_returns_the_declared_datatype(
    tmp_path: Path, kind: str, autocast: str, error: float
) -> None:
    module = Twice()
    data, more = (
        (exported(module, "x: batch 64"), {})
        if kind == "program"
        else (scripted(module), {"inputs": ["x FP32 [64]"], "outputs": ["y FP32 [64]"]})
    )
    x = np.random.default_rng(0).standard_normal((5, 64), dtype=np.float32)
    exact = opened(tmp_path, data, **more).predict(x)
    model = opened(tmp_path, data, autocast=autocast, **more)
    about = model.predict(x)
    assert model.outputs[0].datatype.name == "FP32"
    assert about.dtype == np.float32
    assert not np.array_equal(about, exact)
    np.testing.assert_allclose(about, exact, atol=error)


@pytest.mark.parametrize("kind", ["program", "script"])
def test_images_and_weights_can_have_their_channels_last(tmp_path: Path, kind: str) -> None:
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten())
    data, more = (
        (exported(module, "x: batch 3 8 8"), {})
        if kind == "program"
        else (scripted(module), {"inputs": ["x FP32 [3, 8, 8]"], "outputs": ["y FP32 [288]"]})
    )
    x = np.random.default_rng(0).standard_normal((5, 3, 8, 8), dtype=np.float32)
    plain = opened(tmp_path, data, **more).predict(x)
    seen: list[bool] = []

    def watch(function: Any, arguments: Any) -> None:
        if "conv" in str(function):
            seen.extend(
                one.is_contiguous(memory_format=torch.channels_last) for one in arguments[:2]
            )

    model = opened(tmp_path, data, channels_last=True, **more)
    with Watching(watch):
        answer = model.predict(x)
    assert seen == [True, True]
    np.testing.assert_allclose(answer, plain, atol=1e-5)


def test_too_little_memory_is_called_so_and_the_next_batch_is_answered(tmp_path: Path) -> None:
    model = opened(tmp_path, scripted(Greedy()), inputs=["x FP32 []"], outputs=["y FP32 []"])
    with pytest.raises(MemoryError, match="allocate"):
        model.predict(np.ones(2, "f4"))
    assert model.predict(np.ones(0, "f4")).shape == (0,)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB\nmore"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"),
    ],
)
def test_too_little_memory_of_a_device_is_called_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: RuntimeError
) -> None:
    model = opened(tmp_path, exported(Linear(), "x: batch 3"))

    def fail(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(model.predict, "_run", fail)
    with pytest.raises(MemoryError) as caught:
        model.predict(ROWS)
    assert str(caught.value) == str(error).splitlines()[0]
    # What the failed run held would be kept by its traceback while the batch is halved.
    assert caught.value.__context__ is None


def test_any_other_failure_of_the_model_is_its_own(tmp_path: Path) -> None:
    model = opened(tmp_path, exported(Calling(lambda x: torch.ones(3)[x]), "x int64: batch"))
    with pytest.raises(IndexError):
        model.predict(np.array([7]))
    assert model.predict(np.array([2])).tolist() == [1]
