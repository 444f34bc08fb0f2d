"""CPUs of each process: a table of hosts, and rules for every plan."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ringbatch.engine.process.cpu_plan import (
    CpuRequest,
    Cpus,
    Host,
    Misplaced,
    Plan,
    described,
    listed,
    named,
    parsed,
    plan,
)

TWO = Host((0, 1), {0: (0, 1)}, 2)
EIGHT = Host(tuple(range(8)), {0: tuple(range(8))}, 8)
NUMA = Host(tuple(range(16)), {0: tuple(range(8)), 1: tuple(range(8, 16))}, 16)
QUOTA = Host(tuple(range(64)), {}, 4)


def cpu_sets(host: Host, *wishes: CpuRequest, auto: bool = True, **more: Any) -> Plan:
    return plan(host, wishes, auto=auto, **{"frontends": 2, "frontend_cpus": None} | more)


def worker(**more: Any) -> CpuRequest:
    return CpuRequest("m/0", **more)


def cpus(found: Plan) -> list[str | None]:
    """The frontends' CPUs and then each worker's, as lists."""
    return [
        None if c is None else listed(c)
        for c in (found.frontends, *(s.cpus for s in found.workers))
    ]


@pytest.mark.parametrize(
    ("host", "workers", "placed", "threads"),
    [
        pytest.param(TWO, 1, [None, None], [2], id="too-few-to-divide"),
        pytest.param(TWO, 4, [None] * 5, [1] * 4, id="more-workers-than-cpus"),
        pytest.param(EIGHT, 1, ["0-1", "2-7"], [6], id="one-worker-has-the-rest"),
        pytest.param(EIGHT, 2, ["0-1", "2-4", "5-7"], [3, 3], id="two-have-half-each"),
        pytest.param(EIGHT, 4, ["0-1", "2", "3-4", "5", "6-7"], [1, 2, 1, 2], id="not-even"),
        pytest.param(EIGHT, 7, ["0-1"] + ["2-7"] * 7, [1] * 7, id="too-many-share-the-rest"),
        pytest.param(NUMA, 1, ["0-2", "3-15"], [13], id="one-worker-over-two-nodes"),
        pytest.param(NUMA, 2, ["0-2", "3-7", "8-15"], [5, 8], id="a-node-each"),
        pytest.param(NUMA, 3, ["0-2", "3-7", "8-11", "12-15"], [5, 4, 4], id="two-in-the-larger"),
        pytest.param(QUOTA, 2, [None] * 3, [2, 2], id="a-quota-is-not-divided"),
    ],
)
def test_auto_divides_the_host(
    host: Host, workers: int, placed: list[str | None], threads: list[int]
) -> None:
    found = cpu_sets(host, *[worker()] * workers)
    assert cpus(found) == placed
    assert [cpu_set.threads for cpu_set in found.workers] == threads


def test_by_default_everything_runs_everywhere() -> None:
    found = cpu_sets(NUMA, worker(), worker(), auto=False)
    assert cpus(found) == [None, None, None]
    assert [cpu_set.threads for cpu_set in found.workers] == [8, 8]


def test_the_configuration_wins() -> None:
    wishes = worker(cpus="4-5"), worker(cpus="numa:1", threads=3), worker()
    assert cpus(cpu_sets(NUMA, *wishes, auto=False)) == [None, "4-5", "8-15", None]
    found = cpu_sets(NUMA, *wishes, frontend_cpus="15")
    assert cpus(found) == ["15", "4-5", "8-15", "0-14"]
    assert [cpu_set.threads for cpu_set in found.workers] == [2, 3, 15]


def test_workers_on_the_same_cpus_share_their_threads() -> None:
    found = cpu_sets(EIGHT, worker(cpus="0-3"), worker(cpus="0-3"), auto=False)
    assert [cpu_set.threads for cpu_set in found.workers] == [2, 2]


def test_one_that_only_waits_takes_no_cpus_from_others() -> None:
    found = cpu_sets(EIGHT, worker(waits=True), worker(), worker(waits=True, cpus="7"))
    assert cpus(found) == ["0-1", "0-1", "2-7", "7"]
    assert [cpu_set.threads for cpu_set in found.workers] == [1, 6, 1]
    shared = cpu_sets(EIGHT, *[worker(waits=True)] * 16, worker(), auto=False)
    assert shared.workers[-1].threads == 8


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("2", r'"2": these cannot all be used; usable are 0-1'),
        ("0-9", "these cannot all be used"),
        ("1-0", "these cannot all be used"),
        ("numa:3", r'"numa:3": there is no such NUMA node to use; there is: 0'),
    ],
)
def test_cpus_that_are_not_there_are_refused(text: str, words: str) -> None:
    with pytest.raises(Misplaced, match=words):
        cpu_sets(TWO, worker(cpus=text))
    with pytest.raises(Misplaced, match=words):
        cpu_sets(TWO, worker(), frontend_cpus=text)


def test_a_node_without_usable_cpus_is_refused() -> None:
    with pytest.raises(Misplaced, match="there is: 0"):
        named("numa:1", Host((0,), {0: (0,), 1: ()}, 1))


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("0", {0}), ("0-3,8", {0, 1, 2, 3, 8}), ("", set()), ("3,1\n", {1, 3}), ("5-5", {5})],
)
def test_a_list_of_cpus_is_read(text: str, numbers: set[int]) -> None:
    assert parsed(text) == numbers


@given(st.sets(st.integers(0, 300)))
def test_a_list_of_cpus_is_read_as_it_was_written(numbers: set[int]) -> None:
    assert parsed(listed(numbers)) == numbers


def test_the_plan_is_described() -> None:
    wishes = [CpuRequest("a/0"), CpuRequest("a/1"), CpuRequest("b/0", cpus="7")]
    assert described(cpu_sets(EIGHT, *wishes), wishes, EIGHT) == (
        "frontends and collector on CPUs 0-1; a/0 on CPUs 2-4, 3 threads; "
        "a/1 on CPUs 5-7, 3 threads; b/0 on CPUs 7, 1 thread"
    )
    alike = wishes[:2]
    assert described(cpu_sets(TWO, *alike), alike, TWO) == (
        "frontends and collector on CPUs 0-1; a/0, a/1 on CPUs 0-1, 1 thread each"
    )


@st.composite
def hosts(draw: st.DrawFn) -> Host:
    usable = tuple(sorted(draw(st.sets(st.integers(0, 40), min_size=1))))
    split = draw(st.integers(0, len(usable)))
    nodes: dict[int, Cpus] = draw(
        st.sampled_from([{}, {0: usable}, {0: usable[:split], 1: usable[split:]}])
    )
    return Host(usable, nodes, draw(st.integers(1, len(usable))))


@given(hosts(), st.integers(1, 50), st.integers(1, 8), st.booleans())
@example(Host((0, 1, 2, 3, 4, 5, 6), {0: (0, 1), 1: (2, 3, 4, 5, 6)}, 7), 5, 1, True)
def test_every_plan_uses_cpus_there_are_and_no_more_threads_than_these_or_one_each(
    host: Host, workers: int, frontends: int, auto: bool
) -> None:
    found = cpu_sets(host, *[worker()] * workers, auto=auto, frontends=frontends)
    used: set[int] = set(found.frontends or host.cpus)
    for cpu_set in found.workers:
        assert cpu_set.threads >= 1
        assert cpu_set.cpus is None or set(cpu_set.cpus) <= set(host.cpus)
        assert cpu_set.cpus != ()
        used |= set(cpu_set.cpus or host.cpus)
    assert used == set(host.cpus), "no CPU is left idle by the plan"
    assert sum(cpu_set.threads for cpu_set in found.workers) <= max(len(host.cpus), workers)
