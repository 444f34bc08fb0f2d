"""Statuses and bodies of errors, by protocol: one table.

An error is an object with one member, ``{"error": "..."}``. A model with `kserve_errors` answers
as KServe's own batcher does instead. After three checks of the body, which are refused in plain
text, its status is always 200, with the reason under ``message``. Those forms were written after
the behaviour of KServe's agent, pkg/batcher/handler.go.
"""

from typing import Final, NamedTuple

import orjson

from ringbatch.frontend.codec.grpc_codes import (
    ALREADY_EXISTS,
    DEADLINE_EXCEEDED,
    INTERNAL,
    INVALID_ARGUMENT,
    NOT_FOUND,
    RESOURCE_EXHAUSTED,
    UNAUTHENTICATED,
    UNAVAILABLE,
    UNIMPLEMENTED,
)
from ringbatch.shm import account_limits
from ringbatch.shm.errors import (
    AnswerCutOff,
    DeadlineExceeded,
    Draining,
    InvalidRequest,
    LimitReached,
    LoadFailed,
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
from ringbatch.shm.forward_envelope import read_refusal
from ringbatch.shm.lateness import read_overload
from ringbatch.shm.slot import Status

UNREADABLE: Final = "can't unmarshal body: "
"""Begin of the text for a body that is no JSON object with a list of instances."""
NO_INSTANCES: Final = "no instances in the request"
"""Begin of the text for a body without instances."""
WRONG_COUNT: Final = "size of prediction is not equal to the size of instances"
"""KServe's own words for a `WrongCount`."""

Headers = tuple[tuple[str, str], ...]
Answer = tuple[int, bytes, Headers]
"""Over HTTP: status, body and headers, as in `Outcome` or in a plain tuple, which takes a third of
the time to make."""

JSON: Final[Headers] = (("content-type", "application/json"),)
"""The headers of every answer that needs no others; compared by identity where speed counts."""
AGENT_TEXT: Final[Headers] = (("content-type", "text/plain; charset=utf-8"),)
"""Headers of the agent's JSON: it names no type, and Go then sends this one."""
_AGENT_REFUSAL: Final[Headers] = (*AGENT_TEXT, ("x-content-type-options", "nosniff"))
_RETRY: Final[Headers] = (*JSON, ("retry-after", "1"))
REFUSED_S: Final = 60
"""Seconds for which a request is refused that two processes died of, see
`ringbatch.engine.collector.quarantine`."""
_MUCH_LATER: Final[Headers] = (*JSON, ("retry-after", str(REFUSED_S)))
_CHALLENGE: Final[Headers] = (*JSON, ("www-authenticate", 'Bearer realm="ringbatch"'))
BATCH_HEADER: Final = "x-batch-id"


class WrongCount(ModelFailed):
    """The model answered with another number of predictions than it was given instances."""


class InternalError(RequestError):
    """A defect of ringbatch; its details are in the log alone."""


class NotSupported(RequestError):
    """The request is for something that the protocol has and ringbatch has not."""


class Rule(NamedTuple):
    """Rule for one kind of error.

    Attributes:
        status: over HTTP.
        code: over gRPC. Clients repeat a call after UNAVAILABLE; the other errors would come again.
        headers: over HTTP.
        text: if the error has none.
    """

    status: int
    code: int
    headers: Headers
    text: str


RULES: Final[dict[type[RequestError], Rule]] = {
    InvalidRequest: Rule(400, INVALID_ARGUMENT, JSON, "the model refused the input"),
    RegionTaken: Rule(400, ALREADY_EXISTS, JSON, "a region of that name is registered already"),
    Unauthenticated: Rule(
        401,
        UNAUTHENTICATED,
        _CHALLENGE,
        "an API key of this server is needed, as Authorization: Bearer KEY or X-API-Key: KEY",
    ),
    ModelNotFound: Rule(404, NOT_FOUND, JSON, "there is no such model"),
    MemoryNotFound: Rule(404, NOT_FOUND, JSON, "there is no such shared memory"),
    RequestTooLarge: Rule(413, RESOURCE_EXHAUSTED, JSON, "the request is too large"),
    LimitReached: Rule(
        429, RESOURCE_EXHAUSTED, _RETRY, "a limit of this client is reached; try again later"
    ),
    ModelFailed: Rule(500, INTERNAL, JSON, "the model failed"),
    LoadFailed: Rule(500, INTERNAL, JSON, "the model could not be loaded"),
    InternalError: Rule(500, INTERNAL, JSON, "internal error"),
    NotSupported: Rule(501, UNIMPLEMENTED, JSON, "this is not supported"),
    ModelServerAnswered: Rule(502, INTERNAL, JSON, "the model server failed"),
    ModelServerBroken: Rule(502, UNAVAILABLE, JSON, "the model server gave no answer"),
    ModelServerMiscounted: Rule(502, INTERNAL, JSON, WRONG_COUNT),
    ModelServerDown: Rule(503, UNAVAILABLE, _RETRY, "the model server does not listen"),
    ModelNotReady: Rule(503, UNAVAILABLE, _RETRY, "the model is not ready"),
    Overloaded: Rule(503, UNAVAILABLE, _RETRY, "too many requests are waiting; try again later"),
    Draining: Rule(503, UNAVAILABLE, _RETRY, "the server is stopping"),
    WorkerDied: Rule(503, UNAVAILABLE, _MUCH_LATER, "the process that ran the request died, twice"),
    AnswerCutOff: Rule(
        503, UNAVAILABLE, _RETRY, "the process died that answered; what has come is not all"
    ),
    DeadlineExceeded: Rule(504, DEADLINE_EXCEEDED, JSON, "no answer came before the deadline"),
}

ERRORS: Final[dict[Status, type[RequestError]]] = {
    Status.INVALID: InvalidRequest,
    Status.MODEL_FAILED: ModelFailed,
    Status.EXPIRED: DeadlineExceeded,
    Status.CANCELLED: InternalError,
    Status.NO_WORKER: ModelNotReady,
    Status.WORKER_DIED: WorkerDied,
    Status.RESULT_TOO_LARGE: ModelFailed,
    Status.CORRUPT: InternalError,
    Status.WRONG_COUNT: WrongCount,
    Status.SERVER_ANSWERED: ModelServerAnswered,
    Status.SERVER_BROKEN: ModelServerBroken,
    Status.SERVER_MISCOUNTED: ModelServerMiscounted,
    Status.SERVER_DOWN: ModelServerDown,
    Status.OVERLOADED: Overloaded,
    Status.LIMITED: LimitReached,
    Status.CUT_OFF: AnswerCutOff,
}
"""Errors for answers that are not OK."""

_AGENT_CHECKS: Final = (
    (UNREADABLE, "can't Unmarshal body"),
    (NO_INSTANCES, "no instances in the request"),
)
"""Begins of our texts for bodies that KServe's batcher refuses itself, and its own texts."""
_GO_ESCAPES: Final = ((b"<", b"\\u003c"), (b">", b"\\u003e"), (b"&", b"\\u0026"))
"""Characters that Go's encoder escapes and JSON itself does not; here only within strings."""
_AGENT_REFUSES: Final = (ModelNotFound, RequestTooLarge)
"""Errors that KServe's router answers before its batcher has seen the request."""


class Outcome(NamedTuple):
    """An answer, ready to be sent but for its length."""

    status: int
    body: bytes
    headers: Headers


def error_of(status: Status, text: str) -> RequestError:
    """Return the error for an answer other than OK; `text` is what came with it, if any."""
    if status is Status.SERVER_ANSWERED:
        refusal = read_refusal(text)
        return ModelServerAnswered(refusal.body, refusal.status, refusal.retry_after)
    if status is Status.OVERLOADED:
        return read_overload(text)
    if status is Status.LIMITED:
        return account_limits.read_refusal(text)
    return ERRORS[status](text)


def outcome(error: RequestError, *, kserve_errors: bool = False, batch_id: str = "") -> Outcome:
    """Return the answer to a request that failed.

    Args:
        error: why.
        kserve_errors: the model's setting.
        batch_id: of the batch the request was in; empty if it was in none.
    """
    rule = rule_of(error)
    text = text_of(error)
    if kserve_errors and not isinstance(error, _AGENT_REFUSES):
        return _as_kserve(error, text, batch_id)
    headers = rule.headers
    if isinstance(error, Overloaded | ModelNotReady):
        headers = (*JSON, ("retry-after", str(error.retry_after_s)))
    if isinstance(error, ModelServerAnswered):
        return _as_answered(error, headers, batch_id)
    if batch_id:
        headers = (*headers, (BATCH_HEADER, batch_id))
    return Outcome(rule.status, error_body(text), headers)


def _as_answered(error: ModelServerAnswered, headers: Headers, batch_id: str) -> Outcome:
    """Return a model server's own status and, if it is a JSON object, its own body."""
    if error.retry_after:
        headers = (*headers, ("retry-after", error.retry_after))
    if batch_id:
        headers = (*headers, (BATCH_HEADER, batch_id))
    own = str(error).encode(errors="replace")
    try:
        is_object = isinstance(orjson.loads(own), dict)
    except orjson.JSONDecodeError:
        is_object = False
    return Outcome(error.status, own if is_object else error_body(text_of(error)), headers)


def status_of(error: RequestError) -> int:
    """Return the status of an error, even if the protocol or `kserve_errors` hides it."""
    return error.status if isinstance(error, ModelServerAnswered) else rule_of(error).status


def text_of(error: RequestError) -> str:
    """Return the text of an error for the client."""
    return str(error) or rule_of(error).text


def error_body(text: str) -> bytes:
    """Return the JSON body of an error."""
    return orjson.dumps({"error": text.encode(errors="replace").decode()})


def rule_of(error: RequestError) -> Rule:
    """Return the rule of the nearest of its kinds that has one."""
    for kind in type(error).__mro__:
        if rule := RULES.get(kind):
            return rule
    raise AssertionError(f"{type(error).__name__} has no rule")


def _as_kserve(error: RequestError, text: str, batch_id: str) -> Outcome:
    for start, refusal in _AGENT_CHECKS:
        if isinstance(error, InvalidRequest) and text.startswith(start):
            return Outcome(400, f"{refusal}\n".encode(), _AGENT_REFUSAL)
    # The agent names a batch only if the predictor's answer to it was sound as such.
    counted = isinstance(error, WrongCount | ModelServerMiscounted)
    message = WRONG_COUNT if counted else text.encode(errors="replace").decode()
    own = batch_id if counted else ""
    body = orjson.dumps({"message": message, "batchId": own, "predictions": None})
    for character, escape in _GO_ESCAPES:
        body = body.replace(character, escape)
    return Outcome(200, body, AGENT_TEXT)
