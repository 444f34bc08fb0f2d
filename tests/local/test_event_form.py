"""Events of many streams from the parts of one look: the same as those that are written one by one.

Tests frontend/falcon/event_form.py and frontend/codec/number_form.py.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
import pytest
from frontend_harness import FrontendHarness, typed
from hypothesis import given
from hypothesis import strategies as st
from orjson import OPT_SERIALIZE_NUMPY, dumps

from ringbatch.frontend.codec.event_stream import event_of
from ringbatch.frontend.codec.number_form import number_texts
from ringbatch.frontend.codec.outcome import Answer
from ringbatch.frontend.falcon.event_form import Forms, events_together
from ringbatch.frontend.request.codec import V1Codec
from ringbatch.frontend.request.parts_task import InParts
from ringbatch.frontend.v1.answer import answers_of
from ringbatch.frontend.v1.rendering import V1Rendering
from ringbatch.shm.engine_slots import BatchMark
from ringbatch.shm.frame import Frame
from ringbatch.shm.many_parts import FEW
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.slot import Reason, Status
from ringbatch.shm.tensor import Tensor

END: Final[Any] = (0, b"end", ())
STREAMS: Final = FEW + 2
KINDS: Final = ("FP32", "FP64", "INT64", "UINT8", "INT32")


def part_of(model: ModelSpec, numbers: Any) -> bytes:
    """Return a part with one row of these numbers, of a model with one output."""
    (tensor,) = model.outputs
    row = np.asarray(numbers, tensor.datatype.numpy)
    sizes = tuple(size for size, said in zip(row.shape, tensor.shape, strict=True) if said == -1)
    frame = Frame(model.outputs)
    offset = frame.place(1, sizes).parts[0].offset
    return frame.prefix(sizes, ()).ljust(offset, b"\0") + row.tobytes()


class Receiver:
    """See `ringbatch.frontend.falcon.event_form.Receiver`.

    Attributes:
        is_free: as there.
        events: that came, in order.
        together: how many of them came with those of others.
    """

    def __init__(self) -> None:
        self.is_free = True
        self.events: list[bytes] = []
        self.together = 0

    def take_event(self, text: bytes) -> None:
        self.events.append(text)
        self.together += 1

    def take(self, answer: Answer) -> None:
        self.events.append(event_of(answer))


class Streams:
    """Requests for parts over one connection, and the worker that answers them.

    Args:
        model: that they ask.
        count: how many there are.
    """

    def __init__(self, model: ModelSpec, count: int = STREAMS) -> None:
        self.model = model
        self.harness = FrontendHarness(model, slots=16, lane_bytes=1 << 20)
        self.receivers: list[Receiver] = []
        self.ends: list[Any] = []
        self.wanted: list[list[bytes]] = [[] for _ in range(count)]
        self._alone = V1Rendering(answers_of(model), model, columns=False)
        forms: Forms = {}
        service = self.harness.service
        for _ in range(count):
            receiver = Receiver()
            in_parts: InParts[Answer] = InParts(
                receiver.take, END, direct=partial(events_together, receiver, forms)
            )
            body = b'{"instances": [[1, 2]]}'
            codec = V1Codec(service)
            service.pipeline.start(
                codec, model.name, body, None, self.ends.append, in_parts=in_parts
            )
            self.receivers.append(receiver)
        self.harness.loop.turn()
        self.requests = self.harness.taken()
        slots = self.harness.engine_slots
        self._writers = [slots.part_writer(request, 7) for request in self.requests]
        self._batch_id = service.engine.batch_ids.text(7)

    def step(self, rows: Sequence[Any]) -> None:
        """Write a part for each stream, None for no part, and have them looked for."""
        slots = self.harness.engine_slots
        for place, numbers in enumerate(rows):
            if numbers is None:
                continue
            part = part_of(self.model, numbers)
            assert self._writers[place].write(part)
            slots.post_part(self.requests[place].ref)
            if np.isfinite(numbers).all():
                answer = self._alone.render(((1, memoryview(part)),), self._batch_id)
                self.wanted[place].append(event_of(answer))
        slots.flush()
        self.harness.gateway.collect()

    def expect_all(self) -> None:
        assert [one.events for one in self.receivers] == self.wanted

    @property
    def together(self) -> int:
        return sum(one.together for one in self.receivers)


def model_of(*shape: int, kind: str = "FP32") -> ModelSpec:
    return replace(typed(in_parts=True), outputs=(Tensor("y", kind, list(shape)),))


@given(st.data(), st.sampled_from(KINDS), st.lists(st.integers(1, 3), min_size=1, max_size=3))
def test_texts_of_many_arrays_are_those_of_each(data: Any, kind: str, shape: list[int]) -> None:
    dtype = np.dtype(Tensor("y", kind, []).datatype.numpy)
    size = dtype.itemsize * int(np.prod(shape)) * data.draw(st.integers(1, 4))
    arrays = np.frombuffer(data.draw(st.binary(min_size=size, max_size=size)), dtype)
    arrays = arrays.reshape(-1, *shape)
    texts = number_texts(arrays)
    if dtype.kind == "f" and not np.isfinite(arrays).all():
        assert texts is None
        return
    assert texts is not None
    depth = len(shape)
    wanted = [dumps(array, None, OPT_SERIALIZE_NUMPY) for array in arrays]
    assert [b"[" * depth + text + b"]" * depth for text in texts] == wanted


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(), (2,), (-1,), (2, -1)])
def test_events_are_the_same_as_alone(kind: str, shape: tuple[int, ...]) -> None:
    streams = Streams(model_of(*shape, kind=kind))
    own = [2 if size == -1 else size for size in shape]
    for step in range(4):
        numbers = np.arange(int(np.prod(own))).reshape(own) + step
        streams.step([numbers + place for place in range(STREAMS)])
        streams.harness.loop.advance(1000)
    streams.expect_all()
    assert streams.together == 3 * STREAMS


ROWS = st.one_of(st.none(), st.lists(st.floats(width=32), min_size=1, max_size=2))


@given(st.lists(st.lists(ROWS, min_size=STREAMS, max_size=STREAMS), max_size=5))
def test_every_stream_gets_its_own_events_in_order(steps: list[list[Any]]) -> None:
    streams = Streams(model_of(-1))
    streams.step([[0.5]] * STREAMS)
    for rows in steps:
        finite = [
            None if row is None or not np.isfinite(np.float32(row)).all() else row for row in rows
        ]
        streams.step(finite)
        streams.step([[float(place)] for place in range(STREAMS)])
    streams.expect_all()


def test_parts_of_one_size_and_other_shapes_are_not_of_one_form() -> None:
    streams = Streams(model_of(-1, -1))
    wide, tall = [[1.0, 2.0]], [[1.0], [2.0]]
    for numbers in (wide, wide, tall, tall):
        streams.step([numbers] * STREAMS)
    streams.expect_all()
    assert streams.together == 2 * STREAMS, "of the second step of either shape"


def test_a_number_that_json_cannot_carry_fails_its_request_alone() -> None:
    streams = Streams(model_of(1))
    for step in range(2):
        streams.step([[float(step)]] * STREAMS)
    streams.step([[np.nan], *([[float(place)] for place in range(1, STREAMS)])])
    streams.expect_all()
    assert streams.together == STREAMS, "of the step before"
    ((status, body, _),) = streams.ends
    assert (status, b"NaN or Infinity" in body) == (500, True)
    streams.step([None, *([[0.5]] * (STREAMS - 1))])
    streams.expect_all()
    assert streams.together == STREAMS + STREAMS - 1


def test_a_stream_that_is_not_free_has_its_parts_the_usual_way() -> None:
    streams = Streams(model_of(1))
    streams.step([[0.0]] * STREAMS)
    streams.receivers[3].is_free = False
    streams.step([[1.0]] * STREAMS)
    streams.expect_all()
    assert streams.receivers[3].together == 0
    assert streams.together == STREAMS - 1


@pytest.mark.parametrize(
    "outputs",
    [
        (Tensor("y", "BOOL", [1]),),
        (Tensor("y", "BF16", [1]),),
        (Tensor("y", "FP32", [1]), Tensor("z", "FP32", [1])),
        (Tensor("y", "FP32", [-1], padding=0),),
    ],
)
def test_answers_of_other_forms_have_none(outputs: tuple[Tensor, ...]) -> None:
    model = replace(typed(in_parts=True), outputs=outputs)
    frame = Frame(model.answered)
    sizes = (1,) * frame.open_dimensions
    part = bytearray(frame.place(1, sizes).size)
    part[: frame.prefix_bytes] = frame.prefix(sizes, ())
    rendering = V1Rendering(answers_of(model), model, columns=False)
    rendering.render(((1, memoryview(part)),), "")
    assert rendering.number_form(1, bytes(part), "") is None


def test_columns_and_parts_that_do_not_fit_have_no_form() -> None:
    model = model_of(-1)
    rows, columns = (
        V1Rendering(answers_of(model), model, columns=columns) for columns in (False, True)
    )
    part = part_of(model, [1.0, 2.0])
    assert rows.number_form(1, part, "b") is not None
    assert columns.number_form(1, part, "b") is None
    assert rows.number_form(1, part + b"x", "b") is None
    assert rows.number_form(1, part_of(model, []), "b") is None


def test_the_end_comes_behind_all_events() -> None:
    streams = Streams(model_of(1))
    for step in range(3):
        streams.step([[float(step)]] * STREAMS)
    slots = streams.harness.engine_slots
    mark = BatchMark(7, 1, Reason.IDLE, 0)
    for request in streams.requests:
        slots.answer(request.ref, Status.OK, 0, mark, 0)
    streams.step([[9.0]] * STREAMS)
    streams.expect_all()
    assert streams.ends == [END] * STREAMS
    assert streams.harness.lane.in_flight == 0
