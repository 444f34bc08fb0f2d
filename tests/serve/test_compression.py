"""Compressed bodies in both directions, over every way into the server."""

import gzip
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dev_shm import takes
from serve.client import Connection, Response, assert_serves, fast, instances, request
from serve.server import Server, Start
from tiers import exhaustive

from ringbatch.frontend.codec.limit_messages import MAX_CONTROL_BYTES

pytestmark = takes(20)

LIMIT = 1 << 20
LENGTH = "Inference-Header-Content-Length"
REPEAT = """
import numpy as np

from ringbatch.engine import Tensor
inputs = [Tensor("n", "INT64", [])]
outputs = [Tensor("y", "INT32", [-1])]
def predict(n):
    return np.tile(np.arange(n[0], dtype="i4"), (len(n), 1))
"""
INFLATE: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.decompress, "deflate": zlib.decompress}
DEFLATE: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}


@pytest.fixture(scope="module")
def server(start_for_module: Start, tmp_path_factory: pytest.TempPathFactory) -> Server:
    path: Path = tmp_path_factory.mktemp("models") / "repeat.py"
    path.write_text(REPEAT)
    models = {"matmul": {"path": "matmul.py"}, "repeat": {"path": str(path)}}
    return start_for_module(
        models, compress_answers=True, max_request_bytes=LIMIT, shared_memory_prefixes=["/x"]
    )


def ask(server: Server, *requests: bytes) -> list[Response]:
    with Connection(server.port) as connection:
        return [connection.ask(one) for one in requests]


# Requests


def posted(body: bytes, coding: str, target: str = "/v1/models/matmul:predict") -> bytes:
    return request(target, body, headers={"Content-Encoding": coding})


@pytest.mark.parametrize("coding", ["gzip", "deflate", "x-gzip", "identity, GZIP"])
def test_a_compressed_v1_request_is_answered_as_a_plain_one(server: Server, coding: str) -> None:
    body = instances(*[[float(n)] * 16 for n in range(40)])
    data = DEFLATE["deflate" if coding == "deflate" else "gzip"](body)
    plain, compressed, after = ask(
        server, fast("matmul", body), posted(data, coding), fast("matmul", body)
    )
    assert plain.status == 200
    assert plain.comparable == compressed.comparable == after.comparable


@pytest.mark.parametrize("coding", DEFLATE)
def test_the_length_of_the_json_text_counts_the_expanded_body(server: Server, coding: str) -> None:
    values = np.arange(16, dtype="<f4").tobytes()
    entry = {"name": "x", "shape": [1, 16], "datatype": "FP32"}
    text = json.dumps(
        {
            "inputs": [entry | {"parameters": {"binary_data_size": len(values)}}],
            "parameters": {"binary_data_output": True},
        }
    ).encode()
    headers = {LENGTH: str(len(text)), "Content-Encoding": coding}
    target = "/v2/models/matmul/infer"
    body = text + values
    plain, compressed = ask(
        server,
        request(target, body, headers={LENGTH: str(len(text))}),
        request(target, DEFLATE[coding](body), headers=headers),
    )
    assert (plain.status, compressed.status) == (200, 200)
    assert plain.body == compressed.body
    assert plain.headers[LENGTH.lower()] == compressed.headers[LENGTH.lower()]


GOOD = gzip.compress(instances([0] * 16))
BAD = {
    "cut": ("gzip", GOOD[:-1], 400, "ends in the middle of its gzip stream"),
    "garbage-behind": ("gzip", GOOD + b"garbage", 400, "bytes follow the end of the gzip stream"),
    "no-gzip": ("gzip", instances([0] * 16), 400, "the body is no gzip"),
    "empty": ("deflate", b"", 400, "is empty, which is no deflate stream"),
    "unknown": ("br", GOOD, 415, "Content-Encoding 'br' is not supported; send the body as gzip"),
    "two": ("gzip, gzip", gzip.compress(GOOD), 415, "is not supported"),
    "bomb": ("gzip", gzip.compress(bytes(LIMIT + 1)), 413, f"more than {LIMIT} bytes once it is"),
    "large-bomb": ("deflate", zlib.compress(bytes(50 << 20)), 413, "once it is expanded"),
}


@pytest.mark.parametrize("target", ["/v1/models/matmul:predict", "/v2/models/matmul/infer"])
@pytest.mark.parametrize("case", BAD)
def test_an_unexpandable_body_is_refused_in_words(server: Server, case: str, target: str) -> None:
    coding, body, status, words = BAD[case]
    (answer,) = ask(server, posted(body, coding, target))
    assert (answer.status, words in answer.error) == (status, True), answer.body
    assert (answer.headers.get("accept-encoding") == "gzip, deflate") == (status == 415)
    assert_serves(server.port)


CONTROL = {
    "/v2/repository/index": b'{"ready": 1}',
    "/v2/logging": b'{"log_info": 5}',
    "/v2/systemsharedmemory/region/r/register": b'{"key": "/x", "offset": 0}',
}


@pytest.mark.parametrize("target", CONTROL)
def test_bodies_of_other_requests_are_expanded_as_well(server: Server, target: str) -> None:
    body, bomb = CONTROL[target], bytes(MAX_CONTROL_BYTES + 1)
    plain, compressed, garbage, unknown, large = ask(
        server,
        request(target, body),
        posted(zlib.compress(body), "deflate", target),
        posted(body, "gzip", target),
        posted(body, "br", target),
        posted(gzip.compress(bomb), "gzip", target),
    )
    assert (plain.status, plain.body) == (compressed.status, compressed.body)
    assert plain.status in (400, 501)
    assert (garbage.status, garbage.error) == (400, "the body is no gzip stream")
    assert (unknown.status, unknown.headers["accept-encoding"]) == (415, "gzip, deflate")
    assert (large.status, large.error) == (
        413,
        f"the body has more than {MAX_CONTROL_BYTES} bytes, which are accepted here",
    )


def test_a_body_that_expands_to_nothing_has_an_end_too(server: Server) -> None:
    """Empty blocks, more bytes of them than a body may have, in chunks that say no length."""
    blocks = b"\x78\x01" + b"\0\0\0\xff\xff" * (LIMIT // 5 + 10)
    body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(blocks), blocks)
    headers = {"Content-Encoding": "deflate", "Transfer-Encoding": "chunked"}
    (answer,) = ask(server, request("/v1/models/matmul:predict", body, headers=headers))
    assert (answer.status, answer.error) == (
        413,
        f"the body has more than {LIMIT} bytes; at most max_request_bytes = {LIMIT} are accepted",
    )


# Answers


def repeat(
    n: int, accept: str | None, *, way: str, v2: bool = False, binary: bool = False
) -> bytes:
    headers = {} if accept is None else {"Accept-Encoding": accept}
    if way == "falcon":
        headers["Connection"] = "keep-alive, x"
    if not v2:
        return request("/v1/models/repeat:predict", instances(n), headers=headers)
    entry = {"name": "n", "shape": [1], "datatype": "INT64", "data": [n]}
    body = {"inputs": [entry], "parameters": {"binary_data_output": binary}}
    return request("/v2/models/repeat/infer", json.dumps(body).encode(), headers=headers)


def plain_of(answer: Response) -> bytes:
    coding = answer.headers.get("content-encoding")
    return answer.body if coding is None else INFLATE[coding](answer.body)


@pytest.mark.parametrize("way", ["fast", "falcon"])
@pytest.mark.parametrize("accept", ["gzip", "gzip, deflate, br", "deflate;q=0.5, gzip", "deflate"])
@pytest.mark.parametrize("n", [1_000, 100_000], ids=["at-once", "aside"])
def test_a_large_answer_is_compressed_if_that_is_accepted(
    server: Server, n: int, accept: str, way: str
) -> None:
    before = server.status().frontends["handed_over"]
    expected = "deflate" if accept == "deflate" else "gzip"
    shapes: list[dict[str, Any]] = [{}, {"v2": True}, {"v2": True, "binary": True}]
    for shape in shapes:
        plain, compressed, again = ask(
            server,
            repeat(n, None, way=way, **shape),
            repeat(n, accept, way=way, **shape),
            repeat(n, accept, way=way, **shape),
        )
        for answer in (compressed, again):
            assert answer.status == 200
            assert answer.headers["content-encoding"] == expected
            assert answer.headers["vary"] == "Accept-Encoding"
            assert len(answer.body) < len(plain.body)
            assert answer.headers.get(LENGTH.lower()) == plain.headers.get(LENGTH.lower())
            assert answer.headers["content-type"] == plain.headers["content-type"]
            if shape:
                assert plain_of(answer) == plain.body
            else:
                rows = json.loads(plain_of(answer))["predictions"]
                assert rows == [list(range(n))]
        assert "content-encoding" not in plain.headers
    assert (server.status().frontends["handed_over"] == before) == (way == "fast")


@pytest.mark.parametrize("way", ["fast", "falcon"])
def test_answers_that_are_sent_plain(server: Server, way: str) -> None:
    """Small ones, and those for who prefers them so or does not know the codings."""
    small, identity, other = ask(
        server,
        repeat(3, "gzip", way=way),
        repeat(1_000, "identity, gzip", way=way),
        repeat(1_000, "br, gzip;q=0", way=way),
    )
    assert [small.status, identity.status, other.status] == [200, 200, 200]
    for answer in (small, identity, other):
        assert "content-encoding" not in answer.headers


@pytest.mark.parametrize("way", ["fast", "falcon"])
def test_a_small_answer_is_compressed_if_a_plain_one_is_refused(server: Server, way: str) -> None:
    (answer,) = ask(server, repeat(3, "gzip, identity;q=0", way=way))
    assert json.loads(gzip.decompress(answer.body))["predictions"] == [[0, 1, 2]]


def test_requests_behind_one_whose_answer_is_compressed_aside_are_answered_in_order(
    server: Server,
) -> None:
    sizes = [100_000, 2, 100_000, 1_000, 3]
    with Connection(server.port) as connection:
        connection.send(b"".join(repeat(n, "gzip", way="fast", v2=True) for n in sizes))
        answers = [connection.receive() for _ in sizes]
    found = [json.loads(plain_of(answer))["outputs"][0]["shape"] for answer in answers]
    assert found == [[1, n] for n in sizes]


def test_a_client_that_leaves_while_its_answer_is_compressed_harms_nobody(server: Server) -> None:
    for _ in range(5):
        with Connection(server.port) as connection:
            connection.send(repeat(100_000, "gzip", way="fast"))
    assert_serves(server.port)


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_tritonclient_compresses_both_ways(server: Server, algorithm: str) -> None:
    triton = pytest.importorskip("tritonclient.http")
    given = triton.InferInput("n", [1], "INT64")
    given.set_data_from_numpy(np.array([5_000], np.int64))
    with triton.InferenceServerClient(f"127.0.0.1:{server.port}") as client:
        result = client.infer(
            "repeat",
            [given],
            request_compression_algorithm=algorithm,
            response_compression_algorithm=algorithm,
        )
    assert result.as_numpy("y").tolist() == [list(range(5_000))]


@exhaustive
def test_answers_are_plain_without_the_setting(start: Start) -> None:
    server = start({"matmul": {"path": "matmul.py"}})
    headers = {"Accept-Encoding": "gzip, identity;q=0"}
    body = instances(*[[1.5] * 16] * 100)
    (answer,) = ask(server, request("/v1/models/matmul:predict", body, headers=headers))
    assert len(answer.json["predictions"]) == 100
    assert "content-encoding" not in answer.headers
