"""Requests on the wire: heads, lengths, methods, paths, pieces, and their order."""

import re
from collections.abc import Iterator

import pytest
from serve import wire
from serve.client import (
    Connection,
    chunked,
    fast,
    instances,
    old,
    request,
)
from serve.server import Server
from serve.wire import LIMIT, TARGETS, both_paths
from tiers import first_of

from ringbatch.frontend.http.phases import BODY_TOO_SLOW, HEAD_TOO_SLOW

HEAD_LIMIT = 1 << 16
MANY = 1 << 24
"""Bytes beyond those that the kernel takes for a client that does not read."""

server, still_serves = wire.server, wire.still_serves

STALLED = {
    "body-fast": request(TARGETS["fast"], b"{", headers={"Content-Length": "2"}),
    "body-escaped": request(TARGETS["escaped"], b"{", headers={"Content-Length": "2"}),
    "body-chunked": chunked("echo", b"{}")[:-3],
    "head-fast": request(TARGETS["fast"], b"{}")[:-5],
    "head-escaped": request(TARGETS["escaped"], b"{}")[:-5],
    "head-first-line": b"GET /v1/mod",
}


@pytest.fixture(scope="module", autouse=True)
def stalled(server: Server) -> Iterator[dict[str, Connection]]:
    """Requests that stop in the middle; how they end is looked at by the last test."""
    connections = {name: Connection(server.port) for name in STALLED}
    for name, connection in connections.items():
        connection.send(STALLED[name])
    yield connections
    for connection in connections.values():
        connection.close()


@pytest.mark.parametrize(
    ("found", "status"),
    [
        *((value, 400) for value in ("-5", "abc", "5x", "0x5", "5, 5", "+5", "", "1" * 40)),
        (str(LIMIT + 1), 413),
        (str(10**17), 413),
    ],
)
@both_paths
def test_a_content_length_that_cannot_be_is_refused_and_its_connection_closed(
    server: Server, target: str, found: str, status: int
) -> None:
    with Connection(server.port) as connection:
        answer = connection.ask(request(target, headers={"Content-Length": found}))
        assert answer.status == status
        assert ("HTTP/1.1 request" if status == 400 else found) in answer.error
        if status == 400:
            assert answer.headers["connection"] == "close"
            assert connection.ended()


@both_paths
@pytest.mark.parametrize(
    "headers",
    [
        [("Content-Length", "2"), ("Content-Length", "3")],
        [("Content-Length", "3"), ("Transfer-Encoding", "chunked")],
        [("Transfer-Encoding", "chunked"), ("Content-Length", "3")],
        [("Transfer-Encoding", "identity, chunked"), ("Content-Length", "3")],
    ],
    ids=["two-lengths", "length-and-chunked", "chunked-and-length", "identity-chunked"],
)
def test_two_opinions_on_where_a_body_ends_are_refused_and_nothing_after_is_served(
    server: Server, target: str, headers: list[tuple[str, str]]
) -> None:
    with Connection(server.port) as connection:
        connection.send(request(target, b"0\r\n\r\n", headers=headers) + fast("echo", instances(1)))
        answer = connection.receive()
        assert answer.status == 400, answer.error
        assert connection.ended()


@pytest.mark.parametrize("coding", ["chunked", "gzip, chunked", "Identity, chunked"])
@both_paths
def test_chunks_over_http_1_0_are_refused_and_nothing_after_is_served(
    server: Server, target: str, coding: str
) -> None:
    """There are none in HTTP/1.0, so whoever stands before the server sees another end of the body
    (RFC 9112, section 6.1)."""
    body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(instances(1)), instances(1))
    headers = {"Connection": "keep-alive", "Transfer-Encoding": coding}
    asked = request(target, body, version="1.0", headers=headers)
    with Connection(server.port) as connection:
        connection.send(asked + fast("echo", instances(1)))
        answer = connection.receive()
        assert (answer.status, "Transfer-Encoding" in answer.error) == (400, True)
        assert answer.headers["connection"] == "close"
        assert connection.ended()


@pytest.mark.parametrize("coding", ["gzip, chunked", "Identity, chunked"])
@both_paths
def test_a_transfer_coding_that_nobody_undoes_is_refused_and_nothing_after_is_served(
    server: Server, target: str, coding: str
) -> None:
    """RFC 9112, section 6.1."""
    body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(instances(1)), instances(1))
    asked = request(target, body, headers={"Transfer-Encoding": coding})
    with Connection(server.port) as connection:
        connection.send(asked + fast("echo", instances(1)))
        answer = connection.receive()
        assert (answer.status, "Transfer-Encoding" in answer.error) == (501, True), answer.error
        assert answer.headers["connection"] == "close"
        assert connection.ended()


@pytest.mark.parametrize("names", [[], ["a", "a"], ["a", "b"]], ids=["none", "same", "two"])
@both_paths
def test_a_request_without_exactly_one_host_is_refused(
    server: Server, target: str, names: list[str]
) -> None:
    """RFC 9112, section 3.2."""
    hosts = b"".join(b"Host: %b\r\n" % name.encode() for name in names)
    for asked in (request(target, instances(1)), request("/v1/models", method="GET")):
        with Connection(server.port) as connection:
            connection.send(asked.replace(b"Host: test\r\n", hosts) + fast("echo", instances(1)))
            answer = connection.receive()
            assert (answer.status, "Host" in answer.error) == (400, True)
            assert answer.headers["connection"] == "close"
            assert connection.ended()


def test_http_1_0_need_not_say_which_host_it_is_for_but_may_not_say_two(server: Server) -> None:
    asked = old("echo", instances(1))
    with Connection(server.port) as connection:
        assert connection.ask(asked.replace(b"Host: test\r\n", b"")).status == 200
    with Connection(server.port) as connection:
        assert connection.ask(asked.replace(b"\r\n", b"\r\nHost: a\r\n", 1)).status == 400


REFUSED = {
    "closed": (413, {"Connection": "close"}, "1.1"),
    "old": (413, {}, "1.0"),
    "chunk": (400, {"Transfer-Encoding": "chunked"}, "1.1"),
    "length": (400, {"Content-Length": "x"}, "1.1"),
}


@pytest.mark.parametrize("case", REFUSED)
@both_paths
def test_a_client_that_reads_only_after_sending_reads_the_refusal(
    server: Server, target: str, case: str
) -> None:
    status, headers, version = REFUSED[case]
    with Connection(server.port) as connection:
        connection.send(request(target, bytes(MANY), headers=headers, version=version))
        answer = connection.receive()
        assert (answer.status, answer.headers["connection"]) == (status, "close")
        assert connection.ended()


@both_paths
def test_neither_a_length_nor_chunks_is_411(server: Server, target: str) -> None:
    with Connection(server.port) as connection:
        answer = connection.ask(request(target))
        assert (answer.status, "Content-Length" in answer.error) == (411, True)


@both_paths
def test_bytes_beyond_the_content_length_are_the_next_request(server: Server, target: str) -> None:
    body = instances(1)
    cut = len(body) - 1
    with Connection(server.port) as connection:
        connection.send(request(target, body, headers={"Content-Length": str(cut)}))
        assert connection.receive().status == 400
        answer = connection.receive()
        assert (answer.status, "not an HTTP/1.1 request" in answer.error) == (400, True)
        assert connection.ended()


def broken_chunks() -> bytes:
    """A request whose first chunk is shorter than it says."""
    headers = {"Transfer-Encoding": "chunked"}
    return request(TARGETS["fast"], b"3\r\n{}\r\n0\r\n\r\n", headers=headers)


def test_a_chunk_that_lies_about_its_size_is_refused(server: Server) -> None:
    with Connection(server.port) as connection:
        answer = connection.ask(broken_chunks())
        assert (answer.status, "not an HTTP/1.1 request" in answer.error) == (400, True)
        assert connection.ended()


BROKEN = {
    "chunks": broken_chunks(),
    "head": b"POST / HTTP/1.1\r\nx\r\n\r\n",
    "version": b"GET / HTTP/2.0\r\n\r\n",
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
@pytest.mark.parametrize("before", first_of([3, 1, 2], 1))
@both_paths
def test_requests_before_a_broken_one_are_answered_first(
    server: Server, target: str, before: int, broken: bytes
) -> None:
    asked = [request(target, instances("sleep" if n == 0 else n)) for n in range(before)]
    with Connection(server.port) as connection:
        connection.send(b"".join(asked) + broken)
        answers = [connection.receive().json["predictions"] for _ in asked]
        assert answers == [["sleep"], [1], [2]][:before]
        assert connection.receive().status in (400, 505)
        assert connection.ended()


@pytest.mark.parametrize(
    "first", ["POST /v1/models/echo:predict", "GET /", "POST /v1/models/x%3Ay"]
)
@pytest.mark.parametrize(
    "line", [b"X-Pad: " + b"a" * 1000 + b"\r\n", b"a"], ids=["lines", "one-line"]
)
def test_a_head_without_end_is_431(server: Server, first: str, line: bytes) -> None:
    with Connection(server.port) as connection:
        connection.send(
            f"{first} HTTP/1.1\r\nHost: x\r\n".encode() + (b"X-Y: " if line == b"a" else b"")
        )
        connection.send(line * (MANY // len(line)))
        assert connection.receive().status == 431


@pytest.mark.parametrize(
    ("target", "status", "words"),
    [
        ("/v1/models/no%20such:predict", 404, 'no model "no such"'),
        ("/v1/models/matmul%20:predict", 404, 'no model "matmul "'),
        ("/v1/models/matmul:predict%20", 404, ""),
        ("/v1/models/nobody:predict", 404, 'no model "nobody"; there is: matmul, echo'),
        ("/v1/models/%ff%fe:predict", 404, "no model"),
        ("/v1/models/" + "a" * 128 + ":predict", 404, "a" * 128),
        ("/v1/models/" + "a" * 8000 + ":predict", 404, "a" * 128 + "..."),
        ("/v1/models/echo:predict/", 404, "nothing is at"),
        ("/predict", 404, 'nothing is at "/predict"; predictions are at /v1/models/NAME:predict'),
        ("/v1/models/echo:classify", 404, 'no verb "classify"'),
        ("/v1/models/echo:explain", 501, "explanations are not supported"),
        ("/v1/models/ECHO:predict", 404, 'no model "ECHO"'),
        ("/v1/models/echo/:predict", 404, "nothing is at"),
        ("/v1/models/../echo:predict", 404, "nothing is at"),
        ("/" + "b" * 8000, 404, "b" * 100),
        ("/v1/models/" + "a" * 70_000 + ":predict", 431, f"longer than {HEAD_LIMIT}"),
    ],
)
def test_a_path_that_is_nothing_is_named_in_the_error(
    server: Server, target: str, status: int, words: str
) -> None:
    with Connection(server.port) as connection:
        answer = connection.ask(request(target, instances(1)))
        assert (answer.status, words in answer.error) == (status, True), answer.body
        assert len(answer.body) < 500


def test_the_allowed_methods_are_given_without_a_path(server: Server) -> None:
    with Connection(server.port) as connection:
        answer = connection.ask(request("*", method="OPTIONS"))
        assert (answer.status, answer.headers["allow"]) == (204, "GET, HEAD, OPTIONS, POST")
        assert connection.ask(request("/", method="GET")).status == 200


def test_a_query_is_ignored(server: Server) -> None:
    with Connection(server.port) as connection:
        for target in TARGETS.values():
            answer = connection.ask(request(target + "?a=b&c", instances(1)))
            assert answer.json["predictions"] == [1]


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "HEAD"])
@both_paths
def test_a_wrong_method_on_predictions_is_405(server: Server, target: str, method: str) -> None:
    with Connection(server.port) as connection:
        connection.send(request(target, method=method))
        answer = connection.receive(head=method == "HEAD")
        assert answer.status == 405
        assert answer.headers["allow"] == "POST, OPTIONS"
        if method != "HEAD":
            assert answer.error == f"{method} is not allowed here; allowed: POST, OPTIONS"
        assert connection.ask(fast("echo", instances(1))).status == 200


READABLE = ["/", "/v1/models", "/v1/models/echo", "/v2/health/live", "/v2/health/ready"]


@pytest.mark.parametrize("target", READABLE)
def test_a_readable_path_takes_no_post_and_no_trailing_slash(server: Server, target: str) -> None:
    with Connection(server.port) as connection:
        answer = connection.ask(request(target, b"{}"))
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, OPTIONS")
        assert "POST is not allowed here" in answer.error
        if target != "/":
            missing = connection.ask(request(target + "/", method="GET"))
            nothing = 'no model ""' if target == "/v1/models" else f'nothing is at "{target}/"'
            assert (missing.status, nothing in missing.error) == (404, True)


@pytest.mark.parametrize("target", READABLE)
def test_head_is_get_without_a_body(server: Server, target: str) -> None:
    with Connection(server.port) as connection:
        got = connection.ask(request(target, method="GET"))
        connection.send(request(target, method="HEAD"))
        head = connection.receive(head=True)
        assert (head.status, got.status) == (200, 200)
        assert head.headers["content-length"] == str(len(got.body))
        assert connection.ask(fast("echo", instances(1))).status == 200


def test_a_method_that_is_none_is_refused(server: Server) -> None:
    with Connection(server.port) as connection:
        answer = connection.ask(request("/", method="NONSENSE"))
        assert (answer.status, "not an HTTP/1.1 request" in answer.error) == (400, True)
        assert connection.ended()


@both_paths
def test_a_client_that_expects_100_gets_it(server: Server, target: str) -> None:
    body = instances("a")
    headers = {"Expect": "100-continue", "Content-Length": str(len(body))}
    with Connection(server.port) as connection:
        assert connection.ask(request(target, headers=headers)).status == 100
        answer = connection.ask(body)
        assert (answer.status, answer.json["predictions"]) == (200, ["a"])


@both_paths
def test_a_client_that_expects_100_over_http_1_0_gets_none(server: Server, target: str) -> None:
    """It would take that for the answer (RFC 9110, section 10.1.1)."""
    headers = {"Expect": "100-continue"}
    with Connection(server.port) as connection:
        answer = connection.ask(request(target, instances("a"), version="1.0", headers=headers))
        assert (answer.status, answer.json["predictions"]) == (200, ["a"])


def test_a_client_that_expects_100_need_not_send_a_body_that_is_too_large(server: Server) -> None:
    headers = {"Expect": "100-continue", "Content-Length": str(LIMIT + 1)}
    with Connection(server.port) as connection:
        assert connection.ask(request(TARGETS["fast"], headers=headers)).status == 413


@both_paths
@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, br", "gzip, gzip"])
def test_a_body_in_a_coding_that_is_not_known_is_415(
    server: Server, target: str, encoding: str
) -> None:
    with Connection(server.port) as connection:
        answer = connection.ask(
            request(target, instances(1), headers={"Content-Encoding": encoding})
        )
        assert (answer.status, answer.headers["accept-encoding"]) == (415, "gzip, deflate")
        assert f"Content-Encoding '{encoding}' is not supported" in answer.error


@both_paths
@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "application/octet-stream"]
)
def test_a_body_is_read_as_json_under_any_content_type(
    server: Server, target: str, content_type: str
) -> None:
    with Connection(server.port) as connection:
        answer = connection.ask(
            request(target, instances(1), headers={"Content-Type": content_type})
        )
        assert answer.json["predictions"] == [1]


@both_paths
def test_a_client_that_asks_for_a_close_gets_one(server: Server, target: str) -> None:
    with Connection(server.port) as connection:
        answer = connection.ask(request(target, instances(1), headers={"Connection": "close"}))
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert connection.ended()


NOISE = {
    "tls": (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 300),
    "http2": (400, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "http2.0": (505, request("/", method="GET", version="2.0")),
    "http0.9": (505, b"POST /v1/models/echo:predict\r\n\r\n"),
    "http9.1": (400, request(TARGETS["fast"], b"{}", version="9.1")),
    "blank-in-a-name": (400, request(TARGETS["fast"], b"{}", headers={"X ": "y"})),
    "folded": (
        400,
        request(TARGETS["fast"], b"{}", headers={"X": "y\r\n z: 1", "Content-Length": "a"}),
    ),
    "connect-to-a-path": (400, b"CONNECT /v1/models HTTP/1.1\r\nHost: a\r\n\r\n"),
    "connect": (400, b"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n"),
    "a-path-not-in-ascii": (400, b"GET /\xff\xfe HTTP/1.1\r\nHost: a\r\n\r\n"),
    "no-path": (400, request("*", method="GET")),
    "no-path-and-more": (400, request("*/x", method="OPTIONS")),
    "zeros": (400, b"\x00" * 100),
}


@pytest.mark.parametrize("case", NOISE)
def test_noise_is_refused_in_json_and_its_connection_closed(server: Server, case: str) -> None:
    status, noise = NOISE[case]
    with Connection(server.port) as connection:
        answer = connection.ask(noise)
        assert (answer.status, answer.headers["connection"]) == (status, "close")
        assert answer.error
        assert connection.ended()


UPGRADES = {
    "java": ("h2c", {"HTTP2-Settings": "AAEAAEAAAAIAAAAAAAMAAAAAAAQBAAAAAAUAAEAAAAYABgAA"}),
    "websocket": ("websocket", {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}),
    "tls": ("TLS/1.0", {}),
}


@pytest.mark.parametrize("case", UPGRADES)
@both_paths
def test_a_wish_for_another_protocol_is_ignored(server: Server, target: str, case: str) -> None:
    """On one connection, as Java's client has it: with and without a body, expected and in chunks,
    and several at once."""
    protocol, own = UPGRADES[case]
    tokens = ", ".join(["Upgrade", *(name for name in own if name == "HTTP2-Settings")])
    headers = {"Connection": tokens, "Upgrade": protocol, **own}
    with Connection(server.port) as connection:
        for _ in range(2):
            answer = connection.ask(request(target, instances("a"), headers=headers))
            assert (answer.status, answer.json["predictions"]) == (200, ["a"])
            answer = connection.ask(request("/v1/models", method="GET", headers=headers))
            assert (answer.status, "echo" in answer.json["models"]) == (200, True)
        body = instances("b")
        expecting = {**headers, "Expect": "100-continue", "Content-Length": str(len(body))}
        assert connection.ask(request(target, headers=expecting)).status == 100
        assert connection.ask(body).json["predictions"] == ["b"]
        chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        in_chunks = request(target, chunks, headers={**headers, "Transfer-Encoding": "chunked"})
        whole = request(target, instances("c"), headers=headers)
        connection.send(in_chunks + whole + in_chunks + request(target, b"", headers=headers))
        answers = [connection.receive() for _ in range(4)]
        assert [answer.status for answer in answers] == [200, 200, 200, 400]
        assert [answer.json["predictions"] for answer in answers[:3]] == [["b"], ["c"], ["b"]]


def test_requests_that_stop_in_the_middle_are_given_up_in_words(
    stalled: dict[str, Connection],
) -> None:
    """The last test, so that the time runs while the others do."""
    for name, connection in stalled.items():
        words = BODY_TOO_SLOW if name.startswith("body") else HEAD_TOO_SLOW
        answer = connection.receive()
        assert (answer.status, answer.headers["connection"]) == (408, "close"), name
        assert answer.error == words
        assert connection.ended()


def test_nothing_of_all_that_was_an_error_of_the_server(server: Server) -> None:
    """Only the errors that the models raise on request are logged."""
    unexpected = server.stderr.replace("moody.py", "")
    unexpected = re.sub(r"model echo raised; batch \S+\n  Traceback", "", unexpected)
    assert "Traceback" not in unexpected
