"""Load generator: arrival times of requests, parsing of answers, and outcomes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.bench.load.answers import BadAnswer, Reference, post, read_head
from ringbatch.bench.load.arrivals import Arrivals, Kind, recorded
from ringbatch.bench.load.exchange import Requests, Traces
from ringbatch.bench.load.http1 import Http1
from ringbatch.bench.load.outcome import WRONG, Outcome, together
from ringbatch.frontend.codec.request_ids import sound_trace

ANSWER = b'HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{"predictions": [1]}'
SECOND = 1_000_000_000


# Arrivals


def test_poisson_s_gaps_are_as_long_as_chance_makes_them() -> None:
    times = Arrivals(Kind.POISSON, 100, 500, seed=3).times_ns()
    gaps = np.diff(times) / 1e9
    assert len(times) == pytest.approx(50_000, rel=0.02)
    assert gaps.mean() == pytest.approx(1 / 500, rel=0.02)
    # The standard deviation of an exponential is its mean, and e^-1 of its gaps are longer.
    assert gaps.std() == pytest.approx(1 / 500, rel=0.02)
    assert (gaps > 1 / 500).mean() == pytest.approx(np.exp(-1), abs=0.01)


def test_constant_arrivals_are_evenly_spread() -> None:
    times = Arrivals(Kind.CONSTANT, 2, 4000).times_ns()
    assert len(times) == 8000
    assert set(np.diff(times).tolist()) == {250_000}


def test_bursts_come_at_one_instant() -> None:
    times = Arrivals(Kind.BURST, 50, 1000, burst=10, seed=1).times_ns()
    _, counts = np.unique(times, return_counts=True)
    assert set(counts.tolist()) == {10}
    assert len(times) == pytest.approx(50_000, rel=0.05)


def test_replayed_arrivals_are_those_recorded_up_to_the_end() -> None:
    arrivals = Arrivals(Kind.REPLAY, 2, recorded_ns=recorded("# seconds\n100.5\n100\n\n103\n"))
    assert arrivals.times_ns().tolist() == [0, SECOND // 2]


@pytest.mark.parametrize(
    ("text", "words"),
    [("1\nsoon\n", "line 2: found 'soon'"), ("nan", "line 1"), ("# nothing", "there is no time")],
)
def test_a_record_that_is_none_is_refused_with_its_line(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        recorded(text)


@given(st.sampled_from([Kind.POISSON, Kind.CONSTANT, Kind.BURST]), st.integers(1, 5))
def test_parts_of_a_plan_are_the_plan(kind: Kind, parts: int) -> None:
    arrivals = Arrivals.from_object(Arrivals(kind, 2, 700, seed=9).as_object())
    whole = arrivals.times_ns()
    shares = [arrivals.times_ns()[part::parts] for part in range(parts)]
    assert sorted(np.concatenate(shares).tolist()) == whole.tolist()
    assert (np.diff(whole) >= 0).all()
    assert (whole < 2 * SECOND).all()


# Answers


@given(st.integers(0, len(ANSWER) - 1))
def test_an_answer_is_whole_only_at_its_end(cut: int) -> None:
    head = read_head(ANSWER[:cut])
    assert head is None or head.size > cut
    whole = read_head(ANSWER)
    assert whole == (200, len(ANSWER), len(ANSWER) - 20, False)


def test_headers_of_an_answer_are_read_in_any_case() -> None:
    head = read_head(b"HTTP/1.1 503 No\r\ncontent-length:0\r\nCONNECTION: Close\r\n\r\n")
    assert head is not None
    assert (head.status, head.closes) == (503, True)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "not HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "without Content-Length"),
        (b"HTTP/1.1 abc\r\nContent-Length: 0\r\n\r\n", "without a status"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000, "more than 64 KiB"),
    ],
)
def test_an_invalid_answer_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(BadAnswer, match=words):
        read_head(data)


@pytest.mark.parametrize(
    ("found", "right"),
    [
        (b'{"message":"","batchId":"b","predictions":[[1.5,"a"]]}', True),
        (b'{"message":"","batchId":"c","predictions":[[1.5001,"a"]]}', True),
        (b'{"message":"","batchId":"c","predictions":[[1.6,"a"]]}', False),
        (b'{"message":"","batchId":"c","predictions":[[1.5,"b"]]}', False),
        (b'{"message":"","batchId":"c","predictions":[[1.5,"a"],[1.5,"a"]]}', False),
        (b'{"message":"","batchId":"c","predictions":null}', False),
        (b"\x00binary", False),
    ],
)
def test_an_answer_is_right_where_only_its_batch_differs(found: bytes, right: bool) -> None:
    reference = Reference.of(b'{"message":"","batchId":"a","predictions":[[1.5,"a"]]}')
    assert reference.is_met_by(found) is right


# Requests


@pytest.mark.parametrize(
    ("headers", "hosts"),
    [([("X-Key", "k")], ["a:1"]), ([("HOST", "model.example.com")], ["model.example.com"])],
)
def test_a_request_has_one_host(headers: list[tuple[str, str]], hosts: list[str]) -> None:
    head, _, body = post("a:1", "/", b"question", headers).partition(b"\r\n\r\n")
    lines = [line.partition(": ") for line in head.decode().splitlines()[1:]]
    assert [value for name, _, value in lines if name.lower() == "host"] == hosts
    assert body == b"question"


# Outcomes


def outcome(due: list[int], took: list[int], statuses: list[int]) -> Outcome:
    """Return the outcome of a run of a second."""
    return Outcome(
        np.asarray(due, np.int64),
        np.asarray(took, np.int64),
        np.zeros(len(due), np.int64),
        np.asarray(statuses, np.int16),
        1.0,
        0,
        1,
        {"late": 1},
    )


def test_goodput_counts_answers_that_are_right_in_time_and_within_the_run() -> None:
    ms = 1_000_000
    found = outcome(
        [0, 100 * ms, 200 * ms, 995 * ms, 300 * ms],
        [5 * ms, 50 * ms, 5 * ms, 8 * ms, 5 * ms],
        [200, 200, 503, 200, WRONG],
    )
    assert found.rate_per_s() == 2
    assert found.goodput_per_s(20) == 1


def test_outcomes_of_several_are_one_in_the_order_of_time() -> None:
    a, b = outcome([0, 20], [1, 2], [200, 503]), outcome([10], [3], [200])
    sent = Outcome.unpacked(a.packed())
    whole = together([sent, b])
    assert whole.due_ns.tolist() == [0, 10, 20]
    assert whole.took_ns.tolist() == [1, 3, 2]
    assert whole.statuses.tolist() == [200, 200, 503]
    assert whole.connections == 2
    assert whole.problems == {"late": 2}


def test_windows_are_medians_of_parts_of_the_run() -> None:
    due = [n * SECOND // 100 for n in range(100)]
    found = outcome(due, [1_000_000] * 50 + [2_000_000] * 50, [200] * 100)
    assert found.windows(4) == [1.0, 1.0, 2.0, 2.0]


def test_each_request_may_have_a_trace_of_its_own() -> None:
    message = post("x", "/p", b"question")
    side = Http1(Requests([message]), Traces(7))
    asked = [side.ask(0, 0) for _ in range(2)]
    lines = [set(one.split(b"\r\n")) - set(message.split(b"\r\n")) for one in asked]
    traces = [line.removeprefix(b"traceparent: ") for (line,) in lines]
    assert all(map(sound_trace, traces))
    assert len({*traces}) == 2
    assert all(one.endswith(b"\r\n\r\nquestion") for one in asked)
