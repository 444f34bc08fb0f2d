"""Two batches under way on a simulated device: answers, and the law about requests' memory.

Tests engine/worker/device_runner.py, engine/devices/batch_run.py and engine/devices/buffer_set.py.
"""

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import pytest
from device_harness import DeviceHarness
from played_device import IN_NS, OUT_NS, PlayedByEvents, PlayedDevice, every_play
from runner_harness import MARK, failed
from tiers import exhaustive

from ringbatch.engine.devices.batch_run import SETS, BatchRun, UnderWay
from ringbatch.engine.models.model import Model
from ringbatch.engine.worker.device_codec import DeviceCodec
from ringbatch.engine.worker.device_runner import Begun, DeviceRunner
from ringbatch.engine.worker.finite_outputs import FiniteCodec
from ringbatch.engine.worker.runner_setup import RunnerSetup
from ringbatch.engine.worker.tensor_codec import TensorCodec
from ringbatch.shm.attempts import copy_ns_in
from ringbatch.shm.engine_slots import BatchMark
from ringbatch.shm.slot import SLOT_MASK, Status
from ringbatch.shm.tensor import Tensor

X = Tensor("x", "FP32", [2])
Y = Tensor("y", "FP32", [2])
BAD = 9.0
"""A row for which the model raises as the device runs it, as late as it likes."""
REFUSED = 7
"""Rows for which the model raises as its run begins."""


OTHERS_ROW = "an answer to another row"
OTHERS_COPY = "the time of other copies"
ROW_NS = 8 * IN_NS + 8 * OUT_NS
"""Time of a row's copies."""
OTHERS_FAULT = "blamed for another row"
ANSWERED = "a copy reads the memory of an answered request"


class Fault(Exception):
    """Error raised by a test's model."""


def doubled(x: Any) -> Any:
    if BAD in x[:, 0]:
        raise Fault
    return x * 2


def refuse(rows: int) -> None:
    if rows == REFUSED:
        raise Fault


def harness_of(
    *,
    straight: bool = True,
    graphs: bool = False,
    device: type[PlayedDevice] = PlayedByEvents,
    make: type[BatchRun] = BatchRun,
    runner: type[DeviceRunner] = DeviceRunner,
) -> DeviceHarness:
    harness = DeviceHarness(
        doubled,
        [X],
        [Y],
        straight=[straight],
        on_run=refuse,
        device=device,
        make=make,
        runner=runner,
    )
    # The buffers grow no more, with which graphs would go.
    for _ in range(SETS):
        harness.batch_run.predict(np.zeros((8, 2), "f4"))
    if graphs:
        harness.batch_run.capture(1)
    return harness


def expect(harness: DeviceHarness, reply: Any, number: float, rows: int = 1) -> None:
    assert reply.answer.status is Status.OK, OTHERS_FAULT
    assert harness.value(reply, rows)[0][0] == number, OTHERS_ROW
    assert copy_ns_in(reply.answer.attempts) == rows * ROW_NS, OTHERS_COPY


def three_batches(
    harness: DeviceHarness, play: Callable[[int], int], then: Callable[[int], int] | None = None
) -> None:
    """Three of one row each: two under way at a time, and the third in the slot of the first.

    Once the first is answered, the device plays `then`, if there is one.
    """
    harness.device.play = play
    first = harness.send_tensor([[1, 0]])
    second = harness.send_tensor([[2, 0]], lane=1)
    one, two = harness.begin(first), harness.begin(second)
    assert one is not None
    assert two is not None
    harness.runner.passed(one)
    (reply,) = harness.finish(one, first)
    expect(harness, reply, 2)
    harness.device.play = then or play
    third = harness.send_tensor([[3, 0]])
    assert third & SLOT_MASK == first & SLOT_MASK
    three = harness.begin(third)
    assert three is not None
    (reply,) = harness.finish(two, second)
    expect(harness, reply, 4)
    (reply,) = harness.finish(three, third)
    expect(harness, reply, 6)
    harness.settle()


def first_two(harness: DeviceHarness, play: Callable[[int], int]) -> None:
    three_batches(harness, play, lambda _options: 0)


def of_two_sizes(harness: DeviceHarness, play: Callable[[int], int]) -> None:
    """A batch of one row and one of three."""
    harness.device.play = play
    first = harness.send_tensor([[1, 0]])
    second = harness.send_tensor([[2, 0]] * 3, rows=3, lane=1)
    one, two = harness.begin(first), harness.begin(second, rows=3)
    assert one is not None
    assert two is not None
    (reply,) = harness.finish(one, first)
    expect(harness, reply, 2)
    (reply,) = harness.finish(two, second)
    expect(harness, reply, 4, rows=3)
    harness.settle()


def one_left(harness: DeviceHarness, play: Callable[[int], int]) -> None:
    """Two, and the client of the first leaves in between; what it sends next may take its slot."""
    harness.device.play = play
    first = harness.send_tensor([[1, 0]])
    second = harness.send_tensor([[2, 0]], lane=1)
    one = harness.begin(first)
    harness.clients[0].lane.cancel(first & SLOT_MASK)
    harness.clients[0].lane.submit()
    harness.submitted[0].take()
    two = harness.begin(second)
    assert one is not None
    assert two is not None
    harness.engine_slots.flush()
    harness.clients[0].collect()
    next_one = harness.send_tensor([[5, 0]])
    harness.finish(one)
    harness.clients[0].collect()
    (reply,) = harness.finish(two, second)
    expect(harness, reply, 4)
    (reply,) = harness.run(next_one)
    expect(harness, reply, 10)


def one_fails(
    harness: DeviceHarness, play: Callable[[int], int], bad: int, *, late: bool = False
) -> None:
    """Two, of which the one with the number `bad` fails; the other one gets its own."""
    harness.device.play = play
    refs, begun = [], []
    for number in (0, 1):
        fails = number == bad
        rows = REFUSED if fails and not late else 1
        sent = BAD if fails and late else number
        refs.append(harness.send_tensor([[sent, 0]] * rows, rows=rows, lane=number))
        begun.append(harness.begin(refs[-1], rows=rows))
        assert (begun[-1] is None) == (rows == REFUSED)
    for number, (ref, one) in enumerate(zip(refs, begun, strict=True)):
        (reply,) = harness.run(ref) if one is None else harness.finish(one, ref)
        if number == bad:
            assert failed(reply, Status.MODEL_FAILED, "raised Fault")
        else:
            expect(harness, reply, 2 * number)
    harness.settle()


Life = Callable[[DeviceHarness, Callable[[int], int]], None]
LIVES: dict[str, Life] = {
    "first-two": first_two,
    "of-two-sizes": of_two_sizes,
    "one-left": one_left,
    "first-fails": partial(one_fails, bad=0),
    "second-fails": partial(one_fails, bad=1),
    "first-fails-late": partial(one_fails, bad=0, late=True),
    "second-fails-late": partial(one_fails, bad=1, late=True),
}


HOW: dict[str, dict[str, Any]] = {
    "straight": {},
    "gathered": {"straight": False},
    "graphs": {"graphs": True},
}
SOME = 100
"""Orders of each life in the first tier. Ten show each of the `BREAKS`."""


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Silence the log, as thousands of batches fail."""
    caplog.set_level(logging.CRITICAL, "ringbatch.worker")


def played(harness: DeviceHarness, life: Life, most: int | None = None) -> int:
    """Play a life in so many orders, by default in all, and return the number of orders."""
    plays = 0
    for play in islice(every_play(), most):
        life(harness, play)
        harness.law.places.clear()
        plays += 1
    return plays


@pytest.mark.parametrize("life", LIVES)
@pytest.mark.parametrize("how", HOW)
def test_each_request_gets_its_own_rows_in_any_order(life: str, how: str) -> None:
    assert played(harness_of(**HOW[how]), LIVES[life], SOME) > 20


@exhaustive
@pytest.mark.parametrize("life", [*LIVES, "three-batches"])
def test_everyone_gets_its_own_in_every_order(life: str) -> None:
    assert played(harness_of(), LIVES.get(life, three_batches)) > 20


@exhaustive
@pytest.mark.parametrize("life", ["first-two", "one-left", "second-fails"])
@pytest.mark.parametrize("how", ["gathered", "graphs"])
def test_each_request_gets_its_own_rows_in_every_order_on_each_copy_way(
    life: str, how: str
) -> None:
    assert played(harness_of(**HOW[how]), LIVES[life]) > 20


class Careless(BatchRun):
    """Defect: reads outputs without waiting for them; outputs that are not there are zeros."""

    def _finish(self, one: UnderWay) -> Any:
        return self._device.read(one.copied) if one.copied else np.zeros((1, 2), "f4")


class Crowded(BatchRun):
    """Defect: two batches share one set of buffers."""

    def __init__(self, device: Any, inputs: Any, memory: memoryview, payload_byte: int) -> None:
        super().__init__(device, inputs, memory, payload_byte)
        self._free = deque([self._free[0]] * SETS)


class Late(BatchRun):
    """Defect: copies outputs only when they are asked for."""

    def _begin(self, inputs: Any, own: Any) -> UnderWay:
        device = self._device
        copied = device.copy_out
        waiting: list[Any] = []
        device.copy_out = waiting.append  # type: ignore[method-assign, assignment]
        try:
            begun = super()._begin(inputs, own)
        finally:
            device.copy_out = copied  # type: ignore[method-assign]
        begun.copied = waiting
        return begun

    def _finish(self, one: UnderWay) -> Any:
        self._wait(one)
        mark = self._device.mark_out()
        one.copied = self._device.copy_out(one.copied[0])
        one.behind = self._device.copied_out()
        one.copies = (one.copies[0], (mark, one.behind))
        return super()._finish(one)


class Undrained(BatchRun):
    """Defect: leaves begun operations under way if the rest fails."""

    def _drained(self, run: Callable[[], Any]) -> Any:
        return run()


class Blaming(BatchRun):
    """Defect: takes every failure for that of the batch that is waited for."""

    def _lose(self) -> None:
        pass


class FromTheFirst(BatchRun):
    """Takes all copies since the first batch for those of each batch."""

    first: Any = None

    def _begin(self, inputs: Any, own: Any) -> UnderWay:
        begun = super()._begin(inputs, own)
        self.first = self.first or begun.copies[0][0]
        begun.copies = ((self.first, begun.copies[0][1]), begun.copies[1])
        return begun


class UpToTheLast(BatchRun):
    """Takes the copies of the batch that began last for those of each batch."""

    def _finish(self, one: UnderWay) -> Any:
        one.copies = self.under_way[-1].copies
        self.under_way[-1].behind.synchronize()
        return super()._finish(one)


class WithRuns(BatchRun):
    """Takes a run for a copy of its outputs."""

    def _begin(self, inputs: Any, own: Any) -> UnderWay:
        ahead = self._device.mark_out()
        begun = super()._begin(inputs, own)
        begun.copies = (begun.copies[0], (ahead, begun.behind))
        return begun


class InAlone(BatchRun):
    """Forgets the copies of outputs."""

    def _begin(self, inputs: Any, own: Any) -> UnderWay:
        begun = super()._begin(inputs, own)
        begun.copies = begun.copies[:1]
        return begun


class OfTheLatest(DeviceRunner):
    """Says of a batch what it knows of the one that began last."""

    def finish(self, begun: Begun) -> None:
        super().finish(begun._replace(runs=self.runs))


class Hasty(DeviceRunner):
    """Defect: answers a request that was cancelled while its copy is under way."""

    others: tuple[Begun, ...] = ()

    def begin(
        self, references: list[int], mark: BatchMark, began_ns: int, asked: int = 0
    ) -> Begun | None:
        for other in self.others:
            for request in self._requests(other):
                if not self._slots.wanted(request.ref):
                    self._slots.give_up(request, "", mark, began_ns)
        begun = super().begin(references, mark, began_ns, asked)
        self.others = () if begun is None else (begun,)
        return begun


BREAKS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "an-answer-before-its-event": ("first-two", OTHERS_ROW, {"make": Careless}),
    "two-batches-in-one-buffer": ("first-two", OTHERS_ROW, {"make": Crowded}),
    "two-batches-in-one-block": ("first-two", OTHERS_ROW, {"make": Crowded, "straight": False}),
    "a-graphs-output-after-the-next-replay": (
        *("first-two", OTHERS_ROW),
        {"make": Late, "graphs": True},
    ),
    "copies-since-the-first-batch": ("first-two", OTHERS_COPY, {"make": FromTheFirst}),
    "copies-of-the-batch-behind": ("of-two-sizes", OTHERS_COPY, {"make": UpToTheLast}),
    "a-run-that-counts-as-a-copy": ("first-two", OTHERS_COPY, {"make": WithRuns}),
    "no-copies-of-outputs": ("first-two", OTHERS_COPY, {"make": InAlone}),
    "times-of-the-batch-behind": ("of-two-sizes", OTHERS_COPY, {"runner": OfTheLatest}),
    "a-cancelled-requests-slot-given-back": ("one-left", ANSWERED, {"runner": Hasty}),
    "a-failed-batch-answered-before-its-copy": ("second-fails", ANSWERED, {"make": Undrained}),
    "a-batch-blamed-for-another-one": ("second-fails-late", OTHERS_FAULT, {"make": Blaming}),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_rule_that_is_broken_is_found(name: str) -> None:
    life, words, how = BREAKS[name]
    for play in every_play():
        try:
            LIVES[life](harness_of(**how), play)
        except AssertionError as error:
            if words in str(error):
                return
    pytest.fail("every order was good in spite of it")


def test_a_batch_is_lost_if_its_failure_shows_as_another_one_begins() -> None:
    """Its own failure is told by another run."""
    harness = harness_of()
    bad = harness.send_tensor([[BAD, 0]])
    refused = harness.send_tensor([[1, 0]] * REFUSED, rows=REFUSED, lane=1)
    begun = harness.begin(bad)
    assert begun is not None
    assert harness.begin(refused, rows=REFUSED) is None
    assert begun.under_way.lost
    (reply,) = harness.finish(begun, bad)
    assert failed(reply, Status.MODEL_FAILED, "raised Fault")


def test_a_request_that_cannot_be_read_has_its_batch_run_alone() -> None:
    harness = harness_of()
    short, good = harness.send(bytes(4)), harness.send_tensor([[1, 0]])
    assert harness.begin(good, short) is None
    assert harness.begin(good, short + (1 << 40)) is None
    assert harness.batch_run.under_way == []


def test_requests_that_differ_in_size_are_begun_and_answered_one_by_one() -> None:
    harness = harness_of()
    refs = [
        harness.send_tensor([[number, 0]] * rows, rows=rows)
        for number, rows in ((1, 1), (2, 3), (3, 2))
    ]
    begun = harness.begin(*refs, rows=6)
    assert begun is not None
    replies = harness.finish(begun, *refs)
    found = [harness.value(reply, rows) for reply, rows in zip(replies, (1, 3, 2), strict=True)]
    assert found == [[[2, 0]], [[4, 0]] * 3, [[6, 0]] * 2]


@pytest.mark.parametrize("rows", [(1, 1), (1, 2)])
def test_a_result_without_room_is_reported_as_too_large(rows: tuple[int, int]) -> None:
    harness = harness_of()
    refs = [harness.send_tensor([[1, 0]] * own, rows=own, result_bytes=4) for own in rows]
    begun = harness.begin(*refs)
    assert begun is not None
    replies = harness.finish(begun, *refs)
    assert {reply.answer.status for reply in replies} == {Status.RESULT_TOO_LARGE}


def test_a_codec_that_keeps_something_of_a_batch_has_no_two_of_them() -> None:
    harness = harness_of()
    assert harness.runner._in_halves
    memory, model = harness.segment.memory, Model((X,), (Y,), lambda: None, lambda: None)
    kinds: list[tuple[TensorCodec, Any, bool]] = [
        (TensorCodec(memory, model), None, False),
        (FiniteCodec(memory, model), None, True),
        (DeviceCodec(memory, model), lambda _requests: ([], []), False),
    ]
    for codec, plan, in_halves in kinds:
        runner = DeviceRunner(
            RunnerSetup(model, "m", harness.engine_slots, lambda: 0, codec=codec, plan=plan),
            on_device=harness.batch_run,
        )
        begun = runner.begin([harness.send_tensor([[1, 0]])], MARK, 0)
        assert (begun is not None) == in_halves


def test_a_graphs_output_is_lost_to_the_next_replay_alone() -> None:
    """`Late` breaks replays and nothing else: without graphs it is right."""
    assert played(harness_of(make=Late), LIVES["first-two"]) > 20
