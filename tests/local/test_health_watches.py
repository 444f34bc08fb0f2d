"""Bounds on what clients without a key hold of a gRPC frontend.

They hold watches of health, and calls whose message does not come.
"""

import asyncio
import gc
import time
from collections.abc import Callable

import pytest
from grpc_harness import Call, Client
from grpc_service_harness import Harness, on_loop, whole

from ringbatch.frontend.grpc import calls, health_watches
from ringbatch.frontend.grpc.messages import SCHEMA
from ringbatch.frontend.http2.frames import CANCEL
from ringbatch.frontend.http2.outgoing import MOST_STREAMS

HEALTH = "/grpc.health.v1.Health"
LIVE = "/inference.GRPCInferenceService/ServerLive"
RESPONSE = SCHEMA.services["grpc.health.v1.Health"]["Check"].response


def watch(client: Client) -> Call:
    return client.call(f"{HEALTH}/Watch", b"")


def statuses(call: Call) -> list[int]:
    return [int(RESPONSE.FromString(data).status) for data in call.messages]


def test_a_connection_has_a_bounded_number_of_watches_and_gets_them_back() -> None:
    async def test() -> None:
        harness = Harness()
        kept = [watch(harness.client) for _ in range(health_watches.MOST_OF_CONNECTION)]
        refused = watch(harness.client)
        assert await refused.ended() == (
            "RESOURCE_EXHAUSTED",
            "too many watches of health: one connection may have "
            f"{health_watches.MOST_OF_CONNECTION}",
        )
        other = watch(harness.connect())
        kept[0].cancel()
        await harness.quiet()
        again = watch(harness.client)
        await harness.quiet()
        for client in {call.client for call in (other, again)}:
            client.absorb()
        assert [statuses(call) for call in (kept[1], other, again)] == 3 * [[1]]

    on_loop(test)


def test_a_process_has_a_bounded_number_of_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_watches, "MOST", 3)

    async def test() -> None:
        harness = Harness()
        clients = [harness.connect() for _ in range(3)]
        for client in clients:
            watch(client)
        await harness.quiet()
        refused = await watch(harness.client).ended()
        assert refused == (
            "RESOURCE_EXHAUSTED",
            "too many watches of health: all clients together may have 3",
        )
        clients[0].connection.connection_lost(None)
        await harness.quiet()
        again = watch(harness.client)
        await harness.quiet()
        harness.client.absorb()
        assert statuses(again) == [1]

    on_loop(test)


def test_every_watch_hears_of_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_watches, "LOOK_EVERY_S", 0.001)

    async def test() -> None:
        harness = Harness()
        found = [watch(harness.client) for _ in range(3)]
        await harness.quiet()
        for workers, expected in ((0, [1, 2]), (1, [1, 2, 1])):
            harness.served(workers)
            while statuses(found[-1]) != expected:
                await asyncio.sleep(0.001)
                harness.client.absorb()
            assert [statuses(call) for call in found] == 3 * [expected]

    on_loop(test)


def ended_after_s(connections: int) -> float:
    """Return the CPU time that it takes to end the watches of so many connections at once."""
    spent_s = 0.0

    async def test() -> None:
        nonlocal spent_s
        harness = Harness()
        clients = [harness.connect() for _ in range(connections)]
        for client in clients:
            for _ in range(MOST_STREAMS):
                watch(client)
        await harness.quiet()
        # How long a collection takes depends on what other tests have left.
        gc.disable()
        before_s = time.process_time()
        for client in reversed(clients):
            client.connection.connection_lost(None)
        await harness.quiet()
        spent_s = time.process_time() - before_s
        gc.enable()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    on_loop(test)
    return spent_s


def test_the_end_of_watches_takes_as_long_for_each_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(health_watches, "MOST", 1 << 20)
    monkeypatch.setattr(health_watches, "MOST_OF_CONNECTION", 1 << 20)
    few_s, many_s = ended_after_s(1), ended_after_s(16)
    # Quadratic, it would be up to 256 times as much.
    assert many_s < 64 * few_s, (few_s, many_s)


@pytest.mark.parametrize(
    "begin",
    [
        lambda client: client.call(LIVE, end=False),
        lambda client: client.call(f"{HEALTH}/Watch", end=False),
    ],
)
def test_of_calls_without_a_key_that_are_not_whole_the_oldest_goes(
    begin: Callable[[Client], Call], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "MOST_KEYLESS", 3)

    async def test() -> None:
        harness = Harness()
        begun = [begin(client) for client in [harness.connect(), *2 * [harness.client]]]
        for call in begun:
            call.send_bytes(whole(0, 0, b"")[:2])
        assert len(harness.settings.keyless) == 3
        # A whole call is served in spite of the calls that wait.
        assert await harness.call(b"", path=LIVE).answer()
        begin(harness.client).send_bytes(b"\0")
        code, text = await begun[0].ended()
        assert (code, text[:8]) == ("RESOURCE_EXHAUSTED", "3 other ")
        begun[1].send_bytes(whole(0, 0, b"")[2:])
        begun[1].finish()
        await harness.quiet()
        harness.client.absorb()
        assert len(begun[1].messages) == 1
        harness.client.connection.connection_lost(None)
        await harness.quiet()
        assert harness.settings.keyless == {}

    on_loop(test)


def test_of_calls_without_a_key_whose_answers_wait_the_oldest_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calls, "MOST_KEYLESS", 3)

    async def test() -> None:
        harness = Harness()
        deaf = harness.connect()
        deaf.windows(0)
        waiting = [deaf.call(LIVE, b"") for _ in range(5)]
        await harness.quiet()
        deaf.absorb()
        assert [call.reset for call in waiting] == [CANCEL, CANCEL, None, None, None]
        assert len(deaf.connection.core.streams) == len(harness.settings.keyless) == 3
        # A client that takes its answers never waits.
        for _ in range(5):
            assert await harness.call(b"", path=LIVE).answer()
        deaf.windows(1 << 10)
        assert [await call.ended() for call in waiting[2:]] == 3 * [("OK", "")]
        again = [harness.call(b"", path=LIVE, end=False) for _ in range(3)]
        await harness.quiet()
        assert [call.status for call in again] == 3 * [None]
        deaf.connection.connection_lost(None)
        harness.client.connection.connection_lost(None)
        await harness.quiet()
        assert harness.settings.keyless == {}

    on_loop(test)


def test_a_message_to_a_method_for_anybody_is_short() -> None:
    async def test() -> None:
        harness = Harness()
        for path in (LIVE, f"{HEALTH}/Watch"):
            call = harness.call(path=path, end=False)
            call.send_bytes(whole(0, 1 << 19, bytes(1 << 13)))
            assert await call.ended() == (
                "RESOURCE_EXHAUSTED",
                "a message to this method has at most 4096 bytes",
            )
            all_statuses = await harness.call(bytes(1 << 13), path=path).ended()
            assert all_statuses[0] == "RESOURCE_EXHAUSTED"

    on_loop(test)
