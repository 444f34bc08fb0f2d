"""LoadGen as a judge: what it is told, what its logs say, and what is made of that."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from ringbatch.bench.command.judgement import expect_judge, trial_of, words_of_run
from ringbatch.bench.command.settings import JUDGE_STEPS, Settings
from ringbatch.bench.load.answers import Reference
from ringbatch.bench.load.arrivals import Kind
from ringbatch.bench.load.exchange import Requests
from ringbatch.bench.load.infer_message import infer_request
from ringbatch.bench.load.outcome import BROKEN, UNANSWERED, WRONG
from ringbatch.bench.load.target import Target, Wire
from ringbatch.bench.loadgen.answers import compared, is_right, text_of_arrays
from ringbatch.bench.loadgen.judgement import Compared, Judgement, Run, Sent, judged
from ringbatch.bench.loadgen.logs import BadLog, Logged, Said, logged, said
from ringbatch.bench.loadgen.order import Order
from ringbatch.bench.loadgen.plan import (
    MIN_QUERIES,
    NOT_A_RESULT,
    Mode,
    Plan,
    Scenario,
    accuracy_of,
    planned,
)
from ringbatch.bench.loadgen.queries import Queries
from ringbatch.bench.served.failures import CannotMeasure
from ringbatch.bench.statistics.knee import Knee, search

SERVER, OFFLINE = Scenario.SERVER, Scenario.OFFLINE


def plan(rate: float = 500.0, scenario: Scenario = SERVER, seconds: float = 10) -> Plan:
    return planned(scenario, rate, seconds=seconds, limit_ms=10, requests=16, connections=1024)


# What it is told


def test_a_run_is_long_enough_for_its_rate_and_says_so_by_loadgen_s_names() -> None:
    assert plan(500).settings() == {
        "min_duration_ms": 10_000,
        "max_duration_ms": 80_000,
        "min_query_count": 662,
        "server_target_qps": 500,
        "server_target_latency_ns": 10_000_000,
        "server_target_latency_percentile": 0.99,
        "server_coalesce_queries": True,
        "server_max_async_queries": 1024,
    }
    found = plan(900, OFFLINE, 2).settings()
    assert found == {
        "min_duration_ms": 2000,
        "max_duration_ms": 16_000,
        "min_query_count": 662,
        "offline_expected_qps": 900,
    }


def test_a_run_is_given_up_when_its_p99_is_lost_and_not_before() -> None:
    found = plan(20_000)
    assert found.waiting_max == 10_000
    assert found.waiting_max > 0.01 * 20_000 * 10


@pytest.mark.parametrize("rate", [0.0, -5.0, math.nan, math.inf])
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match=r"rate of .*, but it must be a number above 0"):
        plan(rate)


def test_answers_are_compared_for_as_many_samples_as_fit() -> None:
    assert accuracy_of(plan(500)).samples == 4096
    assert accuracy_of(plan(10)).samples == 112
    assert accuracy_of(plan(0.01)).samples == 16
    found = accuracy_of(plan(500))
    assert found.mode is Mode.ACCURACY
    assert Plan.from_object(orjson.loads(orjson.dumps(found.as_object()))) == found


def test_loadgen_s_thread_rests_for_a_fiftieth_of_the_limit_at_most() -> None:
    def order(limit_ms: float) -> Order:
        made = replace(plan(), limit_ms=limit_ms)
        return Order(Target("a", 1), Requests([b"x"], (), b"h"), made, Path("logs"), 8, 2.5)

    assert order(10).rest_s == order(500).rest_s == 0.0002
    assert order(1).rest_s == pytest.approx(0.00002)
    assert order(10).late_ns > 10_000_000
    assert Order.unpacked(order(10).packed()) == order(10)


# The search


def found_by(limit: float, first: float, above: str = "INVALID") -> tuple[Knee, int]:
    """What is found of a server that holds a rate, and after how many runs.

    Args:
        limit: the highest rate that is VALID.
        first: the one to begin with.
        above: what runs above the limit come to.
    """
    rates = search(first, JUDGE_STEPS)
    rate = next(rates)
    for tries in range(1, 99):
        run = Run(SERVER, rate, "VALID" if rate <= limit else above, (), {}, {})
        try:
            rate = rates.send(trial_of(run))
        except StopIteration as end:
            return end.value, tries
    raise AssertionError("the search does not end")


@pytest.mark.parametrize("share", [0.55, 0.8, 0.97, 1.0, 1.2, 1.45])
def test_the_rate_is_found_within_a_twentieth_of_what_the_server_holds(share: float) -> None:
    knee, tries = found_by(10_000 * share, 10_000)
    assert 0.93 * 10_000 * share <= knee.rate_per_s <= 10_000 * share
    assert knee.missed_per_s is not None
    assert tries <= JUDGE_STEPS


def test_a_rate_that_cannot_be_made_bounds_the_search_and_is_told() -> None:
    knee, _ = found_by(100, 100, "void")
    assert knee.rate_per_s == 100
    assert knee.missed_per_s is None
    assert "the generator cannot make the rate" in knee.why


# Its logs


def entry(key: str, value: Any, *, is_error: bool = False) -> str:
    plain = {"key": key, "value": value, "metadata": {"is_error": is_error, "file": "a.cc"}}
    return f":::MLLOG {orjson.dumps(plain).decode()}"


def detail(**more: Any) -> str:
    values = {
        "loadgen_version": "6.0.17 @ d6147c7eb7",
        "requested_server_target_qps": 500,
        "result_validity": "VALID",
        "result_perf_constraints_met": True,
        "result_min_duration_met": True,
        "result_min_queries_met": True,
        "early_stopping_met": True,
        "result_query_count": 5021,
        "result_scheduled_samples_per_sec": 502.1,
        "result_completed_samples_per_sec": 501.8,
        "result_mean_latency_ns": 1_300_000,
        "result_50.00_percentile_latency_ns": 1_200_000,
        "result_99.00_percentile_latency_ns": 3_200_000,
        "result_99.90_percentile_latency_ns": 3_500_000,
        **more,
    }
    return "\n".join([*(entry(key, value) for key, value in values.items()), ""])


def test_the_log_of_a_run_is_read() -> None:
    found = said(detail())
    assert (found.version, found.valid, found.why, found.queries) == ("6.0.17", True, (), 5021)
    assert found.figures == {
        "rate /s": 501.8,
        "mean ms": 1.3,
        "p50 ms": 1.2,
        "p99 ms": 3.2,
        "p99.9 ms": 3.5,
    }


def test_what_was_missed_and_errors_are_said_in_words() -> None:
    missed = {"result_perf_constraints_met": False, "result_min_duration_met": False}
    text = detail(result_validity="INVALID", early_stopping_met=False, **missed)
    text += entry("error_runtime", "Ending early: Too many outstanding queries.", is_error=True)
    found = said(text)
    assert found.valid is False
    assert found.why == (
        "missed: 99 of 100 answers within the limit",
        "missed: its shortest duration",
        "missed: enough queries to be sure of the p99",
        "Ending early: Too many outstanding queries.",
    )


def test_a_run_in_which_answers_are_compared_has_no_verdict() -> None:
    assert said(entry("loadgen_version", "6.0.17 @ d6")) == Said("6.0.17", None)


@pytest.mark.parametrize("text", ["", "nothing", detail()[:-40], ":::MLLOG {}"])
def test_a_log_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(BadLog, match="LoadGen's log"):
        said(text)


def test_the_log_of_answers_is_read() -> None:
    text = b'[\n{ "seq_id" : 0, "qsl_idx" : 48, "data" : "7B22" },\n'
    text += b'{ "seq_id" : 1, "qsl_idx" : 3, "data" : "" }\n]'
    assert logged(text) == [Logged(48, b'{"'), Logged(3, b"")]
    for broken in (text[:-2], b'[{"qsl_idx": 1}]', b'[{"qsl_idx": 1, "data": "7"}]'):
        with pytest.raises(BadLog, match="log of answers cannot be read"):
            logged(broken)


# Answers


V1 = [b'{"predictions":[[1.0,2.0]]}', b'{"predictions":[[3.0,4.0]]}']
V2 = orjson.dumps(
    {
        "model_name": "m",
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]}],
    }
)


def test_every_answer_is_held_against_the_right_one() -> None:
    entries = [Logged(n, V1[n % 2].replace(b"2.0", b"2.0001")) for n in range(6)]
    assert compared(SERVER, entries, 6, Wire.HTTP1, V1) == Compared(SERVER, 6, 0, 0)
    swapped = [Logged(entry.sample + 1, entry.data) for entry in entries[:5]]
    found = compared(SERVER, swapped, 6, Wire.HTTP1, V1)
    assert found == Compared(SERVER, 5, 5, 1)
    assert not found.right
    refused = [*entries[:5], Logged(5, b"")]
    assert compared(OFFLINE, refused, 6, Wire.HTTP1, V1) == Compared(OFFLINE, 6, 1, 0)
    assert not compared(SERVER, [], 6, Wire.HTTP1, V1).right


def test_a_client_s_answer_is_held_against_that_over_v2() -> None:
    right = Reference.of(V2)
    rows = np.array([[1, 2]], np.float32)
    for found in (rows, {"y": rows}):
        assert is_right(Wire.CLIENT, right, text_of_arrays(found))
    for wrong in (rows + 1, rows.reshape(2, 1), {"z": rows}, {"y": rows, "z": rows}):
        assert not is_right(Wire.CLIENT, right, text_of_arrays(wrong))
    assert not is_right(Wire.CLIENT, right, b"")


def test_texts_of_a_client_are_compared_too() -> None:
    tensor = {"name": "y", "datatype": "BYTES", "shape": [1], "data": ["a"]}
    right = Reference.of(orjson.dumps({"outputs": [tensor]}))
    assert is_right(Wire.CLIENT, right, text_of_arrays(np.array([b"a"], object)))
    assert not is_right(Wire.CLIENT, right, text_of_arrays(np.array([b"b"], object)))


def test_what_is_no_message_of_grpc_is_wrong() -> None:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}
    request = infer_request("m", orjson.dumps({"inputs": [tensor]}))
    for data in (b"", b"\xff", request):
        assert not is_right(Wire.GRPC, Reference.of(V2), data)


# What LoadGen is told


class Told:
    """What LoadGen was told, and a clock."""

    def __init__(self) -> None:
        self.found: list[tuple[int, bytes]] = []
        self.calls = 0
        self.queries = Queries(self.complete)

    def complete(self, answered: Sequence[tuple[int, bytes]]) -> None:
        self.found += answered
        self.calls += 1


def test_answers_are_told_together_and_each_once() -> None:
    told = Told()
    for query in range(40):
        number = told.queries.begin(1000 + query, 5, 7)
        told.queries.end(number, 200, 20, b"a")
        # A second end comes where a query was given up.
        told.queries.end(number, 200, 30, b"b")
    assert (told.calls, len(told.found)) == (2, 32)
    told.queries.tell()
    assert told.found == [(1000 + query, b"a") for query in range(40)]
    found = told.queries.sent({}, 0)
    assert found == Sent({200: 40}, {}, 2e-6, 15e-6, 0)


def test_a_query_without_an_answer_is_told_when_it_is_late() -> None:
    told = Told()
    refused, answered, lost = (told.queries.begin(query, 0, 0) for query in (1, 2, 3))
    told.queries.end(refused, 503, 10, b"no")
    told.queries.end(answered, 200, 10, b"yes")
    told.queries.tell()
    assert told.found == [(2, b"yes")]
    told.queries.finish(500, 100, 900)
    assert told.found == [(2, b"yes")]
    told.queries.finish(900, 100, 900)
    assert told.found == [(2, b"yes"), (1, b""), (3, b"")]
    told.queries.end(lost, 200, 1000, b"late")
    told.queries.tell()
    assert told.found[3:] == []
    assert told.queries.under_way == 0
    assert told.queries.sent({"x": 1}, 4).statuses == {200: 1, 503: 1, UNANSWERED: 1}


def test_what_was_refused_waits_until_it_is_later_than_the_limit() -> None:
    told = Told()
    told.queries.end(told.queries.begin(1, 0, 0), BROKEN, 10, b"")
    told.queries.finish(99, 100, 900)
    assert told.found == []
    told.queries.finish(100, 100, 900)
    assert told.found == [(1, b"")]


# A verdict


def sent(lag_ms: float = 0.1, took_ms: float = 1.2, **statuses: int) -> Sent:
    counts = {200: 5000, **{int(key[1:]): count for key, count in statuses.items()}}
    return Sent(counts, {}, lag_ms, took_ms, 0)


def verdict(valid: bool, found: Sent, scenario: Scenario = SERVER) -> Run:
    word = "VALID" if valid else "INVALID"
    return judged(scenario, 500, said(detail(result_validity=word)), found, 2.5)


def test_a_verdict_is_loadgen_s_and_the_lag_is_told() -> None:
    found = verdict(True, sent())
    assert found.valid
    assert found.figures["lag p99 ms"] == 0.1
    assert found.figures["late mean ms"] == pytest.approx(0.1)
    assert "VALID, p99 3.2 ms, sender 0.1 ms late" in words_of_run(found)
    assert verdict(False, sent()).verdict == "INVALID"


def test_an_invalid_run_is_void_where_the_sender_was_late_and_a_valid_one_is_not() -> None:
    assert verdict(True, sent(lag_ms=3)).valid
    found = verdict(False, sent(lag_ms=3))
    assert found.void
    assert found.figures == {}
    assert "the sender was late, its p99 3 ms" in found.why[0]
    assert verdict(False, replace(sent(), took_mean_ms=-9.0)).void


def test_queries_without_the_right_answer_are_said() -> None:
    found = judged(
        SERVER,
        500,
        said(detail(result_validity="INVALID")),
        Sent({200: 4000, 503: 1000, BROKEN: 3}, {"Connection refused": 3}, 0.1, 1, 0),
        2.5,
    )
    assert found.verdict == "INVALID"
    assert found.why == (
        "1003 queries without the right answer (3 the connection broke, 4000 status 200, "
        "1000 status 503)",
        "Connection refused",
    )
    wrong = Sent({200: 4000, WRONG: 1}, {}, 0.1, 1, 0)
    assert judged(SERVER, 500, said(detail()), wrong, 2.5).void
    lost = Sent({200: 4000, 503: 1}, {}, 0.1, 1, 0)
    assert judged(SERVER, 500, said(detail()), lost, 2.5).valid
    assert judged(OFFLINE, 500, said(detail()), lost, 2.5).void


def judgement() -> Judgement:
    """Of a server that holds 1,000 queries/s."""
    good = verdict(True, sent())
    return Judgement(
        version="6.0.17",
        settings={
            "min_duration_ms": 10_000,
            "min_query_count": MIN_QUERIES,
            "connections": 1024,
            "offline_connections": 64,
        },
        runs=(good, verdict(False, sent(lag_ms=9)), replace(good, scenario=OFFLINE)),
        compared=(Compared(SERVER, 4096, 0, 0), Compared(OFFLINE, 4096, 0, 0)),
        server_per_s=980.0,
        missed_per_s=1020.0,
        why="",
    )


def test_a_judgement_survives_its_file_and_says_what_it_is_not() -> None:
    made = judgement()
    assert Judgement.from_object(orjson.loads(orjson.dumps(made.as_object()))) == made
    assert made.as_object()["note"] == NOT_A_RESULT
    assert "not an MLPerf result" in NOT_A_RESULT


def test_no_valid_rate_and_wrong_answers_are_failures() -> None:
    assert judgement().failures == []
    assert judgement().offline_per_s == 501.8
    bad = replace(judgement(), server_per_s=0.0, compared=(Compared(SERVER, 10, 1, 2),), runs=())
    assert bad.offline_per_s is None
    assert bad.failures == [
        "no rate was VALID in the scenario Server",
        "Server: of 10 answers 1 were not the right one, and 2 are missing",
    ]


# What it is asked for


def test_a_judge_that_is_not_there_is_told_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ringbatch.bench.command.judgement.is_installed", lambda: False)
    with pytest.raises(CannotMeasure, match=r"mlcommons-loadgen.*pip install .*\[bench-loadgen\]"):
        expect_judge(Settings(loadgen=True))
    expect_judge(Settings())


def test_other_arrivals_than_loadgen_s_are_refused() -> None:
    with pytest.raises(CannotMeasure, match="come as Poisson's, and burst arrivals"):
        expect_judge(Settings(loadgen=True, arrivals=Kind.BURST))


def test_what_is_said_to_be_the_longest_has_room_for_loadgen() -> None:
    without, with_it = (Settings(loadgen=one).duration_s() for one in (False, True))
    assert with_it[0] > without[0] + 5 * 10
    assert with_it[1] > with_it[0]
