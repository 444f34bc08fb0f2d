"""Bodies, good and bad, over every way into the server: each gets the same answer."""

import json
from typing import Any
from uuid import UUID

import pytest
from serve.client import WAYS, Connection, Response, assert_serves, fast, instances
from serve.server import Server, Start

LIMIT = 1 << 16
ZEROS = [0.0] * 16
WEIGHTS = [[(10 * row + column) % 7 for column in range(10)] for row in range(16)]


@pytest.fixture(scope="module")
def server(start_for_module: Start) -> Server:
    return start_for_module(
        {
            "matmul": {"path": "matmul.py"},
            "pair": {"path": "pair.py"},
            "echo": {"path": "moody.py"},
            "crooked": {"path": "crooked.py"},
            "kserve": {"path": "moody.py", "kserve_errors": True},
        },
        max_request_bytes=LIMIT,
        frontends=2,
    )


def ask(server: Server, way: str, model: str, body: bytes) -> Response:
    """The answer over one way, which is that over the fast lane, and nothing is disturbed."""
    with Connection(server.port) as connection:
        answer = connection.ask(WAYS[way](model, body))
        if way == "http10":
            assert connection.ended()
        else:
            after = connection.ask(fast("matmul", instances(ZEROS)))
            assert after.json["predictions"] == [[0.0] * 10]
    with Connection(server.port) as connection:
        assert connection.ask(fast(model, body)).comparable == answer.comparable
    assert_serves(server.port)
    return answer


def handed_over(server: Server) -> int:
    return server.status().frontends["handed_over"]


@pytest.mark.parametrize("way", WAYS)
def test_only_the_fast_way_stays_on_the_fast_lane(server: Server, way: str) -> None:
    before = handed_over(server)
    with Connection(server.port) as connection:
        for _ in range(1 if way == "http10" else 3):
            assert connection.ask(WAYS[way]("matmul", instances(ZEROS))).status == 200
    assert handed_over(server) - before == (way != "fast")


def matmul(*rows: list[float]) -> list[list[float]]:
    return [
        [sum(x * w[i] for x, w in zip(row, WEIGHTS, strict=True)) for i in range(10)]
        for row in rows
    ]


ONE = [float(i) for i in range(16)]
GOOD: dict[str, tuple[str, bytes, dict[str, Any]]] = {
    "one-instance": ("matmul", instances(ONE), {"predictions": matmul(ONE)}),
    "many-instances": (
        "matmul",
        instances(*[[float(n)] * 16 for n in range(70)]),
        {"predictions": matmul(*[[float(n)] * 16 for n in range(70)])},
    ),
    "integers": ("matmul", instances(list(range(16))), {"predictions": matmul(ONE)}),
    "named-instances": ("matmul", instances({"x": ONE}), {"predictions": matmul(ONE)}),
    "inputs-list": ("matmul", json.dumps({"inputs": [ONE]}).encode(), {"predictions": matmul(ONE)}),
    "columns": (
        "matmul",
        json.dumps({"inputs": {"x": [ONE, ZEROS]}}).encode(),
        {"outputs": matmul(ONE, ZEROS)},
    ),
    "blanks-and-other-members": (
        "matmul",
        b' \r\n{"signature_name" : "s",\t"instances" : [ ' + str(ONE).encode() + b" ] } \n",
        {"predictions": matmul(ONE)},
    ),
    "two-inputs": (
        "pair",
        instances({"a": [1.5, -2], "n": 3}, {"n": -1, "a": [0.5, 4]}),
        {
            "predictions": [
                {"scaled": [4.5, -6.0], "twice": 6},
                {"scaled": [-0.5, -4.0], "twice": -2},
            ]
        },
    ),
    "two-columns": (
        "pair",
        b'{"inputs": {"n": [2147483647], "a": [[0, 0]]}}',
        {"outputs": {"scaled": [[0.0, 0.0]], "twice": [4294967294]}},
    ),
    "untyped": (
        "echo",
        instances(None, True, "", [], {}, [[1], "a"], {"b": {"c": 1}}),
        {"predictions": [None, True, "", [], {}, [[1], "a"], {"b": {"c": 1}}]},
    ),
    "as-large-as-allowed": (
        "echo",
        instances("x" * (LIMIT - 19)),
        {"predictions": ["x" * (LIMIT - 19)]},
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", GOOD)
def test_good_input_gets_its_answer_over_every_way(server: Server, case: str, way: str) -> None:
    model, body, expected = GOOD[case]
    answer = ask(server, way, model, body)
    assert answer.status == 200, answer.body
    assert answer.headers["content-type"] == "application/json"
    members = list(answer.json.items())
    assert [name for name, _ in members] == ["message", "batchId", *expected]
    assert str(UUID(members.pop(1)[1], version=4)) == answer.json["batchId"]
    assert dict(members) == {"message": "", **expected}


def nested(depth: int) -> bytes:
    return b'{"instances":' + b"[" * depth + b"]" * depth + b"}"


BAD: dict[str, tuple[str, bytes, int, str]] = {
    "empty-body": ("matmul", b"", 400, "it is empty"),
    "empty-body-untyped": ("echo", b"", 400, "it is empty"),
    "blank-body": ("matmul", b" \r\n", 400, "it is empty"),
    "invalid-json": ("matmul", b'{"instances": [[1, 2', 400, "can't unmarshal body: "),
    "invalid-json-untyped": ("echo", b'{"instances": [1, 2', 400, "can't unmarshal body: "),
    "more-after-the-end": ("matmul", instances(ZEROS) + b"{}", 400, "can't unmarshal body: "),
    "more-after-the-end-untyped": ("echo", instances(1) + b"{}", 400, "can't unmarshal body: "),
    "not-utf8": ("matmul", b'{"instances": ["\xff"]}', 400, "byte 16 is not UTF-8"),
    "not-utf8-untyped": ("echo", b'{"instances": ["\xff"]}', 400, "byte 16 is not UTF-8"),
    "a-list": ("matmul", b"[[1]]", 400, "it is a list, not an object"),
    "a-list-untyped": ("echo", b"[[1]]", 400, "it is a list, not an object"),
    "a-number": ("matmul", b"7", 400, "not an object"),
    "null": ("echo", b"null", 400, "it is null, not an object"),
    "no-instances": ("matmul", b'{"instance": [1]}', 400, "no instances in the request: it has"),
    "no-instances-untyped": ("echo", b"{}", 400, "no instances in the request: it has"),
    "empty-instances": ("matmul", instances(), 400, "no instances in the request"),
    "empty-instances-untyped": ("echo", instances(), 400, "no instances in the request"),
    "null-instances": ("matmul", b'{"instances": null}', 400, "`instances` is null"),
    "instances-is-text": ("matmul", b'{"instances": "a"}', 400, "not a list"),
    "instances-is-an-object": ("echo", b'{"instances": {"a": 1}}', 400, "not a list"),
    "both-keys": ("matmul", b'{"instances": [], "inputs": []}', 400, "exclude each other"),
    "wrong-shape": ("matmul", instances(ZEROS, [0] * 15), 400, "instances[1] has shape [15]"),
    "scalar-for-a-vector": ("matmul", instances(1), 400, "instances[0] "),
    "too-deep-by-one": ("matmul", instances([ZEROS]), 400, "instances[0] has shape [1, 16]"),
    "ragged": ("matmul", instances([0] * 15 + [[0]]), 400, "lists and single values side by side"),
    "string-for-a-number": ("matmul", instances(["0"] * 16), 400, "instances[0]"),
    "boolean-for-a-number": ("matmul", instances([True] * 16), 400, "instances[0]"),
    "null-for-a-number": ("matmul", instances([0] * 15 + [None]), 400, "instances[0]"),
    "object-for-a-number": ("matmul", instances([{}] * 16), 400, "instances[0]"),
    "fraction-for-an-integer": ("pair", instances({"a": [0, 0], "n": 1.5}), 400, '["n"]'),
    "nan": ("matmul", b'{"instances": [[NaN]]}', 400, "NaN is no JSON number"),
    "nan-untyped": ("echo", b'{"instances": [NaN]}', 400, "NaN, which is no JSON number"),
    "infinity": ("matmul", b'{"instances": [[-Infinity]]}', 400, "-Infinity is no JSON number"),
    "infinity-untyped": ("echo", b'{"instances": [Infinity]}', 400, "Infinity, which is no JSON"),
    "beyond-fp32": ("matmul", instances([1e39] * 16), 400, "from -3.40282347e+38 to 3.4"),
    "beyond-fp64": ("matmul", b'{"instances": [[1e999]]}', 400, "can't unmarshal body: "),
    "beyond-fp64-untyped": ("echo", b'{"instances": [1, {"a": [-1e400]}]}', 400, "holds -1e400"),
    "beyond-int32": ("pair", instances({"a": [0, 0], "n": 1 << 31}), 400, "2147483647"),
    "beyond-int64": ("pair", instances({"a": [0, 0], "n": 1 << 70}), 400, "2147483647"),
    "digits-without-end": ("echo", b'{"instances": [%b]}' % (b"9" * 5000), 400, "too many digits"),
    "deep-nesting": ("matmul", nested(10_000), 400, "can't unmarshal body: "),
    "deep-nesting-untyped": ("echo", nested(10_000), 400, "more than 512 levels deep"),
    # Python before 3.14 sees the depth first, later ones that they end too early.
    "deep-nesting-unclosed": ("matmul", b'{"instances":' + b"[" * 60_000, 400, "can't unmarshal"),
    "deep-nesting-unclosed-untyped": (
        "echo",
        b'{"instances":' + b"[" * 60_000,
        400,
        "can't unmarshal body: ",
    ),
    "deep-objects": ("echo", b'{"instances":[' + b'{"a":' * 10_000, 400, "can't unmarshal body: "),
    "missing-input": ("pair", instances({"a": [1, 2]}), 400, 'instances[0] lacks "n"'),
    "unknown-input": ("pair", instances({"a": [1, 2], "n": 1, "z": 1}), 400, 'has "z"'),
    "bare-value-for-two-inputs": (
        "pair",
        instances([1, 2]),
        400,
        "an object with a value for each",
    ),
    "columns-of-two-lengths": ("pair", b'{"inputs": {"a": [], "n": [1]}}', 400, "differ in length"),
    "columns-for-an-untyped-model": ("echo", b'{"inputs": {"a": [1]}}', 400, "`instances`, a list"),
    "unknown-model": ("nobody", instances(1), 404, 'no model "nobody"; there is: matmul, pair'),
    "the-model-raises": (
        "echo",
        instances(1, "raise"),
        500,
        "'echo' raised ValueError; the server's",
    ),
    "the-model-refuses": ("echo", instances(1, "refuse"), 400, "no mood for <this>"),
    "too-few-answers": ("echo", instances(1, "lose", 3), 500, "2 predictions for 3 instances"),
    "an-answer-without-json": ("echo", instances("nan"), 500, "cannot be written as JSON"),
    "too-few-rows": (
        "crooked",
        instances([0], [7]),
        500,
        "'y' has shape [1, 1], declared is [2, 1]",
    ),
    "rows-of-a-wrong-shape": ("crooked", instances([2]), 500, "shape [1, 2], declared is [1, 1]"),
    "rows-of-nan": ("crooked", instances([3]), 500, "NaN"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_the_same_error_over_every_way(server: Server, case: str, way: str) -> None:
    model, body, status, words = BAD[case]
    answer = ask(server, way, model, body)
    assert (answer.status, words in answer.error) == (status, True), answer.body


@pytest.mark.parametrize("way", WAYS)
def test_a_body_of_one_byte_more_than_the_limit_is_413(server: Server, way: str) -> None:
    body = instances("x" * (LIMIT - 18))
    assert len(body) == LIMIT + 1
    with Connection(server.port) as connection:
        answer = connection.ask(WAYS[way]("echo", body))
    found = f"more than {LIMIT}" if way == "chunked" else str(LIMIT + 1)
    assert (answer.status, answer.error) == (
        413,
        f"the body has {found} bytes; at most max_request_bytes = {LIMIT} are accepted",
    )
    assert_serves(server.port)


def test_the_text_of_a_models_error_stays_in_the_log(server: Server) -> None:
    answer = ask(server, "fast", "echo", instances("raise"))
    assert "secret" not in answer.error
    assert "ValueError: a secret of the model's" in server.stderr


AGENT_TEXT = "text/plain; charset=utf-8"
KSERVE: dict[str, tuple[bytes, int, str, bytes]] = {
    "no-json": (b"{", 400, AGENT_TEXT, b"can't Unmarshal body\n"),
    "empty-body": (b"", 400, AGENT_TEXT, b"can't Unmarshal body\n"),
    "no-object": (b"[]", 400, AGENT_TEXT, b"can't Unmarshal body\n"),
    "instances-is-no-list": (b'{"instances": 1}', 400, AGENT_TEXT, b"can't Unmarshal body\n"),
    "no-instances": (b"{}", 400, AGENT_TEXT, b"no instances in the request\n"),
    "empty-instances": (b'{"instances": []}', 400, AGENT_TEXT, b"no instances in the request\n"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", KSERVE)
def test_kserve_errors_before_the_batch_are_the_agents_byte_for_byte(
    server: Server, case: str, way: str
) -> None:
    body, status, content_type, expected = KSERVE[case]
    answer = ask(server, way, "kserve", body)
    assert (answer.status, answer.body) == (status, expected)
    assert answer.headers["content-type"] == content_type
    assert answer.headers["x-content-type-options"] == "nosniff"


FAILURES = {
    "raises": ("raise", "model 'kserve' raised ValueError; the server's log has more"),
    "refuses": ("refuse", r"no mood for \u003cthis\u003e"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", FAILURES)
def test_kserve_errors_of_the_model_have_status_200_and_null_predictions(
    server: Server, case: str, way: str
) -> None:
    word, message = FAILURES[case]
    answer = ask(server, way, "kserve", instances(word))
    assert answer.status == 200
    assert answer.body == b'{"message":"%b","batchId":"","predictions":null}' % message.encode()
    assert answer.headers["content-type"] == AGENT_TEXT


@pytest.mark.parametrize("way", WAYS)
def test_with_kserve_errors_an_answer_is_the_agents_text(server: Server, way: str) -> None:
    with Connection(server.port) as connection:
        answer = connection.ask(WAYS[way]("kserve", instances(1, "a")))
    assert (answer.status, answer.headers["content-type"]) == (200, AGENT_TEXT)
    assert list(answer.json) == ["message", "batchId", "predictions"]
    assert answer.json["predictions"] == [1, "a"]


@pytest.mark.parametrize("way", WAYS)
def test_with_kserve_errors_a_wrong_count_has_the_agents_words(server: Server, way: str) -> None:
    with Connection(server.port) as connection:
        answer = connection.ask(WAYS[way]("kserve", instances(1, "lose", 3)))
    assert (answer.status, answer.headers["content-type"]) == (200, AGENT_TEXT)
    assert str(UUID(answer.json["batchId"], version=4)) == answer.json["batchId"]
    assert answer.json | {"batchId": ""} == {
        "message": "size of prediction is not equal to the size of instances",
        "batchId": "",
        "predictions": None,
    }


def test_an_unknown_model_is_no_matter_of_kserve_errors(server: Server) -> None:
    with Connection(server.port) as connection:
        assert connection.ask(fast("kserv", instances(1))).status == 404
