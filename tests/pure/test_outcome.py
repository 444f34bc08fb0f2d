"""The table of outcomes: every error and every status has exactly one answer."""

import orjson
import pytest

from ringbatch.engine.collector.quarantine import REMEMBERED_NS
from ringbatch.frontend.codec.outcome import (
    ERRORS,
    NO_INSTANCES,
    REFUSED_S,
    RULES,
    UNREADABLE,
    InternalError,
    NotSupported,
    error_of,
    outcome,
)
from ringbatch.shm import errors
from ringbatch.shm.errors import (
    DeadlineExceeded,
    Draining,
    InvalidRequest,
    MemoryNotFound,
    ModelFailed,
    ModelNotFound,
    ModelNotReady,
    ModelServerAnswered,
    ModelServerBroken,
    ModelServerDown,
    ModelServerMiscounted,
    Overloaded,
    RegionTaken,
    RequestError,
    RequestTooLarge,
    Unauthenticated,
    WorkerDied,
)
from ringbatch.shm.forward_envelope import Refusal, refusal_text
from ringbatch.shm.slot import Status


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (InvalidRequest, 400),
        (RegionTaken, 400),
        (Unauthenticated, 401),
        (ModelNotFound, 404),
        (MemoryNotFound, 404),
        (RequestTooLarge, 413),
        (ModelFailed, 500),
        (InternalError, 500),
        (NotSupported, 501),
        (ModelNotReady, 503),
        (Overloaded, 503),
        (Draining, 503),
        (ModelServerAnswered, 502),
        (ModelServerBroken, 502),
        (ModelServerMiscounted, 502),
        (ModelServerDown, 503),
        (WorkerDied, 503),
        (DeadlineExceeded, 504),
    ],
)
def test_each_error_has_its_status_and_says_its_text(kind: type[RequestError], status: int) -> None:
    found = outcome(kind("because of this"))
    assert found.status == status
    assert orjson.loads(found.body) == {"error": "because of this"}
    assert ("content-type", "application/json") in found.headers


def test_every_request_error_has_a_rule_of_its_own() -> None:
    kinds = {
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, RequestError) and kind is not RequestError
    }
    assert set(RULES) == kinds | {InternalError, NotSupported}


def test_a_subclass_gets_the_rule_of_its_base() -> None:
    class Ragged(InvalidRequest):
        pass

    assert outcome(Ragged("x")).status == 400


@pytest.mark.parametrize("kind", RULES)
def test_an_error_without_a_text_gets_one(kind: type[RequestError]) -> None:
    assert orjson.loads(outcome(kind()).body)["error"]


@pytest.mark.parametrize("kind", [kind for kind, rule in RULES.items() if rule.status == 503])
def test_a_retryable_error_has_a_retry_after(kind: type[RequestError]) -> None:
    wanted_s = REFUSED_S if kind is WorkerDied else 1
    assert ("retry-after", str(wanted_s)) in outcome(kind()).headers


def test_a_fatal_requests_error_is_retryable_once_it_is_no_longer_refused() -> None:
    assert REFUSED_S * 1_000_000_000 == REMEMBERED_NS


def test_every_status_but_ok_stands_for_an_error() -> None:
    assert set(ERRORS) == set(Status) - {Status.OK}
    for status in ERRORS:
        error = error_of(status, "words")
        assert str(error) == "words"
        assert outcome(error).status >= 400


@pytest.mark.parametrize(
    ("status", "http"),
    [
        (Status.INVALID, 400),
        (Status.MODEL_FAILED, 500),
        (Status.EXPIRED, 504),
        (Status.CANCELLED, 500),
        (Status.NO_WORKER, 503),
        (Status.WORKER_DIED, 503),
        (Status.RESULT_TOO_LARGE, 500),
        (Status.CORRUPT, 500),
        (Status.WRONG_COUNT, 500),
        (Status.SERVER_ANSWERED, 502),
        (Status.SERVER_BROKEN, 502),
        (Status.SERVER_MISCOUNTED, 502),
        (Status.SERVER_DOWN, 503),
        (Status.OVERLOADED, 503),
    ],
)
def test_a_status_becomes_this_http_status(status: Status, http: int) -> None:
    assert outcome(error_of(status, "")).status == http


def answered(text: str, batch_id: str = "") -> tuple[int, bytes, dict[str, str]]:
    status, body, headers = outcome(error_of(Status.SERVER_ANSWERED, text), batch_id=batch_id)
    return status, body, dict(headers)


def test_a_model_servers_own_status_and_words_are_passed_on() -> None:
    text = refusal_text(Refusal(503, "", "busy"))
    found = answered(text, "b")
    assert found == (
        503,
        b'{"error":"busy"}',
        {"content-type": "application/json", "x-batch-id": "b"},
    )


def test_a_model_servers_own_object_is_passed_on_as_it_is() -> None:
    body = '{"error": "busy",  "code": 7}'
    status, own, headers = answered(refusal_text(Refusal(429, "17", body)))
    assert (status, own.decode()) == (429, body)
    assert headers == {"content-type": "application/json", "retry-after": "17"}


def test_a_model_servers_object_that_was_cut_short_is_words() -> None:
    text = refusal_text(Refusal(400, "", '{"error": "no\nsuch'))
    assert answered(text)[:2] == (400, orjson.dumps({"error": '{"error": "no\nsuch'}))


def test_a_model_server_without_words_gets_some() -> None:
    assert answered(refusal_text(Refusal(500, "", "")))[:2] == (
        500,
        b'{"error":"the model server failed"}',
    )


@pytest.mark.parametrize("text", ["", "200 \nfine", "600 \n", "-1 \n", "nonsense"])
def test_no_answer_is_a_failure_of_another_kind_than_4xx_and_5xx(text: str) -> None:
    assert answered(text)[0] == 502


def test_with_kserve_errors_a_model_servers_words_are_the_message() -> None:
    error = error_of(Status.SERVER_ANSWERED, refusal_text(Refusal(503, "", "busy")))
    found = outcome(error, kserve_errors=True, batch_id="b")
    assert found[:2] == (200, b'{"message":"busy","batchId":"","predictions":null}')
    miscounted = error_of(Status.SERVER_MISCOUNTED, "2 for 1")
    body = orjson.loads(outcome(miscounted, kserve_errors=True, batch_id="b").body)
    assert body == {
        "message": "size of prediction is not equal to the size of instances",
        "batchId": "b",
        "predictions": None,
    }


def test_a_failed_request_of_a_batch_names_the_batch_in_a_header() -> None:
    assert ("x-batch-id", "b") in outcome(ModelFailed(), batch_id="b").headers
    assert "x-batch-id" not in dict(outcome(ModelFailed()).headers)


def test_text_that_is_no_unicode_still_makes_json() -> None:
    assert orjson.loads(outcome(ModelFailed("a\udc80b")).body) == {"error": "a?b"}


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        (UNREADABLE + "it is empty", b"can't Unmarshal body\n"),
        (NO_INSTANCES, b"no instances in the request\n"),
        (NO_INSTANCES + ": it has neither", b"no instances in the request\n"),
    ],
)
def test_with_kserve_errors_its_own_checks_refuse_in_plain_text(text: str, refusal: bytes) -> None:
    assert outcome(InvalidRequest(text), kserve_errors=True) == (
        400,
        refusal,
        (
            ("content-type", "text/plain; charset=utf-8"),
            ("x-content-type-options", "nosniff"),
        ),
    )


@pytest.mark.parametrize("kind", [InvalidRequest, ModelFailed, DeadlineExceeded, Overloaded])
def test_with_kserve_errors_all_else_is_a_message_under_status_200(
    kind: type[RequestError],
) -> None:
    found = outcome(kind("busy"), kserve_errors=True, batch_id="b")
    assert found.status == 200
    assert found.body == b'{"message":"busy","batchId":"","predictions":null}'


def test_with_kserve_errors_a_wrong_count_has_its_own_words_and_the_batch() -> None:
    found = outcome(error_of(Status.WRONG_COUNT, "2 for 3"), kserve_errors=True, batch_id="b")
    assert found.status == 200
    assert found.body == (
        b'{"message":"size of prediction is not equal to the size of instances",'
        b'"batchId":"b","predictions":null}'
    )
    plain = outcome(error_of(Status.WRONG_COUNT, "2 for 3"), batch_id="b")
    assert plain.body == b'{"error":"2 for 3"}'


@pytest.mark.parametrize(("kind", "status"), [(ModelNotFound, 404), (RequestTooLarge, 413)])
def test_with_kserve_errors_an_error_that_no_batcher_sees_keeps_its_status(
    kind: type[RequestError], status: int
) -> None:
    assert outcome(kind("x"), kserve_errors=True).status == status
