"""Large requests over gRPC, whose tensor goes into its slot as it comes."""

from dataclasses import replace
from typing import Any

import pytest
from grpc_harness import Call
from grpc_service_harness import (
    MAX_REQUEST_BYTES,
    TIMEOUT_NS,
    Harness,
    message,
    numbers_in,
    on_loop,
)
from http2_harness import data
from segment_fixture import spec

from ringbatch.frontend.grpc import inference as grpc_inference
from ringbatch.frontend.grpc.messages import inference
from ringbatch.frontend.grpc.reading_in_place import ReadingInPlace
from ringbatch.frontend.http2.frames import CANCEL
from ringbatch.frontend.request.arrival import LARGE_BYTES
from ringbatch.shm.engine_slots import BatchMark
from ringbatch.shm.slot import Reason, Status
from ringbatch.shm.tensor import Tensor

SIZE = 3 * LARGE_BYTES // 2 // 8
NUMBERS = range(1, SIZE + 1)
TENSOR = b"".join(number.to_bytes(8, "little") for number in NUMBERS)
MODEL = spec(
    0,
    [Tensor("x", "INT64", [SIZE])],
    [Tensor("y", "INT64", [])],
    max_batch_size=2,
    timeout_ns=TIMEOUT_NS,
)


def large(rows: int = 1, shape: tuple[int, ...] | None = None, **more: Any) -> bytes:
    tensor = {"name": "x", "datatype": "INT64", "shape": shape or (rows, SIZE)}
    return message(*[*NUMBERS] * rows, **{"inputs": [tensor]} | more)


def owed_bytes(harness: Harness) -> int:
    """Return the bytes that have yet to arrive in slots."""
    return harness.settings.inference._arrivals._owed_bytes


def is_whole(harness: Harness) -> bool:
    """Return whether no ended call still holds memory or a slot."""
    harness.settings.budget.take(8 * MAX_REQUEST_BYTES)
    harness.settings.budget.give(8 * MAX_REQUEST_BYTES)
    return not owed_bytes(harness) and not harness.lane.in_flight


def begun(harness: Harness, data: bytes, part: float = 0.5, **more: Any) -> tuple[Call, bytes]:
    """A call of which a part has come, and the rest."""
    call = harness.call(end=False, **more)
    framed = call.framed(data)
    at = int(len(framed) * part)
    call.send_bytes(framed[:at])
    return call, framed[at:]


async def answered(harness: Harness, call: Call, rows: int = 1, **expected: str) -> None:
    """Assert that the slot holds the tensor; answer it, and assert that the answer comes back."""
    (request,) = await harness.taken(1)
    memory, start, end = harness.segment.memory, request.request_offset, request.result_offset
    assert request.rows == rows
    assert bytes(memory[start : start + request.request_bytes]) == TENSOR * rows
    memory[end : end + 8 * rows] = (4711).to_bytes(8, "little") * rows
    harness.engine_slots.answer(
        request.ref, Status.OK, 8 * rows, BatchMark(1, 1, Reason.IDLE, 0), 0
    )
    harness.engine_slots.flush()
    harness.gateway.collect()
    answer = inference("ModelInferResponse").FromString(await call.answer())
    assert numbers_in(answer) == [4711] * rows
    assert {name: getattr(answer, name) for name in expected} == expected


@pytest.mark.parametrize("cut", [100, 1 << 10, 5000, 1 << 14])
def test_it_comes_in_pieces_of_any_size_and_the_process_holds_none_of_it(cut: int) -> None:
    async def test() -> None:
        harness = Harness(MODEL)
        call = harness.call(end=False)
        framed = call.framed(large(id="mine"))
        room = call.room
        for at in range(0, len(framed), cut):
            call.send_bytes(framed[at : at + cut])
            if 1 << 11 < at < len(framed) - cut:
                assert owed_bytes(harness) > SIZE * 8
                harness.settings.budget.take(8 * MAX_REQUEST_BYTES)
                harness.settings.budget.give(8 * MAX_REQUEST_BYTES)
        call.finish()
        await answered(harness, call)
        assert call.room >= room, "what goes into a slot is taken"
        assert is_whole(harness)

    on_loop(test)


def test_a_request_of_several_rows_goes_into_one_slot() -> None:
    async def test() -> None:
        harness = Harness(MODEL)
        call, rest = begun(harness, large(2))
        assert owed_bytes(harness)
        call.send_bytes(rest)
        await answered(harness, call, 2)

    on_loop(test)


def test_of_a_repeated_message_only_the_differences_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        harness = Harness(MODEL)
        for identity in ("a", "", "b" * 127):
            call, rest = begun(harness, large(id=identity))
            assert owed_bytes(harness)
            call.send_bytes(rest)
            await answered(harness, call, id=identity)
            monkeypatch.setattr(grpc_inference, "parsed", None)
        assert is_whole(harness)

    on_loop(test)


def test_a_known_one_is_for_the_model_of_that_name_now() -> None:
    async def test() -> None:
        harness = Harness(MODEL)
        for generation, version in enumerate(("1", "2")):
            model = replace(MODEL, version=version, generation=generation)
            harness.segment.model_table.publish((model,))
            for _ in range(2):
                call, rest = begun(harness, large())
                call.send_bytes(rest)
                await answered(harness, call, model_version=version)
        harness.segment.model_table.publish(())
        call, rest = begun(harness, large())
        call.send_bytes(rest)
        assert (await call.ended())[0] == "NOT_FOUND"
        assert is_whole(harness)

    on_loop(test)


def test_its_client_may_go_or_its_time_be_over_while_it_comes() -> None:
    async def test() -> None:
        harness = Harness(MODEL)
        gone, _ = begun(harness, large())
        late, _ = begun(harness, large(), timeout="20m")
        streams = [*harness.client.connection.core.streams.values()]
        assert [stream.sink is not None for stream in streams] == [True, True]
        assert owed_bytes(harness)
        gone.cancel()
        assert (await late.ended())[0] == "DEADLINE_EXCEEDED"
        assert is_whole(harness)
        assert [stream.sink for stream in streams] == [None, None], "it may be another's now"
        begun(harness, large())
        harness.client.connection.connection_lost(None)
        assert is_whole(harness)

    on_loop(test)


def test_its_deadline_is_that_of_the_call() -> None:
    async def test() -> None:
        harness = Harness(MODEL)
        call, rest = begun(harness, large(), timeout="50m")
        call.send_bytes(rest)
        await harness.taken(1)
        assert (await call.ended())[0] == "DEADLINE_EXCEEDED"

    on_loop(test)


def test_it_ends_with_its_message() -> None:
    async def test() -> None:
        harness = Harness(MODEL)
        short, _ = begun(harness, large())
        short.finish()
        status, text = await short.ended()
        assert (status, text) == (
            "INVALID_ARGUMENT",
            "the call ended in the middle of its message",
        )
        long, rest = begun(harness, large())
        long.send_bytes(rest[: -(1 << 10)])
        long.send_bytes(rest[-(1 << 10) :] + bytes(9))
        assert (await long.ended())[0] == "UNIMPLEMENTED"
        assert is_whole(harness)

    on_loop(test)


@pytest.mark.parametrize(
    ("data", "status", "words"),
    [
        (large(shape=(1, SIZE - 1)), "INVALID_ARGUMENT", "shape"),
        (large(shape=(2, SIZE)), "INVALID_ARGUMENT", "bytes"),
        (large(model_name="other"), "NOT_FOUND", "other"),
        (
            large(inputs=[{"name": "x", "datatype": "BF16", "shape": [1, SIZE]}]),
            "INVALID_ARGUMENT",
            "BF16",
        ),
    ],
    ids=["shape", "bytes", "model", "datatype"],
)
def test_a_wrong_large_message_gets_the_error_of_any_other(
    data: bytes, status: str, words: str
) -> None:
    async def test() -> None:
        harness = Harness(MODEL)
        call, rest = begun(harness, data)
        assert owed_bytes(harness) == 0
        call.send_bytes(rest)
        found, text = await call.ended()
        assert found == status
        assert words in text
        assert is_whole(harness)

    on_loop(test)


def test_where_slots_wait_for_as_much_as_they_may_a_request_is_gathered() -> None:
    async def test() -> None:
        harness = Harness(MODEL)
        calls = [begun(harness, large()) for _ in range(5)]
        owed = owed_bytes(harness)
        assert owed <= harness.service.engine.lane_bytes // 2
        more, rest = begun(harness, large())
        assert owed_bytes(harness) == owed
        for call, _ in calls:
            call.cancel()
        more.send_bytes(rest)
        await answered(harness, more)
        assert is_whole(harness)

    on_loop(test)


def test_a_failure_of_the_model_has_its_words_and_the_id() -> None:
    async def test() -> None:
        harness = Harness(MODEL)
        call, rest = begun(harness, large(id="mine"))
        call.send_bytes(rest)
        harness.answer(*await harness.taken(1), status=Status.INVALID, text="no such number")
        assert await call.ended() == ("INVALID_ARGUMENT", "no such number")
        assert is_whole(harness)

    on_loop(test)


def test_values_elsewhere_or_of_another_datatype_are_gathered() -> None:
    async def test() -> None:
        harness = Harness(MODEL)
        tensor = {"name": "x", "datatype": "INT64", "shape": [1, SIZE]}
        typed = tensor | {"contents": {"int64_contents": NUMBERS}}
        call, rest = begun(harness, large(inputs=[typed], raw_input_contents=[]))
        assert owed_bytes(harness) == 0
        call.send_bytes(rest)
        await answered(harness, call)
        assert is_whole(harness)

    on_loop(test)


@pytest.mark.parametrize("cut", [1000, 1 << 14, 100_000, 1 << 20])
def test_a_connection_with_large_messages_is_read_in_place_beside_others(cut: int) -> None:
    async def test() -> None:
        harness = Harness(MODEL)
        first, rest = begun(harness, large())
        assert isinstance(harness.client.protocol, ReadingInPlace)
        first.send_bytes(rest)
        await answered(harness, first)
        harness.client.read_bytes = cut
        # One goes in the middle of a frame, and another comes behind it at once.
        gone, _ = begun(harness, large())
        harness.client.send(data(gone.number, bytes(1 << 14))[:9000])
        harness.client.connection.core.reset(
            harness.client.connection.core.streams[gone.number], CANCEL
        )
        harness.client.send(data(gone.number, bytes(1 << 14))[9000:])
        for _ in range(2):
            harness.client.held = bytearray()
            call = harness.call(large())
            harness.client.release()
            await answered(harness, call)
        gone.cancel()
        assert not harness.client.gone()

    on_loop(test)
