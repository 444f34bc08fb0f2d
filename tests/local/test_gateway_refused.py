"""Requests that the service refuses by itself: too late, too many, wrong, or for no model."""

import orjson
import pytest
from frontend_harness import SECOND_NS, TIMEOUT_NS, FrontendHarness, predictions, typed, untyped

from ringbatch.frontend.codec.outcome import Answer
from ringbatch.frontend.codec.payload import LazyBytes, LazyPart
from ringbatch.frontend.request.task import InflightRequest
from ringbatch.shm.account import EVERY_BIT, PriorityClass, account_word
from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.descriptors import ModelWords
from ringbatch.shm.errors import InvalidRequest, ModelNotReady
from ringbatch.shm.lateness import overload_text, too_long_a_wait
from ringbatch.shm.readiness import ModelState, publish
from ringbatch.shm.slot import Status


class Gone(LazyBytes):
    """Bytes that were there when they were promised."""

    def __len__(self) -> int:
        return 8

    def read_into(self, memory: memoryview) -> None:
        memory[:4] = b"half"
        raise InvalidRequest("gone")


def test_an_unreadable_request_leaves_its_slot_free() -> None:
    harness = FrontendHarness(typed())
    model = harness.service.model(harness.name)
    for number in range(3 * harness.lane.capacity):
        task = InflightRequest(
            model, model.v1.rows, harness.replies.to(number), 0, TIMEOUT_NS, model.tallies[0]
        )
        with pytest.raises(InvalidRequest, match="gone"):
            task.send(harness.service.engine, LazyPart(1, Gone(), 0), 64)
    assert harness.lane.in_flight == 0
    harness.loop.turn()
    assert harness.submitted.take() == []


def expecting(harness: FrontendHarness, answer_s: float, row_ns: int = 0) -> None:
    """Publish the expected time to an answer, as the collector does."""
    first = harness.segment.layout.model(0)
    harness.segment.words[first + ModelWords.ROW_NS] = row_ns
    harness.segment.words[first + ModelWords.ANSWER_NS] = int(answer_s * SECOND_NS)


@pytest.mark.parametrize(("answer_s", "retry_after"), [(8.9, "1"), (10, "2"), (16, "8")])
def test_a_request_that_would_be_answered_too_late_is_refused_at_once(
    answer_s: float, retry_after: str
) -> None:
    harness = FrontendHarness(untyped(timeout_ns=10 * SECOND_NS))
    expecting(harness, answer_s)
    harness.predict(0, [0])
    status, body, headers = harness.replies.got[0]
    assert status == 503
    words = f"so many requests wait that an answer would take {answer_s:.1f} s"
    assert body == {"error": f"{words}, too long for timeout_s = 10"}
    assert headers["retry-after"] == retry_after
    assert harness.count(LaneCounter.REFUSED) == 1
    assert harness.lane.in_flight == 0


def test_a_request_that_can_be_answered_in_time_is_not_refused() -> None:
    harness = FrontendHarness(untyped(timeout_ns=10 * SECOND_NS))
    expecting(harness, 8.8)
    harness.predict(0, [0])
    assert harness.replies.got == {}


def test_requests_that_the_collector_has_not_taken_count() -> None:
    harness = FrontendHarness(untyped(timeout_ns=10 * SECOND_NS))
    expecting(harness, 2, row_ns=2 * SECOND_NS)
    for number in range(5):
        harness.predict(number, [number])
    assert list(harness.replies.got) == [4], "8 s of rows on top of 2"
    harness.loop.turn()
    harness.predict(5, [5])
    assert list(harness.replies.got) == [4, 5], "submitted is not taken"
    harness.taken()
    harness.predict(6, [6])
    assert list(harness.replies.got) == [4, 5]


OWN, OTHER = 7, 8


def expecting_of(harness: FrontendHarness, account: int, least_s: float) -> None:
    """Publish also the account that owns all waiting requests, and the least wait."""
    expecting(harness, 20, row_ns=SECOND_NS)
    first = harness.segment.layout.model(0)
    harness.segment.words[first + ModelWords.ACCOUNT] = account
    harness.segment.words[first + ModelWords.LEAST_NS] = int(least_s * SECOND_NS)


@pytest.mark.parametrize(
    ("account", "all_of", "least_s", "refused"),
    [
        (OWN, OWN, 2, True),  # it is behind all that waits
        (OWN, OTHER, 2, False),
        (OWN, EVERY_BIT, 2, False),
        (OWN, OTHER, 9, True),
        (account_word(OWN, PriorityClass.INTERACTIVE), OTHER, 9, False),
        (account_word(OWN, weight=2), OTHER, 9, False),
    ],
)
def test_a_request_whose_turn_comes_in_time_is_not_refused(
    account: int, all_of: int, least_s: float, refused: bool
) -> None:
    harness = FrontendHarness(untyped(timeout_ns=10 * SECOND_NS))
    expecting_of(harness, all_of, least_s)
    body = b'{"instances": [0]}'
    harness.service.predict(harness.name, body, harness.replies.to(0), account=account)
    assert bool(harness.replies.got) is refused
    assert harness.count(LaneCounter.REFUSED) == refused


@pytest.mark.parametrize(("most_s", "refused"), [(0, False), (9, False), (8, True)])
def test_while_the_queue_stands_its_wait_is_bounded(most_s: int, refused: bool) -> None:
    harness = FrontendHarness(untyped(max_queue_wait_ns=7 * SECOND_NS))
    expecting(harness, 8)
    first = harness.segment.layout.model(0)
    harness.segment.words[first + ModelWords.MOST_NS] = most_s * SECOND_NS
    harness.predict(0, [0])
    assert bool(harness.replies.got) is refused
    assert harness.count(LaneCounter.REFUSED) == refused
    if refused:
        status, body, headers = harness.replies.got[0]
        assert (status, headers["retry-after"]) == (503, "1")
        assert body["error"].endswith("would take 8.0 s, too long for max_queue_wait_s = 7")


def test_the_collectors_refusal_has_the_same_words_and_is_counted() -> None:
    harness = FrontendHarness(untyped())
    harness.predict(0, [0])
    harness.loop.turn()
    error = too_long_a_wait(90 * SECOND_NS, TIMEOUT_NS, TIMEOUT_NS, TIMEOUT_NS)
    harness.answer(harness.taken(), Status.OVERLOADED, overload_text(error))
    harness.gateway.collect()
    status, body, headers = harness.replies.got[0]
    assert (status, headers["retry-after"]) == (503, "42")
    words = "so many requests wait that an answer would take 90.0 s, too long for timeout_s = 60"
    assert body == {"error": words}
    assert harness.count(LaneCounter.REFUSED) == 1


def test_a_burst_into_an_idle_engine_is_refused_where_it_would_be_too_late() -> None:
    harness = FrontendHarness(untyped(timeout_ns=10 * SECOND_NS))
    expecting(harness, 0, row_ns=3 * SECOND_NS)
    for number in range(5):
        harness.predict(number, [number])
    assert list(harness.replies.got) == [3, 4], "the fourth would wait for 9 s of others"


def test_one_request_alone_is_never_too_much_for_an_idle_engine() -> None:
    """Else one slow run could talk it out of ever finding out that the next is faster."""
    harness = FrontendHarness(untyped(timeout_ns=10 * SECOND_NS))
    expecting(harness, 0, row_ns=1000 * SECOND_NS)
    harness.predict(0, [0])
    assert harness.replies.got == {}


def test_a_full_lane_refuses_at_once_and_takes_again_later() -> None:
    harness = FrontendHarness(untyped(), slots=2)
    for number in range(3):
        harness.predict(number, [number])
    status, _, headers = harness.replies.got[2]
    assert (status, headers["retry-after"]) == (503, "1")
    assert harness.count(LaneCounter.REFUSED) == 1
    harness.loop.turn()
    harness.answer(harness.taken())
    harness.gateway.collect()
    harness.predict(3, [3])
    assert 3 not in harness.replies.got
    assert (predictions(harness, 0), predictions(harness, 1)) == ([0], [1])


def test_a_request_larger_than_the_lane_is_refused_for_good() -> None:
    harness = FrontendHarness(untyped(), lane_bytes=8192)
    harness.predict(0, ["x" * 8000])
    assert harness.replies.got[0][0] == 413
    assert harness.lane.in_flight == 0


def test_an_unknown_model_is_answered_with_the_names_there_are() -> None:
    harness = FrontendHarness(untyped())
    assert harness.service.predict("nope", b"{}", harness.replies.to(0)) is None
    status, body, _ = harness.replies.got[0]
    text = 'Request for unknown model: there is no model "nope"; there is: echo'
    assert (status, body) == (404, {"error": text})


def test_a_model_that_no_worker_ever_held_is_not_ready() -> None:
    harness = FrontendHarness(untyped())
    harness.ready(0)
    publish(harness.segment.words, harness.segment.layout.model(0), ModelState.LOADING)
    harness.predict(0, [0])
    assert harness.replies.got[0][0] == 503
    assert harness.lane.in_flight == 0


def test_a_request_waits_for_the_worker_that_follows_a_dead_one() -> None:
    harness = FrontendHarness(untyped())
    harness.ready(0)
    with pytest.raises(ModelNotReady):
        harness.service.check("echo")
    harness.predict(0, [7])
    harness.loop.turn()
    (request,) = harness.taken()
    harness.answer([request])
    harness.gateway.collect()
    assert predictions(harness, 0) == [7]


@pytest.mark.parametrize("kserve_errors", [False, True])
def test_an_invalid_body_is_refused_without_taking_a_slot(kserve_errors: bool) -> None:
    harness = FrontendHarness(typed(kserve_errors=kserve_errors))
    replies: list[Answer] = []
    call = harness.service.predict("double", b"nope", replies.append)
    assert call is None
    ((status, body, _),) = replies
    assert status == 400
    assert body == b"can't Unmarshal body\n" if kserve_errors else orjson.loads(body)["error"]
    assert harness.lane.in_flight == 0


def test_kserve_errors_turn_a_failed_batch_into_a_message() -> None:
    harness = FrontendHarness(untyped(kserve_errors=True))
    harness.predict(0, [0])
    harness.loop.turn()
    harness.answer(harness.taken(), Status.MODEL_FAILED, "busy")
    harness.gateway.collect()
    status, body, _ = harness.replies.got[0]
    assert (status, body) == (200, {"message": "busy", "batchId": "", "predictions": None})
