"""Client failures at one instant, of requests or of threads: every caller gets an error."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from client_harness import Answer, ClientHarness, own_threads, usual_client
from segment_fixture import spec

from ringbatch.frontend import (
    Client,
    EngineGone,
    Interrupted,
    InvalidRequest,
    ModelFailed,
    RequestTooLarge,
)
from ringbatch.frontend.client import client as client_module
from ringbatch.frontend.client.callbacks import CallbackQueue
from ringbatch.frontend.client.channel import NEVER
from ringbatch.frontend.client.waiter import Waiter
from ringbatch.shm.engine_slots import Request
from ringbatch.shm.errors import StartupError
from ringbatch.shm.lane import Lane
from ringbatch.shm.slot import Status
from ringbatch.shm.tallies import Tally
from ringbatch.shm.tensor import Tensor

X = Tensor("x", "INT64", [])
WIDE = Tensor("wide", "INT64", [1 << 15])
CAP = 4
DAY_NS = 24 * 3600 * 10**9
MODELS = (
    spec(0, [X], [X], name="same", max_batch_size=CAP, timeout_ns=DAY_NS),
    spec(1, name="untyped", max_batch_size=1, timeout_ns=DAY_NS),
    spec(2, [X], [WIDE], name="wide", max_batch_size=CAP, timeout_ns=DAY_NS),
)
CLIENT_LANE = 1
LANE_BYTES = 64 * 4096
WaitUntil = Callable[..., object]


@pytest.fixture
def harness() -> Iterator[ClientHarness]:
    with ClientHarness(MODELS, slots=64) as made:
        yield made


client = usual_client


def refuse(_payload: bytes, _request: Request) -> Answer:
    return Status.INVALID, "no"


def taken(harness: ClientHarness, count: int, wait_until: WaitUntil) -> list[int]:
    found: list[int] = []

    def enough() -> bool:
        found.extend(harness.take())
        return len(found) >= count

    wait_until(enough, f"{count} requests are submitted")
    return found


def numbers(count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.arange(count, dtype=np.int64)


def test_parts_that_are_refused_together_fail_their_request_and_nothing_else(
    harness: ClientHarness, client: Client, wait_until: WaitUntil
) -> None:
    futures = [client.infer_async("same", numbers(3 * CAP)) for _ in range(3)]
    other = client.infer_async("same", numbers(1))
    *parts, last = taken(harness, 10, wait_until)
    harness.answer(parts, refuse)
    assert [type(future.exception(30)) for future in futures] == [InvalidRequest] * 3
    harness.answer([last])
    assert other.result(30).tolist() == [0]
    harness.serve(refuse)
    with pytest.raises(InvalidRequest):
        client.infer("same", numbers(7 * CAP))
    wait_until(lambda: client._session.channel.slots.lane.in_flight == 0, "every slot is back")


def test_a_part_that_is_answered_beside_one_that_fails_gives_its_slot_back(
    harness: ClientHarness, client: Client, wait_until: WaitUntil
) -> None:
    future = client.infer_async("same", numbers(3 * CAP))
    parts = taken(harness, 3, wait_until)
    served = iter([refuse, lambda payload, _: payload, refuse])
    harness.answer(parts, lambda payload, request: next(served)(payload, request))
    assert isinstance(future.exception(30), InvalidRequest)
    wait_until(lambda: client._session.channel.slots.lane.in_flight == 0, "every slot is back")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_function_of_a_future_that_ends_its_thread_ends_no_other_request(
    harness: ClientHarness, client: Client, wait_until: WaitUntil
) -> None:
    def leave(_: Future[Any]) -> None:
        raise SystemExit

    futures = [client.infer_async("same", numbers(1)) for _ in range(28)]
    for future in futures[::3]:
        future.add_done_callback(leave)
    later = client.infer_async("same", numbers(2))
    *refs, last = taken(harness, 29, wait_until)
    harness.answer(refs)
    assert [future.result(30).tolist() for future in futures] == [[0]] * 28
    harness.answer([last])
    assert later.result(30).tolist() == [0, 1]
    harness.serve()
    assert client.infer_async("same", numbers(3)).result(30).tolist() == [0, 1, 2]
    wait_until(lambda: len(own_threads(harness)) == 1, "one thread is left")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
@pytest.mark.parametrize(
    ("owner", "where"),
    [(Lane, "collect"), (Lane, "answer"), (Lane, "release"), (Tally, "answered")],
)
def test_every_future_ends_after_any_error_in_the_clients_thread(
    harness: ClientHarness,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    wait_until: WaitUntil,
    owner: type,
    where: str,
    error: type[BaseException],
) -> None:
    usual = getattr(owner, where)

    def raising(one: Any, *arguments: Any) -> Any:
        if threading.current_thread() in own_threads(harness):
            monkeypatch.setattr(owner, where, usual)
            usual(one, *arguments)
            raise error
        return usual(one, *arguments)

    futures = [client.infer_async("same", numbers(1)) for _ in range(30)]
    refs = taken(harness, 30, wait_until)
    monkeypatch.setattr(owner, where, raising)
    harness.answer(refs)
    ends = [future.exception(30) for future in futures]
    assert {type(end) for end in ends} <= {type(None), Interrupted}
    harness.serve()
    assert client.infer_async("same", numbers(3)).result(30).tolist() == [0, 1, 2]


def test_without_a_thread_to_wait_for_it_nothing_is_sent(
    harness: ClientHarness, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", cannot)
        with pytest.raises(RuntimeError, match="can't start"):
            client.infer_async("same", numbers(1))
    harness.serve()
    assert client.infer_async("same", numbers(2)).result(30).tolist() == [0, 1]


def test_an_instance_that_has_no_room_alone_is_refused_for_good(
    harness: ClientHarness, client: Client
) -> None:
    for _ in range(2):
        with pytest.raises(RequestTooLarge, match="lane_bytes"):
            client.infer("wide", numbers(1))
        errors = client.infer_many("wide", numbers(3)).errors
        assert [type(error) for error in errors.values()] == [RequestTooLarge] * 3


@pytest.mark.parametrize("share", [3, 5, 8])
def test_parts_whose_answers_have_no_room_together_have_it_one_after_the_other(
    harness: ClientHarness, client: Client, share: int
) -> None:
    text = b'"%s"' % (b"x" * (LANE_BYTES // share))
    harness.serve(lambda _payload, _request: b"[" + text + b"]")
    for _ in range(3):
        answers = client.infer("untyped", list(range(20)))
        assert [len(answer) for answer in answers] == [LANE_BYTES // share] * 20


def test_an_answer_larger_than_the_lane_fails_for_good(
    harness: ClientHarness, client: Client
) -> None:
    harness.serve(lambda _payload, _request: b'["%s"]' % (b"x" * LANE_BYTES))
    for _ in range(3):
        with pytest.raises(ModelFailed, match="lane_bytes"):
            client.infer("untyped", [1])


def test_functions_that_use_the_client_once_the_engine_has_ended_hold_up_nobody(
    harness: ClientHarness,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    wait_until: WaitUntil,
) -> None:
    def nobody(*_: object) -> Any:
        raise StartupError("no engine runs")

    monkeypatch.setattr(client_module, "attach", nobody)
    # As one that was not told which segment, and so looks for the next engine.
    client._segment = None
    found: list[BaseException | None] = []

    def once_more(future: Future[Any]) -> None:
        found.append(future.exception())
        with pytest.raises(EngineGone):
            client.infer_async("same", numbers(1))

    futures = [client.infer_async("same", numbers(1)) for _ in range(3)]
    for future in futures:
        future.add_done_callback(once_more)
    harness.end()
    assert [type(future.exception(30)) for future in futures] == [EngineGone] * 3
    closing = threading.Thread(target=client.close, daemon=True)
    closing.start()
    closing.join(100)
    assert not closing.is_alive()
    # A future has its error before its functions run, in the client's own thread perhaps.
    wait_until(lambda: len(found) == 3, "each function has run")
    assert [type(error) for error in found] == [EngineGone] * 3


def test_a_function_may_close_the_client_that_is_being_closed(client: Client) -> None:
    futures = [client.infer_async("same", numbers(1)) for _ in range(2)]
    for future in futures:
        future.add_done_callback(lambda _: client.close())
    closing = threading.Thread(target=client.close, daemon=True)
    closing.start()
    closing.join(100)
    assert not closing.is_alive()
    assert all(future.done() for future in futures)


def test_closing_waits_for_a_function_that_another_thread_runs(
    harness: ClientHarness, client: Client, monkeypatch: pytest.MonkeyPatch, wait_until: WaitUntil
) -> None:
    monkeypatch.setattr(CallbackQueue.wait_for_others, "__defaults__", (100.0,))
    entered, released, ends = threading.Event(), threading.Event(), []

    def take_long(_: Future[Any]) -> None:
        entered.set()
        released.wait(100)
        ends.append("function")

    def close() -> None:
        client.close()
        ends.append("close")

    future = client.infer_async("same", numbers(1))
    future.add_done_callback(take_long)
    harness.answer(taken(harness, 1, wait_until))
    assert entered.wait(100)
    assert future.done()
    closing = threading.Thread(target=close, daemon=True)
    closing.start()
    wait_until(lambda: client._session.channel.callbacks._waiting, "the other thread waits")
    released.set()
    closing.join(100)
    assert ends == ["function", "close"]


def test_functions_that_send_the_next_request_do_not_stand_on_one_another(
    harness: ClientHarness, client: Client, wait_until: WaitUntil
) -> None:
    under_way, deepest, followers = [0], [0], []

    def send_on(_: Future[Any]) -> None:
        under_way[0] += 1
        deepest[0] = max(deepest[0], under_way[0])
        followers.append(client.infer_async("same", numbers(1)))
        under_way[0] -= 1

    for _ in range(28):
        client.infer_async("same", numbers(1)).add_done_callback(send_on)
    harness.answer(taken(harness, 28, wait_until))
    wait_until(lambda: len(followers) == 28, "each has sent the next")
    assert deepest == [1]
    harness.serve()
    assert [future.result(30).tolist() for future in followers] == [[0]] * 28


def test_while_a_function_runs_others_get_their_answers(
    harness: ClientHarness, client: Client, wait_until: WaitUntil
) -> None:
    entered, released, found = threading.Event(), threading.Event(), []

    def take_long(_: Future[Any]) -> None:
        entered.set()
        released.wait(60)

    client.infer_async("same", numbers(1)).add_done_callback(take_long)
    first = taken(harness, 1, wait_until)
    wait_until(lambda: client._session.channel._leader is not None, "the client's thread leads")
    other = threading.Thread(target=lambda: found.append(client.infer("same", numbers(2))))
    other.start()
    second = taken(harness, 1, wait_until)
    wait_until(lambda: client._session.channel._sleepers, "the other thread follows")
    harness.answer(first)
    assert entered.wait(30)
    harness.answer(second)
    other.join(30)
    alive = other.is_alive()
    released.set()
    other.join()
    assert not alive
    assert [answer.tolist() for answer in found] == [[0, 1]]


def test_an_answer_that_stands_there_at_the_deadline_counts_though_nobody_has_handed_it_out(
    harness: ClientHarness, client: Client
) -> None:
    harness.serve()
    # One that leads and never comes back, as a thread that is stopped does not.
    client._session.channel._leader = stopped = Waiter(NEVER)
    assert client.infer("same", numbers(2), timeout_s=0.5).tolist() == [0, 1]
    client._session.channel.abandon(stopped)


def test_a_leader_that_is_interrupted_while_another_closes_leaves_the_lane(
    harness: ClientHarness, client: Client
) -> None:
    channel = client._session.channel
    channel._leader = leading = Waiter(NEVER)
    client.close()
    assert not channel.closed
    channel.abandon(leading)
    assert channel.closed


def test_an_interrupted_opening_of_a_client_holds_no_lane(
    harness: ClientHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(client_module, "models_of", interrupted)
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                Client(segment=harness.name)
    Client(segment=harness.name).close()


def test_a_client_that_is_closed_leaves_no_memory_mapped(harness: ClientHarness) -> None:
    def mapped() -> int:
        return Path("/proc/self/maps").read_text().count(harness.name[1:])

    before = mapped()
    for _ in range(3):
        Client(segment=harness.name).close()
    assert mapped() == before
