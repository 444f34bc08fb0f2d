"""Messages and heads of calls over gRPC: pieces, codings, limits, what is no gRPC, keys."""

import gc
import hashlib

import pytest
from grpc_harness import INFER, STREAM
from grpc_service_harness import MAX_REQUEST_BYTES, Harness, message, numbers_in, on_loop, whole

from ringbatch.frontend.security.api_keys import ApiKeys
from ringbatch.shm.host.api_key_lines import KeyOptions


def test_a_message_may_come_in_pieces_and_with_others() -> None:
    async def test() -> None:
        harness = Harness()
        call = harness.call(end=False)
        framed = call.framed(message(7))
        for at in range(0, len(framed), 7):
            call.send_bytes(framed[at : at + 7])
        call.finish()
        harness.answer(*await harness.taken(1))
        assert numbers_in(await call.answer()) == [7]
        harness.settings.budget.take(8 * MAX_REQUEST_BYTES)

    on_loop(test)


def test_a_message_is_answered_though_its_client_has_not_come_to_its_end() -> None:
    async def test() -> None:
        harness = Harness()
        whole, cut = harness.call(message(7), end=False), harness.call(end=False)
        framed = cut.framed(message(8))
        cut.send_bytes(framed[:9])
        cut.send_bytes(framed[9:])
        requests = await harness.taken(2)
        # What comes behind it is not kept.
        whole.send_bytes(bytes(1 << 14))
        harness.answer(*requests)
        assert numbers_in(await whole.answer()) == [7]
        assert numbers_in(await cut.answer()) == [8]
        harness.settings.budget.take(8 * MAX_REQUEST_BYTES)

    on_loop(test)


def test_bytes_behind_the_one_message_end_a_call_that_goes_on() -> None:
    async def test() -> None:
        harness = Harness()
        watch = "/grpc.health.v1.Health/Watch"
        calls = [harness.call(b"", path=watch, end=False) for _ in range(2)]
        await harness.quiet()
        calls[0].send_bytes(bytes(1 << 14))
        assert await calls[0].ended() == ("UNIMPLEMENTED", "a call of this method has one message")
        # Its end is no message.
        calls[1].finish()
        await harness.quiet()
        assert calls[1].status is None
        assert len(harness.client.connection._serving) == 1
        harness.settings.budget.take(8 * MAX_REQUEST_BYTES)

    on_loop(test)


def test_of_a_call_that_is_over_nothing_is_left_to_collect() -> None:
    async def test() -> None:
        harness = Harness()
        gc.collect()
        before = len(gc.get_objects())
        gc.disable()
        try:
            for _ in range(100):
                call = harness.call(path=STREAM, end=False)
                await harness.quiet()
                call.cancel()
                await harness.quiet()
            assert len(gc.get_objects()) - before < 10 * 100
        finally:
            gc.enable()

    on_loop(test)


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_message_may_be_compressed(coding: str) -> None:
    async def test() -> None:
        harness = Harness()
        call = harness.call(message(7), coding=coding)
        harness.answer(*await harness.taken(1))
        assert numbers_in(await call.answer()) == [7]

    on_loop(test)


BODIES = {
    "nothing": (b"", {}, "INVALID_ARGUMENT", "ended without a message"),
    "half": (whole(0, 9, b"12345678"), {}, "INVALID_ARGUMENT", "in the middle of its message"),
    "two": (whole(0, 1, b"a") * 2, {}, "UNIMPLEMENTED", "one message"),
    "flag": (whole(2, 0, b""), {}, "INVALID_ARGUMENT", "compressed or it is not"),
    "no-coding": (whole(1, 1, b"a"), {}, "INVALID_ARGUMENT", "does not say how"),
    "coding": (whole(1, 1, b"a"), {"grpc-encoding": "br"}, "UNIMPLEMENTED", "gzip or deflate"),
    "no-gzip": (whole(1, 1, b"a"), {"grpc-encoding": "gzip"}, "INVALID_ARGUMENT", "gzip stream"),
    "long": (whole(0, 1 << 30, b"a"), {}, "RESOURCE_EXHAUSTED", "at most"),
}


@pytest.mark.parametrize("case", BODIES)
@pytest.mark.parametrize("method", [INFER, "/inference.GRPCInferenceService/ModelMetadata"])
def test_bytes_that_are_no_message_end_the_call(case: str, method: str) -> None:
    body, metadata, code, words = BODIES[case]

    async def test() -> None:
        harness = Harness()
        call = harness.call(path=method, end=False, metadata=tuple(metadata.items()))
        call.send_bytes(body)
        call.finish()
        found, text = await call.ended()
        assert (found, words in text) == (code, True), text
        harness.settings.budget.take(8 * MAX_REQUEST_BYTES)

    on_loop(test)


def test_an_expanded_message_has_a_limit_too() -> None:
    async def test() -> None:
        harness = Harness()
        code, text = await harness.call(bytes(MAX_REQUEST_BYTES + 1), coding="gzip").ended()
        assert (code, "max_request_bytes" in text) == ("RESOURCE_EXHAUSTED", True)

    on_loop(test)


def test_incomplete_messages_have_a_budget() -> None:
    async def test() -> None:
        harness = Harness()
        calls = [harness.call(end=False) for _ in range(12)]
        for call in calls:
            call.send_bytes(whole(0, MAX_REQUEST_BYTES, b""))
            for _ in range(63):
                call.send_bytes(bytes(1 << 14))
        ended = [call.status for call in calls if call.status is not None]
        assert {code for code, _ in ended} == {"UNAVAILABLE"}
        assert len(ended) == 4
        for call in calls:
            call.cancel()
        harness.settings.budget.take(8 * MAX_REQUEST_BYTES)

    on_loop(test)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({":method": "GET"}, "405"),
        ({"content-type": "application/json"}, "415"),
        ({"content-type": "application/grpcx"}, "415"),
    ],
)
def test_a_request_that_is_no_grpc_gets_an_http_status(fields: dict[str, str], status: str) -> None:
    async def test() -> None:
        call = Harness().call(message(1), fields=fields)
        await call.ended()
        assert call.http_status == status

    on_loop(test)


def test_an_unknown_method_is_unimplemented_on_any_path() -> None:
    async def test() -> None:
        for path in ("/nope/Nope", "/\xff", "/"):
            code, _ = await Harness().call(message(1), path=path).ended()
            assert code == "UNIMPLEMENTED"

    on_loop(test)


def test_metadata_have_a_limit() -> None:
    async def test() -> None:
        harness = Harness()
        code, _ = await harness.call(message(1), metadata=(("x", "y"),) * 500).ended()
        assert code == "RESOURCE_EXHAUSTED"
        call = harness.call(message(1), metadata=(("x", "y"),) * 450)
        harness.answer(*await harness.taken(1))
        await call.answer()

    on_loop(test)


def test_a_key_is_asked_for_until_keys_change_and_then_again() -> None:
    digests = [hashlib.sha256(key).digest() for key in (b"first-key", b"second-key")]

    async def test() -> None:
        keys = ApiKeys({digests[0]: KeyOptions()})
        harness = Harness(keys=keys)
        code, _ = await harness.call(message(1)).ended()
        assert code == "UNAUTHENTICATED"
        mine = (("x-api-key", "first-key"),)
        call = harness.call(message(1), metadata=mine)
        harness.answer(*await harness.taken(1))
        await call.answer()
        stream = harness.call(message(2), path=STREAM, end=False, metadata=mine)
        harness.answer(*await harness.taken(1))
        keys.replace(dict.fromkeys(digests[1:], KeyOptions()))
        for connection in harness.settings.connections:
            connection.forget()
        code, _ = await harness.call(message(1), metadata=mine).ended()
        assert code == "UNAUTHENTICATED"
        stream.send(message(3))
        code, _ = await stream.ended()
        assert code == "UNAUTHENTICATED"
        # Health needs none, but the list of it, which names the models.
        for path in ("inference.GRPCInferenceService/ServerReady", "grpc.health.v1.Health/Check"):
            assert await harness.call(b"", path=f"/{path}").answer()
        code, _ = await harness.call(b"", path="/grpc.health.v1.Health/List").ended()
        assert code == "UNAUTHENTICATED"
        mine = (("x-api-key", "second-key"),)
        call = harness.call(b"", path="/grpc.health.v1.Health/List", metadata=mine)
        assert await call.answer()

    on_loop(test)
