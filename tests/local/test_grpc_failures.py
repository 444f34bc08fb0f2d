"""Failures of the server's own, in the middle of one call over gRPC: no other call is touched."""

import logging

import pytest
from grpc_harness import Call
from grpc_service_harness import Harness, message, numbers_in, on_loop

from ringbatch.frontend.grpc.call_context import MethodHandler
from ringbatch.frontend.grpc.connection import GrpcConnection, InferCall
from ringbatch.frontend.grpc.inference import GrpcAnswer
from ringbatch.frontend.http2.frames import INTERNAL_ERROR

BROKEN = "/broken"


def broken(*_: object) -> None:
    raise ZeroDivisionError


@pytest.fixture(autouse=True)
def _failures_are_logged_without_words_here(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


async def served_on(harness: Harness, *calls: Call) -> None:
    """Return where calls are answered, and others of the connection."""
    late = harness.call(message(99))
    harness.answer(*await harness.taken(1))
    assert numbers_in(await late.answer()) == [99]
    for number, call in enumerate(calls):
        assert numbers_in(await call.answer()) == [number]
    assert harness.client.reading
    assert not harness.client.gone()
    assert harness.client.connection.core.streams == {}


def test_a_call_that_cannot_begin_ends_alone() -> None:
    async def test() -> None:
        harness = Harness()
        harness.methods[BROKEN] = MethodHandler(False, False, broken)  # type: ignore[arg-type]
        first = harness.call(message(0))
        harness.client.held = bytearray()
        failed = harness.call(b"", path=BROKEN)
        second = harness.call(message(1))
        harness.client.release()
        harness.answer(*await harness.taken(2))
        await harness.quiet()
        await served_on(harness, first, second)
        assert failed.reset == INTERNAL_ERROR

    on_loop(test)


def test_an_answer_that_cannot_be_given_ends_its_call_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        harness = Harness()
        failed, other = harness.call(message(0)), harness.call(message(0))
        whole = GrpcConnection.inferred

        def inferred(connection: GrpcConnection, call: InferCall, answer: GrpcAnswer) -> None:
            if call.stream.number == failed.number:
                raise ZeroDivisionError
            whole(connection, call, answer)

        with monkeypatch.context() as replaced:
            replaced.setattr(GrpcConnection, "inferred", inferred)
            harness.answer(*await harness.taken(2))
            await harness.quiet()
        await served_on(harness, other)
        assert failed.reset == INTERNAL_ERROR
        assert harness.lane.in_flight == 0

    on_loop(test)


@pytest.mark.parametrize("name", ["tick", "looked", "cancel", "happened"])
def test_a_call_that_fails_later_ends_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        harness = Harness()
        other = harness.call(message(0))
        failed = harness.call(end=False)
        (served,) = harness.client.connection._serving.values()
        monkeypatch.setattr(served, name, broken, raising=True)
        if name == "tick":
            harness.client.connection.tick()
        elif name == "looked":
            harness.client.connection.core.wait(1)
            harness.client.connection.core.wait(-1)
            harness.client.connection._flush()
        elif name == "cancel":
            failed.cancel()
        else:
            failed.send_bytes(b"x")
        harness.answer(*await harness.taken(1))
        await harness.quiet()
        await served_on(harness, other)
        assert failed.reset == (None if name == "cancel" else INTERNAL_ERROR)
        assert harness.client.connection._serving == {}

    on_loop(test)


def test_a_deadline_that_fails_ends_its_call_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        harness = Harness()
        failed = harness.call(end=False, timeout="1m")
        (served,) = harness.client.connection._serving.values()
        monkeypatch.setattr(served, "fail", broken)
        while failed.reset is None:
            await harness.quiet()
            harness.client.absorb()
        await served_on(harness)
        assert failed.reset == INTERNAL_ERROR

    on_loop(test)
