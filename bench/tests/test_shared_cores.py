"""Simulation of bounds on the runs at once: cores that runs share, bounds, figures."""

import pytest
import shared_cores
from load.virtual_engine import Cores, VirtualEngine, VirtualModel, VirtualTime
from shared_cores import CAP, CORES, EAGER, POLICIES, Bound, Policy, Subject, arrivals, simulate

LONG, SHORT = Subject(0.1, 0.5), Subject(0.004, 0.5)


def ends(cores: int, runs: list[tuple[int, int]], loss: float = 0.0) -> list[int]:
    """Return the ends of runs, of which each begins at an instant and takes a time alone."""
    time = VirtualTime()
    shared, found, began_ns = Cores(time, cores, loss), [0] * len(runs), time.now_ns

    def end(place: int) -> None:
        found[place] = time.now_ns - began_ns

    for place, (at_ns, alone_ns) in enumerate(runs):
        time.at(began_ns + at_ns, shared.run, alone_ns, lambda place=place: end(place))
    time.run(began_ns + 1_000_000)
    return found


@pytest.mark.parametrize(
    ("runs", "wanted"),
    [
        ([(0, 100)], [100]),
        ([(0, 100), (0, 200)], [100, 200]),
        ([(0, 100), (0, 100), (0, 100), (0, 100)], [200] * 4),
        # Half of it alone, then all three at two thirds of the speed.
        ([(0, 100), (50, 100), (50, 100)], [125, 175, 175]),
    ],
)
def test_runs_share_cores_in_equal_parts(runs: list[tuple[int, int]], wanted: list[int]) -> None:
    assert ends(2, runs) == pytest.approx(wanted, abs=1)


def test_more_runs_than_cores_take_a_share_longer() -> None:
    assert ends(2, [(0, 100)] * 2, loss=0.5) == [100, 100]
    assert ends(2, [(0, 100)] * 4, loss=0.5) == [300] * 4


def most_at_once(policy: Policy, subjects: list[Subject]) -> int:
    """The most runs at once, of requests that all come at the start."""
    models = [VirtualModel(each.run_ns, CAP, workers=2) for each in subjects]
    engine = VirtualEngine(models, cores=CORES)
    bound, found, began_ns = Bound(engine, subjects, policy), [0], engine.time.now_ns
    with bound.applied():
        for at_ms in range(40):
            engine.time.run(began_ns + at_ms * 1_000_000)
            for model in range(len(subjects)):
                engine.ask(lambda _status: None, model=model)
            assert engine.cores is not None
            found.append(engine.cores.running)
    return max(found)


@pytest.mark.parametrize("most", [1, 2, 3, 6])
def test_no_more_runs_are_under_way_than_a_bound_allows(most: int) -> None:
    assert most_at_once(Policy(most), [LONG] * 3) == most


def test_a_bound_by_length_lets_short_runs_pass_long_ones() -> None:
    assert most_at_once(Policy(2), [SHORT, LONG, LONG]) == 2
    assert most_at_once(Policy(2, by_length=True), [SHORT, LONG, LONG]) == 3
    assert most_at_once(Policy(2, by_length=True), [LONG] * 3) == 2


def test_each_model_gets_a_third_of_the_load() -> None:
    subjects = [SHORT, LONG, LONG]
    asked = arrivals(subjects, 0.9, 6000, 1)
    assert asked == sorted(asked)
    for place, subject in enumerate(subjects):
        count = sum(model == place for _, model in asked)
        seconds = asked[-1][0]
        assert count / subject.capacity == pytest.approx(seconds * 0.9 * CORES / 3, rel=0.2)
    assert len(asked) == pytest.approx(6000, rel=0.1)


def test_every_policy_serves_a_light_load_in_time() -> None:
    subjects = [SHORT, LONG, LONG]
    asked = [(place * 0.5, place % 3) for place in range(12)]
    for policy in POLICIES.values():
        assert simulate(subjects, asked, policy) == [4, 4, 4]


def test_a_simulation_repeats_itself() -> None:
    asked = arrivals([LONG] * 3, 1.5, 200, 1)
    first, second = (simulate([LONG] * 3, asked, POLICIES["climbs"], 0.1) for _ in range(2))
    assert first == second
    assert sum(first) > sum(simulate([LONG] * 3, asked, POLICIES[EAGER], 0.1))


def test_a_climbing_bound_goes_on_uphill_and_turns_downhill() -> None:
    engine = VirtualEngine([VirtualModel(LONG.run_ns, CAP)], cores=CORES)
    bound = Bound(engine, [LONG], Policy(3, climbs=True))
    steps = []
    for pause_ns in (100, 50, 80, 40, 90, 90, 90, 90, 90, 90, 90, 90):
        engine.time.run(engine.time.now_ns + pause_ns)
        for _ in range(shared_cores.ANSWERS):
            bound.answered(LONG)
        steps.append(bound.most)
    assert steps[:5] == [4, 5, 4, 3, 4]
    assert all(1 <= most <= 6 for most in steps)
