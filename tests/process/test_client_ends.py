"""A client is closed, its engine ends, and it finds the next one: every wait ends as well."""

import gc
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from client_harness import (
    CLIENT_LANE,
    MODELS,
    Asking,
    ClientHarness,
    WaitUntil,
    client_that_waits,
    numbers,
    own_threads,
    plain_harness,
    taken,
)

from ringbatch.frontend import Client, ClientClosed, Draining, EngineGone, NoFreeLane, StartupError
from ringbatch.frontend.client import channel as channel_module
from ringbatch.shm import engines as engines_module
from ringbatch.shm.lane import Lane
from ringbatch.shm.segment import Segment

harness, client = plain_harness, client_that_waits


def test_closing_ends_every_wait_and_leaves_a_whole_lane(
    harness: ClientHarness, client: Client, wait_until: WaitUntil
) -> None:
    asking = [Asking(lambda: client.infer("same", numbers(1))) for _ in range(3)]
    asking.append(Asking(lambda: client.infer_many("same", numbers(1, 2))))
    future = client.infer_async("same", numbers(1))
    taken_refs = taken(harness, 6, wait_until)
    client.close()
    for one in asking:
        one.join()
    assert [type(one.error) for one in asking[:3]] == [ClientClosed] * 3
    assert len({id(one.error) for one in asking[:3]}) == 3
    assert [type(e) for e in asking[3].answer.errors.values()] == [ClientClosed] * 2
    assert isinstance(future.exception(), ClientClosed)
    with pytest.raises(ClientClosed, match="the client was closed"):
        client.infer("same", numbers(1))
    client.close()
    harness.answer(taken_refs)
    assert harness.everything_is_free(CLIENT_LANE)
    wait_until(lambda: not own_threads(harness), "the client's own thread has ended")


@pytest.mark.parametrize("ask", [Client.infer, Client.infer_async, Client.infer_many])
def test_a_closed_client_raises_client_closed_for_every_call(
    harness: ClientHarness, client: Client, ask: Callable[..., Any]
) -> None:
    client.close()
    for model, inputs in (
        ("same", numbers(1)),
        ("same", numbers()),
        ("nobody", numbers(1)),
        ("same", "wrong"),
    ):
        with pytest.raises(ClientClosed, match="the client was closed"):
            ask(client, model, inputs)


@pytest.mark.parametrize("ask", [Client.infer, Client.infer_async, Client.infer_many])
@pytest.mark.parametrize("rows", [0, 2])
def test_a_client_may_be_closed_amid_a_call(
    harness: ClientHarness, client: Client, ask: Callable[..., Any], rows: int
) -> None:
    """Before anything was sent, as another thread may."""

    class Closing(np.ndarray[Any, Any]):
        @property  # type: ignore[misc]
        def shape(self) -> Any:
            client.close()
            return super().shape

    with pytest.raises(ClientClosed, match="the client was closed"):
        ask(client, "same", numbers(*range(rows)).view(Closing))
    assert harness.everything_is_free(CLIENT_LANE)


def test_a_forgotten_client_leaves_its_lane(harness: ClientHarness) -> None:
    client = Client(segment=harness.name)
    client.infer_async("same", numbers(1)).cancel()
    del client
    gc.collect()
    assert harness.everything_is_free(CLIENT_LANE)


def test_each_client_takes_a_lane_and_leaves_those_of_frontends(harness: ClientHarness) -> None:
    clients = [Client(segment=harness.name) for _ in range(2)]
    assert [client._session.channel.slots.lane.index for client in clients] == [1, 2]
    assert not harness.segment.lane_is_held(0)
    with pytest.raises(NoFreeLane, match=r"all 2 lanes for clients are in use.*client_lanes"):
        Client(segment=harness.name)
    assert Lane.attach(harness.segment, lambda: None).index == 0
    again = Segment.attach(harness.name)
    clients[1].close()
    with pytest.raises(NoFreeLane, match="a lane belongs to one frontend"):
        Lane.attach(again, lambda: None)
    again.detach()
    clients[0].close()
    with Client(segment=harness.name) as third:
        assert third._session.channel.slots.lane.index == 1


def test_without_lanes_for_clients_the_setting_is_named() -> None:
    with (
        ClientHarness(MODELS, lanes=0) as harness,
        pytest.raises(NoFreeLane, match=r"no lanes for clients; set \[server\] client_lanes"),
    ):
        Client(segment=harness.name)


def test_a_stopping_engine_takes_nothing_new_and_answers_its_requests(
    harness: ClientHarness, client: Client, wait_until: WaitUntil
) -> None:
    future = client.infer_async("same", numbers(1))
    harness.segment.drain()
    for ask in (client.infer, client.infer_async, client.infer_many):
        with pytest.raises(Draining, match="the server is stopping"):
            ask("same", numbers(2))
    harness.answer(taken(harness, 1, wait_until))
    assert future.result().tolist() == [1]


def test_the_end_of_the_engine_ends_every_wait(
    harness: ClientHarness, wait_until: WaitUntil
) -> None:
    with Client(segment=harness.name) as client:
        future = client.infer_async("same", numbers(1))
        asking = [Asking(lambda: client.infer("same", numbers(1))) for _ in range(2)]
        bulk = Asking(lambda: client.infer_many("same", numbers(1, 2)))
        taken(harness, 5, wait_until)
        harness.end()
        for one in (*asking, bulk):
            one.join()
        assert [type(one.error) for one in asking] == [EngineGone] * 2
        assert [type(error) for error in bulk.answer.errors.values()] == [EngineGone] * 2
        assert isinstance(future.exception(), EngineGone)
        with pytest.raises(EngineGone, match="the engine has stopped"):
            client.infer("same", numbers(1))
        client.close()
        with pytest.raises(ClientClosed):
            client.infer("same", numbers(1))


@pytest.mark.parametrize("spin_us", [0, 200])
def test_an_engine_whose_lock_is_free_has_ended_though_nothing_else_tells(
    harness: ClientHarness, monkeypatch: pytest.MonkeyPatch, wait_until: WaitUntil, spin_us: int
) -> None:
    """A descriptor that tells of its end is a hint, as every wake-up is."""
    silent, keep = os.pipe()
    monkeypatch.setattr(Segment, "watch_life", lambda _: os.dup(silent))
    monkeypatch.setattr(channel_module, "SWEEP_NS", 1_000_000)
    with Client(segment=harness.name, spin_us=spin_us) as client:
        future = client.infer_async("same", numbers(1))
        harness.end()
        assert isinstance(future.exception(30), EngineGone)
    os.close(silent)
    os.close(keep)


def test_a_client_goes_to_the_next_engine(
    harness: ClientHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [harness.name]
    monkeypatch.setattr(engines_module, "segment_names", lambda pid: iter(found))
    with Client() as client, ClientHarness(MODELS) as other:
        future = client.infer_async("same", numbers(1))
        harness.end()
        assert isinstance(future.exception(), EngineGone)
        found.clear()
        for _ in range(2):
            with pytest.raises(EngineGone, match="no engine of ringbatch is running"):
                client.infer("same", numbers(1))
        found.append(other.name)
        other.serve()
        assert client.infer("same", numbers(5)).tolist() == [5]
        assert client.infer_async("same", numbers(6)).result().tolist() == [6]
        client.close()
        with pytest.raises(ClientClosed):
            client.infer("same", numbers(1))


def test_of_several_engines_one_must_be_named(
    harness: ClientHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ClientHarness(MODELS[:1]) as other:
        found = [harness.name, other.name]
        monkeypatch.setattr(engines_module, "segment_names", lambda pid: iter(found))
        with pytest.raises(
            StartupError, match=r"2 engines run, say which, by process id.*\(process \d+\) ser"
        ):
            Client()
        with Client(segment=other.name) as client:
            assert client.models == ("same",)
    with pytest.raises(StartupError, match="has the engine stopped"):
        Client(segment=other.name)


def test_an_absent_engine_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StartupError, match="supervisor has process id 4194305 is running"):
        Client(4194305)
    monkeypatch.setattr(engines_module, "segment_names", lambda pid: iter(()))
    with pytest.raises(
        StartupError,
        match=r"^no engine .* is running; start one with `ringbatch serve`; .* its model files$",
    ):
        Client()
