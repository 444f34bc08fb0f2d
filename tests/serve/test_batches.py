"""Batching as clients can tell: by the batch's id, by shared failures, and by times."""

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from dev_shm import takes
from serve.client import Connection, Response, fast, instances, request
from serve.server import Server, Start
from tiers import exhaustive

pytestmark = takes(20)

HELD_MS = 60_000
"""A batch that waits this long for company waits until it is full, as far as a test can tell."""
WEIGHTS = [[(10 * row + column) % 7 for column in range(10)] for row in range(16)]


@pytest.fixture(scope="module")
def server(start_for_module: Start) -> Server:
    held = {"policy": "fixed", "max_latency_ms": HELD_MS}
    moody, matmul = {"path": "moody.py"}, {"path": "matmul.py"}
    return start_for_module(
        {
            "echo": moody,
            "matmul": matmul,
            "five": moody | held | {"max_batch_size": 5},
            "twelve": moody | held | {"max_batch_size": 12},
            "soon": moody | {"policy": "fixed", "max_latency_ms": 700},
            "kserve": moody | held | {"max_batch_size": 4, "kserve_errors": True},
            "crooked": {"path": "crooked.py"} | held | {"max_batch_size": 4},
        },
        frontends=2,
    )


def all_at_once(server: Server, *requests: bytes) -> list[Response]:
    """Send each request over a connection of its own, all before the first answer is awaited."""
    with ExitStack() as stack:
        connections = [stack.enter_context(Connection(server.port)) for _ in requests]
        for connection, data in zip(connections, requests, strict=True):
            connection.send(data)
        return [connection.receive() for connection in connections]


def batch_ids(answers: list[Response]) -> set[str]:
    return {answer.json["batchId"] for answer in answers}


def test_requests_of_one_batch_share_its_id_and_the_next_batch_has_another(server: Server) -> None:
    seen = set()
    for start in (0, 5, 10):
        numbers = range(start, start + 5)
        answers = all_at_once(server, *(fast("five", instances(n)) for n in numbers))
        assert [answer.json["predictions"] for answer in answers] == [[n] for n in numbers]
        (batch_id,) = batch_ids(answers)
        seen.add(batch_id)
    assert len(seen) == 3
    assert server.status().models["five"].batches["full"] >= 3


def test_a_batch_spans_frontends(server: Server, wait_until: Callable[..., object]) -> None:
    with ExitStack() as stack:
        connections: list[Connection] = []

        def frontends() -> set[int | None]:
            if len(connections) < 12:
                connections.append(stack.enter_context(Connection(server.port)))
            return {*server.served_by([connection.port for connection in connections])}

        wait_until(
            lambda: len(frontends() - {None}) == 2 and len(connections) >= 12,
            "both frontends have connections",
        )
        for number, connection in enumerate(connections):
            connection.send(fast("twelve", instances(number)))
        answers = [connection.receive() for connection in connections]
    assert len(batch_ids(answers)) == 1
    assert [answer.json["predictions"] for answer in answers] == [[n] for n in range(12)]


def test_instances_are_counted_and_not_requests(server: Server) -> None:
    answers = all_at_once(server, fast("five", instances(1, 2, 3)), fast("five", instances(4, 5)))
    assert [answer.json["predictions"] for answer in answers] == [[1, 2, 3], [4, 5]]
    assert len(batch_ids(answers)) == 1


def test_a_batch_that_is_not_full_closes_after_its_latency(server: Server) -> None:
    began = time.monotonic()
    answers = all_at_once(server, *(fast("soon", instances(n)) for n in range(3)))
    assert time.monotonic() - began >= 0.7
    assert len(batch_ids(answers)) == 1
    assert server.status().models["soon"].batches == {"latency": 1}


def test_different_models_never_share_a_batch(server: Server) -> None:
    names = ["five", "twelve"] * 5 + ["twelve"] * 7
    answers = all_at_once(server, *(fast(name, instances(name)) for name in names))
    ids = {
        name: {a.json["batchId"] for n, a in zip(names, answers, strict=True) if n == name}
        for name in names
    }
    assert {name: len(found) for name, found in ids.items()} == {"five": 1, "twelve": 1}
    assert ids["five"].isdisjoint(ids["twelve"])
    assert [answer.json["predictions"] for answer in answers] == [[name] for name in names]


def test_a_lone_request_of_the_eager_policy_does_not_wait(server: Server) -> None:
    """Its latency bound is half a second; it is run for another reason."""
    before = server.status().models["echo"].batches
    assert all_at_once(server, fast("echo", instances(1)))[0].status == 200
    after = server.status().models["echo"].batches
    assert after == before | {"idle": before.get("idle", 0) + 1}


def matmul(row: list[float]) -> list[float]:
    return [sum(x * w[i] for x, w in zip(row, WEIGHTS, strict=True)) for i in range(10)]


def test_more_instances_than_a_batch_holds_are_split_and_joined_in_order(server: Server) -> None:
    """Typed and untyped, five times at once each, and no request gets a row of another."""
    rows = [[float((17 * n + i) % 100) for i in range(16)] for n in range(70)]
    words = [f"{n}: ä" for n in range(70)]
    turned = [(rows[n:] + rows[:n], words[n:] + words[:n]) for n in range(5)]
    requests = []
    for own_rows, own_words in turned:
        requests += [fast("matmul", instances(*own_rows)), fast("echo", instances(*own_words))]
    answers = [answer.json["predictions"] for answer in all_at_once(server, *requests)]
    for number, (own_rows, own_words) in enumerate(turned):
        assert answers[2 * number] == [matmul(row) for row in own_rows]
        assert answers[2 * number + 1] == own_words
    biggest = list(server.status().models["matmul"].batch_rows)[-1]
    assert "33" not in biggest


UNHARMED = {
    "big-integers": "[12345678901234567890123,-9007199254740993,18446744073709551616]",
    "whole-floats": "[6.0,6,-0.0,1e+22,0.1]",
    "key-order": '[{"z":1,"a":{"c":2,"b":3},"m":[]}]',
    "unicode": '["ä€😀","\\u0000\\"\\\\","\u2028"]',
    "half-a-pair": '["\\ud800"]',
    "empty": '[null,true,false,"",[],{}]',
    "deep": "[" * 400 + "]" * 400,
}


@pytest.mark.parametrize("text", UNHARMED.values(), ids=UNHARMED.keys())
def test_values_of_an_untyped_model_pass_as_they_were_written(server: Server, text: str) -> None:
    (answer,) = all_at_once(server, fast("echo", f'{{"instances": {text}}}'.encode()))
    assert answer.status == 200, answer.body
    assert answer.body.endswith(f'"predictions":{text}}}'.encode())


def test_values_survive_being_split_too(server: Server) -> None:
    text = ",".join(f'{{"z":{10**30 + n},"a":{n}.0}}' for n in range(40))
    (answer,) = all_at_once(server, fast("echo", f'{{"instances": [{text}]}}'.encode()))
    assert answer.body.endswith(f'"predictions":[{text}]}}'.encode())


FAILURES = {"raise": (500, "'five' raised ValueError"), "refuse": (400, "no mood for <this>")}


@pytest.mark.parametrize("word", FAILURES)
def test_a_bad_request_in_a_batch_fails_alone(server: Server, word: str) -> None:
    values = ["a", "b", word, "c", "d"]
    answers = all_at_once(server, *(fast("five", instances(value)) for value in values))
    failed = answers.pop(2)
    status, words = FAILURES[word]
    assert (failed.status, words in failed.error) == (status, True)
    assert [answer.json["predictions"] for answer in answers] == [["a"], ["b"], ["c"], ["d"]]
    assert batch_ids(answers) == {failed.headers["x-batch-id"]}
    if word == "raise":
        # Beside the traceback.
        assert f"raised; batch {failed.headers['x-batch-id']}\n  Traceback" in server.stderr


def test_a_request_refused_before_the_batch_is_in_none(server: Server) -> None:
    """Five good requests fill the batch, whatever bad ones come in between."""
    good = [fast("five", instances(n)) for n in range(5)]
    bad = [fast("five", b'{"instances": []}'), fast("five", b"{"), fast("five", b"")]
    answers = all_at_once(server, good[0], bad[0], good[1], bad[1], *good[2:4], bad[2], good[4])
    assert [answer.status for answer in answers] == [200, 400, 200, 400, 200, 200, 400, 200]
    assert len(batch_ids([answer for answer in answers if answer.status == 200])) == 1
    assert not any("x-batch-id" in answer.headers for answer in answers if answer.status == 400)


def test_a_row_that_the_model_loses_is_its_own_requests_failure(server: Server) -> None:
    values = ["a", "lose", "b", "c", "d"]
    answers = all_at_once(server, *(fast("five", instances(value)) for value in values))
    assert [answer.status for answer in answers] == [200, 500, 200, 200, 200]
    words = "model 'five': predict returned 0 predictions for 1 instances"
    assert answers.pop(1).error == words
    assert [answer.json["predictions"] for answer in answers] == [["a"], ["b"], ["c"], ["d"]]
    assert "model five: predict returned 0 predictions for 1 instances" in server.stderr


def test_a_row_that_a_typed_model_loses_is_its_own_requests_failure(server: Server) -> None:
    answers = all_at_once(server, *(fast("crooked", instances([n])) for n in (0, 7, 4, 5)))
    assert [answer.status for answer in answers] == [200, 500, 200, 200]
    assert "output 'y' has shape [0, 1], declared is [1, 1]" in answers[1].error


def test_with_kserve_errors_too_a_bad_request_in_a_batch_fails_alone(server: Server) -> None:
    values = ["a", "raise", "b", "c"]
    answers = all_at_once(server, *(fast("kserve", instances(value)) for value in values))
    assert [answer.status for answer in answers] == [200] * 4
    failed = answers.pop(1)
    message = "model 'kserve' raised ValueError; the server's log has more"
    assert list(failed.json.items()) == [
        ("message", message),
        ("batchId", ""),
        ("predictions", None),
    ]
    assert [answer.json["predictions"] for answer in answers] == [["a"], ["b"], ["c"]]


def test_a_timeout_is_504_and_no_later_request_gets_the_late_answer(
    start: Start, wait_until: Callable[..., Any]
) -> None:
    nap = {"path": "nap.py", "max_latency_ms": 5, "max_batch_size": 1, "batch_timeout_s": 60}
    server = start(
        {
            "nap": nap | {"timeout_s": 0.5},
            "kserve": nap | {"timeout_s": 0.5, "kserve_errors": True},
        },
        max_in_flight=4,
    )
    nonces = iter(range(1_000_000))

    def body(nap_s: float) -> tuple[bytes, list[dict[str, Any]]]:
        expected = [{"nap_s": nap_s, "nonce": next(nonces)}]
        return json.dumps({"instances": expected}).encode(), expected

    with Connection(server.port) as connection:
        began = time.monotonic()
        late = connection.ask(fast("nap", body(1.5)[0]))
        assert time.monotonic() - began >= 0.5
        assert (late.status, late.error) == (504, "no answer came within timeout_s = 0.5")
        statuses = []

        def own_answers() -> int:
            text, expected = body(0)
            answer = connection.ask(fast("nap", text))
            statuses.append(answer.status)
            if answer.status == 200:
                assert answer.json["predictions"] == expected
            return statuses.count(200)

        wait_until(lambda: own_answers() >= 50, "requests are answered again")
        assert set(statuses[:-50]) <= {503, 504}
        assert statuses[-50:] == [200] * 50
        refused = connection.ask(fast("kserve", body(1.0)[0]))
        assert refused.body == (
            b'{"message":"no answer came within timeout_s = 0.5","batchId":"","predictions":null}'
        )
    status = server.status()
    assert status.frontends["timeouts"] == 2 + statuses.count(504)
    assert status.frontends["missed_wakeups"] == status.collector["missed_wakeups"] == 0


@exhaustive
@pytest.mark.parametrize("target", ["/v1/models/nap:predict", "/v1/models/n%61p:predict"])
def test_a_client_may_wait_less_long_than_the_model_allows(start: Start, target: str) -> None:
    server = start({"nap": {"path": "nap.py"}})
    with Connection(server.port) as connection:
        body = instances({"nap_s": 1000})
        late = connection.ask(request(target, body, headers={"X-Request-Timeout": "0.2"}))
        assert (late.status, late.error) == (504, "no answer came within the 0.2 s it asked for")
        odd = connection.ask(request(target, body, headers={"X-Request-Timeout": "soon"}))
        assert odd.status == 400
        assert odd.error == 'X-Request-Timeout is "soon", not a number of seconds above 0'


def test_more_than_can_be_answered_in_time_is_refused_at_once_and_the_rest_is_answered(
    start: Start, wait_until: Callable[..., Any]
) -> None:
    server = start({"nap": {"path": "nap.py", "max_batch_size": 1, "timeout_s": 2}})
    text = fast("nap", instances({"nap_s": 0.2}))

    def dispatched() -> int:
        return sum(server.status().models["nap"].batches.values())

    with ExitStack() as stack:
        connections = [stack.enter_context(Connection(server.port)) for _ in range(40)]
        # From the first on it is known how long a batch takes; with the second the worker is busy.
        assert connections[0].ask(text).status == 200
        wait_until(lambda: server.status().models["nap"].run_ms, "the first is reported")
        connections[0].send(text)
        wait_until(lambda: dispatched() == 2, "the second runs")
        wait_until(lambda: server.status().models["nap"].answer_ms, "what that means is known")
        for connection in connections[1:]:
            connection.send(text)
        answers = [connection.receive() for connection in connections]
    # A machine that stands still for a while makes late what was expected in time.
    assert {answer.status for answer in answers} <= {200, 503, 504}
    refused = [answer for answer in answers if answer.status == 503]
    assert len(refused) >= 40 - 11, "no more than ten fit into two seconds"
    for answer in refused:
        assert "so many requests wait" in answer.error
        assert 1 <= int(answer.headers["retry-after"]) <= 60
