"""Load generators as processes: their ends, and the errors if they do not work."""

import os
import signal
import socket
import time
from pathlib import Path

import pytest

from ringbatch.bench.load.answers import post
from ringbatch.bench.load.arrivals import Arrivals, Kind
from ringbatch.bench.load.child import GeneratorDied
from ringbatch.bench.load.fleet import Fleet
from ringbatch.bench.load.outcome import BROKEN
from ringbatch.bench.load.target import Target

REQUESTS = [post("x", "/", b"")]


@pytest.fixture
def nobody(free_port: int) -> Target:
    """An address at which nothing listens."""
    return Target("127.0.0.1", free_port)


@pytest.mark.parametrize("kind", [Kind.POISSON, Kind.CLOSED])
def test_an_absent_server_is_reported_and_nothing_hangs(nobody: Target, kind: Kind) -> None:
    with Fleet(1, nobody, REQUESTS) as fleet:
        outcome = fleet.run(Arrivals(kind, 0.2, 100), 8, 1)
    assert set(outcome.counts()) == {BROKEN}
    assert list(outcome.problems) == ["Connection refused"]
    assert outcome.rate_per_s() == 0


def test_a_generator_that_was_killed_is_an_error(nobody: Target) -> None:
    with Fleet(2, nobody, REQUESTS) as fleet:
        os.kill(fleet.pids[1], signal.SIGKILL)
        with pytest.raises(GeneratorDied, match="has ended"):
            fleet.run(Arrivals(Kind.POISSON, 0.2, 100), 8, 1)
        pids = fleet.pids
    assert not any(Path("/proc", str(pid)).exists() for pid in pids)


def test_a_server_that_takes_requests_and_answers_none_ends_a_run_in_time() -> None:
    with (
        socket.create_server(("127.0.0.1", 0), backlog=4) as silent,
        Fleet(1, Target(*silent.getsockname()), REQUESTS) as fleet,
    ):
        began = time.monotonic()
        outcome = fleet.run(Arrivals(Kind.CONSTANT, 0.3, 200), 64, 0.5)
        took_s = time.monotonic() - began
    assert outcome.count == 60
    assert not outcome.answered.any()
    assert (outcome.took_ns + outcome.due_ns >= 0.8e9).all()
    assert outcome.lag_ms(0.5) < 500
    assert took_s > 0.8
