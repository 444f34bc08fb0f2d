"""Client beside a scripted engine: calls, many at once, and their deadlines."""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from client_harness import (
    CAP,
    CLIENT_LANE,
    DAY_NS,
    FOREVER_NS,
    MODELS,
    Answer,
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

from ringbatch.frontend import (
    Client,
    DeadlineExceeded,
    Draining,
    InvalidRequest,
    ModelFailed,
    ModelNotFound,
    ModelNotReady,
    Overloaded,
    RequestTooLarge,
)
from ringbatch.frontend.client import channel as channel_module
from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.engine_slots import Request
from ringbatch.shm.errors import RequestError
from ringbatch.shm.readiness import ModelState, publish
from ringbatch.shm.slot import Status
from ringbatch.shm.tallies import CODE_LABELS, Protocol, ends_of

OWN = 2
"""Slots of each of three models, of the six that are set aside of 16."""
MOST_OF_ONE = 12
"""Slots that one of them may have: its own, and those for all."""


harness, client = plain_harness, client_that_waits


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


def test_a_client_learns_when_the_answer_stood_in_its_slot(
    harness: ClientHarness, client: Client, monkeypatch: pytest.MonkeyPatch, wait_until: WaitUntil
) -> None:
    channel, learned = client._session.channel, list[int]()
    monkeypatch.setattr(channel, "took", learned.append)
    monkeypatch.setattr(channel, "clock", lambda: 1000)
    future = client.infer_async("same", numbers(7))
    # This engine has finished at instant 1.
    harness.answer(taken(harness, 1, wait_until))
    assert future.result() == 7
    assert learned == [1 - 1000]


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


def test_a_request_that_can_never_fit_is_refused_for_good(
    harness: ClientHarness, client: Client
) -> None:
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
    publish(harness.segment.words, harness.segment.layout.model(0), ModelState.LOADING)
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
    first = taken(harness, MOST_OF_ONE - 1, wait_until)
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
    taking = [client.infer_async("same", numbers(n)) for n in range(MOST_OF_ONE)]
    with pytest.raises(Overloaded, match="too many requests are waiting"):
        client.infer("same", numbers(1))
    errors = client.infer_many("same", numbers(1, 2)).errors
    assert [type(error) for error in errors.values()] == [Overloaded] * 2
    assert counted(harness, LaneCounter.REFUSED) == 3
    assert counted(harness, LaneCounter.REFUSED_AT_SHARE) == 3
    harness.serve()
    assert [future.result().tolist() for future in taking] == [[n] for n in range(MOST_OF_ONE)]


def test_a_model_whose_requests_wait_leaves_slots_to_another(
    harness: ClientHarness, client: Client, wait_until: WaitUntil
) -> None:
    waiting = [client.infer_async("same", numbers(n)) for n in range(MOST_OF_ONE)]
    many = Asking(lambda: client.infer_many("same", numbers(1)))
    many.join()
    assert isinstance(many.answer.errors[0], Overloaded)
    taken(harness, MOST_OF_ONE, wait_until)
    harness.serve()
    for _ in range(3 * OWN):
        assert client.infer("untyped", [5, 6]) == [5, 6]
    assert not any(future.done() for future in waiting)


def test_a_client_divides_its_slots_among_the_models_that_serve_now(
    harness: ClientHarness, client: Client, wait_until: WaitUntil
) -> None:
    for models, most in ((MODELS[:1], 16), (MODELS, MOST_OF_ONE)):
        harness.segment.model_table.publish(models)
        asked = [client.infer_async("same", numbers(n)) for n in range(most)]
        with pytest.raises(Overloaded):
            client.infer("same", numbers(1))
        harness.answer(taken(harness, most, wait_until))
        assert [future.result().tolist() for future in asked] == [[n] for n in range(most)]


def test_a_lane_that_is_taken_over_from_itself_is_divided_as_before(client: Client) -> None:
    slots = client._session.channel.slots
    slots.take_over()
    assert slots.lane.most_of_one == MOST_OF_ONE


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


@pytest.mark.parametrize("ask", [Client.infer, Client.infer_async, Client.infer_many])
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"model": ["same"]}, "model is a list, not the name of a model, a str"),
        ({"model": None}, "model is None, not the name of a model, a str"),
        ({"timeout_s": "x"}, "timeout_s is a str, not a number of seconds above 0"),
        ({"priority": 1}, "priority is an int, not interactive, normal or bulk"),
    ],
)
def test_an_argument_of_another_kind_is_named_and_sends_nothing(
    harness: ClientHarness,
    client: Client,
    ask: Callable[..., Any],
    wrong: dict[str, Any],
    words: str,
) -> None:
    right: dict[str, Any] = {"model": "same", "inputs": numbers(1)}
    with pytest.raises(TypeError, match=words):
        ask(client, **right | wrong)
    with pytest.raises(TypeError, match=words):
        next(client.stream(**right | wrong))
    assert not harness.take()
    harness.serve()
    assert client.infer(**right).tolist() == [1]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"engine": 5.5}, "engine is a float, not an engine's name"),
        ({"segment": 5}, "segment is an int, not the name of shared memory"),
        ({"spin_us": "150"}, "spin_us is a str, not a number of microseconds"),
        ({"priority": []}, "priority is a list, not interactive, normal or bulk"),
    ],
)
def test_a_client_of_another_kind_of_argument_is_not_made(
    wrong: dict[str, Any], words: str
) -> None:
    with pytest.raises(TypeError, match=words):
        Client(**wrong)


def test_a_timeout_beyond_the_models_is_the_models(harness: ClientHarness, client: Client) -> None:
    before_ns = time.monotonic_ns()
    future = client.infer_async("same", numbers(1), timeout_s=float("inf"))
    ((_, request),) = map(harness.payload, harness.take())
    assert before_ns + DAY_NS <= request.deadline_ns <= time.monotonic_ns() + DAY_NS
    future.cancel()


@pytest.mark.parametrize("ask", [Client.infer, Client.infer_async, Client.infer_many])
def test_no_instances_are_no_answer_of_a_model_that_serves_not(
    harness: ClientHarness, client: Client, ask: Callable[..., Any]
) -> None:
    """As over HTTP."""
    publish(harness.segment.words, harness.segment.layout.model(0), ModelState.LOADING)
    with pytest.raises(ModelNotReady):
        ask(client, "same", numbers())
    harness.segment.drain()
    with pytest.raises(Draining):
        ask(client, "same", numbers())
