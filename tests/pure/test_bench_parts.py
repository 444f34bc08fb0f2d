"""Figures of answers in parts: limits, goodput, percentiles, and the table of a result."""

from dataclasses import replace

import numpy as np
import pytest
from bench_results import MS, outcome, result

from ringbatch.bench.command.measurement import trial_of
from ringbatch.bench.command.settings import Settings
from ringbatch.bench.load.outcome import BROKEN, CUT_OFF, EMPTY, UNANSWERED, Outcome, together
from ringbatch.bench.load.parts import Parts
from ringbatch.bench.report.document import markdown
from ringbatch.bench.report.page import page
from ringbatch.bench.report.point import Asked, Point, judged
from ringbatch.bench.report.result import Result
from ringbatch.bench.report.slo import Slo
from ringbatch.bench.statistics.histogram import Histogram
from ringbatch.bench.statistics.knee import Trial

SLO = Slo(first_part_ms=50, gap_ms=10)
ASKED = Asked("1,000 requests/s", 1000.0, 64)


def streamed(
    count: int = 1000,
    first_ms: float = 20.0,
    gap_ms: float = 5.0,
    statuses: dict[int, int] | None = None,
    parts: int = 20,
    short: int = 0,
    busy: float = 0.3,
) -> Outcome:
    """Return a second's outcome with answers that are alike."""
    whole = outcome(count, first_ms + gap_ms * (parts - 1), statuses)
    gaps = np.full(count * (parts - 1), int(gap_ms * MS), np.int64)
    return replace(
        whole,
        parts=Parts(
            np.full(count, int(first_ms * MS), np.int64),
            np.full(count, int(gap_ms * MS), np.int64),
            np.full(count, parts, np.int32),
            Histogram.of(gaps),
            count * parts,
            short,
            busy,
        ),
    )


def point(*rounds: Outcome, slo: Slo = SLO) -> Point:
    return judged(ASKED, rounds, [None] * len(rounds), slo=slo, lag_max_ms=2)


# Limits


@pytest.mark.parametrize(
    ("first", "gap", "holds"),
    [(49.0, 9.0, True), (51.0, 9.0, False), (49.0, 11.0, False), (None, 9.0, None)],
)
def test_both_percentiles_are_within_their_limits(
    first: float | None, gap: float, holds: bool | None
) -> None:
    figures = {"p99 ms": 1e6, "gap p99 ms": gap}
    if first is not None:
        figures["first p99 ms"] = first
    assert SLO.holds(figures) is holds


def test_limits_have_words_and_are_kept_in_settings() -> None:
    assert Slo(20).words == "a p99 within 20 ms"
    assert SLO.words == "a p99 of first parts within 50 ms and a p99 of gaps within 10 ms"
    for slo in (Slo(20), SLO):
        assert Slo.of_settings(slo.as_settings()) == slo
    assert (SLO.strictest_ms, Slo(20).strictest_ms) == (10, 20)


def test_a_measurement_in_parts_is_held_to_their_limits() -> None:
    settings = Settings(stream=True, slo_first_part_ms=100, slo_gap_ms=40)
    assert settings.slo == Slo(first_part_ms=100, gap_ms=40)
    assert settings.lag_limit_ms == 10
    assert Settings(slo_ms=80).slo == Slo(80)


@pytest.mark.parametrize(
    ("made", "trial"),
    [
        (streamed(), Trial.HELD),
        (streamed(first_ms=60), Trial.MISSED),
        (streamed(gap_ms=12), Trial.MISSED),
        (streamed(statuses={CUT_OFF: 9}), Trial.HELD),
        (streamed(statuses={CUT_OFF: 20}), Trial.MISSED),
        (streamed(300), Trial.VOID),
    ],
)
def test_a_rate_of_answers_in_parts_holds_or_not(made: Outcome, trial: Trial) -> None:
    found, words = trial_of(point(made), SLO)
    assert found is trial
    if trial is Trial.HELD:
        assert "p99 of first parts 20" in words
        assert "p99 of gaps 5" in words


def test_a_rate_says_how_requests_ended_that_have_no_answer() -> None:
    _, words = trial_of(point(streamed(statuses={CUT_OFF: 3, EMPTY: 4})), SLO)
    assert ", 7 of 1000 not answered (" in words
    assert "3 an error event ended the answer" in words
    assert "4 an answer without a part" in words


# Figures


def test_an_answer_is_good_if_its_first_part_and_its_longest_gap_are() -> None:
    made = streamed(4, parts=3)
    assert made.parts is not None
    made.parts.first_ns[0] = 51 * MS
    made.parts.longest_ns[1] = 11 * MS
    assert SLO.goodput_per_s(made) == 2
    # The whole answer may take as long as it likes, but must end in the run.
    made.took_ns[2] = 2_000 * MS
    assert SLO.goodput_per_s(made) == 1


def test_percentiles_are_over_the_parts_of_all_rounds() -> None:
    quick, slow = streamed(700, gap_ms=2, parts=11), streamed(700, gap_ms=8, parts=11)
    figures = point(quick, slow).figures
    assert figures["gap p50 ms"] == pytest.approx(2, rel=0.02)
    assert figures["gap p99 ms"] == pytest.approx(8, rel=0.02)
    assert figures["parts /s"] == 7700
    assert figures["first p99 ms"] == pytest.approx(20, rel=0.02)


def test_answers_that_ended_early_are_counted_by_kind() -> None:
    made = streamed(statuses={CUT_OFF: 3, 503: 4, BROKEN: 2}, short=5)
    assert made.parts is not None
    made.parts.counts[3:8] = 0
    found = point(made)
    assert found.figures["cut off answers"] == 4
    assert found.figures["failed answers"] == 5
    assert found.figures["short answers"] == 5
    assert "4 answers were cut off behind a part" in found.notes
    assert "5 answers ended with fewer parts than the first to their request" in found.notes


def test_first_parts_are_those_of_answers_that_began_or_were_waited_for() -> None:
    made = streamed(4, statuses={503: 1, UNANSWERED: 1})
    assert made.parts is not None
    made.parts.counts[:2] = 0
    assert made.first_parts().total == 3


def test_a_generator_that_had_no_time_to_spare_is_noted() -> None:
    assert not point(streamed()).notes
    (note,) = point(streamed(busy=0.9)).notes
    assert note.startswith("a generator used 90 % of a CPU")


def test_parts_of_several_generators_are_one_in_the_order_of_time() -> None:
    a, b = streamed(2, first_ms=1, short=1), streamed(2, first_ms=2, short=2, busy=0.6)
    b = replace(b, due_ns=b.due_ns + 1)
    whole = together([Outcome.unpacked(a.packed()), Outcome.unpacked(b.packed())]).parts
    assert whole is not None
    assert (whole.first_ns / MS).tolist() == [1, 2, 1, 2]
    assert whole.gaps.total == 4 * 19
    assert (whole.in_run, whole.short, whole.busy) == (80, 3, 0.6)
    assert together([outcome(2), outcome(2)]).parts is None


# Documents


@pytest.fixture
def found() -> Result:
    plain = result()
    settings = {k: v for k, v in plain.settings.items() if k != "slo_ms"} | SLO.as_settings()
    made = point(streamed(), streamed())
    return replace(
        plain,
        settings=settings,
        lone=replace(made, asked=plain.lone.asked),
        closed=replace(made, asked=plain.closed.asked),
        points=(made, point(streamed(first_ms=60))),
    )


def test_the_table_has_the_times_of_parts(found: Result) -> None:
    text = markdown(Result.from_json(found.as_json()))
    assert "| first p50 ms | first p99 | gap p50 | gap p99 | whole p50 | whole p99 |" in text
    row = next(line for line in text.splitlines() if line.startswith("| closed loop"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    first, gap = float(cells[5]), float(cells[7])
    assert first == pytest.approx(20, rel=0.02)
    assert gap == pytest.approx(5, rel=0.02)
    assert "a p99 of first parts within 50 ms and a p99 of gaps within 10 ms" in text
    assert "that ask for events" in text


def test_the_page_draws_the_limit_of_gaps(found: Result) -> None:
    html = page(found)
    assert "limit of gaps 10 ms" in html
    assert "first part within 50 ms, each gap within 10 ms" in html
    assert "gap p99" in html
