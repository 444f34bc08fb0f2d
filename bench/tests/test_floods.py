"""Tests of bench/floods.py: the bytes of attacks, and the limits that figures are held to."""

import resource
from itertools import islice

import pytest
from floods import ADDED_MS, TIMES, Run, hold_to_limits, most_p99_ms, percentile_ms, resident_bytes
from load.attacks import ATTACKS, Attack
from load.open_loop import Answer
from report.record import Report
from tiers import first_of

from ringbatch.bench.load.http2 import Kind, frames_of, greeting

OVER_HTTP2 = {name: one for name, one in ATTACKS.items() if one.opening.startswith(b"PRI")}
WELL = Run(100, 0, 2.0, 1.0, 5.0, 0.5, 1.0, 4, 9.0)


def sent(attack: Attack) -> bytearray:
    """The frames that it begins with, behind the greeting."""
    data = attack.opening + b"".join(islice(attack.pieces(), 3000 if attack.pace_s else 20))
    assert data.startswith(greeting())
    return bytearray(data[len(greeting()) :])


@pytest.mark.parametrize("attack", OVER_HTTP2.values(), ids=OVER_HTTP2)
def test_whole_frames_are_sent(attack: Attack) -> None:
    data = sent(attack)
    assert list(frames_of(data))
    assert not data, "nothing is left"


def test_each_taken_back_request_is_a_stream_of_its_own() -> None:
    frames = list(frames_of(sent(ATTACKS["rapid reset"])))
    for kind in (Kind.HEADERS, Kind.DATA, Kind.RST_STREAM):
        streams = [one.stream for one in frames if one.kind == kind]
        assert streams == list(range(1, 2 * len(streams), 2))


def test_times_are_those_of_all_answers() -> None:
    answers = [Answer(0.0, 200, ms / 1e3, right=ms % 2 == 0) for ms in range(101, 0, -1)]
    assert (percentile_ms(answers, 0.5), percentile_ms(answers, 0.99)) == (51.0, 100.0)


def test_memory_that_is_shared_does_not_count() -> None:
    assert resident_bytes("900 30 10 1 0 5 0\n") == 20 * resource.getpagesize()


@pytest.mark.parametrize(("quiet_ms", "most_ms"), [(1.0, 1 + ADDED_MS), (50.0, 50 * TIMES)])
def test_others_may_wait_some_times_as_long_or_somewhat_longer(
    quiet_ms: float, most_ms: float
) -> None:
    assert most_p99_ms(quiet_ms) == most_ms


@pytest.mark.parametrize(
    ("wrong", "met"),
    first_of(
        [
            ({}, 4),
            ({"p99_ms": 2 + ADDED_MS + 1}, 3),
            ({"grown_mib": 1e3}, 3),
            ({"cpu_fraction": 0.9}, 3),
            ({"failed": 1}, 3),
        ],
        2,
    ),
)
def test_slow_failing_and_large_runs_miss_a_limit(wrong: dict[str, float], met: int) -> None:
    report = Report("floods", {})
    hold_to_limits(report, "ping", [Run(**{**WELL.__dict__, **wrong})])
    assert sum(limit.met for limit in report.limits) == met
