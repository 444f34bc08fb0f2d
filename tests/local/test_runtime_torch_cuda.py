"""Exported programs by the calls that a CUDA device gets: on a CPU that takes them, and on CUDA.

Tests engine/runtimes/torch/cuda.py.
"""

import mmap
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from model_files import ROWS, expected

torch = pytest.importorskip("torch", reason="torch is not installed")

import cuda_on_cpu  # noqa: E402
import torch_models  # noqa: E402
from cuda_on_cpu import Site  # noqa: E402
from torch_models import Calling, Linear, exported, opened, refused, scripted  # noqa: E402

from ringbatch.engine.devices.port import MemoryRefused  # noqa: E402
from ringbatch.engine.worker.graph_check import capture  # noqa: E402

threads_as_before = torch_models.threads_as_before

ON = pytest.mark.parametrize(
    "on",
    [
        "cpu",
        pytest.param(
            "cuda:0",
            marks=pytest.mark.skipif(
                not torch.cuda.is_available(), reason="there is no CUDA device"
            ),
        ),
    ],
)
DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float64")


def site(folder: Path, data: bytes, on: str = "cpu", **options: Any) -> Site:
    return Site(opened(folder, data, device=on, **options))


@ON
@pytest.mark.parametrize("straight", [True, False])
@pytest.mark.parametrize("count", [1, 3])
def test_a_program_gets_its_rows_on_either_copy_way(
    tmp_path: Path, on: str, straight: bool, count: int
) -> None:
    own = site(tmp_path, exported(Linear(), "x: batch 3"), on)
    if straight:
        own.straight()
    for _ in range(2):
        answers = own.run.predict(own.rows(ROWS[:count]))
        np.testing.assert_allclose(answers, expected(ROWS[:count]), rtol=1e-3, atol=1e-5)
    padded = own.run.predict(own.rows(ROWS[:count], spare=2))
    wanted = [*expected(ROWS[:count]), *[expected(ROWS[:count])[-1]] * 2]
    np.testing.assert_allclose(padded, wanted, rtol=1e-3, atol=1e-5)


@ON
@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_of_every_datatype_come_as_they_are(tmp_path: Path, on: str, dtype: str) -> None:
    module = Calling(lambda x: x.clone())
    own = site(tmp_path, exported(module, f"x {dtype}: batch 2"), on)
    own.straight()
    values = torch.tensor([[1, 0], [0, 1], [1, 1]], dtype=getattr(torch, dtype))
    bits = values.view(torch.int16) if dtype == "bfloat16" else values
    answers = own.run.predict(own.rows(bits.numpy()))
    assert answers.tolist() == values.float().tolist()


@ON
def test_a_graph_answers_as_the_program_does(tmp_path: Path, on: str) -> None:
    own = site(tmp_path, exported(Linear(), "x: batch 3"), on)
    own.straight()
    without = own.run.predict(own.rows(ROWS[:4]))
    own.capture(4, 2)
    assert on != "cpu" or own.calls.count("pool") == 1, "the sizes share one"
    kept = [own.run.predict(own.rows(ROWS[first : first + 2])) for first in (0, 2)]
    np.testing.assert_allclose(np.concatenate(kept), expected(ROWS[:4]), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(own.run.predict(own.rows(ROWS[:4])), without, rtol=1e-3, atol=1e-5)


@ON
def test_a_graph_reads_the_latest_rows(tmp_path: Path, on: str) -> None:
    own = site(tmp_path, exported(Calling(lambda x: (x + 1, x.sum(1) * 2)), "x: batch 3"), on)
    own.capture(3)
    first, second = own.run.predict(ROWS[3:6])
    np.testing.assert_allclose(first, ROWS[3:6] + 1, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(second, ROWS[3:6].sum(1) * 2, rtol=1e-3, atol=1e-5)


@ON
@pytest.mark.parametrize("autocast", ["off", "BF16"])
def test_images_and_datatypes_are_as_without_a_device(
    tmp_path: Path, on: str, autocast: str
) -> None:
    data = exported(torch.nn.Conv2d(3, 2, 3).eval(), "x: batch 3 8 8")
    options = {"channels_last": True, "autocast": autocast}
    images = np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype("f4")
    wanted = opened(tmp_path, data, device=on, **options).predict(images)
    own = site(tmp_path, data, on, **options)
    np.testing.assert_allclose(own.run.predict(images), wanted, rtol=1e-3, atol=1e-5)
    own.capture(2)
    np.testing.assert_allclose(own.run.predict(images), wanted, rtol=1e-3, atol=1e-5)


def test_images_come_with_their_channels_last(tmp_path: Path) -> None:
    model = opened(
        tmp_path, exported(Calling(lambda x: x + 1), "x: batch 3 8 8"), channels_last=True
    )
    predict: Any = model.predict
    plain, layouts = predict._run, []

    def noting(tensors: Any) -> Any:
        layouts.append(tensors[0].is_contiguous(memory_format=torch.channels_last))
        return plain(tensors)

    predict._run = noting
    answers = Site(model).run.predict(np.zeros((2, 3, 8, 8), "f4"))
    assert (answers.tolist(), layouts) == (np.ones((2, 3, 8, 8)).tolist(), [True])


@pytest.mark.parametrize("graph", [True, False])
def test_each_queue_is_a_stream_and_a_run_waits_for_its_copies(tmp_path: Path, graph: bool) -> None:
    model = opened(tmp_path, exported(Linear(), "x: batch 3"))
    own = Site(model)
    predict: Any = model.predict
    streams: list[Any] = []
    plain = predict._run, predict.to_host

    def noting(number: int) -> Any:
        def call(given: Any) -> Any:
            streams.append(own.torch.cuda.current)
            return plain[number](given)

        return call

    predict._run, predict.to_host = noting(0), noting(1)
    own.run.predict(ROWS[:2])
    if graph:
        own.capture(2)
    own.device._out.behind.clear()
    own.run.predict(ROWS[:2])
    assert set(streams) == {own.device._out}
    assert [event.stream for event in own.device._out.behind] == [own.device._in]
    assert own.torch.cuda.current is None


@ON
@pytest.mark.parametrize("straight", [True, False])
def test_copies_of_a_batch_take_some_time(tmp_path: Path, on: str, straight: bool) -> None:
    own = site(tmp_path, exported(Linear(), "x: batch 3"), on)
    if straight:
        own.straight()
    for _ in range(3):
        own.run.predict(own.rows(ROWS[:3]))
        assert 0 < own.run.copy_ns < 10_000_000_000


def test_the_time_of_copies_is_that_of_events_next_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = site(tmp_path, exported(Linear(), "x: batch 3"))
    seconds = count()
    clock = SimpleNamespace(monotonic=lambda: next(seconds), sleep=lambda _s: None)
    monkeypatch.setattr(cuda_on_cpu, "time", clock)
    own.run.predict(own.rows(ROWS[:3]))
    # Each event is a second behind the one before it, and two are in front of copies.
    assert own.run.copy_ns == 2_000_000_000


def drawn(rows: int, first: int) -> list[Any]:
    return [np.random.default_rng(first).normal(size=(rows, 3)).astype("f4")]


@ON
def test_graphs_are_captured_if_they_answer_as_the_program_does(tmp_path: Path, on: str) -> None:
    own = site(tmp_path, exported(Linear(), "x: batch 3"), on)
    assert capture(own.run, own.outputs, [4, 2, 1], drawn) == ""
    assert [sorted(one.graphs) for one in own.run._free] == [[1, 2, 4]] * 2


@ON
def test_a_program_that_draws_numbers_is_run_without_graphs(tmp_path: Path, on: str) -> None:
    module = Calling(lambda x: x + torch.rand_like(x))
    own = site(tmp_path, exported(module, "x: batch 3"), on)
    assert capture(own.run, own.outputs, [2, 1], drawn).startswith("with 2 rows output y differs")
    assert [one.graphs for one in own.run._free] == [{}, {}]


def test_a_capture_that_fails_leaves_the_program_without_graphs(tmp_path: Path) -> None:
    own = site(tmp_path, exported(Linear(), "x: batch 3"))
    own.torch.cuda.breaks_capture = "operation not permitted when stream is capturing"
    assert capture(own.run, own.outputs, [2], drawn) == (
        "with 2 rows RuntimeError: operation not permitted when stream is capturing"
    )
    assert own.torch.cuda.current is None
    np.testing.assert_allclose(own.run.predict(ROWS[:2]), expected(ROWS[:2]), rtol=1e-3, atol=1e-5)


def test_memory_is_registered_once_and_let_go_of(tmp_path: Path) -> None:
    own = site(tmp_path, exported(Linear(), "x: batch 3"))
    own.run.register()
    address = np.frombuffer(own.memory, "u1").ctypes.data + mmap.PAGESIZE
    assert own.calls[-1] == f"register {address} {mmap.PAGESIZE} 0"
    own.run.close()
    own.run.close()
    assert own.calls.count(f"unregister {address}") == 1


def test_a_device_that_refuses_memory_says_why(tmp_path: Path) -> None:
    own = site(tmp_path, exported(Linear(), "x: batch 3"))
    own.torch.cuda.refuses = "operation not\nsupported"
    with pytest.raises(
        MemoryRefused, match=r"^operation not supported, error 1 of cudaHostRegister$"
    ):
        own.run.register()
    assert own.calls[-1] == "zeros", "a call takes the error, so that no other one does"
    answers = own.run.predict(own.rows(ROWS[:2]))
    np.testing.assert_allclose(answers, expected(ROWS[:2]), rtol=1e-3, atol=1e-5)
    own.run.close()
    assert not [call for call in own.calls if call.startswith("unregister")]


def test_memory_that_cannot_be_let_go_of_is_an_error(tmp_path: Path) -> None:
    own = site(tmp_path, exported(Linear(), "x: batch 3"))
    own.run.register()
    own.torch.cuda.refuses = "invalid argument"
    with pytest.raises(RuntimeError, match="cudaHostUnregister: invalid argument"):
        own.run.close()


def test_a_run_without_memory_releases_its_begun_work(tmp_path: Path) -> None:
    model = opened(tmp_path, exported(Linear(), "x: batch 3"))
    own = Site(model)

    def fail(*_: Any) -> Any:
        own.calls.append("runs")
        raise RuntimeError("CUDA out of memory. Tried to allocate 1 TiB")

    predict: Any = model.predict
    predict._run = fail
    with pytest.raises(MemoryError, match="Tried to allocate"):
        own.run.predict(ROWS[:2])
    assert own.calls[own.calls.index("runs") :][:2] == ["runs", "synchronize"]
    assert own.calls[-1] == "empty_cache"


def test_its_memory_is_in_bytes(tmp_path: Path) -> None:
    assert site(tmp_path, exported(Linear(), "x: batch 3")).device.held_bytes() == 5 << 20


def test_required_graphs_are_for_programs_on_a_device(tmp_path: Path) -> None:
    data = exported(Linear(), "x: batch 3")
    words = 'cuda_graphs is "required", but {}; graphs are of exported programs on a CUDA device'
    required = {"cuda_graphs": "required"}
    assert refused(tmp_path, data, **required) == words.format('device is "cpu"')
    assert refused(tmp_path, scripted(Linear()), **required).startswith('cuda_graphs is "required"')
