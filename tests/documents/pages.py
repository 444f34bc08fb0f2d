"""Pages of the documentation as tests read them: blocks behind marks, tables, sections, links.

A page is named by its path in the tree, such as "README.md" or "docs/how-to/use-ray.md". The line
before a fenced block is its mark: ``<!-- example:NAME -->`` for a block that a test runs or
checks, ``<!-- ci:NAME -->`` for one that `.ci/run` runs, ``<!-- shown: REASON -->`` for one that
neither can.
"""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
README: Final = "README.md"
PAGES: Final = (README, *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md")))
"""The user's documentation."""
_BLOCK: Final = re.compile(r"^```(\w*)[^\n]*\n(.*?\n|)```$", re.DOTALL | re.MULTILINE)
_MARK: Final = re.compile(r"<!-- (example|ci|shown): ?(.+) -->\n\Z")
_LINK: Final = re.compile(r"\]\(([^)\s]+)\)|src=\"([^\"]+)\"")


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        language: the word behind the fence; empty for output.
        text: the lines between the fences.
        mark: "example", "ci", "shown", or empty.
        name: the rest of the mark.
        line: the number of the fence's line.
    """

    language: str
    text: str
    mark: str
    name: str
    line: int


@cache
def text_of(page: str) -> str:
    """Return a page's text."""
    return (ROOT / page).read_text()


@cache
def blocks(page: str) -> tuple[Block, ...]:
    """Return a page's fenced blocks, in order."""
    text, found = text_of(page), []
    for match in _BLOCK.finditer(text):
        before = text[: match.start()]
        mark = _MARK.search(before)
        kind, name = mark.groups() if mark else ("", "")
        line = before.count("\n") + 1
        found.append(Block(match[1], match[2].removesuffix("\n"), kind, name, line))
    return tuple(found)


def prose(page: str) -> str:
    """Return a page's text without its fenced blocks and comments."""
    return re.sub(r"<!--.*?-->", "", _BLOCK.sub("", text_of(page)), flags=re.DOTALL)


def example(page: str, name: str) -> str:
    """Return the block that a page marks as an example of that name."""
    (text,) = [b.text for b in blocks(page) if (b.mark, b.name) == ("example", name)]
    return text


def output_after(page: str, name: str) -> str:
    """Return the block that follows an example: the output that the page shows for it."""
    found = blocks(page)
    (index,) = [i for i, b in enumerate(found) if (b.mark, b.name) == ("example", name)]
    return found[index + 1].text


def table(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the table with this first heading, row by row."""
    text = text_of(page)
    lines = text[text.index(f"\n| {heading} |") + 1 :].partition("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def section(page: str, title: str) -> str:
    """Return the text below a heading, up to the next one of its level or above."""
    found = re.search(rf"^(#+) {re.escape(title)}\n", text_of(page), re.MULTILINE)
    assert found, f"{page} has no section {title!r}"
    rest = text_of(page)[found.end() :]
    return re.split(rf"^#{{1,{len(found[1])}}} ", rest, maxsplit=1, flags=re.MULTILINE)[0]


def headings(page: str) -> list[str]:
    """Return a page's headings, without their marks."""
    return re.findall(r"^#+ (.+)$", _BLOCK.sub("", text_of(page)), re.MULTILINE)


def links(page: str) -> list[str]:
    """Return the targets of a page's links and pictures, other sites' included."""
    return [inline or picture for inline, picture in _LINK.findall(_without_code(page))]


def _without_code(page: str) -> str:
    return re.sub(r"`[^`\n]*`", "`", prose(page))
