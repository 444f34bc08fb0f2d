"""Messages that stem from a limit name the setting, its value, and where that is from."""

from pathlib import Path
from typing import Any

import pytest

from ringbatch.engine.config import limit_messages as of_model
from ringbatch.engine.config.settings import ModelConfig
from ringbatch.engine.supervisor.managed_process import Limit
from ringbatch.frontend.codec import limit_messages as of_request
from ringbatch.shm.errors import RequestError
from ringbatch.shm.lateness import too_long_a_wait

S = 1_000_000_000


def model(**keys: Any) -> ModelConfig:
    path = keys.pop("path", Path("m.py"))
    return ModelConfig(name="m", path=path, **keys)


OF_MODELS = {
    "set": (of_model.batch_timeout(model(batch_timeout_s=1.5)), "batch_timeout_s = 1.5"),
    "derived": (
        of_model.batch_timeout(model(timeout_s=20.0)),
        "batch_timeout_s = 5, derived from timeout_s = 20",
    ),
    "derived and no less than a second": (
        of_model.batch_timeout(model(timeout_s=3.0)),
        "batch_timeout_s = 1, derived from timeout_s = 3",
    ),
    "of a model server": (
        of_model.batch_timeout(model(path="http://127.0.0.1:1", timeout_s=9.0)),
        "batch_timeout_s = 9, derived from timeout_s = 9, and 5 s beyond it",
    ),
    "load": (of_model.load_timeout(model(load_timeout_s=4.0)), "load_timeout_s = 4"),
    "warm-up that hangs": (
        of_model.warm_up_timeout(model(load_timeout_s=4.0, warm_up_s=0.1)),
        "load_timeout_s = 4 and warm_up_s = 0.1 together",
    ),
    "warm-up": (of_model.warm_up_limit(model(), 30.0), "warm_up_s = 30"),
    "warm-up of a replacement": (
        of_model.warm_up_limit(model(), 1.0),
        "1 s, not warm_up_s = 30, as it takes another worker's place",
    ),
    "a start": (
        Limit(4.0, "load_timeout_s = 4").passed,
        "took longer than load_timeout_s = 4; raise that if it needs longer",
    ),
    "a start of our own": (Limit(15.0).passed, "took longer than 15 s"),
}
OF_REQUESTS: dict[str, tuple[RequestError, str]] = {
    "a body": (
        of_request.body_too_large("the body has 9 bytes", 8),
        "the body has 9 bytes; at most max_request_bytes = 8 are accepted",
    ),
    "no room ever": (
        of_request.no_room_ever(9, 7, 8),
        "the request takes 9 bytes and its answer 7, more than there is room for; they may take "
        "[server] lane_bytes = 8 together",
    ),
    "no room ever, split": (
        of_request.no_room_ever(9, 7, 8, 3),
        "the request takes 9 bytes and its answer 7 in 3 batches, more than there is room for; "
        "they may take [server] lane_bytes = 8 together",
    ),
    "an answer": (
        of_request.answer_too_large(9, 8),
        "the model's answer takes 9 bytes, more than there is room for; a request and its answer "
        "may take [server] lane_bytes = 8 together",
    ),
    "parts": (
        of_request.too_many_parts(90, 9, 8),
        "the request has 90 instances, which make 9 batches; at most max_in_flight = 8 fit at once",
    ),
    "no slot": (
        of_request.no_room_now(8, 4096, aside=False),
        "too many requests are waiting, [server] max_in_flight = 8 is used up; try again later",
    ),
    "no memory": (
        of_request.no_room_now(None, 4096, aside=False),
        "too many requests are waiting, [server] lane_bytes = 4096 is used up; try again later",
    ),
    "no slot of its own": (
        of_request.no_room_now(8, 4096, aside=True),
        "too many requests are waiting, [server] max_in_flight = 8 is used up but for what is set "
        "aside for other models; try again later",
    ),
    "parts beside other models": (
        of_request.too_many_parts(90, 9, 8, 6),
        "the request has 90 instances, which make 9 batches; at most 6 of [server] "
        "max_in_flight = 8 are for one model at once",
    ),
    "a wait beyond the model's limit": (
        too_long_a_wait(7 * S, 5 * S, 5 * S, 5 * S),
        "so many requests wait that an answer would take 7.0 s, too long for timeout_s = 5",
    ),
    "a wait beyond the client's limit": (
        too_long_a_wait(7 * S, S // 2, S // 2, 5 * S),
        "so many requests wait that an answer would take 7.0 s, too long for the 0.5 s it asked "
        "for",
    ),
    "a wait of milliseconds": (
        too_long_a_wait(42 * S // 1000, S // 100, S // 100, 5 * S),
        "so many requests wait that an answer would take 0.042 s, too long for the 0.01 s it asked "
        "for",
    ),
    "a wait beyond the time left": (
        too_long_a_wait(7 * S, S // 3, 5 * S, 5 * S),
        "so many requests wait that an answer would take 7.0 s, too long for the 0.333 s that are "
        "left of timeout_s = 5",
    ),
    "texts": (
        of_request.too_many_texts(16),
        "so many texts wait to be made tokens of that there is no room for more; they may have 16 "
        "characters together; try again later",
    ),
    "the model's deadline": (
        of_request.no_answer(5 * S, 5 * S),
        "no answer came within timeout_s = 5",
    ),
    "the client's deadline": (
        of_request.no_answer(S // 2, 5 * S),
        "no answer came within the 0.5 s it asked for",
    ),
    "connections": (
        of_request.too_many_connections(8),
        "too many connections are open; max_connections = 8",
    ),
    "bodies": (
        of_request.too_many_bodies(80, 8),
        "so many large requests are being received that none has room; they may take 80 bytes, 8 "
        "times max_request_bytes and no less than 64 MiB",
    ),
}


@pytest.mark.parametrize(("message", "words"), OF_MODELS.values(), ids=OF_MODELS)
def test_the_limit_of_a_model_is_named(message: str, words: str) -> None:
    assert message == words


@pytest.mark.parametrize(("error", "words"), OF_REQUESTS.values(), ids=OF_REQUESTS)
def test_the_limit_of_a_request_is_named(error: RequestError, words: str) -> None:
    assert str(error) == words


def test_a_wait_that_is_too_long_says_when_to_come_back() -> None:
    assert too_long_a_wait(7 * S, 5 * S, 5 * S, 5 * S).retry_after_s == 3
