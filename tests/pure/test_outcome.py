"""The table of outcomes: every error and every status has exactly one answer."""

import orjson
import pytest

from ringbatch.frontend.outcome import (
    ERRORS,
    RULES,
    InternalError,
    NotSupported,
    error_of,
    outcome,
)
from ringbatch.frontend.v1_request import NO_INSTANCES, UNREADABLE
from ringbatch.shm import errors
from ringbatch.shm.errors import (
    DeadlineExceeded,
    Draining,
    InvalidRequest,
    MemoryNotFound,
    ModelFailed,
    ModelNotFound,
    ModelNotReady,
    Overloaded,
    RegionTaken,
    RequestError,
    RequestTooLarge,
    WorkerDied,
)
from ringbatch.shm.slot import Status


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (InvalidRequest, 400),
        (RegionTaken, 400),
        (ModelNotFound, 404),
        (MemoryNotFound, 404),
        (RequestTooLarge, 413),
        (ModelFailed, 500),
        (InternalError, 500),
        (NotSupported, 501),
        (ModelNotReady, 503),
        (Overloaded, 503),
        (Draining, 503),
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
def test_what_may_be_tried_again_says_when(kind: type[RequestError]) -> None:
    assert ("retry-after", "1") in outcome(kind()).headers


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
    ],
)
def test_a_status_becomes_this_http_status(status: Status, http: int) -> None:
    assert outcome(error_of(status, "")).status == http


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
def test_with_kserve_errors_what_no_batcher_sees_keeps_its_status(
    kind: type[RequestError], status: int
) -> None:
    assert outcome(kind("x"), kserve_errors=True).status == status
