"""Thousands of lives of the whole engine in one process, each named by its seed.

`python tests/simulation/run.py --help` has longer runs, and tells a wrong life step by step.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from simulation.life import (
    ASKED_A_CHAIN,
    ASKED_FOR_PARTS,
    ASKED_FOR_STEPS,
    LOAD_FAILED,
    NONE_TO_EXPECT,
    PLACES_CHANGED,
    Life,
)
from simulation.limited import LIMIT_REACHED
from simulation.mutants import MUTANTS, NO_GUARD, PARTS_LEFT
from simulation.mutation import Late, Mutant, Several
from simulation.search import Found, failure, first_wrong, live, quiet, simplest, story
from simulation.sought_in import SOUGHT_FROM, SOUGHT_IN
from simulation.steps_mutants import RECLAIM
from tiers import first_of, only

PARTS = 30
LIVES_EACH = 200
CALM_LIVES_EACH = 25
SEEDS_FOR_A_MUTANT = 2_000
"""Seeds for a mutant, few enough for a test's time limit on a slow host, too."""
FOUND_SOON = (
    "an answer is posted before DONE",
    "answers to requests that are alike are posted before DONE",
    "an answered request goes on to the next step",
    "an account may have one request more in flight",
    "a collector does not count requests that workers hold",
    NO_GUARD,
    PARTS_LEFT,
    RECLAIM,
)
MISFORTUNES = {
    LOAD_FAILED,
    "cancelled",
    "hostile",
    "killed collector",
    "killed frontend",
    "killed worker",
    "lost time",
    "stopped collector",
    "stopped frontend",
    "stopped worker",
}
RARE = {LOAD_FAILED}
"""Some 5 in 200 lives, so that one part in a hundred has none."""


@pytest.fixture(autouse=True)
def _on_the_machine() -> Iterator[None]:
    with quiet():
        yield


def check_variety(found: Found, rare: set[str]) -> None:
    """Check that every event occurs, but for rare ones that so few lives may lack."""
    asked = {ASKED_A_CHAIN, ASKED_FOR_PARTS, ASKED_FOR_STEPS}
    others = asked | {LIMIT_REACHED, NONE_TO_EXPECT, PLACES_CHANGED}
    assert set(found.seen) | rare == MISFORTUNES | others
    assert set(found.ends) == {200, 400, 429, 500, 503, 504}


@pytest.mark.parametrize("part", first_of(range(PARTS), 1))
def test_in_any_life_each_request_has_its_answer_and_nothing_is_lost(part: int) -> None:
    found = live(range(part * LIVES_EACH, (part + 1) * LIVES_EACH))
    print(found)
    check_variety(found, RARE if part else set())


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_the_code_that_a_defect_changes_is_there(mutant: Mutant | Late | Several) -> None:
    with mutant.applied():
        pass


@pytest.mark.parametrize("name", only({name: name for name in MUTANTS}, *FOUND_SOON))
def test_an_engine_with_a_defect_is_found_out(name: str) -> None:
    profile, first = SOUGHT_IN.get(name), SOUGHT_FROM.get(name, 0)
    with MUTANTS[name].applied():
        seed = first_wrong(range(first, first + SEEDS_FOR_A_MUTANT), profile)
    assert seed is not None, (
        f"none of {SEEDS_FOR_A_MUTANT} lives shows that {name}: give it lives in which it shows "
        "soon, in tests/simulation/sought_in.py"
    )
    fault = failure(Life(seed, profile))
    assert not fault, f"seed {seed} of {profile} goes wrong without the defect, too: {fault}"


def test_a_seed_names_one_life() -> None:
    assert story(4711) == story(4711) != story(4712)


def test_a_wrong_life_is_described_as_simply_as_can_be() -> None:
    with MUTANTS["a worker does not ring for its report"].applied():
        seed, profile = simplest(0)
        text = story(seed, profile)
    assert profile.requests == 1
    assert text.splitlines()[-1] == "AssertionError: the collector sleeps on a report"
    assert "is killed" not in text


@pytest.mark.parametrize("part", first_of(range(4), 1))
@pytest.mark.parametrize(
    ("chained", "in_parts", "in_steps"),
    [(False, False, False), (True, False, False), (False, True, False), (False, False, True)],
    ids=str,
)
def test_a_life_without_misfortune_answers_everything(
    chained: bool, in_parts: bool, in_steps: bool, part: int
) -> None:
    ends: Counter[int] = Counter()
    for seed in range(part * CALM_LIVES_EACH, (part + 1) * CALM_LIVES_EACH):
        profile = replace(
            Life(seed).profile.calm(), chained=chained, in_parts=in_parts, in_steps=in_steps
        )
        life = Life(seed, profile)
        life.run()
        ends += life.ends
    assert set(ends) == {200}
