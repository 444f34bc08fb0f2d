"""Comparisons of two results: worse, better, unlike, or without proof."""

from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pytest
from bench_results import outcome, point, result

from ringbatch.bench.load.outcome import WRONG
from ringbatch.bench.report.comparison import NotComparable, compared, shown, unlike
from ringbatch.bench.report.result import Result

# Comparison


def test_equal_results_differ_in_nothing() -> None:
    found = compared(result(), result(seed=7), 0.03, np.random.default_rng(0))
    assert len(found) == 4
    assert not any(one.worse or one.better for one in found)
    assert "nothing is proven" in shown(found, 0.03)


def test_a_slower_result_is_worse_and_a_quicker_one_better() -> None:
    quick, slow = result(5), result(8)
    found = {c.name: c for c in compared(quick, slow, 0.03, np.random.default_rng(0))}
    assert found["one at a time, p50 ms"].worse
    assert found["1,000 requests/s, p50 ms"].worse
    assert not found["closed loop, CPU µs a request"].worse
    assert "worse by more than 3%: one at a time" in shown(list(found.values()), 0.03)
    back = compared(slow, quick, 0.03, np.random.default_rng(0))
    assert next(one.name for one in back if one.better) == "one at a time, p50 ms"
    assert not any(one.worse for one in back)


def test_a_difference_within_the_threshold_is_no_alarm() -> None:
    found = compared(result(5), result(8), 0.9, np.random.default_rng(0))
    assert not any(one.worse for one in found)
    assert "differs, within the threshold" in shown(found, 0.9)


def test_a_difference_perhaps_within_the_threshold_is_no_alarm() -> None:
    """Its median is beyond, but so little that chance may have made it."""
    for earlier, later in ((5, 5.5), (5.5, 5)):
        found = compared(result(earlier), result(later), 0.08, np.random.default_rng(0))
        lone = next(one for one in found if one.name == "one at a time, p50 ms")
        assert lone.cost.differs
        assert abs(np.log(lone.cost.ratio)) > np.log(1.08)
        assert lone.cost.low < 1.08
        assert lone.cost.high > 1 / 1.08
        assert not lone.worse
        assert not lone.better
        assert "differs, perhaps within the threshold" in shown(found, 0.08)


def test_less_in_a_second_costs_more() -> None:
    slower = result()
    rounds = {**slower.closed.rounds, "rate /s": [v / 2 for v in slower.closed.rounds["rate /s"]]}
    slower = replace(slower, closed=replace(slower.closed, rounds=rounds))
    found = {c.name: c for c in compared(result(), slower, 0.03, np.random.default_rng(0))}
    assert found["closed loop, answered/s"].worse
    assert found["closed loop, answered/s"].cost.ratio == pytest.approx(2, rel=0.05)


@pytest.mark.parametrize("name", ["lone", "closed"])
def test_a_figure_that_has_become_void_is_no_difference_that_is_passed_over(name: str) -> None:
    sound = result()
    asked = getattr(sound, name).asked
    changed: dict[str, Any] = {name: point(asked, [outcome(statuses={WRONG: 1})] * 5)}
    void = replace(sound, **changed)
    for earlier, later, which in ((sound, void, "later"), (void, sound, "earlier")):
        with pytest.raises(NotComparable) as caught:
            compared(earlier, later, 0.03, np.random.default_rng(0))
        words = f"{asked.title} is void in the {which} one: 5 of 5000 answers were not the right"
        assert str(caught.value).startswith(words)
    names = {one.name for one in compared(void, void, 0.03, np.random.default_rng(0))}
    assert 0 < len(names) < 4


def test_few_rounds_prove_nothing_and_say_how_many_would() -> None:
    with pytest.raises(NotComparable, match="3 rounds prove nothing: measure with --rounds 5"):
        compared(result(rounds=3), result(rounds=3), 0.03, np.random.default_rng(0))


def test_other_hosts_and_requests_are_unlike() -> None:
    one = result()
    assert unlike(one, one) == []
    other = replace(
        one, machine={**one.machine, "cpu": "Y"}, settings={**one.settings, "path": "/"}
    )
    assert unlike(one, other) == [
        "the CPU differs: X and Y",
        "path differs: /v1/models/mnist:predict and /",
    ]
    built = replace(one, machine={**one.machine, "compiled": False})
    (words,) = unlike(one, built)
    assert words.endswith("compiled or not, differs: True and False")
    asked_of_one = replace(one, settings={**one.settings, "engines": "one for all rounds"})
    assert unlike(one, asked_of_one)[0].startswith("engines differs: one for each round and one")
    asked = replace(one, settings={**one.settings, "protocol": "grpc"})
    assert unlike(one, asked) == ["protocol differs: v1 and grpc"]
    same, own = (replace(one, settings={**one.settings, "heads": h}) for h in ("same", "own"))
    assert unlike(one, same) == []
    assert unlike(one, own) == ["heads differs: same and own"]
    whole, events = (
        replace(one, settings={**one.settings, "answers": answers})
        for answers in ("whole", "in events")
    )
    assert unlike(one, whole) == []
    assert unlike(one, events) == ["answers differs: whole and in events"]


def test_keys_of_a_file_that_a_result_no_longer_has_are_ignored() -> None:
    plain = orjson.loads(result().as_json())
    plain["loadgen"] = {"version": "6.0.17"}
    assert Result.from_json(orjson.dumps(plain)) == result()
