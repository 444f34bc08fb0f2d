"""Structure of the documentation: marks before blocks, settings, commands, links, anchors."""

import argparse
import ast
import re
import shlex
import tomllib
import unicodedata
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from documents.pages import PAGES, README, ROOT, blocks, headings, links, prose, text_of

from ringbatch.engine.command import cli
from ringbatch.engine.config.definitions import settings
from ringbatch.engine.config.document import ALIASES, conclude
from ringbatch.engine.config.settings import ModelConfig, ServerConfig

LINKED: Final = [
    *PAGES,
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "bench/README.md",
    "bench/methods.md",
    "systemd/README.md",
]
UNRUN: Final = {"", "text", "toml"}
"""Languages of blocks that need no mark: output, and settings, which are read here."""
KINDS: Final = {
    key: setting.kind
    for section in (ServerConfig, ModelConfig)
    for key, setting in settings(section).items()
}
KEYS: Final = {*KINDS, *ALIASES, "steps", "returns"}

_FILE: Final = re.compile(
    r"(?<![\w/.-])((?:shm|engine|frontend|bench|docs|tests|systemd)/[\w./*-]*\w|[A-Z]+\.md|LICENSE)\b"
)
_NAMES_EXAMPLES: Final = re.compile(r"\b(example|blocks)\(|f['\"]docs/")


@cache
def used_examples() -> set[tuple[str, str]]:
    """Return the pages and names that tests give to `example`, as literals or module constants.

    A test that gives a page to `blocks` uses every example of it: its name is then "*". An f-string
    of a page's path is a pattern of pages whose every example is used.
    """
    found = set()
    for path in sorted((ROOT / "tests").rglob("*.py")):
        source = path.read_text()
        # It takes seconds to parse all tests.
        if not _NAMES_EXAMPLES.search(source):
            continue
        tree = ast.parse(source)
        constants = {"README": README} | dict(_constants(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                pattern = "".join(_literal(part) or "*" for part in node.values)
                found |= {(pattern, "*")} if pattern.startswith("docs/") else set()
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                words = [
                    constants.get(arg.id) if isinstance(arg, ast.Name) else _literal(arg)
                    for arg in node.args
                ]
                match words:
                    case [str(page), str(name)] if node.func.id == "example":
                        found.add((page, name))
                    case [str(page)] if node.func.id == "blocks":
                        found.add((page, "*"))
    return found


def _constants(tree: ast.Module) -> Iterator[tuple[str, str | None]]:
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        for target in targets:
            if isinstance(target, ast.Name) and isinstance(node, ast.Assign | ast.AnnAssign):
                yield target.id, _literal(node.value)


def _literal(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_run_or_says_why_not(page: str) -> None:
    wrong = [b.line for b in blocks(page) if not b.mark and b.language not in UNRUN]
    assert not wrong, f"{page}: no mark before the blocks of the lines {wrong}"
    ci = (ROOT / ".ci" / "run").read_text()
    lost = [b.name for b in blocks(page) if b.mark == "ci" and not re.search(rf"\b{b.name}\b", ci)]
    assert not lost, f"{page}: .ci/run runs none of {lost}"
    fences = len(re.findall(r"^\s*(```|~~~)", text_of(page), re.MULTILINE))
    assert fences == 2 * len(blocks(page)), f"{page}: fences must begin their lines, in pairs"


@pytest.mark.parametrize("page", PAGES)
def test_every_example_is_used_by_a_test(page: str) -> None:
    names = [b.name for b in blocks(page) if b.mark == "example"]
    assert len(names) == len(set(names)), f"{page}: two examples have one name: {names}"
    used = {name for pages, name in used_examples() if fnmatch(page, pages)}
    unused = [name for name in names if not {name, "*"} & used]
    assert not unused, f"no test calls example({page!r}, ...) for {unused}"


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_settings_is_accepted(page: str) -> None:
    for block in blocks(page):
        if block.language == "toml" and block.mark != "shown":
            document = tomllib.loads(block.text)
            document.setdefault("models", {"m": {"path": "model.py"}})
            conclude(document, source=f"{page}:{block.line}", base=ROOT, is_file=lambda _: True)


@pytest.mark.parametrize("page", [p for p in PAGES if not p.startswith("docs/design/")])
def test_every_setting_in_the_text_takes_its_value(page: str) -> None:
    for line in re.findall(r"`([a-z_]{3,} = [^`]+)`", prose(page)):
        ((key, value),) = tomllib.loads(line).items()
        assert key in KEYS, f"{page}: {line}"
        assert key not in KINDS or KINDS[key].accepts(value), f"{page}: {line}"


@pytest.mark.parametrize("page", PAGES)
def test_every_command_is_understood(page: str) -> None:
    for words in commands(page):
        assert understood(words), f"{page}: ringbatch {shlex.join(words)}"


@cache
def parser() -> argparse.ArgumentParser:
    """Return that of the command line."""
    return cli._parser()


def understood(words: list[str]) -> bool:
    """True if the command line takes these words; ``--help`` and the like end it with 0."""
    try:
        parser().parse_args(words)
    except SystemExit as end:
        return end.code == 0
    return True


def commands(page: str) -> Iterator[list[str]]:
    """The words behind ``ringbatch`` in a page's shell blocks and code spans."""
    spans = re.findall(r"`(ringbatch [^`]+)`", prose(page))
    shell = "\n".join(b.text for b in blocks(page) if b.language == "sh").replace("\\\n", "")
    spans += re.findall(r"(?:^|&& |bin/)(ringbatch [^&|<>\n]+)", shell, re.MULTILINE)
    for span in spans:
        _, *words = shlex.split(span.replace(" ...", ""), comments=True)
        yield words if len(words) > 1 else [*words, "--help"]  # a command's name alone


@pytest.mark.parametrize("page", LINKED)
def test_every_link_leads_somewhere(page: str) -> None:
    broken = [link for link in links(page) if not leads_somewhere(page, link)]
    assert not broken, f"{page}: {broken}"


def leads_somewhere(page: str, link: str) -> bool:
    """True if a link from a page has a target; other sites' are taken to have one."""
    if re.match(r"https?:|mailto:", link):
        return True
    path, _, anchor = link.partition("#")
    target = (ROOT / page).parent / path if path else ROOT / page
    if not target.exists():
        return False
    return not anchor or anchor in anchors(str(target.resolve().relative_to(ROOT)))


@pytest.mark.parametrize("page", PAGES)
def test_every_file_in_the_text_exists(page: str) -> None:
    named = set(_FILE.findall(text_of(page)))
    assert not [name for name in named if not any(ROOT.glob(name))]


@cache
def anchors(page: str) -> frozenset[str]:
    """A page's anchors: of the headings for which a forge and MkDocs make the same one."""
    return frozenset(
        _forge_anchor(h) for h in headings(page) if _forge_anchor(h) == _mkdocs_anchor(h)
    )


def _forge_anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def _mkdocs_anchor(heading: str) -> str:
    ascii_text = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", ascii_text).strip().lower())


@pytest.mark.parametrize("page", PAGES)
def test_the_page_reads_alike_on_a_forge_and_as_a_site(page: str) -> None:
    """MkDocs needs a blank line before a list or a table, and four blanks to nest a list."""
    lines = prose(page).splitlines()
    wrong = []
    for before, line in zip(["", *lines], lines, strict=False):
        item = re.match(r"( *)([-*]|\d+\.) ", line)
        if item and (
            len(item[1]) % 4 or (before.strip() and not re.match(r" *([-*]|\d+\.) |  ", before))
        ):
            wrong.append(line)
        if line.startswith("|") and before.strip() and not before.startswith("|"):
            wrong.append(line)
    assert not wrong, f"{page}: {wrong}"


def test_every_page_is_linked_from_the_index_of_its_folder() -> None:
    for folder in (ROOT / "docs").iterdir():
        if any(folder.glob("*.md")):
            linked = {
                link.partition("#")[0] for link in links(str(Path("docs", folder.name, "index.md")))
            }
            there = {path.name for path in folder.glob("*.md")} - {"index.md"}
            assert there <= linked, f"docs/{folder.name}/index.md lacks {sorted(there - linked)}"
