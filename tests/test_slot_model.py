"""The model of a slot's life: every configuration holds, every control is caught, and what its
comments name is in the code."""

import ast
import functools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from model.check import (
    CONFIGURATIONS,
    CONTROLS,
    FOLDER,
    Result,
    comment_above,
    missing_tools,
    never_reached,
    parsed,
    verify,
    verify_control,
)

ROOT: Final = Path(__file__).parents[1]
MODEL: Final = sorted(FOLDER.glob("*.pml"))
README: Final = (FOLDER / "README.md").read_text()
NAMED: Final = re.compile(r"((?:shm|engine|frontend)/\w+\.py): (.*?)(?=;|\. |\.?$)")
NAME: Final = re.compile(r"\b([A-Z][a-z]\w*(?:\.\w+)?)\b|\b(\w+)\(\)")

searches = pytest.mark.timeout(1800)
"""Searches of seconds, on a machine that may be busy with something else."""


@pytest.fixture
def tools() -> None:
    """A skip where spin or gcc is missing; in CI they must be there."""
    if missing := missing_tools():
        if os.environ.get("CI"):
            pytest.fail(f"not installed: {', '.join(missing)}; .ci/run installs them")
        pytest.skip(f"not installed: {', '.join(missing)}")


@functools.cache
def verified(name: str) -> Result:
    configuration = CONFIGURATIONS[name]
    return verify(configuration.defines, comes_to_rest=configuration.comes_to_rest)


def references(comment: str) -> Iterator[tuple[str, str]]:
    """What a comment names, as file and function, class or method."""
    for file, names in NAMED.findall(comment):
        for dotted, called in NAME.findall(names):
            yield file, dotted or called


def named(source: str) -> set[tuple[str, str]]:
    comments = re.findall(r"/\*(.*?)\*/", source, re.DOTALL)
    return {
        found
        for comment in comments
        for found in references(" ".join(re.sub(r"\n\s*\*", " ", comment).split()))
    }


def defined(source: str) -> set[str]:
    """Functions and classes of a module, methods and attributes of these behind a dot."""
    names = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {
                f"{node.name}.{within.name}"
                for within in node.body
                if isinstance(within, ast.FunctionDef)
            }
            names |= {
                f"{node.name}.{within.attr}"
                for within in ast.walk(node)
                if isinstance(within, ast.Attribute) and isinstance(within.ctx, ast.Store)
            }
    return names


def steps(source: str) -> Iterator[int]:
    """The lines on which the steps of a role begin."""
    for number, line in enumerate(source.splitlines(), 1):
        if re.match(r"    :: (atomic|d_step) \{", line):
            yield number


@searches
@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_properties_hold_in_every_state(name: str) -> None:
    result = verified(name)
    assert (result.violated, result.errors) == ("", 0), result.output
    assert result.exhaustive, result.output


@searches
@pytest.mark.usefixtures("tools")
def test_every_line_of_the_model_is_led_to() -> None:
    assert never_reached([verified(name) for name in CONFIGURATIONS]) == []


@searches
@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize("name", CONTROLS)
def test_a_model_that_is_wrong_in_one_respect_is_found_wrong(name: str) -> None:
    result = verify_control(name)
    assert result.violated in CONTROLS[name].breaks, result.output


@pytest.mark.parametrize("path", MODEL, ids=lambda path: path.name)
def test_what_the_model_stands_for_is_in_the_code(path: Path) -> None:
    missing = {
        f"{file}: {name}"
        for file, name in named(path.read_text())
        if not (ROOT / file).exists() or name not in defined((ROOT / file).read_text())
    }
    assert missing == set()


@pytest.mark.parametrize("path", MODEL, ids=lambda path: path.name)
def test_every_step_says_what_it_stands_for(path: Path) -> None:
    source = path.read_text()
    silent = [line for line in steps(source) if not list(references(comment_above(source, line)))]
    assert silent == []


def test_every_role_has_steps_to_check() -> None:
    with_steps = {path.stem for path in MODEL if list(steps(path.read_text()))}
    assert with_steps == {"collector", "frontend", "worker"}


def test_every_control_is_in_the_model_and_the_model_has_no_other() -> None:
    looked_at = {
        name
        for path in MODEL
        for name in re.findall(r"^#ifn?def (\w+)$", path.read_text(), re.MULTILINE)
    }
    sizes = {name for each in CONFIGURATIONS.values() for name in each.defines}
    assert looked_at - sizes - {"FINE", "COMPLETIONS"} == set(CONTROLS)


def test_the_tables_of_the_readme_are_complete() -> None:
    assert set(re.findall(r"^\| `([A-Z_]+)` \|", README, re.MULTILINE)) == set(CONTROLS)
    rows = re.findall(r"^\| ([a-z]+) \|.*\|$", README, re.MULTILINE)
    assert [row for row in rows if row in CONFIGURATIONS] == list(CONFIGURATIONS)


@pytest.mark.parametrize(
    ("comment", "found"),
    [
        ("shm/lane.py: Lane.publish, CONTROL", {("shm/lane.py", "Lane.publish")}),
        ("engine/collect.py: main(), buried", {("engine/collect.py", "main")}),
        (
            "Its end. shm/holder.py: Holder, Holder.flush; shm/lane.py: Lane. Nobody waits.",
            {
                ("shm/holder.py", "Holder"),
                ("shm/holder.py", "Holder.flush"),
                ("shm/lane.py", "Lane"),
            },
        ),
        ("what it leaves", set()),
    ],
)
def test_names_are_found_in_comments(comment: str, found: set[tuple[str, str]]) -> None:
    assert set(references(comment)) == found


REPORT: Final = """
Full statespace search for:
	assertion violations	+
	invalid end states	+
State-vector 212 byte, depth reached 36, errors: 0
     1305 states, stored
  139.072	total actual memory usage
unreached in proctype worker
	worker.pml:12, state 3, "ref = 0"
	worker.pml:99, state 211, "-end-"
pan: elapsed time 1.5 seconds
"""


def test_a_report_of_a_whole_search_is_read() -> None:
    result = parsed(REPORT)
    assert (result.states, result.depth, result.errors) == (1305, 36, 0)
    assert (result.seconds, result.memory_mib, result.violated) == (1.5, 139.072, "")
    assert result.exhaustive
    assert result.unreached == {("worker.pml", 12)}


@pytest.mark.parametrize(
    ("whole", "cut_short"),
    [
        ("Full", "error: max search depth too small\nFull"),
        ("Full", "pan: reached -DMEMLIM bound\nWarning: Search not completed\nFull"),
        ("Full", "Bit"),
        ("violations\t+", "violations\t- (disabled by -A flag)"),
        ("end states\t+", "end states\t- (disabled by -E flag)"),
        ("depth reached 36", "depth reached 100000"),
    ],
)
def test_a_search_that_was_cut_short_is_seen(whole: str, cut_short: str) -> None:
    assert not parsed(REPORT.replace(whole, cut_short)).exhaustive


def test_a_property_that_is_broken_has_its_name() -> None:
    line = "pan:1: assertion violated ((free[0]&&(free[1]==(1>1)))||g_lost) (at depth 52)\n"
    assert parsed(line + REPORT.replace("errors: 0", "errors: 1")).violated == "g_lost"


def test_what_is_no_report_is_refused() -> None:
    with pytest.raises(ValueError, match="no search"):
        parsed("pan: out of memory")
