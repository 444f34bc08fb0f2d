"""Generated blocks of the reference pages, between two marks."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from generator import commands, errors, limits, settings

PAGES: Final = sorted((Path(__file__).parents[1] / "reference").glob("*.md"))
BLOCKS: Final[Mapping[str, Callable[[], str]]] = {
    "commands": commands.details,
    "commands-index": commands.index,
    "error-messages": errors.messages,
    "error-statuses": errors.statuses,
    "limits": limits.tables,
    "settings-index": settings.index,
    "settings": settings.details,
}
"""Writers of the blocks, by the name in a block's mark."""
_BLOCK: Final = re.compile(r"(<!-- generated:([\w-]+) -->\n).*?(<!-- end generated -->)", re.DOTALL)


def rewritten(text: str) -> str:
    """Return a page with its blocks as the code has them now."""
    return _BLOCK.sub(lambda block: f"{block[1]}\n{BLOCKS[block[2]]()}\n\n{block[3]}", text)


def blocks_of(text: str) -> list[str]:
    """Return the names of a page's blocks."""
    return [name for _, name, _ in _BLOCK.findall(text)]
