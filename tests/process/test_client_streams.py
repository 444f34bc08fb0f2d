"""A client's answers in parts: each as it comes, an error behind one, and an end by either side."""

import gc
import os
from typing import Any

import pytest
from client_harness import (
    CAP,
    CLIENT_LANE,
    MARK,
    MODELS,
    Asking,
    ClientHarness,
    WaitUntil,
    numbers,
    taken,
    usual_client,
)
from part_worker import Worker, streamed_harness

from ringbatch.frontend import (
    AnswerCutOff,
    Client,
    ClientClosed,
    DeadlineExceeded,
    EngineGone,
    InvalidRequest,
)
from ringbatch.frontend.client import channel as channel_module
from ringbatch.shm.slot import Status

harness, client = streamed_harness, usual_client


class Streaming:
    """A stream of which the first part is there, and its worker."""

    def __init__(self, harness: ClientHarness, client: Client, wait_until: WaitUntil) -> None:
        self.parts: Any = client.stream("same", numbers(1, 2))
        first = Asking(lambda: next(self.parts))
        (ref,) = taken(harness, 1, wait_until)
        self.worker = Worker(harness, ref)
        assert self.worker.put(3, 4)
        first.join()
        assert first.error is None
        assert first.answer.tolist() == [3, 4]


@pytest.fixture
def streaming(harness: ClientHarness, client: Client, wait_until: WaitUntil) -> Streaming:
    return Streaming(harness, client, wait_until)


def test_each_part_comes_before_the_next_is_made(streaming: Streaming) -> None:
    for number in range(3):
        assert streaming.worker.put(number, number)
        assert next(streaming.parts).tolist() == [number, number]
    last = Asking(lambda: [*streaming.parts])
    streaming.worker.put(7, 8)
    streaming.worker.end()
    last.join()
    assert [part.tolist() for part in last.answer] == [[7, 8]]


def test_parts_are_taken_while_the_program_does_something_else(
    streaming: Streaming, wait_until: WaitUntil
) -> None:
    # More than the slot has room for.
    for number in range(600):
        wait_until(lambda number=number: streaming.worker.put(number, 0), "the client takes parts")
    streaming.worker.end()
    wait_until(streaming.worker.all_is_posted, "the ring of answers has room")
    assert [part[0] for part in streaming.parts] == [*range(600)]


def test_an_error_behind_a_part_raises_when_all_before_it_are_had(streaming: Streaming) -> None:
    streaming.worker.put(5, 6)
    streaming.worker.end(Status.CUT_OFF)
    assert next(streaming.parts).tolist() == [5, 6]
    with pytest.raises(AnswerCutOff, match="what has come is not all"):
        next(streaming.parts)
    assert [*streaming.parts] == []


@pytest.mark.parametrize("way", ["close", "let go", "collected"])
def test_a_program_that_leaves_ends_the_request(
    harness: ClientHarness, client: Client, streaming: Streaming, way: str, wait_until: WaitUntil
) -> None:
    worker = streaming.worker
    assert worker.is_wanted
    if way == "close":
        streaming.parts.close()
    elif way == "let go":
        streaming.parts = None
    else:
        cycle = [streaming.parts]
        cycle.append(cycle)
        streaming.parts = None
        assert worker.is_wanted
        del cycle
        gc.collect()
    wait_until(lambda: not worker.is_wanted, "the request is cancelled")
    # Later writes of the worker reach no client.
    worker.put(9, 9)
    worker.end(Status.CANCELLED)
    future = client.infer_async("same", numbers(1))
    harness.answer(taken(harness, 1, wait_until))
    assert future.result() == 1
    client.close()
    assert harness.everything_is_free(CLIENT_LANE)


def test_an_iterator_may_be_let_go_of_while_this_thread_uses_the_lane(
    client: Client, streaming: Streaming, wait_until: WaitUntil
) -> None:
    channel = client._session.channel
    with channel._lock:
        streaming.parts = None
    wait_until(lambda: not streaming.worker.is_wanted, "the request is cancelled")


def test_a_part_that_has_no_room_is_made_again_with_more(
    harness: ClientHarness, client: Client, wait_until: WaitUntil
) -> None:
    parts: Any = client.stream("same", numbers(1))
    first = Asking(lambda: next(parts))
    (ref,) = taken(harness, 1, wait_until)
    harness._engine_slots.answer(ref, Status.RESULT_TOO_LARGE, 40_000, MARK, 1)
    harness._engine_slots.flush()
    (ref,) = taken(harness, 1, wait_until)
    worker = Worker(harness, ref)
    assert worker.room >= 40_000
    assert worker.put(7)
    first.join()
    assert first.answer.tolist() == [7]


def test_a_first_part_that_is_late_raises(
    harness: ClientHarness, client: Client, wait_until: WaitUntil
) -> None:
    parts: Any = client.stream("same", numbers(1), first_part_timeout_s=0.02)
    late = Asking(lambda: next(parts))
    (ref,) = taken(harness, 1, wait_until)
    late.join()
    assert isinstance(late.error, DeadlineExceeded)
    assert "the 0.02 s to the first part that it asked for" in str(late.error)
    assert not harness._engine_slots.wanted(ref)
    assert Worker(harness, ref).is_late


def test_a_gap_that_is_too_long_raises_behind_the_parts_before_it(
    harness: ClientHarness, client: Client, wait_until: WaitUntil
) -> None:
    parts: Any = client.stream("same", numbers(1), part_gap_timeout_s=0.02)
    first = Asking(lambda: next(parts))
    (ref,) = taken(harness, 1, wait_until)
    worker = Worker(harness, ref)
    assert worker.put(3)
    first.join()
    assert first.answer.tolist() == [3]
    late = Asking(lambda: next(parts))
    late.join()
    assert isinstance(late.error, DeadlineExceeded)
    assert "the 0.02 s between two parts that it asked for" in str(late.error)
    assert not worker.is_wanted
    assert worker.is_late


def test_a_part_moves_the_deadline_on(
    harness: ClientHarness, client: Client, wait_until: WaitUntil
) -> None:
    # The program looks at nothing while parts come: what counts is when the client has them.
    limits: dict[str, Any] = {"first_part_timeout_s": 50.0, "part_gap_timeout_s": 50.0}
    parts: Any = client.stream("same", numbers(1), **limits)
    first = Asking(lambda: next(parts))
    (ref,) = taken(harness, 1, wait_until)
    (request,) = client._session.channel._waiters
    until_ns, before_ns = request.until_ns, request.deadline_ns
    assert before_ns < until_ns
    # The engine has the deadline for all of the answer.
    assert harness.payload(ref)[1].deadline_ns == until_ns
    worker = Worker(harness, ref)
    worker.put(3)
    first.join()
    assert before_ns < request.deadline_ns < until_ns
    worker.end()
    assert [*parts] == []


@pytest.mark.parametrize("name", ["first_part_timeout_s", "part_gap_timeout_s"])
def test_a_limit_that_is_none_is_refused(client: Client, name: str) -> None:
    wrong: dict[str, Any] = {name: 0}
    with pytest.raises(ValueError, match=f"{name} must be above 0, not 0"):
        next(client.stream("same", numbers(1), **wrong))


def test_closing_the_client_ends_the_stream(client: Client, streaming: Streaming) -> None:
    client.close()
    with pytest.raises(ClientClosed, match="the client was closed"):
        next(streaming.parts)


def test_the_end_of_the_engine_ends_the_stream(
    harness: ClientHarness, streaming: Streaming, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_module, "SWEEP_NS", 1_000_000)
    harness.end()
    with pytest.raises(EngineGone):
        next(streaming.parts)


def test_a_forked_child_does_not_wait_for_the_parents_parts(streaming: Streaming) -> None:
    child = os.fork()
    if not child:
        status = 1
        try:
            next(streaming.parts)
        except ClientClosed:
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    streaming.worker.put(5, 6)
    assert next(streaming.parts).tolist() == [5, 6]


def test_nothing_is_sent_before_the_first_part_is_wanted(
    harness: ClientHarness, client: Client
) -> None:
    parts: Any = client.stream("same", numbers(1))
    parts.close()
    assert harness.take() == []


def test_a_request_for_parts_fits_into_one_batch(client: Client, harness: ClientHarness) -> None:
    with pytest.raises(InvalidRequest, match=f"has {CAP + 1} instances, but an answer in parts"):
        next(client.stream("same", numbers(*range(CAP + 1))))
    with pytest.raises(InvalidRequest, match="not a numpy array"):
        next(client.stream("same", "x"))
    assert harness.take() == []


def test_a_model_without_parts_yields_its_answer() -> None:
    with ClientHarness(MODELS) as plain, Client(segment=plain.name) as client:
        thread = plain.serve()
        assert [y.tolist() for y in client.stream("same", numbers(5, 6))] == [[5, 6]]
        plain.halt(thread)


def test_no_instances_have_no_parts(harness: ClientHarness, client: Client) -> None:
    assert [y.tolist() for y in client.stream("same", numbers())] == [[]]
    assert harness.take() == []
