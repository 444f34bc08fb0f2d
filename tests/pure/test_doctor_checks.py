"""Doctor's checks on made-up hosts: every line, with its level."""

import ast
import inspect
import sys
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest
from doctor_rows.cpu_rows import CPU_ROWS
from doctor_rows.gpu_rows import GPU_ROWS, NONE, WANTED
from doctor_rows.hosts import ERROR, GIB, MIB, NOTE, OK, SMALL, WELL, Row, config, findings
from doctor_rows.memory_rows import MEMORY_ROWS
from doctor_rows.software_rows import SOFTWARE_ROWS

from ringbatch.engine.config.settings import Config
from ringbatch.engine.doctor import (
    cpu_checks,
    credential_checks,
    engine_checks,
    gpu_checks,
    kernel_checks,
    limit_checks,
    memory_checks,
    software_checks,
)
from ringbatch.engine.doctor.examination import CHECKS, judge
from ringbatch.engine.doctor.facts import Engines, Facts, Torch
from ringbatch.engine.doctor.findings import Finding

MODULES: Final = (
    cpu_checks,
    credential_checks,
    engine_checks,
    gpu_checks,
    kernel_checks,
    limit_checks,
    memory_checks,
    software_checks,
)
ROWS: Final = (*MEMORY_ROWS, *CPU_ROWS, *SOFTWARE_ROWS, *GPU_ROWS)


def outcome(given: Row) -> list[Finding]:
    facts = replace(WELL, **given.facts)
    return findings(given.check, facts, given.configured, asked=given.asked)


def named(given: Row) -> str:
    return f"{given.check.__name__}-{given.level}-{given.words[:30]}"


@pytest.mark.parametrize("given", ROWS, ids=named)
def test_a_check_has_its_finding_the_reason_and_the_remedy(given: Row) -> None:
    results = outcome(given)
    (finding,) = [f for f in results if f.level is given.level and given.words in f.found]
    assert finding.why
    assert given.do in finding.do
    assert bool(given.do) == bool(finding.do)


def test_the_table_has_every_outcome() -> None:
    """Every `yield` and `return` of every check was come by."""
    reached: set[tuple[str, int]] = set()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if event == "line":
            reached.add((frame.f_code.co_filename, frame.f_lineno))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        for given in ROWS:
            outcome(given)
    finally:
        sys.settrace(before)
    missed = []
    for module in MODULES:
        file = inspect.getsourcefile(module) or ""
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            yields = isinstance(node, ast.Expr) and isinstance(node.value, ast.Yield)
            returns = isinstance(node, ast.Return) and node.value is not None
            if isinstance(node, ast.stmt) and (yields or returns):
                lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
                if not any((file, line) in reached for line in lines):
                    missed.append(f"{module.__name__} line {node.lineno}")
    assert missed == []


def test_with_a_host_that_is_well_nothing_is_wrong() -> None:
    results = [finding for check in CHECKS for finding in findings(check, WELL)]
    assert [finding for finding in results if finding.level is not OK] == []
    assert len(results) >= len(CHECKS)


def said_of_gpus(facts: Facts, configured: Config | None = None) -> list[Finding]:
    return [f for check in gpu_checks.CHECKS for f in findings(check, facts, configured)]


def test_without_a_driver_and_a_model_for_it_there_is_no_line_about_gpus() -> None:
    amd = replace(NONE, torch=Torch(version="2.11.0", cuda="", rocm=True))
    for nothing in (None, NONE, amd):
        assert said_of_gpus(replace(WELL, nvidia=nothing)) == []
    assert said_of_gpus(replace(WELL, nvidia=amd), WANTED) == [], "which has a cuda:0 of its own"
    (found,) = said_of_gpus(replace(WELL, nvidia=NONE), WANTED)
    assert (found.check, found.level) == ("gpu-driver", ERROR)
    assert len(said_of_gpus(WELL)) == len(gpu_checks.CHECKS)


def test_actors_in_a_cluster_have_their_devices_there() -> None:
    far = config(path=Path("m.pt2"), runtime="ray", device="cuda:7", workers=1)
    assert [f for f in said_of_gpus(WELL, far) if f.level is not OK] == []
    assert said_of_gpus(replace(WELL, nvidia=NONE), far) == []


def test_dead_engines_memory_counts_as_free() -> None:
    """The start removes it before it looks."""
    large = config({"lane_bytes": 64 * MIB})
    left = Engines(left=("ringbatch.9.x",), left_bytes=2 * GIB)
    for engines, wants, level in (
        (Engines(), large, ERROR),
        (left, large, OK),
        (Engines(), config(), NOTE),
        (left, config(), OK),
    ):
        facts = replace(WELL, shared_memory=SMALL, engines=engines)
        (found,) = [f for f in judge(facts, wants, asked=True) if f.check == "dev-shm"]
        assert found.level is level


def test_of_a_host_that_nothing_is_known_of_the_checks_say_so() -> None:
    results = judge(Facts(), config(), asked=True)
    assert [finding for finding in results if finding.check == "doctor"] == []
    assert {finding.found for finding in results if finding.level is ERROR} == {
        "there is no /dev/shm"
    }


def test_a_fault_of_one_check_costs_no_other() -> None:
    broken = replace(WELL, clock="no clock")  # type: ignore[arg-type]
    results = judge(broken, config(), asked=True)
    (fault,) = [finding for finding in results if finding.check == "doctor"]
    assert "clock could not be examined: AttributeError" in fault.found
    assert {"wake-ups", "leftovers"} <= {finding.check for finding in results}


@pytest.mark.parametrize(
    ("version", "bounds", "inside"),
    [
        ("0.34", ">=0.34,<0.55", True),
        ("0.54.9", "<0.55,>=0.34", True),
        ("0.55.0", "<0.55,>=0.34", False),
        ("0.33.9", ">=0.34", False),
        ("23", ">=23.0.0", True),
        ("1.67.1rc1", ">=1.67.1", True),
        ("2!1.0", "<1.1", True),
        ("1.0", "!=1.0", False),
        ("1.0", "", True),
    ],
)
def test_versions_are_compared_by_their_numbers(version: str, bounds: str, inside: bool) -> None:
    assert software_checks.within(version, bounds) is inside
