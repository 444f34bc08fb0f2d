"""Hundreds of lives of the real supervisor among played processes: does each end, or serve?

`python tests/simulation/run.py --supervisor` has longer runs, and tells a wrong life step by step.
"""

import random
import signal
from collections.abc import Iterator
from functools import partial

import pytest
from simulation import hail
from simulation.crowd import config_of
from simulation.house import House
from simulation.mutation import Late, Mutant
from simulation.played import Cast
from simulation.supervised import failure, first_wrong, live, quiet, story
from simulation.supervision import Life
from simulation.supervisor_mutants import MUTANTS, RESTART_MUTANTS, SOUGHT_FROM
from tiers import first_of, only

from ringbatch.engine.supervisor import supervisor

PARTS = 8
LIVES_EACH = 38
SEEDS_FOR_A_MUTANT = 2000
HAIL_SEEDS = 3
RESTARTS_FOUND_SOON = ("a killed process has crashed",)
FOUND_SOON = ("a hanging process is never killed",)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet():
        yield


@pytest.mark.parametrize("part", first_of(range(PARTS), 1))
def test_in_any_life_the_engine_ends_or_serves(part: int) -> None:
    lived = live(range(part * LIVES_EACH, (part + 1) * LIVES_EACH))
    print(lived)
    assert lived.wrong == {}
    # Few lives end with words; some of the first do.
    rare = set() if part else {"status 1"}
    assert {"serves", "status 0", "not started"} | rare <= set(lived.ends)


def test_a_signal_behind_the_words_of_the_stop_is_the_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cast = Cast(random.Random(1))
    house = House(cast)

    def info(text: str, *_: object) -> None:
        if text.startswith("stopping on"):
            assert house.signals is not None
            house.signals.come(signal.SIGINT)

    monkeypatch.setattr(supervisor.logger, "info", info)
    with house.installed():
        config = config_of(1)
        played = supervisor.Supervisor(config, lambda: config)
        assert house.signals is not None
        cast.kernel.after(20.0, partial(house.signals.come, signal.SIGTERM))
        try:
            assert played.run() == 128 + signal.SIGINT
        finally:
            played.frontends.close()
    house.leave()


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_the_code_that_a_defect_changes_is_there(mutant: Mutant | Late) -> None:
    with mutant.applied():
        pass


# Few lives show some of them.
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", only({name: name for name in MUTANTS}, *FOUND_SOON))
def test_a_supervisor_with_a_defect_is_found_out(name: str) -> None:
    first = SOUGHT_FROM.get(name, 0)
    with MUTANTS[name].applied():
        seed = first_wrong(range(first, first + SEEDS_FOR_A_MUTANT))
    assert seed is not None
    assert failure(Life(seed)) == "", f"seed {seed} goes wrong without the defect, too"


def test_a_seed_names_one_life() -> None:
    assert story(47) == story(47) != story(48)


def test_a_life_without_misfortune_serves_and_ends_when_asked() -> None:
    for seed in range(20):
        life = Life(seed, calm=True)
        life.run()
        assert life.ends == {"serves": 1, "status 0": 1}


@pytest.mark.parametrize("rule", first_of(hail.RULES, 3))
def test_however_workers_end_the_next_one_comes_as_the_restart_rule_says(rule: str) -> None:
    assert hail.first_wrong({rule: hail.RULES[rule]}, range(HAIL_SEEDS), failure) == ""


@pytest.mark.parametrize("mutant", only(RESTART_MUTANTS, *RESTARTS_FOUND_SOON))
def test_a_wrong_restart_rule_is_found_out(mutant: Mutant | Late) -> None:
    with mutant.applied():
        assert hail.first_wrong(hail.RULES, range(HAIL_SEEDS), failure) != ""
