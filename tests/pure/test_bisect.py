"""Bisection of batches for requests that make a model raise: its cost and its results."""

import math
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.engine.worker.bisect import PROBES, Search


def searched(
    requests: Sequence[int], bad: Callable[[int], object]
) -> tuple[list[list[int]], set[int], set[int]]:
    """Run a search to its end: the runs, who was answered, and who failed.

    Args:
        requests: to run.
        bad: what a request makes the model raise; None where nothing, "mine" where the model
            refuses it in words of its own.
    """
    search, runs = Search(requests), []
    answered: set[int] = set()
    failed: set[int] = set()
    while (group := search.next()) is not None:
        assert group, "no run is empty"
        runs.append(group)
        kinds = [kind for kind in map(bad, group) if kind is not None]
        if not kinds:
            search.succeeded()
            answered |= set(group)
        elif len(group) > 1:
            search.failed(group)
        else:
            rest = search.failed_alone(None if kinds == ["mine"] else kinds[0])
            failed |= {*group, *rest}
    return runs, answered, failed


@pytest.mark.parametrize("count", [1, 2, 3, 8, 9, 32, 33, 64, 1000])
def test_one_bad_request_is_found_alone_in_a_few_runs_wherever_it_is(count: int) -> None:
    for place in {0, 1, count // 2, count - 1} & set(range(count)):
        runs, answered, failed = searched(range(count), lambda n, p=place: n == p or None)  # type: ignore[misc]
        assert failed == {place}
        assert answered == set(range(count)) - {place}
        assert len(runs) <= 2 * math.ceil(math.log2(count)) + 1


def test_a_batch_that_the_model_bears_is_run_once() -> None:
    assert searched(range(50), lambda _: None)[0] == [list(range(50))]


def test_there_is_nothing_to_run_of_nothing() -> None:
    assert Search([]).next() is None


@pytest.mark.parametrize("count", [9, 32, 64, 1000, 4096])
def test_a_model_that_always_raises_costs_a_few_runs_however_large_the_batch(count: int) -> None:
    runs, answered, failed = searched(range(count), lambda _: "always")
    assert failed == set(range(count))
    assert not answered
    assert len(runs) == 3 + PROBES


def test_before_the_model_is_blamed_requests_from_all_over_the_batch_have_failed_alone() -> None:
    runs, _, _ = searched(range(800), lambda _: "always")
    alone = sorted(run[0] for run in runs if len(run) == 1)
    assert [request // 100 for request in alone] == list(range(PROBES))
    assert len({request % 100 for request in alone}) == PROBES


@pytest.mark.parametrize("count", [32, 100])
def test_an_error_about_one_input_is_never_that_of_another(count: int) -> None:
    runs, _, failed = searched(range(count), lambda _: "mine")
    assert failed == set(range(count))
    assert {run[0] for run in runs if len(run) == 1} == failed


def test_a_model_that_raises_in_different_ways_is_not_blamed() -> None:
    runs, _, failed = searched(range(64), lambda n: "odd" if n % 16 else "even")
    assert {run[0] for run in runs if len(run) == 1} == failed


@pytest.mark.parametrize("good", range(8))
def test_one_good_client_of_eight_that_take_turns_is_spared(good: int) -> None:
    runs, answered, _ = searched(range(64), lambda n: None if n % 8 == good else "bad")
    assert answered == {n for n in range(64) if n % 8 == good}
    assert len(runs) <= 2 * 64


@given(st.integers(1, 200), st.sets(st.integers(0, 199)))
def test_everybody_is_answered_or_fails_once_and_few_bad_requests_harm_nobody(
    count: int, bad: set[int]
) -> None:
    bad &= set(range(count))
    runs, answered, failed = searched(range(count), lambda n: "bad" if n in bad else None)
    assert answered | failed == set(range(count))
    assert not answered & failed
    assert bad <= failed
    if len(bad) < PROBES:
        assert failed == bad
    assert len(runs) <= 2 * count
    if bad:
        found = len(bad)
        assert len(runs) <= 2 * found * (math.log2(count / found) + 2) + 2 * PROBES + 1
