"""Ends of gRPC connections: the server stops, the client is silent or does not read."""

import asyncio
from typing import NoReturn

import pytest
from grpc_harness import INFER, STREAM, Call, Client
from grpc_service_harness import (
    BEGUN,
    MAX_REQUEST_BYTES,
    Harness,
    counted,
    message,
    numbers_in,
    on_loop,
    whole,
)
from http2_harness import GREETING

from ringbatch.frontend.grpc.connection import GrpcConnection
from ringbatch.frontend.grpc.messages import SCHEMA, inference
from ringbatch.frontend.grpc.service import Control
from ringbatch.frontend.grpc.streams import WINDOW
from ringbatch.frontend.http2.frames import CANCEL
from ringbatch.shm.errors import ModelNotReady, Overloaded
from ringbatch.shm.tallies import CLIENT_GONE, CODE_LABELS, Protocol, ends_of


def test_a_stop_serves_calls_from_before_its_client_knows() -> None:
    async def test() -> None:
        harness = Harness()
        call = harness.call(message(7))
        (request,) = await harness.taken(1)
        harness.stop()
        late = harness.call(message(8))
        (other,) = await harness.taken(1)
        harness.client.absorb()
        assert harness.client.goaways == [(1 << 31) - 1]
        harness.client.pong()
        assert harness.client.goaways == [(1 << 31) - 1, late.number]
        assert not harness.client.gone()
        harness.answer(request, other)
        assert numbers_in(await call.answer()) == [7]
        assert numbers_in(await late.answer()) == [8]
        await harness.quiet()
        assert harness.client.gone()

    on_loop(test)


def test_a_client_that_comes_to_a_stopping_server_gets_goaway() -> None:
    async def test() -> None:
        harness = Harness()
        harness.stop()
        client = harness.connect()
        client.absorb()
        assert client.goaways == [(1 << 31) - 1]

    on_loop(test)


def test_a_stop_ends_an_idle_reflection_call() -> None:
    async def test() -> None:
        harness = Harness()
        service = "grpc.reflection.v1.ServerReflection"
        request = SCHEMA.services[service]["ServerReflectionInfo"].request
        asked = request(list_services="*").SerializeToString()
        call = harness.call(asked, path=f"/{service}/ServerReflectionInfo", end=False)
        await harness.quiet()
        harness.client.absorb()
        assert len(call.messages) == 1
        harness.stop()
        assert await call.ended() == ("UNAVAILABLE", "the server is stopping")

    on_loop(test)


def expect_nothing() -> NoReturn:
    raise ModelNotReady("another is loading")


def test_a_connection_without_a_call_ends_after_a_time() -> None:
    async def test() -> None:
        harness = Harness()
        for _ in range(5):
            harness.client.connection.tick()
        assert not harness.client.gone()
        harness.client.connection.tick()
        harness.client.absorb()
        assert harness.client.gone()
        assert harness.client.goaways == [0]

    on_loop(test)


@pytest.mark.parametrize("sent", [b"", b"PRI * HT", GREETING + b"\0", GREETING + BEGUN])
def test_a_client_that_stops_in_the_middle_is_gone_after_a_time(sent: bytes) -> None:
    async def test() -> None:
        harness = Harness()
        harness.settings.idle_timeout_s = 3600.0
        client = Client(GrpcConnection(harness.settings, asyncio.get_running_loop()), sent)
        for _ in range(13):
            client.connection.tick()
        assert client.gone()

    on_loop(test)


@pytest.mark.parametrize("path", [INFER, STREAM])
def test_a_message_that_stops_ends_its_call_after_a_time(path: str) -> None:
    async def test() -> None:
        harness = Harness()
        call = harness.call(path=path, end=False)
        call.send_bytes(whole(0, 1000, b"half"))
        await harness.quiet()
        for _ in range(32):
            harness.client.connection.tick()
        code, text = await call.ended()
        assert (code, "did not come within" in text) == ("DEADLINE_EXCEEDED", True)
        harness.settings.budget.take(8 * MAX_REQUEST_BYTES)

    on_loop(test)


def test_a_client_that_does_not_read_ends_after_a_time() -> None:
    async def test() -> None:
        harness = Harness()
        client = harness.client
        call = harness.call(message(1))
        client.full = 1 << 20
        client.connection.pause_writing()
        assert not client.reading
        harness.answer(*await harness.taken(1))
        await harness.quiet()
        client.absorb()
        assert call.messages == []
        for _ in range(62):
            client.connection.tick()
        assert client.gone()

    on_loop(test)


WATCH = "/grpc.health.v1.Health/Watch"
LIVE = "/inference.GRPCInferenceService/ServerLive"


METADATA = "/inference.GRPCInferenceService/ModelMetadata"


def test_a_call_that_infers_nothing_counts_as_the_same_does_over_http() -> None:
    async def test() -> None:
        harness = Harness()
        await harness.call(b"", path=LIVE).answer()
        unknown = inference("ModelMetadataRequest")(name="none").SerializeToString()
        assert (await harness.call(unknown, path=METADATA).ended())[0] == "NOT_FOUND"
        # One that is cut off before anybody serves it.
        harness.call(path=LIVE, end=False).send_bytes(whole(0, 1000, b"half"))
        await harness.quiet()
        for _ in range(32):
            harness.client.connection.tick()
        http = Protocol.HTTP
        assert counted(harness) == {(http, "200"): 1, (http, "404"): 1, (http, "504"): 1}

    on_loop(test)


def test_an_inference_that_is_refused_before_it_is_read_counts_as_one() -> None:
    async def test() -> None:
        harness = Harness()
        harness.call(path=INFER, end=False).send_bytes(whole(0, 1000, b"half"))
        await harness.quiet()
        for _ in range(32):
            harness.client.connection.tick()
        assert counted(harness) == {(Protocol.GRPC, "504"): 1}

    on_loop(test)


def test_calls_that_are_taken_back_beside_new_ones_take_no_other_with_them() -> None:
    async def test() -> None:
        harness = Harness()
        cancelled = [harness.call(message(number)) for number in range(40)]
        harness.publish(*await harness.taken(40))
        # The new ones come first, and have the gateway look for answers.
        harness.client.held = bytearray()
        new = [harness.call(message(number)) for number in range(120)]
        for call in cancelled:
            call.cancel()
        harness.client.release()
        harness.answer(*await harness.taken(120))
        for number, call in enumerate(new):
            assert numbers_in(await call.answer()) == [number]
        assert not harness.client.gone()
        codes = ends_of(harness.segment, [0])[0].codes[Protocol.GRPC]
        assert (codes[0], codes[1 + CODE_LABELS.index(str(CLIENT_GONE))]) == (120, 40)

    on_loop(test)


async def stalled(harness: Harness, call: Call) -> None:
    """Wait until a clock has reset a call whose client has no room for the answers."""
    for _ in range(70):
        harness.client.connection.tick()
        harness.client.absorb()
        harness.client.pong()
    await harness.quiet()
    assert call.reset == CANCEL


def nothing_is_left(harness: Harness) -> bool:
    """Return whether no call, no task and no part of the budget is held any more."""
    assert harness.client.connection._serving == {}
    assert asyncio.all_tasks() == {asyncio.current_task()}
    harness.settings.budget.take(8 * MAX_REQUEST_BYTES)
    return True


def test_of_a_watch_that_a_clock_ends_nothing_is_left() -> None:
    async def test() -> None:
        harness = Harness()
        harness.client.windows(0)
        call = harness.call(b"", path=WATCH)
        await harness.quiet()
        assert harness.client.connection._serving
        await stalled(harness, call)
        assert nothing_is_left(harness)

    on_loop(test)


def test_of_a_stream_that_a_clock_ends_nothing_is_left() -> None:
    async def test() -> None:
        harness = Harness()
        harness.client.windows(0)
        call = harness.call(*[message(1)] * (WINDOW + 9), path=STREAM, end=False)
        harness.answer(*await harness.taken(WINDOW))
        (last,) = await harness.taken(1)
        # The messages behind it are unread.
        with pytest.raises(Overloaded):
            harness.settings.budget.take(8 * MAX_REQUEST_BYTES)
        await stalled(harness, call)
        assert nothing_is_left(harness)
        assert not harness.engine_slots.wanted(last.ref)

    on_loop(test)


def test_an_answer_that_waits_for_room_is_the_only_one() -> None:
    async def test() -> None:
        harness = Harness()
        harness.client.windows(3)
        infer, other = harness.call(message(7), end=False), harness.call(b"", path=LIVE, end=False)
        harness.answer(*await harness.taken(1))
        await harness.quiet()
        for call in (infer, other):
            assert call.status is None
            call.send_bytes(b"more")
            call.finish()
        await harness.quiet()
        harness.client.windows(1 << 10)
        assert numbers_in(await infer.answer()) == [7]
        assert await other.answer()
        assert nothing_is_left(harness)

    on_loop(test)


def test_a_client_that_reads_again_gets_its_answer() -> None:
    async def test() -> None:
        harness = Harness()
        call = harness.call(message(1))
        harness.client.connection.pause_writing()
        harness.answer(*await harness.taken(1))
        await harness.quiet()
        harness.client.connection.resume_writing()
        assert numbers_in(await call.answer()) == [1]
        assert harness.client.reading

    on_loop(test)


def test_health_follows_readiness_and_a_stop() -> None:
    async def test() -> None:
        harness = Harness()
        method = SCHEMA.services["grpc.health.v1.Health"]["Check"]
        path = "/grpc.health.v1.Health"

        def asked(name: str, service: str) -> Call:
            request = method.request(service=service).SerializeToString()
            return harness.call(request, path=f"{path}/{name}")

        async def status(service: str = "") -> int:
            answer = await asked("Check", service).answer()
            return int(method.response.FromString(answer).status)

        assert [await status(), await status("inference.GRPCInferenceService")] == [1, 1]
        assert await status("m") == 1
        harness.served(0)
        assert [await status(), await status("m")] == [2, 2]
        harness.served(1)
        # Another model is not ready.
        harness.service.expect_ready = expect_nothing  # type: ignore[method-assign]
        assert [await status(), await status("m")] == [2, 1]
        del harness.service.expect_ready
        harness.served(0)
        harness.served(1)
        ended = await asked("Check", "nope").ended()
        assert ended == ("NOT_FOUND", 'there is no service "nope"')
        watcher, unknown = asked("Watch", ""), asked("Watch", "nope")
        await harness.quiet()
        harness.stop()
        assert await status() == 2
        for call, statuses in ((watcher, [1, 2]), (unknown, [3])):
            assert await call.ended() == ("OK", "")
            found = [method.response.FromString(data).status for data in call.messages]
            assert found == statuses

    on_loop(test)


def test_model_metadata_match_those_of_rest() -> None:
    async def test() -> None:
        harness = Harness()
        control = Control(harness.service)
        methods = control.methods()
        named = inference("ModelMetadataRequest")
        assert methods["ServerLive"](None) == {"live": True}
        assert methods["ModelMetadata"](named(name="m", version="1"))["platform"] == "python"
        (statistics,) = methods["ModelStatistics"](named())["model_stats"]
        assert statistics["name"] == "m"
        index = inference("RepositoryIndexRequest")
        harness.served(0)
        assert methods["ServerReady"](None) == {"ready": False}
        assert methods["ModelReady"](named(name="m")) == {"ready": False}
        (entry,) = methods["RepositoryIndex"](index())["models"]
        assert (entry["state"], "not ready" in entry["reason"]) == ("UNAVAILABLE", True)
        assert methods["RepositoryIndex"](index(ready=True)) == {"models": []}

    on_loop(test)
