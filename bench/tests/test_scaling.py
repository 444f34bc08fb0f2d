"""Tests of bench/scaling.py: the engines that it measures, and the process that it calls full."""

import pytest
from host.procfs import ProcessSample
from scaling import Run, Shape, first_full, memory_table, powers_of_two, rate_table, shapes, used


def sample(pid: int, title: str, cpu_ns: int) -> ProcessSample:
    return ProcessSample(pid, title, 0, cpu_ns, 0, 0, 0, 0)


def run(collector: float, frontend: float) -> Run:
    cpu_us = {"frontend": 50.0, "collector": 5.0, "worker": 4.0}
    return Run(1000.0, cpu_us, {"frontend": frontend, "collector": collector, "worker": 0.1})


def test_each_series_grows_in_one_thing() -> None:
    found = shapes(16, 32, 64)
    assert [shape.frontends for shape in found["frontends"]] == [1, 2, 4, 8, 16]
    assert [shape.workers for shape in found["workers"]] == [1, 2, 4, 8, 16, 32]
    assert {shape.frontends for shape in found["workers"]} == {16}
    assert [shape.client_lanes for shape in found["lanes"]] == [1, 8, 64]
    assert powers_of_two(20) == [1, 2, 4, 8, 16]


def test_a_requests_cost_sums_all_processes_of_a_role_and_names_the_busiest() -> None:
    before = {
        1: sample(1, "ringbatch: frontend 0", 0),
        2: sample(2, "ringbatch: frontend 1", 5_000_000),
        3: sample(3, "ringbatch: collector", 0),
        4: sample(4, "ringbatch: frontends", 0),
    }
    after = {
        1: sample(1, "ringbatch: frontend 0", 30_000_000),
        2: sample(2, "ringbatch: frontend 1", 15_000_000),
        3: sample(3, "ringbatch: collector", 50_000_000),
        4: sample(4, "ringbatch: frontends", 900_000_000),
        5: sample(5, "ringbatch: worker 0", 900_000_000),
    }
    cpu_us, busiest = used(before, after, requests=1000, seconds=1.0, share=0.05)
    assert cpu_us == pytest.approx({"frontend": 40, "collector": 50, "worker": 0})
    assert busiest == pytest.approx({"frontend": 0.6, "collector": 1.0, "worker": 0})


def test_a_role_that_used_nine_tenths_of_its_share_is_full() -> None:
    assert run(collector=0.95, frontend=0.92).full == "collector"
    assert run(collector=0.5, frontend=0.92).full == "frontend"
    assert run(collector=0.5, frontend=0.6).full == ""


def test_the_full_role_is_named_with_the_rate_that_a_core_carries() -> None:
    words = first_full({Shape(1, 1): [run(0.1, 0.99)], Shape(16, 8): [run(0.97, 0.7)]})
    assert words.startswith("16 frontends, 8 workers, 8 lanes: full is collector.")
    assert "frontend 20,000, collector 200,000, worker 250,000" in words
    assert "10.0 frontends" in words
    idle = first_full({Shape(1, 1): [run(0.1, 0.2)]})
    assert "so the host was the limit" in idle
    assert "none" in rate_table({Shape(1, 1): [run(0.1, 0.2)]}, 0.05)


def test_memory_grows_with_lanes_and_slots() -> None:
    *_, row = memory_table().splitlines()
    frontends, lanes, slots, words_mib, payload_mib, _ = row.split()
    assert (frontends, lanes, slots) == ("64", "130", "4096")
    assert float(words_mib) > 100
    assert payload_mib == "4,160"
