"""Simulation of policies: arrivals, the engine on a virtual clock, figures."""

import random
from pathlib import Path

import policies
import pytest
from load.virtual_engine import SECOND_NS, VirtualEngine, VirtualModel
from policies import FULL_S, PATIENCE_S, Arrival, Outcome, Policy, Tally
from tiers import exhaustive

MILLISECOND_NS = SECOND_NS // 1000


def engine(**settings: float) -> VirtualEngine:
    timeout_s = settings.get("timeout_s", 60.0)
    model = VirtualModel(
        lambda rows, length: (9 + rows + length) * MILLISECOND_NS, 4, timeout_s=timeout_s
    )
    return VirtualEngine([model], slots=64)


def test_a_lone_request_takes_the_time_of_its_batch() -> None:
    served = engine()
    began_ns, ends = served.time.now_ns, list[tuple[int, int]]()
    served.ask(lambda status: ends.append((status, served.time.now_ns)), rows=2)
    served.time.run(began_ns + SECOND_NS)
    assert ends == [(200, began_ns + 12 * MILLISECOND_NS)]


def test_requests_that_wait_share_the_next_batch() -> None:
    served = engine()
    began_ns, ends_ns = served.time.now_ns, list[int]()
    for _ in range(6):
        served.ask(lambda _status: ends_ns.append(served.time.now_ns - began_ns))
    served.time.run(began_ns + SECOND_NS)
    first, second = 14 * MILLISECOND_NS, (14 + 12) * MILLISECOND_NS
    assert ends_ns == [first] * 4 + [second] * 2


def test_a_request_that_waits_too_long_ends_at_its_deadline() -> None:
    served = engine(timeout_s=0.02)
    began_ns, ends = served.time.now_ns, list[tuple[int, int]]()
    for _ in range(12):
        served.ask(lambda status: ends.append((status, served.time.now_ns - began_ns)))
    served.time.run(began_ns + SECOND_NS)
    assert [status for status, _ in ends].count(200) < 12
    assert {status for status, _ in ends} <= {200, 503, 504}
    assert len(ends) == 12
    assert max(took_ns for _, took_ns in ends) <= 40 * MILLISECOND_NS


def test_a_simulation_repeats_itself() -> None:
    arrivals = policies.beside_a_flood(random.Random(3), 1.0)
    first, second = (policies.simulate(arrivals, Policy(fair=True), 1.0) for _ in range(2))
    assert first == second
    assert policies.beside_a_flood(random.Random(4), 1.0) != arrivals


def test_fair_shares_let_a_polite_client_pass_a_flood() -> None:
    arrivals = policies.beside_a_flood(random.Random(5), 3.0)
    waits_s = {
        fair: policies.simulate(arrivals, Policy(fair), 3.0).groups["polite"].longest_s
        for fair in (True, False)
    }
    assert waits_s[True] <= 3 * FULL_S
    assert waits_s[False] > 10 * FULL_S


@exhaustive
def test_a_bound_refuses_requests_that_clients_would_not_wait_for() -> None:
    arrivals = policies.at_load(4.0, random.Random(6), 6.0)
    bounded = policies.simulate(arrivals, policies.POLICIES["fair, bounded"], 6.0)
    patient = policies.simulate(arrivals, policies.POLICIES["fair"], 6.0)
    assert bounded.of_best > 0.9 > 2 * patient.of_best
    assert bounded.groups["all"].refused > 0 == patient.groups["all"].refused


def test_arrivals_follow_their_rate() -> None:
    chance = random.Random(7)
    found = list(policies.poisson(chance, lambda at_s: 100.0 * (at_s < 10), 20.0, 100.0))
    assert found == sorted(found)
    assert 900 < len(found) < 1100
    assert max(found) < 10


def test_arrivals_of_every_scenario_are_in_order_and_fit_a_batch() -> None:
    for make in policies.SCENARIOS.values():
        found = make(random.Random(8), 2.0)
        assert found
        assert [arrival.at_s for arrival in found] == sorted(arrival.at_s for arrival in found)
        assert all(1 <= arrival.rows <= policies.CAP for arrival in found)


@pytest.mark.parametrize(
    ("got", "index"), [([10, 10, 10], 1.0), ([10, 0, 0], 1 / 3), ([10, 10, 0], 2 / 3)]
)
def test_jains_index_is_one_if_all_get_the_same_share(got: list[int], index: float) -> None:
    clients = [Tally(asked=10, good=good) for good in got]
    assert Outcome({}, clients, 1.0).fairness == pytest.approx(index)


def test_the_best_is_the_demand_or_the_rate_of_full_batches() -> None:
    few = {"all": Tally(asked=10, good=5)}
    assert Outcome(few, [], 1.0).of_best == 0.5
    most = policies.CAPACITY * (1.0 + PATIENCE_S)
    many = {"all": Tally(asked=100_000, good=round(most / 2))}
    assert Outcome(many, [], 1.0).of_best == pytest.approx(0.5, abs=0.01)


def test_recorded_arrivals_are_read(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text("0.5 shop 2\n0.25\n")
    assert policies.recorded(path) == [Arrival(0.25), Arrival(0.5, "shop", 2)]


@pytest.mark.parametrize("line", ["soon", "1 shop many", "", "1 shop 0", "1 shop 17", "-1"])
def test_a_wrong_recorded_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "trace"
    path.write_text(f"0.5\n{line}\n0.75\n")
    with pytest.raises(SystemExit, match="line 2"):
        policies.recorded(path)
