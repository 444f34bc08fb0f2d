"""The HTTP API page: README's engine answers its paths, and leaves the fast lane as it tells."""

import hashlib
import json
import re
from typing import Final
from urllib.parse import urlencode

import pytest
from documents.pages import section
from serve.client import Connection, request
from serve.server import Server

from ringbatch.frontend.http.head_reader import HeadReader
from ringbatch.frontend.metrics.exposition import LANE_NAMES
from ringbatch.frontend.security.accounts import Accounts
from ringbatch.frontend.security.api_keys import ApiKeys
from ringbatch.frontend.security.cors import ANY, SharedWith
from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.host.api_key_lines import KeyOptions

PAGE: Final = "docs/reference/http-api.md"
FAST: Final = b"POST /v1/models/mnist:predict HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n"
EVENTS: Final = b"Accept: text/event-stream\r\n"
LEAVES: Final = {
    "health check": b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n",
    "HTTP/1.0": FAST.replace(b"1.1", b"1.0"),
    "chunked": FAST.replace(b"Content-Length: 2", b"Transfer-Encoding: chunked"),
    "max_request_bytes": FAST.replace(b": 2", b": 2000"),
    "Expect": FAST + b"Expect: 100-continue\r\n",
    "compressed": FAST + b"Content-Encoding: gzip\r\n",
    "CloudEvent": FAST + b"Content-Type: application/cloudevents+json\r\n",
    "for events": FAST + EVENTS + EVENTS,
    "Accept-Encoding": FAST + b"Accept-Encoding: gzip, identity;q=0\r\n",
    "wrong API key": FAST + b"X-API-Key: another\r\n",
    "X-Request-Timeout": FAST + b"X-Request-Timeout: soon\r\n",
    "X-Priority": FAST + b"X-Priority: urgent\r\n",
}
"""Requests by a word of the page's item."""


def test_requests_leave_the_fast_lane_as_the_page_says() -> None:
    keys = ApiKeys({hashlib.sha256(b"k" * 16).digest(): KeyOptions()})
    key = b"X-API-Key: " + b"k" * 16 + b"\r\n"
    text = section(PAGE, "The fast lane")
    reader = HeadReader(1000, compress_answers=True, keys=keys, accounts=Accounts(keys=keys))
    for head in (FAST, FAST + EVENTS):
        assert reader.read(head + key + b"\r\n") is not None
    for word, head in LEAVES.items():
        assert word in text
        with_key = head if word == "wrong API key" else head + key
        assert reader.read(with_key + b"\r\n") is None, word
    name, _ = LANE_NAMES[LaneCounter.HANDED_OVER]
    assert f"`ringbatch_{name}_total`" in text


ROW: Final = [0.0] * 16
V2: Final = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 16], "data": ROW}]}
POSTED: Final = {
    ":predict": ({"instances": [ROW]}, ["message", "batchId", "predictions"]),
    "/infer": (V2, ["model_name", "model_version", "outputs"]),
    "/generate": ({"x": ROW}, ["model_name", "model_version", "y"]),
    "/generate_stream": ({"x": ROW}, None),
    "/index": ({}, None),
}
"""Body of a POST, by the end of its path, and the answer's keys; None if it is no object."""
OFF: Final = ("load", "unload", "register", "unregister", "setting", "logging")
"""Last words of paths that change something, or need a setting that README's engine lacks."""


def rows(title: str) -> list[tuple[str, str]]:
    """Return each request of a table of the page, for README's model, and its answer."""
    found = re.findall(r"^\| `([A-Z]+ /\S*)` \| (.+) \|$", section(PAGE, title), re.MULTILINE)
    return [(r.replace("NAME", "mnist").replace("VERSION", "1"), answer) for r, answer in found]


SECTIONS: Final = (
    "KServe's V1",
    "V2 (Open Inference Protocol)",
    "Triton's extensions",
    "Health and description",
)


@pytest.mark.parametrize("title", SECTIONS)
def test_every_path_answers(served: Server, title: str) -> None:
    asked = [row for row in rows(title) if "sharedmemory" not in row[0]]
    asked = [row for row in asked if row[0].rpartition("/")[2] not in OFF]
    assert asked
    status = 200
    with Connection(served.port) as connection:
        for line, stated in asked:
            method, path = line.split()
            ending = next((ending for ending in POSTED if path.endswith(ending)), None)
            body, keys = POSTED[ending] if ending else (None, None)
            sent = b"" if body is None else json.dumps(body).encode()
            if method == "GET" and isinstance(body, dict):
                path, sent = f"{path}?{urlencode(body, doseq=True)}", b""
            answer = connection.ask(request(path, sent, method=method))
            if not stated.startswith("The same"):
                status = int(stated[:3]) if re.match(r"\d{3}\b", stated) else 200
            assert answer.status == status, f"{line}: {answer.body!r}"
            assert keys is None or list(answer.json) == keys
            if stated.startswith('`{"status"'):
                assert answer.json == json.loads(stated.strip("`"))


def test_the_v1_row_names_the_keys_of_its_answer() -> None:
    (stated,) = [
        stated for line, stated in rows("KServe's V1") if line.endswith("models/mnist:predict")
    ]
    assert re.findall(r'"(\w+)"', stated.partition(" to ")[2]) == POSTED[":predict"][1]


def test_pages_of_other_origins_may_read_each_response_header_of_the_table() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \|", section(PAGE, "Response headers"), re.MULTILINE)
    # A page asks with a key, and needs to be told nothing about the form of one.
    named = {name.lower() for name in rows} - {"www-authenticate"}
    exposed = dict(SharedWith([ANY]).headers("https://a"))["access-control-expose-headers"]
    assert named == set(exposed.split(", "))
