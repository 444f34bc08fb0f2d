"""Parts over a stream of gRPC that leave at once: the same bytes as those that go the usual way.

Tests frontend/grpc/parts_at_once.py and frontend/streams/outlet.py.
"""

import re
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, cast

import pytest
from grpc_harness import STREAM, Call
from grpc_service_harness import IDENTITY, Harness, message, on_loop, streamed
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.frontend.grpc.answer import GrpcAnswers
from ringbatch.frontend.grpc.messages import inference
from ringbatch.frontend.grpc.request import GrpcRequestedOutputs
from ringbatch.frontend.v2.requested_outputs import RequestedOutput
from ringbatch.shm.engine_slots import BatchMark, Request
from ringbatch.shm.frame import Frame
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.slot import Reason, Status
from ringbatch.shm.tensor import Tensor

MARK: Final = BatchMark(1, 1, Reason.IDLE, 0)
PARTED: Final = replace(IDENTITY, in_parts=True)
OPEN: Final = replace(PARTED, outputs=(Tensor("y", "FP32", [-1]),))
BATCH_ID: Final = re.compile(rb"[0-9a-f-]{36}")
USUAL: Final = [("x-server-timing", "1")]
"""Metadata with which each part goes the usual way."""


def of_floats(*numbers: float) -> bytes:
    """Return a part of `OPEN` with one row of these."""
    data = struct.pack(f"<{len(numbers)}f", *numbers)
    return Frame(OPEN.outputs).prefix((len(numbers),), ()).ljust(64, b"\0") + data


def put(harness: Harness, request: Request, *parts: bytes) -> None:
    """Answer with parts, as a worker does, and have them looked for."""
    slots = harness.engine_slots
    writer = slots.part_writer(request, 1)
    for part in parts:
        assert writer.write(part)
    slots.post_part(request.ref)
    slots.flush()
    harness.gateway.collect()


def end(harness: Harness, request: Request) -> None:
    harness.engine_slots.answer(request.ref, Status.OK, 0, MARK, 0)
    harness.engine_slots.flush()
    harness.gateway.collect()


def answer_of(message: bytes) -> Any:
    return inference("ModelStreamInferResponse").FromString(message)


async def begun(harness: Harness, usual: bool = False, **more: Any) -> tuple[Call, Request]:
    call = harness.call(message(1, **more), path=STREAM, metadata=USUAL if usual else [])
    (request,) = await harness.taken(1)
    return call, request


def sent_at_once(harness: Harness, call: Call) -> int:
    """Return the bytes of messages that have left so."""
    return harness.client.connection._serving[call.number].outlet.sent_bytes


async def both_ways(
    model: ModelSpec, parts: Sequence[bytes], **more: Any
) -> tuple[list[bytes], list[bytes], int]:
    """Return the messages with these parts by both ways, and the bytes that left at once."""
    found, at_once = [], []
    for usual in (False, True):
        harness = Harness(model)
        call, request = await begun(harness, usual, **more)
        for part in parts:
            put(harness, request, part)
        await harness.quiet()
        harness.client.absorb()
        at_once.append(sent_at_once(harness, call))
        found.append([BATCH_ID.sub(b"-" * 36, one) for one in call.messages])
        end(harness, request)
        assert await call.ended() == ("OK", "")
    assert at_once[1] == 0
    return found[0], found[1], at_once[0]


@given(
    rows=st.lists(st.lists(st.floats(width=32), max_size=5), min_size=1, max_size=6),
    name=st.sampled_from(["", "a", "a longer id " * 20]),
)
def test_parts_of_any_shape_are_the_same_both_ways(rows: list[list[float]], name: str) -> None:
    async def test() -> None:
        parts = [of_floats(*row) for row in rows]
        found, wanted, at_once = await both_ways(OPEN, parts, id=name)
        assert found == wanted
        assert len(found) == len(rows)
        own = sum(5 + len(one) for one in found[1:])
        assert at_once == own, "all but the first, which comes with the head"

    on_loop(test)


def test_parts_of_one_size_may_have_other_shapes() -> None:
    async def test() -> None:
        model = replace(PARTED, outputs=(Tensor("y", "FP32", [-1, -1]),))
        frame, data = Frame(model.outputs), struct.pack("<2f", 1, 2)
        parts = [
            frame.prefix(shape, ()).ljust(64, b"\0") + data
            for shape in ((1, 2), (1, 2), (2, 1), (1, 2))
        ]
        found, wanted, at_once = await both_ways(model, parts)
        assert found == wanted
        assert at_once
        shapes = [list(one.infer_response.outputs[0].shape) for one in map(answer_of, found)]
        assert shapes == [[1, 1, 2], [1, 1, 2], [1, 2, 1], [1, 1, 2]]

    on_loop(test)


@pytest.mark.parametrize("size", [1, 50, 4_000, 4_090, 5_000])
def test_parts_that_no_frame_holds_go_the_usual_way(size: int) -> None:
    async def test() -> None:
        model = replace(PARTED, outputs=(Tensor("y", "FP32", [size]),))
        parts = [struct.pack("<f", number) * size for number in range(3)]
        found, wanted, at_once = await both_ways(model, parts)
        assert found == wanted
        assert bool(at_once) is (size <= 4_000)

    on_loop(test)


ONE: Final = Tensor("a", "INT64", [])
OTHER_MODELS: Final = {
    "several outputs": (ONE, Tensor("b", "INT64", [])),
    "strings": (Tensor("a", "BYTES", []),),
    "padded": (Tensor("a", "INT64", [-1], padding=0),),
}


@pytest.mark.parametrize("name", OTHER_MODELS)
def test_answers_of_other_forms_go_the_usual_way(name: str) -> None:
    async def test() -> None:
        model = replace(PARTED, outputs=OTHER_MODELS[name])
        frame = Frame(model.answered)
        sizes, lengths = (2,) * frame.open_dimensions, (7,) * frame.bytes_tensors
        part = bytearray(frame.place(1, sizes, lengths).size)
        part[: frame.prefix_bytes] = frame.prefix(sizes, lengths)
        if lengths:
            part[-7:] = b"\x03\0\0\0abc"
        found, wanted, at_once = await both_ways(model, [bytes(part)] * 3)
        assert found == wanted
        assert at_once == 0

    on_loop(test)


def test_a_model_without_batches_has_the_same_bytes() -> None:
    async def test() -> None:
        model = replace(OPEN, max_batch_size=0)
        parts = [of_floats(1), of_floats(2), of_floats(3, 4)]
        found, wanted, at_once = await both_ways(
            model, parts, inputs=[{"name": "x", "datatype": "INT64", "shape": []}]
        )
        assert found == wanted
        assert at_once

    on_loop(test)


def test_contents_and_classes_go_the_usual_way() -> None:
    async def test() -> None:
        asked = [{"name": "y", "parameters": {"classification": {"int64_param": 1}}}]
        parts = [of_floats(1, 2), of_floats(3, 4)]
        found, wanted, at_once = await both_ways(OPEN, parts, outputs=asked)
        assert found == wanted
        assert at_once == 0

    on_loop(test)


def test_a_part_that_does_not_fit_fails_its_request() -> None:
    async def test() -> None:
        harness = Harness(OPEN)
        call, request = await begun(harness)
        put(harness, request, of_floats(1))
        put(harness, request, of_floats(2))
        await harness.quiet()
        harness.client.absorb()
        assert sent_at_once(harness, call)
        put(harness, request, of_floats(3) + b"more")
        harness.submitted()
        harness.gateway.collect()
        assert await call.ended() == ("OK", "")
        *parts, error = streamed(call)
        assert len(parts) == 2
        assert "does not fit the model's outputs" in error.error_message

    on_loop(test)


def test_parts_without_room_wait_and_those_behind_them() -> None:
    async def test() -> None:
        harness = Harness(OPEN)
        call, request = await begun(harness)
        put(harness, request, of_floats(0))
        put(harness, request, of_floats(1))
        await harness.quiet()
        harness.client.absorb()
        (_, second) = call.messages
        once = sent_at_once(harness, call)
        harness.client.windows(len(second) + 4)
        put(harness, request, of_floats(2))
        put(harness, request, of_floats(3))
        await harness.quiet()
        harness.client.absorb()
        assert sent_at_once(harness, call) == once, "its prefix alone finds no room"
        harness.client.windows(1 << 20)
        # It finds room, and the one before has yet to be sent.
        put(harness, request, of_floats(4))
        assert sent_at_once(harness, call) == once
        await harness.quiet()
        harness.client.absorb()
        put(harness, request, of_floats(5))
        assert sent_at_once(harness, call) > once
        end(harness, request)
        assert await call.ended() == ("OK", "")
        raw = [answer.infer_response.raw_output_contents[0] for answer in streamed(call)]
        assert raw == [struct.pack("<f", number) for number in range(6)]
        assert harness.client.connection.core.waiting_bytes == 0

    on_loop(test)


def test_the_bytes_of_all_parts_are_counted() -> None:
    async def test() -> None:
        counted = []
        for usual in (False, True):
            harness = Harness(OPEN)
            _, request = await begun(harness, usual)
            (waiter,) = filter(None, harness.gateway._waiting)
            pending = cast(Any, waiter)._in_parts.on_part.__self__
            put(harness, request, *(of_floats(number) for number in range(3)))
            put(harness, request, of_floats(3))
            counted.append(pending.parts_bytes)
        assert counted[0] == counted[1] > 0

    on_loop(test)


def test_a_call_that_is_gone_sends_nothing_more() -> None:
    async def test() -> None:
        harness = Harness(OPEN)
        call, request = await begun(harness)
        put(harness, request, of_floats(0))
        put(harness, request, of_floats(1))
        await harness.quiet()
        harness.client.absorb()
        outlet = harness.client.connection._serving[call.number].outlet
        before = outlet.sent_bytes
        call.cancel()
        put(harness, request, of_floats(2))
        assert outlet.sent_bytes == before
        assert not outlet.send(b"x")

    on_loop(test)


@given(rows=st.integers(1, 3), numbers=st.lists(st.integers(0, 255), max_size=4))
def test_the_bytes_before_the_tail_depend_on_size_and_prefix_alone(
    rows: int, numbers: list[int]
) -> None:
    answers = GrpcAnswers(OPEN)
    requested = GrpcRequestedOutputs((RequestedOutput(0, binary=True),), False, 0)
    found = set()
    for fill in (0, 1, *numbers):
        size = 64 + 4 * rows * len(numbers)
        result = bytearray([fill] * size)
        result[:8] = len(numbers).to_bytes(8, "little")
        tail = answers.tail_of(rows, bytes(result), requested)
        assert tail == 64
        answer = answers.render(((rows, memoryview(result)),), requested, b"")
        assert answer.endswith(result[tail:])
        found.add(answer[: len(answer) - (size - tail)])
    assert len(found) == 1
