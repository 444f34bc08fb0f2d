"""Threads of a client: the leader that waits for all, futures, and interruptions."""

import gc
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Any

import pytest
from client_harness import (
    CLIENT_LANE,
    FOREVER_NS,
    Asking,
    ClientHarness,
    WaitUntil,
    client_that_waits,
    counted,
    is_asleep,
    numbers,
    plain_harness,
    taken,
)

from ringbatch.frontend import Client, DeadlineExceeded, Interrupted
from ringbatch.frontend.client import channel as channel_module
from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.lane import Lane

harness, client = plain_harness, client_that_waits


def test_a_leader_passes_the_lead_on(
    harness: ClientHarness, client: Client, monkeypatch: pytest.MonkeyPatch, wait_until: WaitUntil
) -> None:
    """Answers come in the order of asking, so that it is the leader who leaves each time."""
    monkeypatch.setattr(channel_module, "SWEEP_NS", FOREVER_NS)
    asking = []
    for number in range(5):
        asking.append(Asking(partial(client.infer, "same", numbers(number))))
        asking[-1].refs = taken(harness, 1, wait_until)  # type: ignore[attr-defined]
    future = client.infer_async("same", numbers(9))
    last = taken(harness, 1, wait_until)
    for number, one in enumerate(asking):
        harness.answer(one.refs)  # type: ignore[attr-defined]
        one.join()
        assert one.answer.tolist() == [number]
    harness.answer(last)
    assert future.result().tolist() == [9]
    assert counted(harness, LaneCounter.MISSED_WAKEUPS) == 0


def test_the_clients_own_thread_passes_the_lead_on(
    harness: ClientHarness, client: Client, monkeypatch: pytest.MonkeyPatch, wait_until: WaitUntil
) -> None:
    """It waits for futures; where their answers have come, somebody else still waits."""
    monkeypatch.setattr(channel_module, "SWEEP_NS", FOREVER_NS)
    future = client.infer_async("same", numbers(1))
    deferred = taken(harness, 1, wait_until)
    wait_until(lambda: is_asleep(client), "the client's own thread leads")
    asking = Asking(lambda: client.infer("same", numbers(2)))
    refs = taken(harness, 1, wait_until)
    wait_until(lambda: client._session.channel._sleepers, "the other follows")
    harness.answer(deferred)
    assert future.result().tolist() == [1]
    harness.answer(refs)
    asking.join()
    assert asking.answer.tolist() == [2]


def test_threads_get_their_own_answers(harness: ClientHarness, client: Client) -> None:
    thread = harness.serve()

    def ask(first: int) -> bool:
        for number in range(first, first + 60):
            if number % 3:
                answer = client.infer("same", numbers(number, -number))
            elif number % 2:
                answer = client.infer_async("same", numbers(number, -number)).result()
            else:
                answer = client.infer_many("same", numbers(number, -number)).outputs
            if answer.tolist() != [number, -number]:
                return False
        return True

    asking = [Asking(partial(ask, first)) for first in range(0, 6000, 1000)]
    for one in asking:
        one.join()
    assert [(one.answer, one.error) for one in asking] == [(True, None)] * 6
    harness.halt(thread)
    client.close()
    assert harness.everything_is_free(CLIENT_LANE)


def test_a_function_added_to_a_future_may_send_the_next_request(
    harness: ClientHarness, client: Client
) -> None:
    harness.serve()
    done: Future[int] = Future()

    def next_one(future: Future[Any]) -> None:
        (number,) = future.result().tolist()
        if number == 20:
            done.set_result(number)
        else:
            client.infer_async("same", numbers(number + 1)).add_done_callback(next_one)

    client.infer_async("same", numbers(0)).add_done_callback(next_one)
    assert done.result() == 20


def test_a_cancelled_future_abandons_its_request(
    harness: ClientHarness, client: Client, wait_until: WaitUntil
) -> None:
    future = client.infer_async("same", numbers(1))
    assert future.cancel()
    with pytest.raises(CancelledError):
        future.result()
    (ref,) = taken(harness, 1, wait_until)
    assert not harness._engine_slots.wanted(ref)
    harness.answer([ref])
    harness.serve()
    answered = client.infer_async("same", numbers(2))
    assert answered.result().tolist() == [2]
    assert not answered.cancel()
    assert client._session.channel.slots.lane.in_flight == 0


def test_the_collector_hears_of_a_cancelled_future_at_once_even_without_an_idle_worker(
    harness: ClientHarness, client: Client, wait_until: WaitUntil
) -> None:
    doorbell = harness.segment.collector_doorbell()
    future = client.infer_async("same", numbers(1))
    (ref,) = taken(harness, 1, wait_until)
    doorbell.wait(0)
    assert future.cancel()
    assert harness.take() == []
    assert harness.again == [ref]
    assert doorbell.wait(0)
    doorbell.close()


def test_an_answered_request_is_kept_by_nothing(harness: ClientHarness, client: Client) -> None:
    """Neither the arrays given nor those answered wait for the garbage collector."""
    harness.serve()
    gc.collect()
    gc.disable()
    try:
        before = len([o for o in gc.get_objects() if type(o).__name__ == "AsyncRequest"])
        futures = [client.infer_async("same", numbers(n)) for n in range(10)]
        for future in futures:
            future.result()
        after = len([o for o in gc.get_objects() if type(o).__name__ == "AsyncRequest"])
    finally:
        gc.enable()
    # The thread that resolved the last one may still have it in its hands.
    assert after - before <= 1


def test_a_thread_that_is_interrupted_asleep_abandons_its_request(
    harness: ClientHarness, client: Client, monkeypatch: pytest.MonkeyPatch, wait_until: WaitUntil
) -> None:
    """As by Ctrl-C, amid the sleep of the one who leads."""
    channel = client._session.channel
    poll = channel._poll

    class Interrupting:
        def poll(self, *_: object) -> None:
            channel._poll = poll
            raise KeyboardInterrupt

    other = Asking(lambda: client.infer("same", numbers(2)))
    refs = taken(harness, 1, wait_until)
    wait_until(lambda: is_asleep(client), "the other leads")
    future = client.infer_async("same", numbers(3))
    harness.answer([*refs, *taken(harness, 1, wait_until)])
    other.join()
    future.result()
    wait_until(lambda: not is_asleep(client), "nobody leads")
    monkeypatch.setattr(channel, "_poll", Interrupting())
    with pytest.raises(KeyboardInterrupt):
        client.infer("same", numbers(1))
    harness.serve()
    assert client.infer("same", numbers(4)).tolist() == [4]
    wait_until(lambda: channel.slots.lane.in_flight == 0, "the abandoned slot came back")


@pytest.mark.parametrize("where", ["claim", "publish", "submit"])
def test_an_interruption_amid_the_use_of_the_lane_costs_requests_in_flight_only(
    harness: ClientHarness,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    wait_until: WaitUntil,
    where: str,
) -> None:
    other = Asking(lambda: client.infer("same", numbers(1)))
    future = client.infer_async("same", numbers(2))
    refs = taken(harness, 2, wait_until)
    channel = client._session.channel
    usual = getattr(Lane, where)

    def interrupted(lane: Lane, *arguments: Any) -> Any:
        monkeypatch.setattr(Lane, where, usual)
        usual(lane, *arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(Lane, where, interrupted)
    with pytest.raises(KeyboardInterrupt):
        client.infer("same", numbers(3))
    with pytest.raises(DeadlineExceeded):
        client.infer("same", numbers(4), timeout_s=0.01)
    other.join()
    assert isinstance(other.error, Interrupted)
    assert isinstance(future.exception(), Interrupted)
    harness.answer(refs)
    harness.serve()
    assert client.infer("same", numbers(5)).tolist() == [5]
    wait_until(lambda: _idle(client, channel), "every slot came back")


def _idle(client: Client, channel: Any) -> bool:
    client.infer("same", numbers(6))
    return bool(channel.slots.lane.in_flight == 0)
