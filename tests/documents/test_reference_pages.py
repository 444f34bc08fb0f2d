"""Generated blocks of the reference are as the code has them now."""

from collections import Counter
from pathlib import Path

import pytest
from generator.pages import BLOCKS, PAGES, blocks_of, rewritten


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_generated_blocks_are_up_to_date(page: Path) -> None:
    text = page.read_text()
    assert rewritten(text) == text, "run `python docs/generate.py`"


def test_every_block_is_on_one_page() -> None:
    found = Counter(name for page in PAGES for name in blocks_of(page.read_text()))
    assert found == Counter(BLOCKS.keys())
