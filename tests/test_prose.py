"""Plain English as a test: docstrings, documents and names keep the rules of prose.

`prose_rules.py` has the rules; ruff's D205, D400 and D401 go beside them (`pyproject.toml`).
"""

import ast
import re
from pathlib import Path

import pytest
from prose_rules import MOST_WORDS, docstring_faults, document_faults, name_faults
from sources import ROOT, module_name, modules, own_files, room_of, sources, tree_of

PROGRAMS = [
    *(ROOT / name for name in ("bench", "docs", "setup.py")),
    *(ROOT / "tests" / name for name in ("harness", "simulation")),
]
"""Programs beside the packages: measurements, the writer of pages, the build, tools of tests."""
DOCUMENTS = [
    *(ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "README.md")),
    *(ROOT / name for name in ("bench/README.md", "bench/methods.md", "systemd/README.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
]
FOLDERS = ["bench", "docs", "engine", "frontend", "shm", "tests", "top"]
LONG = " ".join(["word"] * (MOST_WORDS + 1)) + "."


@pytest.mark.parametrize("room", sorted({room_of(module_name(path)) for path in sources()}))
def test_docstrings_keep_the_rules(room: str) -> None:
    faults = [
        f"{module.name}:{line}: {fault}"
        for module in modules()
        if module.room == room
        for line, fault in docstring_faults(module.tree)
    ]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_docstrings_of_programs_keep_the_rules(path: Path) -> None:
    files = [path] if path.is_file() else own_files(path)
    trees = {each: tree_of(each) for each in files}
    assert trees
    faults = [
        f"{each.relative_to(ROOT)}:{line}: {fault}"
        for each, tree in trees.items()
        for line, fault in docstring_faults(tree)
    ]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_keep_the_rules(path: Path) -> None:
    faults = [f"{path.name}:{line}: {fault}" for line, fault in document_faults(path.read_text())]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("What a lane has.", 'opens with "What"'),
        ("What", 'opens with "What"'),
        ("Who: the owner.", 'opens with "Who"'),
        ("Of the table.", 'opens with "Of"'),
        ("Of: the table.", 'opens with "Of"'),
        ("Those of one lane.", 'opens with "Those"'),
        ("When a lane is due.", 'opens with "When"'),
        ("A lane.\n\n" + LONG, "31 words"),
        ("A lane. " + LONG, "31 words"),
    ],
)
@pytest.mark.parametrize(
    "form",
    ['"""{}"""', 'class Lane:\n    """{}"""', 'def f():\n    """{}"""', 'LANES = 2\n"""{}"""'],
)
def test_a_docstring_that_breaks_a_rule_is_reported(text: str, fault: str, form: str) -> None:
    ((_, found),) = docstring_faults(ast.parse(form.format(text)))
    assert fault in found


def test_a_docstring_in_plain_words_is_fine() -> None:
    items = "\n\n- " + "\n- ".join([LONG[: len(LONG) // 2]] * 4)
    assert not [*docstring_faults(ast.parse(f'"""A lane: {LONG[:50]}.{items}"""'))]


@pytest.mark.parametrize(
    ("text", "line", "fault"),
    [
        ("Whoever asks waits.", 1, 'opens with "Whoever"'),
        ("# Title\n\nIt holds. Which is good.", 3, 'opens with "Which"'),
        ("```sh\nWhat\n```\n\n- That is so.\n- It is.", 5, 'opens with "That"'),
        ("It is so.\n\n1. " + LONG, 3, "31 words"),
        ("<!-- a\nmark -->\n**Where** it is.", 3, 'opens with "Where"'),
    ],
)
def test_a_document_that_breaks_a_rule_is_reported(text: str, line: int, fault: str) -> None:
    ((found_line, found),) = document_faults(text)
    assert (found_line, fault in found) == (line, True)


@pytest.mark.parametrize(
    "text",
    [
        "What is it? It is a lane.",
        "# What it is\n\nA lane.",
        "| What | Who |\n|---|---|\n| Whatever | " + LONG + " |",
        f"```\n{LONG}\n```",
        "[a link](" + re.sub(" ", "/", LONG) + ") of few words.",
    ],
)
def test_a_document_in_plain_words_is_fine(text: str) -> None:
    assert not [*document_faults(text)]


@pytest.mark.parametrize("folder", FOLDERS)
def test_names_have_their_nouns(folder: str) -> None:
    files = own_files(ROOT / folder)
    assert files
    faults = [
        f"{path.relative_to(ROOT)}:{line}: {fault}"
        for path in files
        for line, fault in name_faults(tree_of(path))
    ]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    "source",
    [
        "def test_who_asks_gets_one(): pass",
        "async def what(): pass",
        "class WhoeverWaits: pass",
        "def f(what): pass",
        "lambda *, who: None",
        "told = 1",
        "self._what = 1",
        "for who in found: pass",
        "def test_a_fault_is_told(): pass",
        "def test_it_is_said_once(): pass",
        "def test_whose_time_is_over_is_refused(): pass",
        "def _whose(): pass",
        "case(id='what-is-late')",
        "cases(ids=['late', 'whatever comes'])",
    ],
)
def test_a_name_without_a_noun_is_reported(source: str) -> None:
    ((line, fault),) = name_faults(ast.parse(source))
    assert (line, fault.endswith("lacks a noun")) == (1, True)


@pytest.mark.parametrize(
    "source",
    [
        "def test_a_client_whose_time_is_over_is_refused(): pass",
        "whole = somewhat = 1",
        "f(what=who)",
        "case(id='a whole lane', reason='what is late')",
        "cases(ids=['late', 1])",
    ],
)
def test_a_name_with_a_noun_is_fine(source: str) -> None:
    assert not [*name_faults(ast.parse(source))]
