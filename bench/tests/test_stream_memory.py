"""Growth of memory, limits, and the clients that leave or do not read, against a made-up server."""

import socket
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from load.answers import WrongAnswer
from report.record import Report
from stream_memory import (
    ENDLESS,
    LARGE,
    MOST_GAP,
    MOST_GROWN_MIB,
    Crowd,
    gap_p99_ms,
    grown_mib,
    hold_to_limits,
    message,
)

from ringbatch.bench.load.outcome import CUT_OFF, Outcome
from ringbatch.bench.load.parts import Parts
from ringbatch.bench.statistics.histogram import Histogram

FLAT = [(count, 50.0) for count in range(0, 120_000, 10_000)]
RISING = [(count, 50.0 + 5 * count / 100_000) for count in range(0, 120_000, 10_000)]


def test_growth_is_a_line_behind_the_warm_up() -> None:
    assert grown_mib(FLAT) == 0
    assert grown_mib(RISING) == pytest.approx(5)
    # Growth at first is the warm-up, and one odd look is no growth.
    warmed = [(count, 10.0 + count / 1000) for count, _ in FLAT[:4]] + FLAT[4:]
    assert grown_mib(warmed) == 0
    assert grown_mib([*FLAT[:-1], (110_000, 90.0)]) == 0
    assert grown_mib(FLAT[:1]) == 0


@pytest.mark.parametrize(
    ("looks", "ratio", "met"),
    [
        (FLAT, 1.0, [True, True]),
        (RISING, 1.0, [MOST_GROWN_MIB >= 5, True]),
        (FLAT, MOST_GAP + 0.1, [True, False]),
    ],
)
def test_growth_and_gaps_have_limits(
    looks: list[tuple[int, float]], ratio: float, met: list[bool]
) -> None:
    report = Report("stream_memory", {})
    # The median of the pairs counts, not the worst of them.
    hold_to_limits(report, {"worker": looks}, [(2.0, 2.0 * ratio)] * 2 + [(2.0, 100.0)])
    assert [limit.met for limit in report.limits] == met


def outcome(status: int = 200, short: int = 0) -> Outcome:
    gaps = Histogram.of(np.full(1000, 2_000_000, np.int64))
    zeros, one = np.zeros(1, np.int64), np.ones(1, np.int32)
    parts = Parts(zeros, zeros, one, gaps, 1, short)
    return Outcome(zeros, zeros, zeros, np.full(1, status, np.int16), 1.0, 0, 1, {}, parts)


def test_gaps_beside_wrong_answers_do_not_count() -> None:
    assert gap_p99_ms(outcome()) == pytest.approx(2, rel=0.02)
    for wrong in (outcome(CUT_OFF), outcome(short=1)):
        with pytest.raises(WrongAnswer):
            gap_p99_ms(wrong)


class Endless:
    """A server that sends a part a millisecond to each client, until it leaves."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.asked: list[bytes] = []
        self.left = 0
        self.threads = [threading.Thread(target=self._accept)]
        self.threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.threads.append(threading.Thread(target=self._serve, args=(connection,)))
            self.threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            self.asked.append(connection.recv(65536))
            connection.settimeout(0.05)
            try:
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                while True:
                    connection.sendall(b"data: 1\n\n")
                    time.sleep(0.001)
            except OSError:
                self.left += 1

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self.threads:
            thread.join()


@pytest.fixture
def server() -> Iterator[Endless]:
    made = Endless()
    yield made
    made.close()


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait for a condition; fail if that takes half a minute."""
    give_up_at = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < give_up_at
        time.sleep(0.01)


def test_clients_leave_or_do_not_read_and_others_come(server: Endless) -> None:
    crowd = Crowd(server.port, 2, 1, 0.0)
    with crowd.present():
        wait_until(lambda: crowd.counts.left > 4 and crowd.counts.unread > 0)
    assert message(ENDLESS, LARGE) in server.asked
    assert server.asked.count(message(ENDLESS)) >= crowd.counts.left
    wait_until(lambda: server.left == len(server.asked))
