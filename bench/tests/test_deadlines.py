"""Simulation of deadlines: run times, the engine with rows of unequal length, figures."""

import deadlines
import pytest
from deadlines import CAP, KINDS, LONG, Asked, Outcome, Runs
from load.virtual_engine import SECOND_NS, VirtualEngine, VirtualModel
from report.record import Report
from tiers import exhaustive

MILLISECOND_NS = SECOND_NS // 1000
GOOD, REFUSED, LATE = 200, 503, 504


@pytest.mark.parametrize(
    ("buckets", "ends_ms"),
    [((), [10, 10, 10]), ((1, LONG), [1, 11, 11])],
    ids=["one queue", "two buckets"],
)
def test_a_batch_takes_as_long_as_its_longest_row(
    buckets: tuple[int, ...], ends_ms: list[int]
) -> None:
    model = VirtualModel(
        lambda _rows, length: length * MILLISECOND_NS,
        4,
        policy="fixed",
        max_latency_s=0.02,
        lengths=True,
        length_buckets=buckets,
    )
    served = VirtualEngine([model], slots=64)
    began_ns, ends = served.time.now_ns + SECOND_NS // 50, list[float]()
    for length in (1, LONG, LONG):
        served.ask(
            lambda _status: ends.append((served.time.now_ns - began_ns) / MILLISECOND_NS),
            length=length,
        )
    served.time.run(began_ns + SECOND_NS)
    assert ends == ends_ms


def test_the_same_seed_gives_the_same_run_times_for_any_batches() -> None:
    kind = KINDS["one in ten long"]
    first, second = Runs(kind, 3), Runs(kind, 3)
    expected = [first(1, 1) for _ in range(100)]
    assert {*expected} == {5 * MILLISECOND_NS, 50 * MILLISECOND_NS}
    for run_ns in expected:
        assert second.next_ns == run_ns
        assert second(CAP, LONG) == run_ns


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if not kind.lengths])
def test_full_batches_take_the_mean_that_is_given(name: str) -> None:
    kind = KINDS[name]
    runs = Runs(kind, 4)
    mean_ms = sum(runs(CAP, 1) for _ in range(20_000)) / 20_000 / MILLISECOND_NS
    assert mean_ms == pytest.approx(kind.mean_ms, rel=0.03)
    assert kind.row_ms * CAP == pytest.approx(kind.mean_ms)


def test_requests_are_counted_by_how_they_end() -> None:
    asked = [
        Asked(0, 100, 1, REFUSED, 0),  # wrongly: one that came later was answered at 90
        Asked(1, 80, 1, REFUSED, 1),  # rightly: nothing later was answered before 80
        Asked(2, 102, 9, REFUSED, 2),  # of another length, where everything is late
        Asked(3, 103, 1, GOOD, 90),
        Asked(4, 104, 9, LATE, 104),
        Asked(5, 105, 1, GOOD, 5_000),  # a frontend's timer has its grain
        Asked(6, 106, 1, REFUSED, 6),  # nothing came later
        Asked(7, 107, 1, GOOD, 107),
    ]
    assert deadlines.outcome(asked) == Outcome(2 / 8, 1 / 8, 4 / 8, 2 / 8)


def test_a_simulation_repeats_itself_and_the_seed_matters() -> None:
    case = KINDS["two buckets"], 8, 0.3, "ringbatch", 300
    found = deadlines.simulate(*case, seed=1)
    assert deadlines.simulate(*case, seed=1) == found != deadlines.simulate(*case, seed=2)


def test_a_batch_that_leaves_the_mean_is_late_more_often() -> None:
    late = {
        one: deadlines.simulate(KINDS["around a mean"], 8, 0.1, one, 1_500, seed=1).late
        for one in deadlines.ESTIMATES
    }
    assert late["mean"] > 2 * late["ringbatch"] > 0 == late["true"]


@exhaustive
def test_the_worst_case_is_held_to_its_limit() -> None:
    found = {
        (kind, limit, load, estimate): Outcome(0.9, 0.0, 0.0, 0.1)
        for kind in KINDS
        for limit in deadlines.LIMITS
        for load in deadlines.LOADS
        for estimate in ("mean", "ringbatch")
    }
    found["two buckets", 8, 0.7, "ringbatch"] = Outcome(0.8, 0.0, 0.0, 0.2)
    report = Report("deadlines", {})
    deadlines.hold_to_limits(report, found)
    first, *others = report.limits
    assert not first.met
    assert first.value == pytest.approx(0.8 / 0.9)
    assert "two buckets" in first.name
    assert not any(limit.met for limit in others)
