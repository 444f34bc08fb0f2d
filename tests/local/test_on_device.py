"""A model is placed on its device: the way in, graphs, and the note about both.

Tests engine/worker/on_device.py, engine/worker/graph_check.py and engine/worker/runner_choice.py.
"""

import logging
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from played_device import PlayedDevice
from segment_fixture import Client, local_segment, pack, spec, unpack

from ringbatch.engine.collector.takeover import held_by_all
from ringbatch.engine.command import check
from ringbatch.engine.devices.batch_run import SETS, BatchRun
from ringbatch.engine.ipc.messages import task_words
from ringbatch.engine.models.model import Model, RestartWorker
from ringbatch.engine.process import placement, startup
from ringbatch.engine.process.role_commands import BatchShape
from ringbatch.engine.report.models import table
from ringbatch.engine.worker import graph_check, role
from ringbatch.engine.worker.device_runner import DeviceRunner
from ringbatch.engine.worker.failure_detection import Failing
from ringbatch.engine.worker.graph_check import capture, difference_words, graph_sizes
from ringbatch.engine.worker.on_device import OnDevice, placed
from ringbatch.engine.worker.runner_choice import runner_for
from ringbatch.engine.worker.shaped_model import ShapedModel
from ringbatch.shm import device_notes
from ringbatch.shm.descriptors import TASK_WORDS
from ringbatch.shm.engine_slots import BatchMark, EngineSlots
from ringbatch.shm.errors import StartupError
from ringbatch.shm.ring import Consumer, Producer
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import Reason
from ringbatch.shm.tensor import Tensor

X = Tensor("x", "FP32", [2])
N = Tensor("n", "FP32", [])
Y = Tensor("y", "FP32", [2])


def clock() -> Callable[[], int]:
    ticks = iter(range(1 << 30))
    return lambda: next(ticks)


def place(
    device: PlayedDevice,
    inputs: Sequence[Tensor] = (X, N),
    *,
    graphs: str = "auto",
    warm: bool = True,
    batched: bool = True,
    allowed: tuple[int, ...] = (),
) -> OnDevice | None:
    model = Model(tuple(inputs), (Y,), lambda: None, lambda: None, device=device)
    entry = replace(
        spec(0, inputs, [Y], max_batch_size=6 if batched else 0), allowed_batch_sizes=allowed
    )
    return placed(
        model,
        entry,
        memoryview(bytearray(8192)),
        4096,
        path="/m.pt2",
        graphs=graphs,
        warm=warm,
        clock_ns=clock(),
    )


def of(model: Callable[..., Any]) -> PlayedDevice:
    return PlayedDevice(lambda *arrays: [model(*arrays)])


def test_graphs_are_of_the_sizes_that_are_run(caplog: pytest.LogCaptureFixture) -> None:
    device = of(lambda x, n: x * n[:, None])
    with caplog.at_level(logging.INFO, "ringbatch.worker"):
        found = place(device)
    assert found is not None
    assert found.sizes == (1, 2, 4, 6)
    assert found.note.startswith("played:0: rows of x, n straight from requests; CUDA graphs of ")
    assert found.note.endswith("1, 2, 4, 6 rows, 0 MiB")
    assert caplog.messages == [found.note]
    device.ran.clear()
    found.run.predict(np.ones((4, 2), "f4"), np.ones(4, "f4"))
    assert device.ran == ["replay of 4"]
    allowed = place(of(lambda x, n: x), allowed=(3, 5))
    assert allowed is not None
    assert allowed.sizes == (3, 5)


@pytest.mark.parametrize(("graphs", "sizes"), [("auto", 4), ("off", 0)])
def test_the_pace_has_the_time_of_copies_and_the_number_of_sizes(graphs: str, sizes: int) -> None:
    found = place(of(lambda x, n: x), graphs=graphs)
    assert found is not None
    assert found.pace == (found.run.copies_ns(6) + 200_000, sizes)
    assert found.run.copies_ns(6) > 0


def test_work_that_the_models_load_has_begun_is_awaited_first() -> None:
    calls: list[str] = []

    class Noting(PlayedDevice):
        def drain(self) -> None:
            calls.append("drain")
            super().drain()

        def register(self, memory: Any) -> Any:
            calls.append("register")
            return super().register(memory)

    assert place(Noting(lambda x, n: [x]), graphs="off") is not None
    assert calls[:2] == ["drain", "register"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"graphs": "off"}, 'no CUDA graphs: cuda_graphs is "off"'),
        ({"warm": False}, 'no CUDA graphs: warm_up is "off"'),
    ],
)
def test_without_graphs_the_note_says_why(more: dict[str, Any], words: str) -> None:
    found = place(of(lambda x, n: x), **more)
    assert found is not None
    assert (found.sizes, found.note.partition("; ")[2]) == ((), words)


def test_a_device_without_graphs_for_the_model_says_why() -> None:
    device = of(lambda x, n: x)
    device.no_graphs = "only exported programs are captured"
    found = place(device)
    assert found is not None
    assert found.note.endswith("no CUDA graphs: only exported programs are captured")
    with pytest.raises(StartupError, match="there are none: only exported programs are captured"):
        place(device, graphs="required")


def stale() -> Callable[..., Any]:
    """A model whose graphs keep a number that they were captured with."""
    seen: list[Any] = []

    def model(x: Any, n: Any) -> Any:
        seen.append(n)
        return x * seen[-1 if len(seen) < 4 else 2][0]

    return model


def test_a_graph_with_other_answers_is_not_used() -> None:
    found = place(of(stale()))
    assert found is not None
    assert found.sizes == ()
    assert "no CUDA graphs: with 6 rows output y differs by" in found.note
    with pytest.raises(StartupError, match='is "required", but there are none: with 6 rows output'):
        place(of(stale()), graphs="required")


def test_a_model_that_cannot_be_captured_runs_without() -> None:
    device = of(lambda x, n: x)
    captures = iter([True, True, True, False])

    def refuse(buffers: Any, rows: int) -> Any:
        if next(captures):
            return PlayedDevice.capture(device, buffers, rows)
        raise RuntimeError("not permitted when\nstream is capturing")

    device.capture = refuse  # type: ignore[method-assign]
    found = place(device)
    assert found is not None
    assert found.note.endswith(
        "no CUDA graphs: with 4 rows RuntimeError: not permitted when stream is capturing"
    )
    device.ran.clear()
    for _ in range(SETS):
        found.run.predict(np.ones((6, 2), "f4"), np.ones(6, "f4"))
    assert device.ran == ["run of 6"] * SETS, "the graphs that there were are gone"


def test_a_graph_that_reads_the_other_buffers_is_not_used() -> None:
    class Mixed(PlayedDevice):
        """Device whose second graph reads the first one's buffers."""

        first: Any = None

        def capture(self, buffers: Any, rows: int) -> Any:
            made = super().capture(self.first or buffers, rows)
            self.first = self.first or buffers
            return made

    found = place(Mixed(lambda x, n: [x * n[:, None]]))
    assert found is not None
    assert "no CUDA graphs: with 6 rows output y differs by" in found.note


def test_a_lost_device_ends_the_worker() -> None:
    def lost(_rows: int) -> None:
        raise RestartWorker("the device is gone")

    device = of(lambda x, n: x)
    device.on_run = lost
    with pytest.raises(RestartWorker):
        place(device)


def test_a_device_that_refuses_memory_is_named_with_the_reason() -> None:
    device = of(lambda x, n: x)
    device.refuses = "operation not supported (801)"
    found = place(device, graphs="off")
    assert found is not None
    assert found.note.startswith(
        "played:0: rows are gathered in page-locked memory (played:0 refuses: operation not "
        "supported (801)); "
    )


def test_an_input_that_is_gathered_more_quickly_is_named() -> None:
    device = of(lambda x, n: x)
    plain, now = device.copy_in, [0]

    def slow_pieces(source: Any, pieces: Any, buffer: Any) -> None:
        now[0] += len(pieces) if buffer.tensor is N else 0
        plain(source, pieces, buffer)

    device.copy_in = slow_pieces  # type: ignore[method-assign]
    model = Model((X, N), (Y,), lambda: None, lambda: None, device=device)
    found = placed(
        model,
        spec(0, [X, N], [Y]),
        memoryview(bytearray(8192)),
        4096,
        path="/m.pt2",
        graphs="off",
        warm=True,
        clock_ns=lambda: now[0],
    )
    assert found is not None
    words = "played:0: rows of x straight from requests, rows of n gathered, which is quicker; "
    assert found.note.startswith(words)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"inputs": [Tensor("x", "FP32", [-1])]}, "its inputs have open dimensions"),
        ({"batched": False}, "it has no batches"),
    ],
)
def test_rows_without_a_known_size_are_run_as_arrays(more: dict[str, Any], why: str) -> None:
    device = of(lambda x, n: x)
    assert place(device, **more) is None
    with pytest.raises(StartupError, match=f"there are none: {why}"):
        place(device, graphs="required", **more)


def test_a_model_without_a_device_is_left_alone() -> None:
    model = Model((X,), (Y,), lambda: None, lambda: None)
    memory = memoryview(b"")
    more: Any = {"path": "/m.py", "graphs": "auto", "warm": True, "clock_ns": clock()}
    assert placed(model, spec(0, [X], [Y]), memory, 0, **more) is None


def test_a_workers_batches_go_through_the_device() -> None:
    device = of(lambda x, n: x * n[:, None])
    inputs = (X, N)
    entry = spec(0, inputs, [Y], max_batch_size=4)
    segment = local_segment(entry)
    model = Model(inputs, (Y,), lambda: None, lambda: None, device=device)
    more: Any = {"path": "/m.pt2", "graphs": "auto", "warm": True, "clock_ns": clock()}
    found = placed(model, entry, segment.memory, segment.layout.payload_byte, **more)
    assert found is not None
    slots = EngineSlots(segment, 0, lambda _lane: None)
    shape = BatchShape(0, False, (), (), "", 0)
    served = ShapedModel(model, None)
    runner = runner_for(served, entry, shape, segment, slots, found, lambda _batch: None, Failing())
    assert isinstance(runner, DeviceRunner), "two batches may be under way"
    client = Client(segment)
    for first in (1, 5):
        for number in range(3):
            client.send(*_sent(inputs, [[first, number]], [2]))
        refs = Consumer(
            segment.words, segment.layout.submission_ring(0), segment.layout.slots
        ).take()
        device.ran.clear()
        device.copies.clear()
        mark = BatchMark(batch=1, rows=3, reason=Reason.FULL, dispatched_ns=1)
        runner.run(list(refs[-3:]), mark, 2)
        slots.flush()
        answers = client.collect().values()
        assert [unpack([Y], 1, reply.data)[0].tolist() for reply in answers] == [
            [[2.0 * first, 2.0 * number]] for number in range(3)
        ]
        assert device.ran == ["replay of 4"]
        assert device.copies == ["3 of requests"] * 2
        assert runner.runs.padded_rows == 1
    found.run.close()


class Serving:
    """A worker's process that is told to end as it first waits, and what it finds there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, segment: Segment) -> None:
        self.stopping: list[int] = []
        self.control = SimpleNamespace(send=lambda _message: None)
        bell = SimpleNamespace(wake=lambda: None, wait=self._send_sigterm)
        for name in ("lane_doorbell", "worker_doorbell", "collector_doorbell"):
            monkeypatch.setattr(segment, name, lambda *_: bell)
        monkeypatch.setattr(role, "settle", lambda: None)
        for name in ("wake_on_time", "wake_preempting"):
            monkeypatch.setattr(placement, name, lambda: None)
        monkeypatch.setattr(startup, "stop_on_sigterm", lambda _wake: self.stopping)
        monkeypatch.setattr(startup, "watch", lambda *_: None)

    def _send_sigterm(self, _seconds: float | None) -> None:
        self.stopping.append(signal.SIGTERM)


def test_a_worker_answers_batches_under_way_on_its_device_before_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = of(lambda x, n: x * n[:, None])
    released: list[Any] = []
    model = Model((X, N), (Y,), lambda: None, lambda: None, device=device, release=released.append)
    entry = spec(0, (X, N), [Y], max_batch_size=4)
    segment = local_segment(entry)
    layout = segment.layout
    serving, client = Serving(monkeypatch, segment), Client(segment)
    tasks = Producer(segment.words, layout.task_ring(0), TASK_WORDS)
    for batch in range(1, SETS + 3):
        client.send(*_sent((X, N), [[batch, 0]], [2]))
        refs = Consumer(segment.words, layout.submission_ring(0), layout.slots).take()
        mark = BatchMark(batch, 1, Reason.FULL, dispatched_ns=time.monotonic_ns())
        assert tasks.offer(task_words(mark, refs[-1:]))
    shape = BatchShape(0, False, (), (), "", 0)
    options = SimpleNamespace(cuda_graphs="off", ray=None, device="cpu")
    held = SimpleNamespace(path="/m.py", options=options, shape=shape, warm_up=None, parity=None)
    start: Any = SimpleNamespace(number=0, model=held, title="m/0")
    control: Any = serving.control
    role._serve(segment, start, ShapedModel(model, None), control)
    answers = [unpack([Y], 1, reply.data)[0].tolist() for reply in client.collect().values()]
    # One was ended by its step, and as many as there are sets stood behind it.
    assert sorted(answers) == [[[2.0 * batch, 0]] for batch in range(1, SETS + 2)]
    assert [task.mark.batch for task in held_by_all(segment)[0] or []] == [SETS + 2]
    assert (device.in_memory, released) == (None, [False])


def _sent(inputs: Sequence[Tensor], *values: Any) -> tuple[bytes, int]:
    payload, _ = pack(inputs, values)
    return payload, 1


@pytest.mark.parametrize(
    ("cap", "allowed", "sizes"),
    [(1, (), [1]), (32, (), [32, 16, 8, 4, 2, 1]), (6, (), [6, 4, 2, 1]), (32, (3, 7), [7, 3])],
)
def test_the_largest_size_is_captured_first(
    cap: int, allowed: tuple[int, ...], sizes: list[int]
) -> None:
    assert graph_sizes(cap, allowed) == sizes


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (np.array([1, 100.005], "f4"), ""),
        (np.array([1, 100.02], "f4"), "output y differs by 0.02, relative 0.0002"),
        (np.array([1.001, 100], "f4"), "output y differs by 0.001, relative 0.001"),
        (np.array([np.nan, 100], "f4"), "output y differs by inf, relative inf"),
        (np.array([1], "f4"), "output y is another"),
    ],
)
def test_numbers_of_a_graph_may_differ_as_parity_tolerates(graph: Any, words: str) -> None:
    without = np.array([1, 100], "f4")
    assert difference_words(["y"], without, graph) == words
    assert difference_words(["z", "y"], [without, without], [without, graph]) == words
    assert difference_words(["y"], {"y": without}, {"y": graph}) == words
    assert graph_check.TOLERANCE == check.TOLERANCE


def test_a_note_is_the_last_ones_and_is_cut_where_it_is_too_long() -> None:
    segment = local_segment(spec(0, workers=(0, 1)))
    assert device_notes.read(segment, 1) == ""
    device_notes.write(segment, 1, "a" * 2000)
    assert device_notes.read(segment, 1) == "a" * device_notes.NOTE_BYTES
    device_notes.write(segment, 1, "ü" * 2000)
    assert device_notes.read(segment, 1) == "ü" * (device_notes.NOTE_BYTES // 2)
    device_notes.write(segment, 1, "cuda:0: short")
    assert (device_notes.read(segment, 1), device_notes.read(segment, 0)) == ("cuda:0: short", "")


def test_ringbatch_models_has_each_note_once() -> None:
    segment = local_segment(spec(0, [X], [Y], workers=(0, 1, 2)))
    assert "device" not in table(segment)
    for number, note in enumerate(("cuda:0: one", "cuda:1: two", "cuda:0: one")):
        device_notes.write(segment, number, note)
    lines = table(segment).splitlines()
    assert [line for line in lines if "device" in line] == [
        "  device cuda:0: one",
        "  device cuda:1: two",
    ]


def test_no_size_is_captured_without_a_batch_of_it_before() -> None:
    run = BatchRun(of(lambda x: x), [X], memoryview(b""), 0)
    with pytest.raises(AssertionError):
        run.capture(1)
    assert capture(run, ["y"], [2], lambda rows, _first: [np.ones((rows, 2), "f4")]) == ""
