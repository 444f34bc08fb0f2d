"""The memory of all bodies that are gathered at once."""

import pytest

from ringbatch.frontend.http.body_budget import BodyBudget
from ringbatch.shm.errors import Overloaded


def test_bytes_over_the_limit_are_refused_and_returned_ones_are_there_again() -> None:
    budget = BodyBudget(100)
    budget.take(60)
    with pytest.raises(Overloaded):
        budget.take(41)
    budget.take(40)
    budget.give(100)
    budget.take(100)


def test_a_growing_body_takes_its_growth_and_gives_all_of_it_back() -> None:
    budget = BodyBudget(100)
    with budget.holding() as one, budget.holding() as other:
        for size in (10, 30, 70):
            one.grow(size)
        other.grow(30)
        with pytest.raises(Overloaded):
            other.grow(31)
    budget.take(100)


def test_several_of_the_largest_bodies_fit() -> None:
    budget = BodyBudget.of(1 << 30)
    for _ in range(8):
        budget.take(1 << 30)
    with pytest.raises(Overloaded):
        budget.take(1)
