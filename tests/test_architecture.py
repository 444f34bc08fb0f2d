"""ARCHITECTURE.md and docs/design, held to the code: the rooms are those of the table, the walks
lead along the imports, and every name exists."""

import ast
import re
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest
from sources import ROOT, own_files
from test_rooms import ARROWS

from ringbatch.shm.readiness import TABLE, RequestFate

TEXT: Final = (ROOT / "ARCHITECTURE.md").read_text()
PAGES: Final = {page.stem: page.read_text() for page in sorted((ROOT / "docs/design").glob("*.md"))}
"""The pages of decisions, by name."""
DOCUMENTS: Final = {"ARCHITECTURE": TEXT, **PAGES}
PUBLIC: Final = {"engine", "frontend"}
"""Packages whose top level re-exports names of their rooms, and so is not drawn."""
PARTS: Final = ("Problem", "Choice", "Figures", "Rejected")
"""The parts of a decision."""
IDENTIFIER: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
FOREIGN: Final = {"auth_request", "cryptography", "tcp_migrate_req"}
"""Names of other programs' that no file here has."""
NAMED: Final = re.compile(r"`((?:shm|engine|frontend)/[\w/]+\.py):([\w.]+)`")


def section(title: str) -> str:
    """The text under a heading, up to the next of its level."""
    assert f"\n## {title}\n" in TEXT, f"there is no section {title!r}"
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def walks() -> dict[str, list[str]]:
    """The legs of each walk, by its heading."""
    _, *parts = re.split(r"^### ", section("Three walks through the code"), flags=re.MULTILINE)
    found = {}
    for part in parts:
        title, _, text = part.partition("\n")
        _, *legs = re.split(r"^\d+\. ", text, flags=re.MULTILINE)
        found[title] = [" ".join(leg.split()) for leg in legs]
    return found


def room_of_file(path: str) -> str:
    package, *rooms, _ = path.split("/")
    return ".".join([package, *rooms])


@cache
def defined(path: Path) -> frozenset[str]:
    """The functions, classes, methods and constants of a module; ``Class.method``."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            functions = (n for n in node.body if isinstance(n, ast.FunctionDef))
            names |= {f"{node.name}.{function.name}" for function in functions}
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return frozenset(names)


@cache
def words_of_the_code() -> frozenset[str]:
    """The words and options of all files that are no documents."""
    folders = ("shm", "engine", "frontend", "bench", "tests", "systemd")
    files = [ROOT / "setup.cfg", *(f for name in folders for f in own_files(ROOT / name, "*.*"))]
    text = " ".join(
        file.read_text(errors="ignore")
        for file in files
        if file.suffix in (".py", ".cfg", ".pml", ".service", ".socket", ".in")
        and file.name != "test_architecture.py"
    )
    return frozenset(re.findall(r"--[a-z][\w-]*|\w+", text))


def test_the_rooms_are_those_of_the_table() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| .+ \| (.*)\|$", section("Rooms"), re.MULTILINE)
    assert [(room, rooms.replace("`", "").split()) for room, rooms in rows] == [
        (room, rooms.split()) for room, rooms in ARROWS.items()
    ]


def test_the_picture_shows_every_arrow_that_does_not_follow_from_others() -> None:
    drawn = {
        (room, target)
        for room, targets in re.findall(r"^ +([\w.]+) --> (.+)$", section("Rooms"), re.MULTILINE)
        for target in targets.split(" & ")
    }
    rooms = [room for room in ARROWS if room not in PUBLIC]
    arrows = {room: set(ARROWS[room].split()) - PUBLIC for room in rooms}
    below: dict[str, set[str]] = {}
    for room in rooms:
        below[room] = set().union(arrows[room], *(below[target] for target in arrows[room]))
    assert drawn == {
        (room, target)
        for room in rooms
        for target in arrows[room]
        if not any(target in below[other] for other in arrows[room])
    }


def test_architecture_has_its_bounded_length() -> None:
    assert len(TEXT.splitlines()) <= 500


def test_every_room_has_its_page_of_decisions() -> None:
    lines = [re.findall(r"^Rooms: (.+(?:\n.+)*)$", text, re.MULTILINE) for text in PAGES.values()]
    rooms = [room for line in lines for listed in line for room in re.findall(r"`(.+?)`", listed)]
    assert sorted(rooms) == sorted(ARROWS.keys() - PUBLIC - {"bench"})


@pytest.mark.parametrize(
    "page", [name for name, text in PAGES.items() if text.startswith("# Decisions")]
)
def test_a_decision_has_its_parts_in_order(page: str) -> None:
    _, *decisions = re.split(r"^## ", PAGES[page], flags=re.MULTILINE)
    assert decisions
    for decision in decisions:
        title, _, text = decision.partition("\n\n")
        labels = re.findall(r"^\*\*(\w+)(?:\.\*\*|\*\*)", text, re.MULTILINE)
        assert "Choice" in labels, title
        assert labels == [part for part in PARTS if part in labels], title
        assert text.startswith("**"), title


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_identifier_exists(document: str) -> None:
    spans = re.findall(r"`([^`\n]+)`", DOCUMENTS[document])
    names = [name for span in spans if IDENTIFIER.fullmatch(span) for name in span.split(".")]
    options = [option for span in spans for option in re.findall(r"(?<!\S)--[a-z][\w-]*", span)]
    assert {*names, *options} - words_of_the_code() - FOREIGN == set()


def test_the_index_leads_to_every_page() -> None:
    assert set(re.findall(r"\]\(([\w-]+)\.md\)", PAGES["index"])) == PAGES.keys() - {"index"}


def test_the_walks_name_many_functions() -> None:
    assert len(NAMED.findall(TEXT)) >= 40


@pytest.mark.parametrize("document", DOCUMENTS)
def test_everything_that_is_named_in_a_file_is_defined_there(document: str) -> None:
    named = NAMED.findall(DOCUMENTS[document])
    assert [
        f"{path}:{name}"
        for path, name in named
        if not (ROOT / path).exists() or name not in defined(ROOT / path)
    ] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_file_that_is_named_exists(document: str) -> None:
    path = re.compile(r"(?<![\w/.])((?:shm|engine|frontend|bench|tests|systemd)/[\w./]*\w)")
    names = path.findall(DOCUMENTS[document])
    assert [name for name in names if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("title", walks())
def test_a_walk_goes_through_the_rooms_in_the_direction_of_the_imports(title: str) -> None:
    legs = walks()[title]
    assert len(legs) >= 5
    for leg in legs:
        passed = list(dict.fromkeys(room_of_file(path) for path, _ in NAMED.findall(leg)))
        matched = re.match(r"[^`]*?\(([\w, ]+)\):", leg)
        assert matched is not None, leg
        assert matched[1].split(", ") == [room.rpartition(".")[2] for room in passed], leg
        for room, following in pairwise(passed):
            assert following in ARROWS[room].split(), f"{room} does not import {following}: {leg}"
        # And never back.
        visited = [room_of_file(path) for path, _ in NAMED.findall(leg)]
        assert visited == sorted(visited, key=passed.index), leg


def test_the_states_of_a_model_are_those_of_the_rule() -> None:
    (rows,) = re.findall(
        r"\| state \| holds while .*\n\|[-|]+\n((?:\|.*\n)+)", section("A request's life")
    )
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows.splitlines()]
    words = {RequestFate.RUN: "run", RequestFate.WAIT: "wait", RequestFate.REFUSED: "503"}
    assert [(name, ready, requests.partition(",")[0]) for name, _, ready, requests in cells] == [
        (
            state.name,
            "yes" if row.ready else "no",
            "as by its workers" if row.requests is None else words[row.requests],
        )
        for state, row in TABLE.items()
    ]
