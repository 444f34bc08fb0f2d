"""Lengths, figures and limits of the comparison of servers that stream."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from statistics import mean

import numpy as np
import pytest
from load.answers import WrongAnswer
from report.peer_rounds import OWN
from report.record import Report
from stream_peers import (
    FIXED,
    GEOMETRIC,
    MEAN_PARTS,
    PEERS,
    REQUESTS,
    Run,
    expect_parts,
    hold_to_limits,
    lengths,
    rows,
    run_of,
)

from ringbatch.bench.load.outcome import CUT_OFF, Outcome
from ringbatch.bench.load.parts import Parts
from ringbatch.bench.statistics.histogram import Histogram

MS = 1_000_000
RUN = Run(9000, 180, 2, 4, 1.1, 2, 40, 0.3)
SLOW = replace(RUN, parts_per_s=1500, gap_p99_ms=5)
RUNS = {OWN: [RUN], "mosec": [replace(SLOW, parts_per_s=5000)], "LitServe": [SLOW]}


def outcome(status: int = 200, short: int = 0, count: int = 10) -> Outcome:
    """Return the outcome of a run of two seconds, with answers of five parts."""
    parts = Parts(
        np.full(count, 3 * MS, np.int64),
        np.full(count, 2 * MS, np.int64),
        np.full(count, 5, np.int32),
        Histogram.of(np.full(4 * count, 2 * MS, np.int64)),
        5 * count,
        short,
        0.2,
    )
    times = np.full(count, 11 * MS, np.int64)
    statuses = np.full(count, status, np.int16)
    zeros = np.zeros(count, np.int64)
    return Outcome(zeros, times, zeros, statuses, 2.0, 0, 4, {}, parts)


def test_lengths_have_the_same_mean() -> None:
    assert lengths(FIXED) == [MEAN_PARTS] * REQUESTS
    found = lengths(GEOMETRIC)
    assert len(found) == REQUESTS
    assert mean(found) == pytest.approx(MEAN_PARTS, rel=0.25)
    # As of a geometric distribution: the longest is some times the mean.
    assert max(found) > 3 * MEAN_PARTS
    assert lengths(GEOMETRIC) == found


def test_a_run_has_the_figures_of_its_parts() -> None:
    found = run_of(outcome(), 0.001)
    assert (found.parts_per_s, found.answers_per_s) == (25, 5)
    assert found.first_p99_ms == pytest.approx(3, rel=0.02)
    assert found.gap_p50_ms == pytest.approx(2, rel=0.02)
    assert found.cpu_us == pytest.approx(20)
    assert found.busy == 0.2


@pytest.mark.parametrize("made", [outcome(CUT_OFF), outcome(short=1), outcome(count=0)])
def test_no_figure_counts_beside_a_wrong_answer(made: Outcome) -> None:
    with pytest.raises(WrongAnswer):
        run_of(made, 1.0)


@pytest.fixture
def port() -> Iterator[int]:
    """A server whose answers have three events, and begin at the number that it is asked for."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            first = int(self.path.rpartition("/")[2])
            events = b"".join(b'data: {"v": [%d]}\n\n' % (first + n) for n in range(3))
            self.wfile.write(b": wait\n\n" + events)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_server_is_asked_for_the_right_parts(port: int) -> None:
    peer = replace(PEERS["mosec"], path="/0")
    expect_parts(port, peer, 3)
    for parts in (2, 4):
        with pytest.raises(WrongAnswer, match=f"3 parts and not {parts}"):
            expect_parts(port, peer, parts)
    for first in (1, 10):
        with pytest.raises(WrongAnswer, match="part 0 is"):
            expect_parts(port, replace(peer, path=f"/{first}"), 3)


@pytest.mark.parametrize(
    ("changed", "met"),
    [
        ({}, [True, True, True]),
        ({"mosec": [replace(SLOW, parts_per_s=6500)]}, [False, True, True]),
        ({"LitServe": [replace(SLOW, parts_per_s=2000)]}, [True, False, True]),
        ({"mosec": [replace(SLOW, gap_p99_ms=3)]}, [True, True, False]),
    ],
)
def test_limits_compare_with_the_fastest_the_python_ones_and_the_best_gap(
    changed: dict[str, list[Run]], met: list[bool]
) -> None:
    report = Report("stream_peers", {})
    hold_to_limits(report, FIXED, RUNS | changed)
    assert [limit.met for limit in report.limits] == met


def test_without_peers_there_is_no_limit() -> None:
    report = Report("stream_peers", {})
    hold_to_limits(report, FIXED, {OWN: [RUN]})
    assert not report.limits
    assert rows({OWN: [RUN, replace(RUN, parts_per_s=9500)]})[0][:2] == [OWN, "9,250"]
