"""The client beside an engine that does as it is told: threads, deadlines, ends, interruptions."""

import gc
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import pytest
from client_harness import Answer, ClientHarness
from numpy.typing import NDArray
from segment_fixture import spec

from ringbatch.frontend import (
    Client,
    ClientClosed,
    DeadlineExceeded,
    Draining,
    EngineGone,
    Interrupted,
    InvalidRequest,
    ModelFailed,
    ModelNotFound,
    ModelNotReady,
    NoFreeLane,
    Overloaded,
    RequestTooLarge,
    StartupError,
)
from ringbatch.frontend.client import channel as channel_module
from ringbatch.shm import engines as engines_module
from ringbatch.shm.counters import Counters, LaneCounter
from ringbatch.shm.descriptors import ModelWords
from ringbatch.shm.engine_port import Request
from ringbatch.shm.errors import RequestError
from ringbatch.shm.lane import Lane
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import Status
from ringbatch.shm.tallies import CODE_LABELS, Protocol, ends_of
from ringbatch.shm.tensor import Tensor

X = Tensor("x", "INT64", [])
GROWING = Tensor("y", "INT64", [-1])
DAY_NS = 24 * 3600 * 10**9
FOREVER_NS = 1 << 50
CAP = 4
MODELS = (
    spec(0, [X], [X], name="same", max_batch_size=CAP, timeout_ns=DAY_NS),
    spec(1, [X], [GROWING], name="growing", max_batch_size=CAP, timeout_ns=DAY_NS),
    spec(2, name="untyped", max_batch_size=CAP, timeout_ns=DAY_NS),
)
CLIENT_LANE = 1
WaitUntil = Callable[..., object]


@pytest.fixture
def harness() -> Iterator[ClientHarness]:
    with ClientHarness(MODELS) as made:
        yield made


@pytest.fixture(params=[0, 200], ids=["sleeping", "spinning"])
def client(harness: ClientHarness, request: pytest.FixtureRequest) -> Iterator[Client]:
    with Client(segment=harness.name, spin_us=request.param) as made:
        yield made


def numbers(*values: int) -> NDArray[Any]:
    return np.array(values, dtype=np.int64)


class Asking(threading.Thread):
    """A thread that asks once, and what came of it."""

    def __init__(self, ask: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._ask = ask
        self.answer: Any = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.answer = self._ask()
        except BaseException as error:
            self.error = error


def taken(harness: ClientHarness, count: int, wait_until: WaitUntil) -> list[int]:
    """References to the next `count` requests."""
    found: list[int] = []

    def enough() -> bool:
        found.extend(harness.take())
        return len(found) >= count

    wait_until(enough, f"{count} requests are submitted")
    assert len(found) == count
    return found


def counted(harness: ClientHarness, counter: LaneCounter) -> int:
    layout = harness.segment.layout
    return Counters(harness.segment.words, layout.lane_counters(CLIENT_LANE))[counter]


def own_threads() -> list[threading.Thread]:
    """Those that clients have started."""
    return [thread for thread in threading.enumerate() if thread.name == "ringbatch client"]


def is_asleep(client: Client) -> bool:
    """Whether a thread of the client sleeps at the doorbell."""
    return client._session.channel._leader is not None


def test_an_array_comes_back_as_the_model_has_it(harness: ClientHarness, client: Client) -> None:
    harness.serve(lambda payload, _: (np.frombuffer(payload, np.int64) + 1).tobytes())
    answer = client.infer("same", numbers(1, 2, 3))
    assert (answer.tolist(), answer.dtype) == ([2, 3, 4], np.int64)
    answer[0] = 7
    assert client.models == ("same", "growing", "untyped")


def test_more_rows_than_the_whole_lane_holds_are_split_and_joined_in_order(
    harness: ClientHarness, client: Client
) -> None:
    harness.serve()
    rows = np.arange(CAP * 16 * 3 + 1, dtype=np.int64)
    assert (client.infer("same", rows) == rows).all()
    assert counted(harness, LaneCounter.REQUESTS) == 1
    assert counted(harness, LaneCounter.ANSWERS) == 1


def test_values_of_an_untyped_model_pass(harness: ClientHarness, client: Client) -> None:
    harness.serve()
    values = [{"b": 1, "a": [None, 2**70, "\ud800", 6.0]}, "x", 3, True, None]
    assert client.infer("untyped", values) == values


def test_an_answer_that_takes_more_room_than_claimed_is_asked_for_again(
    harness: ClientHarness, client: Client
) -> None:
    """The first room is 4 KiB beyond the request."""

    runs = []

    def grow(payload: bytes, request: Request) -> Answer:
        runs.append(request)
        size = int.from_bytes(payload[:8], "little")
        row = size.to_bytes(8, "little")
        return (row * 8)[:8] + b"\0" * 56 + row * size * request.rows

    harness.serve(grow)
    assert client.infer("growing", numbers(5)).tolist() == [[5] * 5]
    assert (client.infer("growing", numbers(3000, 3000)) == 3000).all()
    assert len(runs) == 3
    for expected in (5, 6, 7, 8):
        assert (client.infer("growing", numbers(3000)) == 3000).all()
        assert len(runs) == expected, "learned from the second on"
    assert counted(harness, LaneCounter.REQUESTS) == 6


def test_what_can_never_fit_is_refused_for_good(harness: ClientHarness, client: Client) -> None:
    with pytest.raises(RequestTooLarge, match="more than there is room for"):
        client.infer("untyped", ["x" * 300_000])


@pytest.mark.parametrize(
    ("status", "text", "error", "words"),
    [
        (Status.INVALID, "no mood", InvalidRequest, "^no mood$"),
        (Status.INVALID, "", InvalidRequest, "^the model refused the input$"),
        (Status.MODEL_FAILED, "it raised", ModelFailed, "^it raised$"),
        (Status.EXPIRED, "", DeadlineExceeded, "^no answer came before the deadline$"),
        (Status.NO_WORKER, "", ModelNotReady, "^the model is not ready$"),
    ],
)
def test_an_answer_other_than_ok_is_raised_as_over_http(
    harness: ClientHarness, client: Client, status: Status, text: str, error: type, words: str
) -> None:
    harness.serve(lambda payload, request: (status, text))
    with pytest.raises(error, match=words):
        client.infer("same", numbers(1))
    with pytest.raises(error, match=words):
        client.infer_async("same", numbers(1)).result()
    found = client.infer_many("same", numbers(1, 2))
    assert [(type(e), str(e)) for e in found.errors.values()] == [(error, words[1:-1])] * 2


def test_one_part_that_fails_fails_the_request_and_frees_the_others(
    harness: ClientHarness, client: Client, wait_until: WaitUntil
) -> None:
    asking = Asking(lambda: client.infer("same", np.arange(3 * CAP, dtype=np.int64)))
    parts = taken(harness, 3, wait_until)
    harness.answer(parts[1:2], lambda payload, request: (Status.INVALID, "the second"))
    asking.join()
    assert isinstance(asking.error, InvalidRequest)
    harness.answer([parts[0], parts[2]])
    thread = harness.serve()
    assert client.infer("same", numbers(8)).tolist() == [8]
    harness.halt(thread)
    client.close()
    assert harness.everything_is_free(CLIENT_LANE)


def test_unknown_and_unready_models_are_refused_before_anything_is_sent(
    harness: ClientHarness, client: Client
) -> None:
    with pytest.raises(ModelNotFound, match='no model "none"; there is: same, growing, untyped'):
        client.infer("none", numbers(1))
    harness.segment.words[harness.segment.layout.model(0) + ModelWords.SERVED] = 0
    for ask in (client.infer, client.infer_async, client.infer_many):
        with pytest.raises(ModelNotReady, match='model "same" is not ready'):
            ask("same", numbers(1))
    assert counted(harness, LaneCounter.REQUESTS) == 0


def test_no_instances_are_answered_at_once(harness: ClientHarness, client: Client) -> None:
    for answer in (
        client.infer("same", numbers()),
        client.infer_async("same", numbers()).result(),
        client.infer_many("same", numbers()).outputs,
    ):
        assert (answer.shape, answer.dtype) == ((0,), np.int64)


def test_many_requests_have_each_its_own_answer_or_error(
    harness: ClientHarness, client: Client
) -> None:
    def odd(payload: bytes, request: Request) -> Answer:
        number = int.from_bytes(payload, "little")
        assert request.rows == 1
        return (Status.INVALID, f"no {number}") if number % 7 == 3 else payload

    harness.serve(odd)
    rows = np.arange(100, dtype=np.int64)
    outputs, errors = client.infer_many("same", rows)
    assert list(errors) == sorted(errors)
    assert {n: str(error) for n, error in errors.items()} == {
        n: f"no {n}" for n in range(100) if n % 7 == 3
    }
    assert outputs.tolist() == [0 if n % 7 == 3 else n for n in range(100)]
    assert counted(harness, LaneCounter.REQUESTS) == 100


def test_the_end_of_every_request_is_counted_once(harness: ClientHarness, client: Client) -> None:
    ends: Counter[tuple[int, str]] = Counter()

    def ask(call: Callable[..., Any], *arguments: Any, expected: str, **options: Any) -> None:
        place = MODELS[0].account if arguments[0] == "same" else len(MODELS)
        ends[place, expected] += 1
        with suppress(RequestError):
            call(*arguments, **options)

    ask(client.infer, "none", numbers(1), expected="404")
    ask(client.infer, "same", np.zeros(2), expected="400")
    ask(client.infer_async, "same", np.zeros(2), expected="400")
    ask(client.infer_many, "same", np.zeros(2), expected="400")
    ask(client.infer, "same", numbers(), expected="200")
    ask(client.infer, "same", numbers(1), timeout_s=0.01, expected="504")
    assert client.infer_async("same", numbers(1)).cancel()
    ends[MODELS[0].account, "499"] += 1

    def odd(payload: bytes, request: Request) -> Answer:
        number = int.from_bytes(payload[:8], "little")
        return (Status.MODEL_FAILED, "no") if number % 7 == 3 else payload

    harness.serve(odd)
    ask(client.infer, "same", numbers(3), expected="500")
    ask(client.infer, "same", np.arange(3 * CAP + 1, dtype=np.int64), expected="200")
    client.infer_many("same", np.arange(100, dtype=np.int64))
    ends[MODELS[0].account, "200"] += 86
    ends[MODELS[0].account, "500"] += 14
    found = ends_of(harness.segment, [MODELS[0].account, len(MODELS)])
    assert {
        (account, code): count
        for account, counts in found.items()
        for code, count in zip(("200", *CODE_LABELS), counts.codes[Protocol.CLIENT], strict=True)
        if count
    } == ends
    assert found[MODELS[0].account].instances == 3 * CAP + 1 + 86


def test_many_requests_leave_slots_to_others(
    harness: ClientHarness, client: Client, wait_until: WaitUntil
) -> None:
    bulk = Asking(lambda: client.infer_many("same", np.arange(40, dtype=np.int64)))
    first = taken(harness, 14, wait_until)
    other = Asking(lambda: client.infer("same", numbers(99)))
    (ref,) = taken(harness, 1, wait_until)
    harness.answer([ref])
    other.join()
    assert other.answer.tolist() == [99]
    assert bulk.is_alive()
    harness.answer(first)
    harness.serve()
    bulk.join()
    assert bulk.answer.outputs.tolist() == list(range(40))


def test_many_requests_that_find_no_room_at_all_fail_as_one_would(
    harness: ClientHarness, client: Client, wait_until: WaitUntil
) -> None:
    taking = [client.infer_async("same", numbers(n)) for n in range(16)]
    with pytest.raises(Overloaded, match="too many requests are waiting"):
        client.infer("same", numbers(1))
    errors = client.infer_many("same", numbers(1, 2)).errors
    assert [type(error) for error in errors.values()] == [Overloaded] * 2
    assert counted(harness, LaneCounter.REFUSED) == 3
    harness.serve()
    assert [future.result().tolist() for future in taking] == [[n] for n in range(16)]


def test_a_model_whose_sizes_are_open_is_no_model_for_many(client: Client) -> None:
    for model in ("growing", "untyped"):
        with pytest.raises(InvalidRequest, match="not one input and one output"):
            client.infer_many(model, numbers(1))


def test_every_way_to_wait_ends_at_the_deadline(
    harness: ClientHarness, client: Client, wait_until: WaitUntil
) -> None:
    with pytest.raises(DeadlineExceeded, match=r"no answer came within the 0\.01 s it asked for"):
        client.infer("same", numbers(1), timeout_s=0.01)
    late = client.infer_async("same", numbers(2), timeout_s=0.01)
    assert isinstance(late.exception(), DeadlineExceeded)
    errors = client.infer_many("same", numbers(3, 4), timeout_s=0.01).errors
    assert [type(error) for error in errors.values()] == [DeadlineExceeded] * 2
    assert counted(harness, LaneCounter.TIMEOUTS) == 3
    harness.answer(taken(harness, 4, wait_until))
    client.close()
    assert harness.everything_is_free(CLIENT_LANE)


def test_a_deadline_ends_a_wait_beside_one_that_has_longer(
    harness: ClientHarness, client: Client, monkeypatch: pytest.MonkeyPatch, wait_until: WaitUntil
) -> None:
    # What is watched here is not to be rescued by the sweep.
    monkeypatch.setattr(channel_module, "SWEEP_NS", FOREVER_NS)
    patient = Asking(lambda: client.infer("same", numbers(1)))
    wait_until(lambda: is_asleep(client), "the first thread leads")
    with pytest.raises(DeadlineExceeded):
        client.infer("same", numbers(2), timeout_s=0.01)
    future = client.infer_async("same", numbers(3), timeout_s=0.01)
    assert isinstance(future.exception(), DeadlineExceeded)
    assert patient.is_alive()
    harness.answer(harness.take())
    patient.join()
    assert patient.answer.tolist() == [1]


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan")])
def test_a_timeout_that_is_none_is_refused(client: Client, timeout_s: float) -> None:
    with pytest.raises(ValueError, match="timeout_s must be above 0"):
        client.infer("same", numbers(1), timeout_s=timeout_s)


def test_a_timeout_beyond_the_models_is_the_models(harness: ClientHarness, client: Client) -> None:
    before_ns = time.monotonic_ns()
    future = client.infer_async("same", numbers(1), timeout_s=float("inf"))
    ((_, request),) = map(harness.payload, harness.take())
    assert before_ns + DAY_NS <= request.deadline_ns <= time.monotonic_ns() + DAY_NS
    future.cancel()


def test_who_leads_passes_the_lead_on(
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
    assert not harness._port.wanted(ref)
    harness.answer([ref])
    harness.serve()
    answered = client.infer_async("same", numbers(2))
    assert answered.result().tolist() == [2]
    assert not answered.cancel()
    assert client._session.channel.slots.lane.in_flight == 0


def test_an_answered_request_is_kept_by_nothing(harness: ClientHarness, client: Client) -> None:
    """Neither the arrays given nor those answered wait for the garbage collector."""
    harness.serve()
    gc.collect()
    gc.disable()
    try:
        before = len([o for o in gc.get_objects() if type(o).__name__ == "DeferredCall"])
        futures = [client.infer_async("same", numbers(n)) for n in range(10)]
        for future in futures:
            future.result()
        after = len([o for o in gc.get_objects() if type(o).__name__ == "DeferredCall"])
    finally:
        gc.enable()
    # The thread that resolved the last one may still have it in its hands.
    assert after - before <= 1


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
    wait_until(lambda: not own_threads(), "the client's own thread has ended")


@pytest.mark.parametrize("ask", [Client.infer, Client.infer_async, Client.infer_many])
def test_a_closed_client_says_so_whatever_it_is_asked(
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


@pytest.mark.parametrize("ask", [Client.infer, Client.infer_async, Client.infer_many])
def test_no_instances_are_no_answer_of_a_model_that_serves_not(
    harness: ClientHarness, client: Client, ask: Callable[..., Any]
) -> None:
    """As over HTTP."""
    harness.segment.words[harness.segment.layout.model(0) + ModelWords.SERVED] = 0
    with pytest.raises(ModelNotReady):
        ask(client, "same", numbers())
    harness.segment.drain()
    with pytest.raises(Draining):
        ask(client, "same", numbers())


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


def test_an_engine_that_stops_takes_nothing_new_and_answers_what_it_has(
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
    monkeypatch.setattr(engines_module, "names", lambda pid: iter(found))
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
        monkeypatch.setattr(engines_module, "names", lambda pid: iter(found))
        with pytest.raises(
            StartupError, match=r"2 engines run, say which, by name .*\(process \d+\) ser"
        ):
            Client()
        with Client(segment=other.name) as client:
            assert client.models == ("same",)
    with pytest.raises(StartupError, match="has the engine stopped"):
        Client(segment=other.name)


def test_without_an_engine_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StartupError, match="supervisor has process id 4194305 is running"):
        Client(4194305)
    monkeypatch.setattr(engines_module, "names", lambda pid: iter(()))
    with pytest.raises(StartupError, match=r"^no engine of ringbatch is running$"):
        Client()


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
def test_an_interruption_amid_the_use_of_the_lane_costs_what_is_in_flight_and_no_more(
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
