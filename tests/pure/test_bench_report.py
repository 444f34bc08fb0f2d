"""Reports of runs: their figures, the runs that are void, and the comparison of two results."""

from dataclasses import replace
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from bench_results import RATE, outcome, point, result
from tiers import first_of

from ringbatch.bench.command.measurement import trial_of
from ringbatch.bench.command.settings import Settings, rates_of
from ringbatch.bench.load.arrivals import Kind
from ringbatch.bench.load.outcome import BROKEN, UNANSWERED, WRONG, Outcome
from ringbatch.bench.report import svg
from ringbatch.bench.report.document import markdown
from ringbatch.bench.report.page import page
from ringbatch.bench.report.point import Point
from ringbatch.bench.report.result import Result
from ringbatch.bench.report.slo import Slo
from ringbatch.bench.report.words import knee
from ringbatch.bench.served.machine import CpuTimes, cpu_model, others_share
from ringbatch.bench.served.metrics import between, parse
from ringbatch.bench.served.signature import Input, inputs_of, protocol_of, v1_body, v2_body
from ringbatch.bench.statistics.knee import Trial

# A point


def test_a_sound_run_has_figures() -> None:
    found = point(RATE, [outcome(), outcome(seed=1)])
    assert found.void == ()
    assert found.figures["rate /s"] == pytest.approx(1000, rel=0.02)
    assert found.figures["p50 ms"] == pytest.approx(5, rel=0.05)
    assert found.figures["batch size"] == 4
    assert found.rounds["cpu us"] == [28.0, 28.0]
    assert found.statuses == {"status 200": 2000}
    assert found.observed is not None
    assert found.observed.reasons == {"idle": 160, "full": 40}
    assert Point.from_object(found.as_object()) == found


@pytest.mark.parametrize(
    ("rounds", "words"),
    [
        ([outcome(lag_ms=2.1)], "the generator was late"),
        ([outcome(), outcome(lag_ms=2.1)], "the generator was late"),
        ([outcome(statuses={BROKEN: 11})], "11 of 1000 connections broke: the server closed"),
        ([outcome(statuses={WRONG: 1})], "1 of 1000 answers were not the right one"),
        ([outcome(statuses={400: 1})], "1 of 1000 with status 400"),
        ([outcome(statuses={503: 1000})], "no request was answered with status 200: status 503"),
        ([outcome(statuses={UNANSWERED: 1000})], "no answer until the run was over (1000)"),
        ([outcome(0)], "no request was sent"),
    ],
)
def test_a_void_run_says_why_and_has_no_figure(rounds: list[Outcome], words: str) -> None:
    found = point(RATE, rounds)
    assert words in "; ".join(found.void)
    assert (found.figures, found.rounds, found.curve, found.observed) == ({}, {}, (), None)


def test_lag_is_no_matter_where_nothing_is_due() -> None:
    assert point(replace(RATE, rate_per_s=None), [outcome(lag_ms=30)]).void == ()


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (outcome(statuses={UNANSWERED: 3}), "3 requests had no answer"),
        (outcome(held_back=7), "7 requests waited for one of 8 connections"),
        (outcome(661), "661 samples are too few for p99"),
        (outcome(5), "5 samples are too few for p50 and p90 and p99"),
    ],
)
def test_a_fact_that_qualifies_a_figure_is_noted(made: Outcome, words: str) -> None:
    assert words in "; ".join(point(RATE, [made]).notes)


def test_a_run_that_drifts_has_no_steady_state() -> None:
    made = outcome()
    drifting = replace(made, took_ns=(made.took_ns * np.linspace(1, 2, made.count)).astype(int))
    assert "no steady state in 1 of 1 rounds" in point(RATE, [drifting]).notes[0]
    assert point(RATE, [made]).notes == ()


@pytest.mark.parametrize(
    ("made", "trial"),
    [
        (outcome(took_ms=5), Trial.HELD),
        (outcome(took_ms=50), Trial.MISSED),
        (outcome(statuses={503: 9}), Trial.HELD),
        (outcome(statuses={503: 20}), Trial.MISSED),
        (outcome(lag_ms=9), Trial.VOID),
        (outcome(300), Trial.VOID),
    ],
)
def test_a_rate_holds_the_limit_or_not_or_nothing_is_known(made: Outcome, trial: Trial) -> None:
    assert trial_of(point(RATE, [made]), Slo(20))[0] is trial


# What is measured, and for how long


def test_rates_lie_below_and_above_the_knee() -> None:
    rates = rates_of(Settings(), 1000, 2000)
    assert rates == [100, 250, 500, 750, 900, 1000, 2500, 4000, 8000]
    assert rates_of(Settings(rates=(5, 3)), 1000, 2000) == [3, 5]
    assert rates_of(Settings(), 0, 100)[-1] == 400


def test_slow_models_get_longer_runs_within_reason() -> None:
    settings = Settings(seconds=2)
    assert settings.run_s(10_000, 5) == 2
    assert settings.run_s(50, 5) == 3.2
    assert settings.run_s(0.1, 5) == 16
    assert settings.knee_s(10_000) == 4


@pytest.mark.parametrize("arrivals", [Kind.POISSON, Kind.REPLAY])
def test_the_longest_duration_is_longer_than_the_usual_one(arrivals: Kind) -> None:
    usual, longest = Settings(arrivals=arrivals, trace=(0, 10**9)).duration_s()
    assert 10 < usual < longest


# Documents


class Words(HTMLParser):
    """The text of a page, and what it asks others for."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text, self.asked, self.tags = "", [""], [""]
        self.feed(text)

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.asked += [value or "" for name, value in attrs if name in ("src", "href")]


def test_the_page_has_every_chart_and_needs_nothing_else() -> None:
    found = page(result())
    words = Words(found)
    assert words.tags.count("svg") == 7
    assert set(words.asked) == {"", "data:,"}
    assert "script" not in words.tags
    assert "http" not in found.replace("http-equiv", "")
    assert "ringbatch bench: <mnist>" in words.text
    assert "Others were <busy>." in words.text
    assert "knee 1000/s" in words.text
    for svg_text in found.split("<svg")[1:]:
        drawing = ElementTree.fromstring("<svg" + svg_text.partition("</svg>")[0] + "</svg>")
        assert list(drawing)


def test_void_runs_have_no_figure_in_any_document() -> None:
    lines = markdown(result()).splitlines()
    (row,) = [line for line in lines if line.startswith("| 9,000")]
    assert row.replace(" ", "") == "|9,000requests/s|void|||||||"
    assert any("9,000 requests/s: void: the generator was late" in line for line in lines)
    words = Words(page(result())).text
    assert "9,000 requests/svoid" in words


def test_the_knee_is_shown_beyond_every_rate_that_has_figures() -> None:
    found = {"rate_per_s": 5000.0, "missed_per_s": None, "why": "it may hold more"}
    assert "knee 5000/s" in page(replace(result(), knee=found))


def test_a_page_of_nothing_but_void_runs_has_no_chart() -> None:
    void = result().points[2]
    assert "<svg" not in page(replace(result(), points=(void,)))


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"rate_per_s": 1000.0, "missed_per_s": 1050.0, "why": ""}, "1,050 are not"),
        ({"rate_per_s": 2000.0, "missed_per_s": None, "why": "it may hold more"}, "; it may hold"),
        (
            {"rate_per_s": 0.0, "missed_per_s": 1.0, "why": "none held"},
            "1,000 requests/s are answered with a p99 within 20 ms in the rounds; the short search "
            "before them found none: none held.",
        ),
        (
            {"rate_per_s": 700.0, "missed_per_s": 800.0, "why": ""},
            "1,000 requests/s are answered with a p99 within 20 ms in the rounds; the short search "
            "before them found 700.",
        ),
        ({}, ""),
    ],
)
def test_the_knee_is_a_sentence(found: dict[str, Any], words: str) -> None:
    sentence = knee(replace(result(), knee=found))
    assert words in sentence
    assert bool(sentence) is bool(found)


@pytest.mark.parametrize("knee_per_s", first_of([700.0, None, 100.0, 1000.0, 3000.0], 1))
@pytest.mark.parametrize(
    "rows",
    [{}, *({500.0: a, 1000.0: b, 2000.0: c} for a in (5, 50) for b in (5, 50) for c in (5, 50))],
)
def test_no_row_contradicts_the_headline(
    rows: dict[float, float], knee_per_s: float | None
) -> None:
    """No row at or below the reported rate missed the limit, and no higher row kept it."""
    points = tuple(
        point(replace(RATE, title=f"{rate:g}", rate_per_s=rate), [outcome(2000, took_ms)])
        for rate, took_ms in rows.items()
    )
    sought = {"rate_per_s": knee_per_s or 0.0, "missed_per_s": 4000.0, "why": ""}
    found = replace(result(), points=points, knee=sought)
    missed = [rate for rate, took_ms in rows.items() if took_ms > 20]
    held = [rate for rate, took_ms in rows.items() if took_ms < 20 and rate < min([*missed, 1e9])]
    given_rate, sentence = found.knee_per_s, knee(found)
    assert given_rate is None or all(rate > given_rate for rate in missed)
    assert given_rate is None or sentence.startswith(f"{given_rate:,.0f} requests/s are answered")
    assert (given_rate or 0) >= max(held, default=0)
    if missed and knee_per_s and min(missed) <= knee_per_s:
        assert f"but in the rounds {min(missed):,.0f} were not" in sentence
    assert "20 ms" in page(found)


def test_a_result_survives_its_file() -> None:
    made = result()
    assert Result.from_json(made.as_json()) == made


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"no", "no JSON"),
        (b"[]", "no result of ringbatch bench"),
        (b'{"format": 2}', "its format is 2, but it must be 1"),
        (b'{"format": 1}', "lacks what a result has"),
    ],
)
def test_a_text_that_is_no_result_is_refused(text: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Result.from_json(text)


@pytest.mark.parametrize("values", [[0.0], [], [3.0], [0.004], [7e5, 1.0], [99.0, 101.0]])
def test_axes_hold_every_value(values: list[float]) -> None:
    for axis in (svg.linear("x", values), svg.logarithmic("y", values)):
        assert all(-1e-9 <= axis.place(value) <= 1 + 1e-9 for value in values if value > 0)
        places = [axis.place(value) for value, _ in axis.ticks]
        assert places == sorted(places)
        assert 2 <= len(places) <= 30


# What is asked, and what the engine says


def test_requests_are_made_up_from_a_models_inputs() -> None:
    inputs = inputs_of(
        {
            "inputs": [
                {"name": "x", "datatype": "FP32", "shape": [-1, 2, 3]},
                {"name": "words", "datatype": "BYTES", "shape": [-1, -1]},
                {"name": "n", "datatype": "INT64", "shape": [-1]},
            ]
        }
    )
    assert inputs[0] == Input("x", "FP32", (2, 3), True)
    assert inputs[1].shape == (16,)
    random = np.random.default_rng(0)
    for make, protocol in ((v1_body, "v1"), (v2_body, "v2")):
        body = make(inputs, random)
        assert protocol_of(body) == protocol
        assert body != make(inputs, random)
    assert protocol_of(v1_body(inputs[:1], random)) == "v1"


@pytest.mark.parametrize("body", [b"", b"[1]", b'{"instances": 3}', b'{"x": 1}'])
def test_a_body_that_is_no_request_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"no JSON|neither"):
        protocol_of(body)


EARLIER = """\
# HELP ringbatch_x words
ringbatch_request_seconds_count{model="m",version="1"} 10
ringbatch_request_seconds_sum{model="m",version="1"} 1.0
ringbatch_model_queue_seconds_count{model="m",version="1"} 10
ringbatch_model_queue_seconds_sum{model="m",version="1"} 0.5
ringbatch_process_cpu_seconds_total{process="frontend 0"} 1.0
"""
LATER = """\
ringbatch_request_seconds_count{model="m",version="1"} 110
ringbatch_request_seconds_count{model="other",version="1"} 900
ringbatch_request_seconds_sum{model="m",version="1"} 2.0
ringbatch_model_queue_seconds_count{model="m",version="1"} 110
ringbatch_model_queue_seconds_sum{model="m",version="1"} 0.7
ringbatch_model_executed_parts_total{model="m",version="1"} 100
ringbatch_model_infer_seconds_total{model="m",version="1"} 0.3
ringbatch_model_batches_total{model="m",version="1",reason="idle"} 25
ringbatch_model_batches_total{model="m",version="1",reason="full"} 0
ringbatch_model_batch_instances_count{model="m",version="1"} 25
ringbatch_model_batch_instances_sum{model="m",version="1"} 100
ringbatch_process_cpu_seconds_total{process="frontend 0"} 1.001
ringbatch_process_cpu_seconds_total{process="frontend 1"} 0.001
ringbatch_process_cpu_seconds_total{process="worker m/0"} 0.002
no metric
"""


def test_the_difference_of_two_samples_is_that_of_the_model() -> None:
    found = between(parse(EARLIER), parse(LATER), "m")
    assert found is not None
    assert (found.batches, found.instances, found.reasons) == (25, 100, {"idle": 25})
    assert found.cpu_us == pytest.approx({"frontend": 20.0, "worker m": 20.0})
    assert found.stages_ms["waits for its batch"] == pytest.approx(2)
    assert found.stages_ms["model"] == pytest.approx(3)
    assert sum(found.stages_ms.values()) == pytest.approx(10)
    assert between(parse(LATER), parse(LATER), "m") is None


@pytest.mark.parametrize(("share", "is_stated"), [(0.0, False), (0.05, False), (0.34, True)])
def test_the_headline_says_that_other_work_was_measured_too(share: float, is_stated: bool) -> None:
    one = replace(
        result(), knee={"rate_per_s": 5800.0, "missed_per_s": 6100.0, "why": ""}, others_share=share
    )
    words = "Beside other work, which took up to 34% of the CPUs in a run: 5,800 requests/s"
    for text in (markdown(one), page(one)):
        assert (words in text) is is_stated
        assert "5,800 requests/s are answered" in text
    assert Result.from_json(one.as_json()) == one


@pytest.mark.parametrize(
    ("before", "after", "share"),
    [
        (CpuTimes(10, 50, 1, 40), CpuTimes(12, 53, 1, 43), 0.0),  # all of it is ours
        (CpuTimes(10, 50, 1, 40), CpuTimes(12, 53, 1, 41), 0.5),
        (CpuTimes(10, 50, 1, 40), CpuTimes(12, 52, 2, 42), 0.25),  # stolen
        (CpuTimes(10, 50, 1, 40), CpuTimes(12, 51, 1, 42), 0.0),  # ticks are coarse
        (CpuTimes(10, 50, 1, None), CpuTimes(12, 54, 2, None), 0.25),  # of whom, is not known
        (CpuTimes(10, 50, 1, 40), CpuTimes(12, 90, 1, 40), 1.0),
        (CpuTimes(10, 50, 1, 40), CpuTimes(10, 50, 1, 40), 0.0),
    ],
)
def test_cpu_time_of_others_is_a_share_of_all_cpus(
    before: CpuTimes, after: CpuTimes, share: float
) -> None:
    assert others_share(before, after, cpus=2) == share


@pytest.mark.parametrize(
    ("cpuinfo", "named"),
    [
        ("processor\t: 0\nmodel name\t: AMD EPYC\nflags\t: fpu\n", "AMD EPYC"),
        (
            "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\n"
            "CPU architecture: 8\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\n",
            "implementer 0x41, part 0xd0c",
        ),
        ("processor\t: 0\nCPU part\t: 0xd0c\n", ""),
        ("", ""),
    ],
)
def test_the_processor_is_named_as_linux_names_it(cpuinfo: str, named: str) -> None:
    assert cpu_model(cpuinfo) == named
