"""Rows of a model in steps: which of them begin, and how many a worker can hold.

Tables, and rules for all cases.
"""

from math import inf, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.engine.worker.join_limits import JoinLimits, beginning, checked_cost, most_rows
from ringbatch.engine.worker.outputs import WrongResult

COSTS = st.lists(st.integers(0, 20), max_size=12)


@pytest.mark.parametrize(
    ("costs", "live", "most_cost", "most_joining", "count"),
    [
        # Without a limit, all of them begin.
        ([], 0, 0, 0, 0),
        ([5, 5, 5], 99, 0, 0, 3),
        # Their costs have a limit.
        ([5, 5, 5], 0, 10, 0, 2),
        ([5, 5, 5], 1, 10, 0, 1),
        ([5, 5, 5], 6, 10, 0, 0),
        ([10], 0, 10, 0, 1),
        ([10], 0.5, 10, 0, 0),
        ([0, 0], 10, 10, 0, 2),
        # One that does not fit holds back those behind it.
        ([8, 1, 1], 5, 10, 0, 0),
        ([1, 8, 1], 5, 10, 0, 1),
        # So many begin at once.
        ([5, 5, 5], 0, 0, 2, 2),
        ([5, 5, 5], 0, 10, 1, 1),
        ([5, 5, 5], 0, 5, 2, 1),
    ],
)
def test_rows_begin_in_their_order_as_far_as_they_fit(
    costs: list[float], live: float, most_cost: float, most_joining: int, count: int
) -> None:
    assert beginning(costs, live, most_cost, most_joining) == count


@given(COSTS, st.integers(0, 40), st.integers(0, 40), st.integers(0, 5))
def test_beginning_rows_never_cost_too_much_and_never_less_than_possible(
    costs: list[int], live: int, most_cost: int, most_joining: int
) -> None:
    count = beginning(costs, live, most_cost, most_joining)
    if most_cost:
        costs = [min(cost, most_cost) for cost in costs]
        count = beginning(costs, live, most_cost, most_joining)
        assert not count or live + sum(costs[:count]) <= most_cost
        # Beside no live row, the first always begins: nobody waits for ever.
        assert count or live or not costs
    assert count <= (most_joining or len(costs))
    full = most_joining and count == most_joining
    dear = most_cost and live + sum(costs[: count + 1]) > most_cost
    assert count == len(costs) or full or dear


@pytest.mark.parametrize(
    ("live", "waiting", "most_cost", "mean", "most"),
    [
        # No limit, or no row so far.
        ([1, 2], [], 0, 1.5, 0),
        ([], [], 10, 0, 0),
        ([0, 0], [], 10, 0, 0),
        # Those that it has, and usual ones in the room that is left.
        ([], [], 10, 2.5, 4),
        ([2, 3], [], 10, 2.5, 4),
        # One more may cost less than is usual.
        ([2, 3], [], 10, 6, 3),
        ([9.5], [], 10, 99, 2),
        ([2, 3], [4], 10, 1, 4),
        # None behind one that waits for room, however little others cost.
        ([8], [5], 10, 1, 2),
        ([8], [5, 1], 10, 1, 3),
        ([10], [], 10, 1, 1),
        # An empty worker takes a row, whatever is usual.
        ([], [], 10, 99, 1),
        ([], [], 10, 1e-300, 1 << 20),
    ],
)
def test_how_many_rows_a_worker_can_hold(
    live: list[float], waiting: list[float], most_cost: float, mean: float, most: int
) -> None:
    assert most_rows(live, waiting, most_cost, mean) == most


@given(COSTS, COSTS, st.integers(1, 40), st.floats(0.01, 20))
def test_a_worker_can_hold_its_present_rows(
    live: list[int], waiting: list[int], most_cost: int, mean: float
) -> None:
    most = most_rows(live, waiting, most_cost, mean)
    held = len(live) + len(waiting)
    assert most >= max(held, 1)
    if sum(live) + sum(waiting) >= most_cost:
        assert most == max(held, 1)


def test_the_average_follows_the_costs_that_come() -> None:
    limits = JoinLimits(lambda x: x, most_cost=100)
    assert [limits.cost([[8]]), limits.mean_cost] == [8, 8]
    assert [limits.cost([[16]]), limits.mean_cost] == [16, 9]
    assert limits.most_rows([8, 16], []) == 2 + 76 // 9


def test_a_cost_is_of_the_inputs_of_one_row() -> None:
    def cost(*inputs: Any) -> int:
        assert inputs == (b"text", 7)
        return 3

    columns = [np.array([b"text"], object), np.array([7])]
    assert JoinLimits(cost).cost(columns) == 3
    assert JoinLimits(cost, asks=True).cost([*columns, ["the request"]]) == 3


@pytest.mark.parametrize("cost", [0, 1.5, True, np.float32(2), np.array(3)])
def test_a_cost_is_a_number(cost: Any) -> None:
    assert checked_cost(cost) == float(cost)


@pytest.mark.parametrize("cost", [-1, nan, inf, "much", None, 10**400, [1, 2]])
def test_another_cost_gets_its_words(cost: Any) -> None:
    with pytest.raises(WrongResult, match="but it must be a number from 0 up"):
        checked_cost(cost)
