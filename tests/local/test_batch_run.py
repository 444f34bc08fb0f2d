"""A batch on a device that is played: its rows, its answers, and the law about requests' memory.

Tests engine/devices/batch_run.py and engine/worker/device_codec.py.
"""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from device_harness import DeviceHarness
from hypothesis import given
from hypothesis import strategies as st
from played_device import IN_NS, OUT_NS, PlayedDevice, every_play
from runner_harness import failed
from segment_fixture import unpack
from tiers import exhaustive

from ringbatch.engine.devices.batch_run import SETS, BatchRun, Rows, is_placeable, row_bytes
from ringbatch.engine.devices.buffer_set import BufferSet
from ringbatch.engine.devices.port import Event, MemoryRefused, Piece
from ringbatch.shm.attempts import copy_ns_in, runs_in
from ringbatch.shm.slot import Status
from ringbatch.shm.tensor import Tensor
from ringbatch.shm.uniform_batch import FEW

X = Tensor("x", "FP32", [2])
N = Tensor("n", "INT16", [])
Y = Tensor("y", "FP32", [2])
ORDERS = st.lists(st.integers(0, 5), max_size=60)


def drawn(numbers: Sequence[int]) -> Callable[[int], int]:
    """Return a play by drawn numbers."""
    left = iter(numbers)
    return lambda options: next(left, 0) % options


def scaled(x: Any, n: Any) -> Any:
    return x * n[:, None]


@pytest.mark.parametrize("count", [1, 2, FEW, FEW + 1])
@pytest.mark.parametrize("straight", [(True, False), (False, True), (True, True), ()])
def test_each_request_gets_its_own_rows_on_either_copy_way(
    count: int, straight: Sequence[bool]
) -> None:
    harness = DeviceHarness(scaled, [X, N], [Y], straight=straight)
    for _ in range(2):
        refs = [harness.send_tensor([[i, -i]], [3], lane=i % 2) for i in range(count)]
        replies = harness.run(*refs)
        assert [harness.value(r) for r in replies] == [[[3.0 * i, -3.0 * i]] for i in range(count)]
    ways = [f"{count} of requests" if own else "1 of block" for own in straight or (False, False)]
    assert harness.device.copies == ways * 2


@given(
    ORDERS,
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 1)), min_size=1, max_size=6),
    st.booleans(),
    st.booleans(),
)
def test_each_request_gets_its_own_rows_in_any_order(
    order: Sequence[int], requests: list[tuple[int, int]], first: bool, second: bool
) -> None:
    harness = DeviceHarness(
        scaled, [X, N], [Y], play=drawn(order), straight=(first, second), sizes=[4, 16]
    )
    refs = [
        harness.send_tensor([[i, row] for row in range(rows)], [2] * rows, rows=rows, lane=lane)
        for i, (rows, lane) in enumerate(requests)
    ]
    replies = harness.run(*refs)
    for number, (reply, (rows, _)) in enumerate(zip(replies, requests, strict=True)):
        assert harness.value(reply, rows) == [[2.0 * number, 2.0 * row] for row in range(rows)]
    total = sum(rows for rows, _ in requests)
    assert harness.device.ran == [f"run of {4 if total <= 4 else 16 if total <= 16 else total}"]


def test_spare_rows_are_the_last_one_again() -> None:
    seen: list[Any] = []

    def model(x: Any) -> Any:
        seen.append(x.tolist())
        return x

    harness = DeviceHarness(model, [X], [Y], straight=[True], sizes=[1, 4])
    harness.run(*(harness.send_tensor([[i, i]]) for i in range(3)))
    assert seen == [[[0, 0], [1, 1], [2, 2], [2, 2]]]


@pytest.mark.parametrize("straight", [True, False])
def test_numbers_of_every_datatype_come_as_they_were_sent(straight: bool) -> None:
    inputs = [
        Tensor(name.lower(), name, [2])
        for name in ("BOOL", "UINT8", "INT64", "FP16", "BF16", "FP32", "FP64")
    ]
    outputs = [Tensor(f"{tensor.name}_out", tensor.datatype.name, [2]) for tensor in inputs]
    sent = [[[1, 0]], *([[2, 5]] for _ in inputs[1:])]
    harness = DeviceHarness(lambda *arrays: None, inputs, outputs, straight=[straight] * 7)
    harness.device.model = lambda *arrays: list(arrays)
    (reply,) = harness.run(harness.send_tensor(*sent))
    assert [array.tolist() for array in unpack(outputs, 1, reply.data)] == sent


def test_arrays_go_the_same_way() -> None:
    device = PlayedDevice(lambda x, n: [x + n[:, None]])
    run = BatchRun(device, [Tensor("x", "BF16", [2]), N], memoryview(b""), 0)
    for rows in (3, 1):
        answer = run.predict(np.full((rows, 2), 1.5, "f4"), np.arange(rows)[::-1])
        assert answer.tolist() == [[1.5 + n, 1.5 + n] for n in range(rows)][::-1]
    # BF16 as its bits, as steps of a chain have it.
    assert run.predict(np.full((1, 2), 0x3F80, "u2"), np.zeros(1)).tolist() == [[1, 1]]


def test_a_request_that_cannot_be_read_fails_alone() -> None:
    harness = DeviceHarness(lambda x: x, [X], [Y], straight=[True])
    short = harness.send(b"\0" * 4)
    replies = harness.run(harness.send_tensor([[1, 2]]), short)
    assert harness.value(replies[0]) == [[1, 2]]
    assert failed(replies[1], Status.CORRUPT, "the payload is not what its header says")


class Fault(Exception):
    """Error raised by a test's model."""


def raising_for(bad: float) -> Callable[[Any], Any]:
    def model(x: Any) -> Any:
        if bad in x[:, 0]:
            raise Fault
        return x

    return model


@given(ORDERS, st.integers(1, 6), st.integers(0, 5), st.booleans())
def test_one_that_breaks_a_run_fails_alone_however_late(
    order: Sequence[int], count: int, bad: int, straight: bool
) -> None:
    harness = DeviceHarness(
        raising_for(bad), [X], [Y], play=drawn(order), straight=[straight], sizes=[8]
    )
    replies = harness.run(*(harness.send_tensor([[i, i]]) for i in range(count)))
    for number, reply in enumerate(replies):
        if number == bad:
            assert failed(reply, Status.MODEL_FAILED, "raised Fault")
        else:
            assert harness.value(reply) == [[number, number]]


@given(ORDERS, st.integers(2, 8))
def test_a_batch_that_is_too_large_runs_in_parts(order: Sequence[int], count: int) -> None:
    def short_of_memory(rows: int) -> None:
        if rows > 2:
            raise MemoryError("CUDA out of memory")

    harness = DeviceHarness(
        lambda x: x, [X], [Y], play=drawn(order), straight=[True], on_run=short_of_memory
    )
    replies = harness.run(*(harness.send_tensor([[i, i]]) for i in range(count)))
    assert [harness.value(reply) for reply in replies] == [[[i, i]] for i in range(count)]


class Impatient(PlayedDevice):
    """Defect: waits for nothing after a failure."""

    def drain(self) -> None:
        pass


class Premature(PlayedDevice):
    """Defect: says at once that outputs have been copied."""

    def copied_out(self) -> Event:
        return self._passed(super().copied_out())

    def _passed(self, event: Any) -> Event:
        event.happened = True
        return event  # type: ignore[no-any-return]


class Hasty(Premature):
    """Defect: runs the model without waiting for its inputs."""

    def copied_out(self) -> Event:
        return PlayedDevice.copied_out(self)

    def copied_in(self) -> Event:
        return self._passed(super().copied_in())


class Keeping(BufferSet):
    """Defect: keeps the graphs of buffers that are gone."""

    def room_for(self, rows: int) -> Sequence[Any]:
        graphs = dict(self.graphs)
        buffers = super().room_for(rows)
        self.graphs.update(graphs)
        return buffers


class Regardless(BatchRun):
    """Defect: its sets keep the graphs of buffers that are gone."""

    def __init__(self, device: Any, inputs: Any, memory: memoryview, payload_byte: int) -> None:
        super().__init__(device, inputs, memory, payload_byte)
        self._free = deque(Keeping(device, inputs) for _ in self._free)


class Crowded(BatchRun):
    """Defect: gathers each input in the same memory."""

    def _sources(self, inputs: Sequence[Rows | Any], own: BufferSet) -> Any:
        block = own.block_of(64)
        sizes = [
            self._staged(rows, tensor, block.array)
            for rows, tensor in zip(inputs, self._inputs, strict=True)
        ]
        return [(block, [Piece(0, size, 0)]) for size in sizes]


class Unready(PlayedDevice):
    """Keeps the page-locked memory as it is at each mark."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.blocks: list[Any] = []
        self.marked: list[list[float]] = []

    def block(self, size: int) -> Any:
        self.blocks.append(super().block(size))
        return self.blocks[-1]

    def mark_in(self) -> Any:
        self.marked.append(self.blocks[-1].array[:8].view("f4").tolist())
        return super().mark_in()


def test_rows_that_the_cpu_gathers_are_there_before_the_time_of_copies_begins() -> None:
    device = Unready(lambda x: [x])
    run = BatchRun(device, [X], memoryview(b""), 0)
    for number in range(SETS):
        run.predict(np.full((1, 2), number, "f4"))
    assert device.marked == [[0, 0], [1, 1]]


@given(ORDERS, st.integers(1, 6), st.booleans(), st.booleans())
def test_copy_times_of_both_ways_follow_their_bytes_in_any_order(
    order: Sequence[int], count: int, first: bool, second: bool
) -> None:
    harness = DeviceHarness(
        scaled, [X, N], [Y], play=drawn(order), straight=(first, second), sizes=[4, 8]
    )
    rows = 4 if count <= 4 else 8
    # Spare rows are copied on the device. A row is 8 and 2 bytes, and a result 8.
    copy_ns = rows * (8 + 2) * IN_NS + rows * 8 * OUT_NS
    for reply in harness.run(*(harness.send_tensor([[i, 0]], [2]) for i in range(count))):
        word = reply.answer.attempts
        assert (copy_ns_in(word), runs_in(word)) == (copy_ns, 1)


def test_copies_of_runs_of_one_batch_are_added_up_and_those_of_a_failed_run_are_not_known() -> None:
    harness = DeviceHarness(raising_for(9), [X], [Y], straight=[True])
    replies = harness.run(*(harness.send_tensor([[number, 0]]) for number in (1, 2, 3, 9)))
    # All four fail, two are right, two fail, one is right.
    row_ns = 8 * IN_NS + 8 * OUT_NS
    words = [reply.answer.attempts for reply in replies]
    assert [copy_ns_in(word) for word in words] == [n * row_ns for n in (2, 2, 3, 3)]
    assert [runs_in(word) for word in words] == [2, 2, 4, 5]


def run_of(run: BatchRun, rows: int) -> None:
    """Run batches of so many rows of zeros, one for each set of buffers."""
    for _ in range(SETS):
        run.predict(*(np.zeros((rows, *one.shape), one.datatype.numpy) for one in run._inputs))


def two_batches(
    play: Callable[[int], int],
    straight: Sequence[bool],
    *,
    graphs: bool = False,
    fails: bool = False,
    device: type[PlayedDevice] = PlayedDevice,
    make: type[BatchRun] = BatchRun,
) -> None:
    """Run two batches of one row each, one after the other; the first is played, and may fail."""

    def fail(_rows: int) -> None:
        raise Fault

    harness = DeviceHarness(scaled, [X, N], [Y], straight=straight, device=device, make=make)
    if graphs:
        run_of(harness.batch_run, 1)
        harness.batch_run.capture(1)
        if make is Regardless:
            run_of(harness.batch_run, 3)
    for number in (1, 5):
        harness.device.play = play if number == 1 else lambda _: 0
        harness.device.on_run = fail if fails and number == 1 else lambda _: None
        (reply,) = harness.run(harness.send_tensor([[number, 0]], [2]))
        if fails and number == 1:
            assert failed(reply, Status.MODEL_FAILED, "raised Fault")
        else:
            assert harness.value(reply) == [[2.0 * number, 0]]


@pytest.mark.parametrize(
    "straight", [(True, False), pytest.param((False, False), marks=exhaustive)]
)
@pytest.mark.parametrize(
    "how", [{}, pytest.param({"graphs": True}, marks=exhaustive), {"fails": True}], ids=str
)
def test_in_every_order_everyone_gets_its_own(straight: Sequence[bool], how: Any) -> None:
    plays = 0
    for play in every_play():
        two_batches(play, straight, **how)
        plays += 1
    assert plays > 10


BREAKS: dict[str, dict[str, Any]] = {
    "a-slot-released-before-its-copy": {"device": Impatient, "fails": True},
    "outputs-read-before-their-copy": {"device": Premature},
    "a-run-on-half-copied-rows": {"device": Hasty},
    "a-graph-run-on-half-copied-rows": {"device": Hasty, "graphs": True},
    "a-graph-of-buffers-that-are-gone": {"make": Regardless, "graphs": True},
    "two-inputs-in-one-place": {"make": Crowded},
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_rule_that_is_broken_is_found(name: str) -> None:
    found = 0
    for play in every_play():
        try:
            two_batches(play, (True, False), **BREAKS[name])
        except AssertionError:
            found += 1
            break
    assert found, "every order was good in spite of it"


def test_answers_stay_as_they_are_when_a_graph_is_replayed() -> None:
    run = BatchRun(PlayedDevice(lambda x: [x * 2]), [X], memoryview(b""), 0)
    run_of(run, 2)
    run.capture(2)
    first = run.predict(np.full((2, 2), 1, "f4"))
    second = run.predict(np.full((2, 2), 2, "f4"))
    assert (first.tolist(), second.tolist()) == ([[2, 2]] * 2, [[4, 4]] * 2)


def test_graphs_go_with_the_buffers_that_they_read() -> None:
    device = PlayedDevice(lambda x: [x])
    run = BatchRun(device, [X], memoryview(b""), 0)
    for rows, number in ((1, 1), (2, 2), (16, 3), (2, 4)):
        for _ in range(SETS):
            answers = run.predict(np.full((rows, 2), number, "f4"))
            assert answers.tolist() == [[number, number]] * rows
        if rows == 2:
            run.capture(2)
    assert device.ran == [f"run of {rows}" for rows in (1, 1, 2, 2, 16, 16, 2, 2)]


def test_batches_of_other_sizes_run_without_a_graph() -> None:
    device = PlayedDevice(lambda x: [x])
    run = BatchRun(device, [X], memoryview(b""), 0)
    run_of(run, 4)
    run.capture(4)
    run.capture(2)
    device.ran.clear()
    for rows in (1, 2, 3, 4):
        run.predict(np.zeros((rows, 2), "f4"))
    run.drop_graphs()
    run.predict(np.zeros((4, 2), "f4"))
    assert device.ran == [*("run of 1", "replay of 2", "run of 3", "replay of 4", "run of 4")]


class Metered(PlayedDevice):
    """Device whose copies take so long a call, and so long a byte."""

    def __init__(self, call_ns: int) -> None:
        super().__init__(lambda *arrays: list(arrays))
        self.call_ns = call_ns
        self.now_ns = 0

    def copy_in(self, source: Any, pieces: Sequence[Piece], buffer: Any) -> None:
        self.now_ns += self.call_ns * len(pieces)
        super().copy_in(source, pieces, buffer)

    def clock_ns(self) -> int:
        # Time also passes by itself, a little.
        self.now_ns += 1
        return self.now_ns


def test_the_quicker_way_is_measured_for_each_input() -> None:
    device = Metered(call_ns=0)
    memory = memoryview(bytearray(1 << 16))
    run = BatchRun(device, [X, N], memory, 4096)
    run.measure(4, device.clock_ns)
    assert (run.straight, run.gathered) == ([], ["x", "n"]), "one way is left"
    run.register()
    assert device.in_memory is not None
    assert len(device.in_memory) == len(memory) - 4096, "requests' memory alone"
    run.measure(4, device.clock_ns)
    assert (run.straight, run.gathered) == (["x", "n"], [])
    device.call_ns = 1000
    run.measure(4, device.clock_ns)
    assert (run.straight, run.gathered) == ([], ["x", "n"])
    run.close()
    assert device.in_memory is None


@pytest.mark.parametrize(
    ("call_ns", "refuses", "taken_ns"),
    [(0, "", 8), (1000, "", 2 * 1008), (1000, "no", 2 * 1008)],
    ids=["straight", "gathered", "refused"],
)
def test_copies_take_the_time_of_the_quicker_way(call_ns: int, refuses: str, taken_ns: int) -> None:
    """Copies of two inputs; a copy of the clock takes 1 ns, and gathering takes one call."""
    device = Metered(call_ns)
    device.refuses = refuses
    run = BatchRun(device, [X, N], memoryview(bytearray(1 << 16)), 4096)
    with suppress(MemoryRefused):
        run.register()
    run.measure(4, device.clock_ns)
    one_ns = run.copies_ns(4)
    assert run.copies_ns(32) == 8 * one_ns
    assert 2 * call_ns < one_ns <= taken_ns


def test_memory_is_let_go_of_once_nothing_reads_it() -> None:
    device = PlayedDevice(lambda x: [x])
    run = BatchRun(device, [X], memoryview(bytearray(64)), 0)
    run.register()
    device.copied_in()
    run.close()
    assert device.in_memory is None


def test_buffers_that_are_too_small_are_gone_before_larger_ones_are_made() -> None:
    held: list[int] = []

    class Noting(PlayedDevice):
        def buffers(self, tensors: Sequence[Tensor], rows: int) -> Sequence[Any]:
            held.append(len(own.buffers))
            if rows == 4:
                raise MemoryError
            return super().buffers(tensors, rows)

    run = BatchRun(Noting(lambda x: [x]), [X], memoryview(b""), 0)
    own = run._free[0]
    run._free = deque([own])
    run.predict(np.zeros((2, 2), "f4"))
    with pytest.raises(MemoryError):
        run.predict(np.zeros((4, 2), "f4"))
    assert run.predict(np.ones((2, 2), "f4")).tolist() == [[1, 1], [1, 1]]
    assert held == [0, 0, 0]


def test_a_device_that_refuses_memory_is_fed_from_page_locked_memory() -> None:
    device = PlayedDevice(lambda x: [x])
    device.refuses = "operation not supported"
    memory = memoryview(bytearray(np.arange(8, dtype="f4").tobytes()))
    run = BatchRun(device, [X], memory, 0)
    with pytest.raises(MemoryRefused, match="operation not supported"):
        run.register()
    assert run.predict(Rows([24, 8], [8, 8], 2)).tolist() == [[6, 7], [2, 3]]
    assert device.copies == ["1 of block"]


@pytest.mark.parametrize(
    ("tensor", "bytes_of_a_row"),
    [
        (X, 8),
        (N, 2),
        (Tensor("b", "BF16", [3]), 6),
        (Tensor("o", "FP32", [-1]), None),
        (Tensor("t", "BYTES", []), None),
        (Tensor("e", "FP32", [0]), None),
    ],
)
def test_rows_have_a_size_or_are_not_placed(tensor: Tensor, bytes_of_a_row: int | None) -> None:
    assert is_placeable([X, tensor]) == (bytes_of_a_row is not None)
    if bytes_of_a_row is not None:
        assert row_bytes(tensor) == bytes_of_a_row
