"""Tests of bench/overload.py: clients that ask again at once, and what counts as a good answer."""

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from load.impatient import BROKEN, LEFT, Attempt, Crowd, crowd
from overload import SETTLE_S, crowd_summary

PATIENCE_S = 2.0
FAR_S = 1000.0
SILENT, HANG_UP = "silent", "hang up"
ANSWER = b'HTTP/1.1 200 OK\r\nContent-Length: 21\r\n\r\n{"predictions":[2.0]}'
WRONG = ANSWER.replace(b"2.0", b"4.0")
REFUSAL = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 2\r\n\r\n{}"
LAST_REFUSAL = REFUSAL.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
Script = Sequence[bytes | str]


class Scripted:
    """A server that does with its only client's requests what a script says.

    Attributes:
        port: of 127.0.0.1.
        now_s: the client's time. A request that gets no answer takes its patience, and the first
            one behind the script takes it far into the future.
        connections: how many were made.
    """

    def __init__(self, script: Script) -> None:
        self._script = [*script]
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.now_s = 0.0
        self.connections = 0

    def clock_s(self) -> float:
        """Return the client's time."""
        return self.now_s

    def serve(self) -> None:
        """Serve one connection after the other, until the script is at its end."""
        kept: list[socket.socket] = []
        while self.now_s < FAR_S:
            kept.append(self._listener.accept()[0])
            self.connections += 1
            while kept[-1].recv(1 << 16) and self._go_on(kept[-1]):
                continue
        for each in [*kept, self._listener]:
            each.close()

    def _go_on(self, own: socket.socket) -> bool:
        """Do the next act of the script; return whether the client goes on with the connection."""
        if not self._script:
            self.now_s = FAR_S
            return False
        act = self._script.pop(0)
        if act == SILENT:
            self.now_s += PATIENCE_S
        elif act == HANG_UP:
            own.shutdown(socket.SHUT_RDWR)
        else:
            # In two pieces, as a network may have it.
            assert isinstance(act, bytes)
            own.sendall(act[:30])
            own.sendall(act[30:])
        return act not in (SILENT, HANG_UP, LAST_REFUSAL)


@contextmanager
def scripted(script: Script) -> Iterator[Scripted]:
    """Run a server during the block."""
    server = Scripted(script)
    thread = threading.Thread(target=server.serve)
    thread.start()
    yield server
    thread.join()


RIGHT = Attempt(0.0, 0.0, 200, 0.0, right=True)
REFUSED = RIGHT._replace(status=503, right=False)
IN_VAIN = Attempt(0.0, 0.0, LEFT, PATIENCE_S, right=False)
AGAIN = RIGHT._replace(asked_s=PATIENCE_S)
ANOTHER = AGAIN._replace(first_s=PATIENCE_S)
CASES: dict[str, tuple[Script, bool, int, list[Attempt]]] = {
    "right answers": ([ANSWER, ANSWER], False, 1, [RIGHT, RIGHT]),
    "a wrong answer": ([WRONG], False, 1, [RIGHT._replace(right=False)]),
    "refusals": ([REFUSAL, REFUSAL, ANSWER], False, 1, [REFUSED, REFUSED, RIGHT]),
    "a refusal that ends": ([LAST_REFUSAL, ANSWER], False, 2, [REFUSED, RIGHT]),
    "a broken connection": (
        [HANG_UP, ANSWER],
        False,
        2,
        [REFUSED._replace(status=BROKEN), RIGHT],
    ),
    "silence": ([SILENT, ANSWER], False, 2, [IN_VAIN, AGAIN]),
    "silence, and another client": ([SILENT, ANSWER], True, 2, [IN_VAIN, ANOTHER]),
    "an answer, then silence": (
        [ANSWER, SILENT, REFUSAL, ANSWER],
        False,
        2,
        [RIGHT, IN_VAIN, AGAIN._replace(status=503, right=False), AGAIN],
    ),
}


@pytest.mark.parametrize(
    ("script", "once", "connections", "expected"), CASES.values(), ids=[*CASES]
)
def test_a_client_asks_again_at_once(
    script: Script, once: bool, connections: int, expected: list[Attempt]
) -> None:
    with scripted(script) as server:
        found = crowd(server.port, "/", 1, PATIENCE_S, FAR_S, once=once, clock_s=server.clock_s)
    assert found.attempts[: len(expected)] == expected
    assert server.connections == connections


def attempt(status: int, asked_s: float, took_s: float, first_s: float | None = None) -> Attempt:
    first_s = asked_s if first_s is None else first_s
    return Attempt(first_s, asked_s, status, took_s, right=status == 200)


def test_a_good_answer_comes_within_the_patience_of_its_client() -> None:
    attempts = [
        attempt(200, 0.5, PATIENCE_S),
        attempt(200, SETTLE_S, PATIENCE_S),
        attempt(200, 4.0, 0.5, first_s=1.0),
        attempt(200, 4.0, PATIENCE_S + 1),
        attempt(200, 4.0, 0.1)._replace(right=False),
        *[attempt(503, 4.0, 0.25)] * 3,
        attempt(BROKEN, 4.0, 0.25),
        attempt(LEFT, 4.0, PATIENCE_S),
    ]
    seconds = PATIENCE_S + SETTLE_S + 10
    found = crowd_summary(Crowd(attempts, 0.5, 0.002), 7, seconds, PATIENCE_S, {"w": 1.0})
    assert (found.goodput_per_s, found.first_goodput_per_s) == (0.2, 0.1)
    assert (found.refused_per_s, found.left_per_s) == (0.4, 0.1)
    assert (found.p99_ms, found.refused_p99_ms) == ((PATIENCE_S + 1) * 1e3, 250.0)
    assert (found.clients, found.busy, found.longest_turn_ms) == (7, 0.5, 2.0)
