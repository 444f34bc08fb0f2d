"""Releases of a library that count as tested."""

import pytest

from ringbatch.engine.runtimes.trees.releases import is_tested


@pytest.mark.parametrize(
    ("version", "tested"),
    [
        ("2.0.3", False),
        ("2.1.1", True),
        ("2.10.0", True),
        ("3.2.9", True),
        ("3.2.0rc1", True),
        ("3.3.0", False),
        ("4", False),
    ],
)
def test_from_the_oldest_to_the_newest(version: str, tested: bool) -> None:
    assert is_tested(version, ((2, 1), (3, 2))) == tested
