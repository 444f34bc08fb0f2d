"""Requests that ringbatch passes on to the model server as they came.

Tests frontend/proxy/pass_through_app.py.
"""

from collections.abc import Iterator

import httpx
import pytest
from dev_shm import takes
from model_server import Answer, Asked, ModelServer, running
from serve import before_server
from serve.before_server import ask
from serve.client import Connection, request
from serve.server import Server, Start
from tiers import exhaustive

pytestmark = takes(30)

behind, as_new, prompt = before_server.behind, before_server.as_new, before_server.prompt


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_everything_else_is_passed_on_as_it_came(
    prompt: Server, behind: ModelServer, method: str
) -> None:
    def respond(_asked: Asked) -> Answer:
        return Answer(b"\0\xff teapot", 418, (("x-a", "1"), ("content-type", "image/png")))

    behind.respond = respond
    text = request(
        "/v2/models/%C3%A9/../x//y?a=%2F&a=b",
        b"\0\x01body",
        method=method,
        headers={"X-B": "2", "Connection": "x-c, keep-alive", "X-C": "3", "TE": "trailers"},
    )
    first, second = ask(prompt, text, text)
    assert (first.status, first.body) == (418, b"\0\xff teapot")
    assert (first.headers["x-a"], first.headers["content-type"]) == ("1", "image/png")
    assert second.body == first.body
    one = behind.asked[0]
    assert (one.method, one.target) == (method, "/v2/models/%C3%A9/../x//y?a=%2F&a=b")
    assert one.body == b"\0\x01body"
    assert one.values("x-b") == ["2"]
    names = {name for name, _ in one.headers}
    assert not names & {"x-c", "te", "connection", "user-agent", "accept", "accept-encoding"}


def test_a_head_request_has_the_length_and_no_body(prompt: Server, behind: ModelServer) -> None:
    behind.respond = lambda _asked: Answer(b"12345")
    with Connection(prompt.port) as connection:
        connection.send(request("/x", method="HEAD"))
        answer = connection.receive(head=True)
        assert answer.headers["content-length"] == "5"
        assert connection.ask(request("/x", method="GET")).body == b"12345"


def test_a_body_in_chunks_is_passed_on(prompt: Server, behind: ModelServer) -> None:
    behind.respond = lambda asked: Answer(asked.body)
    head = b"POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    with Connection(prompt.port) as connection:
        answer = connection.ask(head + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
    assert answer.body == b"abcde"


@exhaustive
def test_over_http_2_a_body_is_passed_on_whether_or_not_it_has_a_length(
    start: Start, behind: ModelServer
) -> None:
    model = {"path": behind.url}
    server = start({"model": model}, sidecar=True, http2=True)
    base = f"http://127.0.0.1:{server.port}"

    def pieces() -> Iterator[bytes]:
        yield b"one "
        yield b"two"

    with httpx.Client(http1=False, http2=True, base_url=base, timeout=60, verify=False) as client:
        client.post("/elsewhere", content=pieces())
        client.post("/elsewhere", content=b"three")
        client.get("/elsewhere")
    assert [asked.body for asked in behind.asked[-3:]] == [b"one two", b"three", b""]
    assert behind.asked[-1].values("transfer-encoding") == []


def test_a_body_larger_than_the_limit_for_predictions_is_passed_on(
    prompt: Server, behind: ModelServer
) -> None:
    behind.respond = lambda asked: Answer(str(len(asked.body)).encode())
    size = 1 << 20
    (answer,) = ask(prompt, request("/upload", bytes(size)))
    assert answer.body == str(size).encode()


def test_a_request_about_no_path_is_answered_here(prompt: Server, behind: ModelServer) -> None:
    (answer,) = ask(prompt, request("*", method="OPTIONS"))
    assert (answer.status, answer.headers["allow"]) == (204, "GET, HEAD, OPTIONS, POST")
    assert behind.asked == []


@pytest.mark.parametrize("target", ["*@127.0.0.1:{}/secret", "*", "*/x"])
def test_no_target_reaches_a_server_that_is_not_the_one_behind(
    prompt: Server, behind: ModelServer, target: str
) -> None:
    with running() as other:
        (answer,) = ask(prompt, request(target.format(other.port), method="GET"))
        assert answer.status == 400
        assert other.asked == behind.asked == []


def test_a_target_that_names_a_server_reaches_the_one_behind(
    prompt: Server, behind: ModelServer
) -> None:
    with running() as other:
        ask(prompt, request(f"http://127.0.0.1:{other.port}", method="GET"))
        assert other.asked == []
    assert [asked.target for asked in behind.asked] == ["/"]


def test_a_wish_for_another_protocol_is_not_passed_on(prompt: Server, behind: ModelServer) -> None:
    behind.respond = lambda asked: Answer(asked.body + str(sorted(asked.headers)).encode())
    headers = {"Upgrade": "h2c", "Connection": "Upgrade, HTTP2-Settings", "HTTP2-Settings": "AAA"}
    (answer,) = ask(prompt, request("/ws", b"body", headers=headers))
    assert answer.status == 200
    assert answer.body.startswith(b"body")
    for name in headers:
        assert name.lower().encode() not in answer.body.lower().replace(b"keep-alive", b"")
