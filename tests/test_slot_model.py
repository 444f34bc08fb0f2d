"""The model of a slot's life: every configuration holds, every control is caught, and what its
comments name is in the code."""

import ast
import functools
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Final

import pytest
from model.configurations import CONFIGURATIONS, CONTROLS
from model.spin import (
    FOLDER,
    Result,
    comment_above,
    missing_tools,
    never_reached,
    parsed,
    verify,
    verify_control,
)
from model.traces import Forbidden, Replay, Rights, references, rights
from segment_fixture import local_segment, spec
from simulation.engine import LANES
from simulation.life import Life
from simulation.mutants import MUTANTS
from simulation.search import failure, quiet
from tiers import exhaustive, only

from ringbatch.engine.ipc.messages import task_words
from ringbatch.shm.descriptors import RingWords, SlotWords
from ringbatch.shm.engine_slots import BatchMark
from ringbatch.shm.slot import DROPPED, FLAG_BITS, WANTED, Reason, reference

ROOT: Final = Path(__file__).parents[1]
PACKAGES: Final = {"shm", "engine", "frontend", "tests"}
MODEL: Final = sorted(FOLDER.glob("*.pml"))
README: Final = (FOLDER / "README.md").read_text()

LIVES: Final = 60
"""Number of lives simulated while every store is checked against the model."""

searches = pytest.mark.timeout(1800)
"""Searches of seconds, on a machine that may be busy with something else."""


@pytest.fixture
def tools() -> None:
    """Skip the test if spin or gcc is missing; in CI they must be there."""
    if missing := missing_tools():
        if os.environ.get("CI"):
            pytest.fail(f"not installed: {', '.join(missing)}; .ci/run installs them")
        pytest.skip(f"not installed: {', '.join(missing)}")


@functools.cache
def verified(name: str) -> Result:
    configuration = CONFIGURATIONS[name]
    return verify(configuration.defines, comes_to_rest=configuration.comes_to_rest)


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
@pytest.mark.parametrize("name", only({name: name for name in CONFIGURATIONS}, "both"))
def test_the_properties_hold_in_every_state(name: str) -> None:
    result = verified(name)
    assert (result.violated, result.errors) == ("", 0), result.output
    assert result.exhaustive, result.output


@exhaustive
@searches
@pytest.mark.usefixtures("tools")
def test_every_line_of_the_model_is_led_to() -> None:
    assert never_reached([verified(name) for name in CONFIGURATIONS]) == []


@searches
@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize(
    "name",
    only({name: name for name in CONTROLS}, "NO_GENERATION", "DONE_FIRST"),
)
def test_a_model_that_is_wrong_in_one_respect_is_found_wrong(name: str) -> None:
    result = verify_control(name)
    assert result.violated in CONTROLS[name].breaks, result.output


@pytest.mark.parametrize("path", MODEL, ids=lambda path: path.name)
def test_names_in_the_model_are_in_the_code(path: Path) -> None:
    missing = {
        f"{file}: {name}"
        for file, name in named(path.read_text())
        if not (ROOT / file).exists() or name not in defined((ROOT / file).read_text())
    }
    assert missing == set()


@pytest.mark.parametrize("path", MODEL, ids=lambda path: path.name)
def test_every_step_names_its_code(path: Path) -> None:
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
        ("engine/collector/role.py: main(), reclaimed", {("engine/collector/role.py", "main")}),
        (
            "Its end. shm/engine_slots.py: EngineSlots, EngineSlots.flush; shm/lane.py: Lane. No.",
            {
                ("shm/engine_slots.py", "EngineSlots"),
                ("shm/engine_slots.py", "EngineSlots.flush"),
                ("shm/lane.py", "Lane"),
            },
        ),
        ("what it leaves", set()),
    ],
)
def test_names_are_found_in_comments(comment: str, found: set[tuple[str, str]]) -> None:
    assert set(references(comment)) == found


Table = dict[tuple[str, str], set[tuple[str, str]]]


@functools.cache
def short(path: str) -> str:
    """A path from the folder of its package on, as the model's comments name files."""
    parts = Path(path).parts
    start = max((n for n, part in enumerate(parts) if part in PACKAGES), default=-2)
    return "/".join(parts[start:])


def code() -> set[tuple[str, str]]:
    """The functions of ringbatch's that run, the files that they are in by folder and name."""
    found = set()
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        found.add((short(frame.f_code.co_filename), frame.f_code.co_name))
        frame = frame.f_back
    return found


def replayed(seeds: Iterable[int], table: Rights) -> set[tuple[str, str]]:
    """Hold every word that the processes of these lives store against the model: the roles and the
    variables that they stored."""
    seen = set()
    for seed in seeds:
        life = Life(seed)
        engine = life.engine
        replay = Replay(engine.segment.layout, engine.raw, table, LANES)

        def store(role: str, own: int, number: int, value: int, replay: Replay = replay) -> None:
            replay.store(role, own, number, value, code)

        engine.observer = store
        if complaint := failure(life):
            raise Forbidden(f"seed {seed}: {complaint}")
        seen |= replay.seen
    return seen


@pytest.fixture
def allowed() -> Iterator[Table]:
    """Stores that the model allows each role on the simulation's machine."""
    with quiet():
        yield rights(path.read_text() for path in MODEL)


def test_every_store_of_a_simulated_life_is_a_step_of_the_model(allowed: Table) -> None:
    seen = replayed(range(LIVES), allowed)
    assert seen == set(allowed)


@pytest.mark.parametrize(
    "right", [("frontend", "dropped"), ("collector", "done"), ("worker", "tasks?")]
)
def test_a_store_that_the_model_has_no_step_for_is_refused(
    allowed: Table, right: tuple[str, str]
) -> None:
    del allowed[right]
    with pytest.raises(Forbidden, match=f"a {right[0]} does not store {re.escape(right[1])}"):
        replayed(range(LIVES), allowed)


def test_a_store_by_code_that_no_step_names_is_refused(allowed: Table) -> None:
    allowed["collector", "tasks!"] = {("engine/collector/collector.py", "_adopt")}
    with pytest.raises(Forbidden, match="a collector stores tasks! in"):
        replayed(range(LIVES), allowed)


def test_an_answer_that_is_posted_before_done_is_refused(allowed: Table) -> None:
    mutant = MUTANTS["an answer is posted before DONE"]
    with mutant.applied(), pytest.raises(Forbidden, match=r"completions! .* is not so far"):
        replayed(range(LIVES), allowed)


CONTROL, GIVEN, ANSWERED = "control", "given", "done"


@pytest.mark.parametrize(
    ("stores", "message"),
    [
        ([(CONTROL, 1, WANTED), (CONTROL, 2, WANTED)], "CONTROL 0x201 follows 0x101"),
        ([(CONTROL, 2, WANTED)], "CONTROL 0x201 follows 0x0"),
        ([(CONTROL, 1, DROPPED)], "CONTROL 0x102 follows 0x0"),
        ([(CONTROL, 1, WANTED), (ANSWERED, 1, 0)], "worker 0 answers 0x1000000, which it was not"),
        ([(CONTROL, 1, WANTED), (GIVEN, 1, 0), *[(ANSWERED, 1, 0)] * 2], "DONE 0x100 is stored"),
        ([(CONTROL, 1, WANTED), (GIVEN, 1, 0), (ANSWERED, 2, 0)], "DONE 0x200 is stored"),
        ([(GIVEN, 1, 0)], "tasks! 0x1000000, and its slot is not so far"),
    ],
)
def test_a_step_that_the_model_forbids_is_refused(
    stores: list[tuple[str, int, int]], message: str
) -> None:
    segment = local_segment(spec())
    layout, words = segment.layout, segment.words
    every = {("frontend", "control"), ("frontend", "dropped"), ("collector", "tasks!")}
    here = {("tests/test_slot_model.py", "code")}
    replay = Replay(layout, words, dict.fromkeys({*every, ("worker", "done")}, here), 1)
    first = layout.slot(0)
    mark = BatchMark(1, 1, Reason.FULL, 0)
    ring = layout.task_ring(0)

    def store(generation: int, kind: str, flag: int) -> None:
        if kind == GIVEN:
            task = task_words(mark, [reference(generation, 0)])
            items = ring + RingWords.ITEMS
            for place, word in enumerate(task, items):
                words[place] = word
            role, number, value = "collector", ring + RingWords.TAIL, len(task)
        else:
            role = "frontend" if kind == CONTROL else "worker"
            number = first if kind == CONTROL else first + SlotWords.DONE
            value = generation << FLAG_BITS | flag
        replay.store(role, 0, number, value, lambda: here)
        words[number] = value

    *before, (kind, generation, flag) = stores
    for earlier, number, flags in before:
        store(number, earlier, flags)
    with pytest.raises(Forbidden, match=re.escape(message)):
        store(generation, kind, flag)


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


def test_an_invalid_report_is_refused() -> None:
    with pytest.raises(ValueError, match="no search"):
        parsed("pan: out of memory")
