"""A generator of load against connections that the test answers, with a clock that it sets."""

import select
import socket
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from ringbatch.bench.load.answers import Reference, post
from ringbatch.bench.load.exchange import Requests
from ringbatch.bench.load.generator import Generator
from ringbatch.bench.load.http1 import Http1
from ringbatch.bench.load.outcome import BROKEN, UNANSWERED, WRONG

ANSWER = b'HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{"predictions": [1]}'
SECOND = 1_000_000_000


class World:
    """A server whose connections are pairs of sockets, and a clock."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.poll = select.epoll()
        self.accepted: list[socket.socket] = []

    def generator(
        self, due_ns: list[int], connections: int = 8, source: str = "", **more: Requests
    ) -> Generator:
        host, port = self.listener.getsockname()
        requests = more.get("requests", Requests([post("x", "/", b"question")]))
        return Generator(
            (host, port),
            lambda: Http1(requests),
            len(requests.messages),
            due_ns,
            first=0,
            connections=connections,
            poll=self.poll,
            clock_ns=lambda: self.now_ns,
            begin_ns=0,
            source=source,
        )

    def turn(self, generator: Generator, until: Callable[[], bool]) -> None:
        """Turn the loop over the kernel's events until a condition holds."""
        while not until():
            for fd, events in self.poll.poll(5):
                generator.take(fd, events)

    def accept(self, generator: Generator) -> socket.socket:
        """Return the next connection, with its request taken."""
        self.turn(generator, lambda: bool(select.select([self.listener], [], [], 0)[0]))
        sock, _ = self.listener.accept()
        self.accepted.append(sock)
        self.turn(generator, lambda: bool(select.select([sock], [], [], 0)[0]))
        sock.recv(65536)
        return sock

    def close(self) -> None:
        for sock in (self.listener, *self.accepted):
            sock.close()
        self.poll.close()


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def test_a_time_counts_from_the_instant_at_which_the_request_was_due(world: World) -> None:
    generator = world.generator([1000, 5000])
    assert generator.send_due() == 1000
    world.now_ns = 1400
    assert generator.send_due() == 3600
    sock = world.accept(generator)
    world.now_ns = 9000
    assert generator.send_due() is None
    other = world.accept(generator)
    for each in (sock, other):
        each.sendall(ANSWER)
    world.turn(generator, lambda: generator.finished)
    outcome = generator.outcome(1.0)
    assert outcome.took_ns.tolist() == [8000, 4000]
    assert outcome.lag_ns.tolist() == [400, 4000]
    assert outcome.counts() == {200: 2}


def test_connections_come_from_the_address_that_is_asked_for(world: World) -> None:
    generator = world.generator([0], source="127.0.0.2")
    generator.send_due()
    assert world.accept(generator).getpeername()[0] == "127.0.0.2"
    generator.outcome(1.0)


def test_a_request_without_a_connection_waits_and_its_time_counts(world: World) -> None:
    generator = world.generator([0, 0], connections=1)
    generator.send_due()
    sock = world.accept(generator)
    world.now_ns = 700
    sock.sendall(ANSWER)
    world.turn(generator, lambda: bool(select.select([sock], [], [], 0)[0]))
    sock.recv(65536)
    world.now_ns = 1100
    sock.sendall(ANSWER)
    world.turn(generator, lambda: generator.finished)
    outcome = generator.outcome(1.0)
    assert outcome.took_ns.tolist() == [700, 1100]
    assert outcome.lag_ns.tolist() == [0, 0]
    assert (outcome.held_back, outcome.connections) == (1, 1)


def test_an_unanswered_request_took_as_long_as_its_wait(world: World) -> None:
    generator = world.generator([0, 10])
    world.now_ns = 10
    generator.send_due()
    world.accept(generator).sendall(ANSWER[:30])
    world.now_ns = 2 * SECOND
    outcome = generator.outcome(1.0)
    assert outcome.counts() == {UNANSWERED: 2}
    assert outcome.took_ns.tolist() == [2 * SECOND, 2 * SECOND - 10]
    assert outcome.times().total == 2
    assert outcome.rate_per_s() == 0


def test_an_answer_takes_no_more_memory_than_it_is_long(world: World) -> None:
    """Much more would be mapped anew for each, which took half of a generator's time."""
    generator = world.generator([0])
    generator.send_due()
    sock = world.accept(generator)
    sock.sendall(ANSWER)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        world.turn(generator, lambda: generator.finished)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    generator.outcome(1.0)
    assert most - before < 16384


def test_an_answer_in_pieces_is_one(world: World) -> None:
    generator = world.generator([0])
    generator.send_due()
    sock = world.accept(generator)
    for byte in ANSWER:
        sock.sendall(bytes([byte]))
        for fd, events in world.poll.poll(1):
            generator.take(fd, events)
    world.turn(generator, lambda: generator.finished)
    assert generator.outcome(1.0).counts() == {200: 1}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"", "closed the connection"),
        (b"SSH-2.0\r\n\r\n", "not HTTP/1.1"),
        (ANSWER * 2, "no request"),
    ],
)
def test_a_broken_connection_is_reported_and_replaced(
    world: World, answer: bytes, words: str
) -> None:
    generator = world.generator([0, 0], connections=1)
    generator.send_due()
    sock = world.accept(generator)
    sock.sendall(answer)
    sock.close()
    world.accept(generator).sendall(ANSWER)
    world.turn(generator, lambda: generator.finished)
    outcome = generator.outcome(1.0)
    assert outcome.counts() == {BROKEN: 1, 200: 1}
    ((problem, count),) = outcome.problems.items()
    assert words in problem
    assert count == 1


def test_another_answer_than_the_right_one_is_counted(world: World) -> None:
    requests = Requests([post("x", "/", b"")], [Reference.of(b'{"predictions": [2]}')])
    generator = world.generator([0], requests=requests)
    generator.send_due()
    world.accept(generator).sendall(ANSWER)
    world.turn(generator, lambda: generator.finished)
    outcome = generator.outcome(1.0)
    assert outcome.counts() == {WRONG: 1}
    assert outcome.rate_per_s() == 0
    assert outcome.times().total == 0


def test_a_generator_that_cannot_keep_up_still_takes_answers(world: World) -> None:
    generator = world.generator([0] * 200)
    assert generator.send_due() == 0
    world.accept(generator).sendall(ANSWER)
    assert generator.outcome(1.0).count == 64
