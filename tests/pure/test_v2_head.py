"""Heads of V2 requests on the fast lane: those that it takes, and the fields that it reads."""

import pytest

from ringbatch.frontend.http.head_reader import HeadReader

LIMIT = 1000
LINE = b"POST /v2/models/mnist/infer HTTP/1.1"
PLAIN = (b"Host: localhost", b"Content-Length: 12")
NAME = b"Inference-Header-Content-Length"


def head(*lines: bytes, line: bytes = LINE) -> bytes:
    return b"\r\n".join([line, *PLAIN, *lines, b"", b""])


@pytest.mark.parametrize(
    ("text", "json_bytes"),
    [
        (head(), None),
        (head(NAME + b": 7"), 7),
        (head(NAME.lower() + b":0"), 0),
        (head(NAME.upper() + b": 007 "), 7),
        (head(NAME + b": 5000"), 5000),
        (head(line=b"POST /v2/models/mnist/infer?a=b HTTP/1.1"), None),
        (head(b"Content-Type: application/octet-stream", NAME + b": 12"), 12),
    ],
)
def test_a_plain_infer_request_is_taken(text: bytes, json_bytes: int | None) -> None:
    reader = HeadReader(LIMIT)
    for found in (reader.read(text), reader.read(text)):
        assert found is not None
        assert (found.model, found.infer, found.json_bytes) == ("mnist", True, json_bytes)
        assert (found.head_bytes, found.content_length) == (len(text), 12)


@pytest.mark.parametrize(
    "text",
    [
        head(NAME + b": -1"),
        head(NAME + b": abc"),
        head(NAME + b": +7"),
        head(NAME + b":"),
        head(NAME + b": 7, 7"),
        head(NAME + b": " + b"9" * 19),
        head(NAME + b": 7", NAME + b": 7"),
        head(b"Transfer-Encoding: chunked"),
        head(b"Content-Encoding: gzip"),
        head(line=b"POST /v2/models/mnist/versions//infer HTTP/1.1"),
        head(line=b"POST /v2/models/mnist/infer/ HTTP/1.1"),
        head(line=b"POST /v2/models/mnist/inferred HTTP/1.1"),
        head(line=b"POST /v2/models/mnist%2finfer HTTP/1.1"),
        head(line=b"POST /v2/models//infer HTTP/1.1"),
        head(line=b"POST /v2/models/mnist:predict HTTP/1.1"),
        head(line=b"POST /v1/models/mnist/infer HTTP/1.1"),
        head(line=b"POST /v3/models/mnist/infer HTTP/1.1"),
        head(line=b"POST /v2/models/mnist/ready HTTP/1.1"),
        head(line=b"POST /v2/repository/index HTTP/1.1"),
        head(line=b"GET /v2/models/mnist/infer HTTP/1.1"),
    ],
)
def test_anything_else_is_left_to_the_other_path(text: bytes) -> None:
    assert HeadReader(LIMIT).read(text) is None


def test_a_v1_request_has_no_json_length() -> None:
    text = head(NAME + b": 7", line=b"POST /v1/models/m:predict HTTP/1.1")
    found = HeadReader(LIMIT).read(text)
    assert found is not None
    assert (found.infer, found.json_bytes) == (False, None)
