"""Pipelined requests and requests in pieces, as bytes on a connection."""

from collections.abc import Callable

import pytest
from serve import wire
from serve.client import (
    WAYS,
    Connection,
    chunked,
    escaped,
    fast,
    instances,
    old,
    request,
)
from serve.server import Server, unread
from serve.wire import both_paths
from tiers import exhaustive, first_of

server, still_serves = wire.server, wire.still_serves


def test_pipelined_requests_of_every_kind_are_answered_in_order(server: Server) -> None:
    """A slow one first: what comes after it must wait for its turn."""
    builders = [fast, fast, escaped, fast, chunked, escaped, fast]
    expected: list[list[object]]
    sent, expected = [fast("echo", instances("sleep"))], [["sleep"]]
    for number in range(70):
        sent.append(builders[number % 7]("echo", instances(number, str(number))))
        expected.append([number, str(number)])
    sent.append(fast("echo", instances("raise")))
    sent.append(old("echo", instances("last")))
    with Connection(server.port) as connection:
        connection.send(b"".join(sent))
        assert [connection.receive().json["predictions"] for _ in expected] == expected
        assert connection.receive().status == 500
        assert connection.receive().json["predictions"] == ["last"]
        assert connection.ended()


@pytest.mark.parametrize("builder", [fast, escaped])
def test_more_is_pipelined_than_is_read_ahead(
    server: Server, builder: Callable[[str, bytes], bytes]
) -> None:
    texts = [str(number % 10) * 30_000 for number in range(40)]
    with Connection(server.port) as connection:
        connection.send_aside(b"".join(builder("echo", instances(text)) for text in texts))
        assert [connection.receive().json["predictions"] for _ in texts] == [[t] for t in texts]


AWKWARD = {
    "in-the-method": 2,
    "in-the-path": 20,
    "before-the-version": 30,
    "in-a-name": 50,
    "before-the-last-lf": -1,
    "between-the-empty-lines": -2,
    "before-the-end": -3,
    "after-the-head": 0,
    "in-the-body": 1,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", AWKWARD)
def test_a_request_in_two_pieces_is_whole(
    server: Server, place: str, way: str, wait_until: Callable[..., object]
) -> None:
    data = WAYS[way]("matmul", instances([1] * 16))
    head = data.index(b"\r\n\r\n") + 4
    cut = AWKWARD[place] if AWKWARD[place] > 1 else head + AWKWARD[place]
    with Connection(server.port) as connection:
        connection.send(data[:cut])
        wait_until(lambda: not unread(server.port, connection.port), "the first piece is read")
        answer = connection.ask(data[cut:])
        assert (answer.status, len(answer.json["predictions"][0])) == (200, 10)


@exhaustive
@pytest.mark.parametrize("way", ["fast", "chunked"])
def test_a_request_byte_by_byte_is_whole(
    server: Server, way: str, wait_until: Callable[..., object]
) -> None:
    data = WAYS[way]("echo", instances("ä"))
    with Connection(server.port) as connection:
        for at in range(len(data)):
            connection.send(data[at : at + 1])
            # A head must come within 10 s, and among many connections a look takes long.
            if not at % 4:
                wait_until(lambda: not unread(server.port, connection.port), "the byte is read")
        assert connection.receive().json["predictions"] == ["ä"]


@both_paths
def test_a_client_that_hangs_up_in_its_body_disturbs_nobody(server: Server, target: str) -> None:
    with Connection(server.port) as connection:
        connection.send(request(target, b"{", headers={"Content-Length": "500"}))


@pytest.mark.parametrize("way", first_of(WAYS, 2))
def test_a_client_that_hangs_up_before_its_answer_leaves_nothing_behind(
    server: Server, way: str, wait_until: Callable[..., object]
) -> None:
    before = server.status().frontends
    with Connection(server.port) as connection:
        connection.send(WAYS[way]("echo", instances("sleep")))
        wait_until(
            lambda: server.status().frontends["requests"] > before["requests"], "it is published"
        )
    with Connection(server.port) as connection:
        assert connection.ask(fast("echo", instances(way))).json["predictions"] == [way]
    assert server.status().frontends["timeouts"] == before["timeouts"]
