"""The two tiers of the tests: what every run does, and what `pytest --exhaustive` adds to it.

A test goes to the second tier when it tries everything there is of its kind, or very many of them:
a few of the same kind stay in the first, so that every run looks at every part of the product.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import pytest

OPTION: Final = "--exhaustive"
MARKER: Final = "exhaustive"

exhaustive: Final = pytest.mark.exhaustive
"""Marks a test, a file (`pytestmark = exhaustive`) or one parameter set of the second tier."""


def first_of(values: Iterable[Any], count: int) -> list[Any]:
    """Parameters, of which those after the first `count` belong to the second tier."""
    return [
        value if number < count else pytest.param(*_parts(value), marks=exhaustive)
        for number, value in enumerate(values)
    ]


def only(values: Mapping[str, Any], *names: str) -> list[Any]:
    """Named parameters, of which all but these belong to the second tier; the names are the ids."""
    missing = set(names) - set(values)
    assert not missing, f"no such parameters: {', '.join(sorted(missing))}"
    return [
        pytest.param(*_parts(value), id=name, marks=() if name in names else exhaustive)
        for name, value in values.items()
    ]


def _parts(value: Any) -> tuple[Any, ...]:
    """A tuple is one value for each argument, as `pytest.mark.parametrize` has it."""
    return value if isinstance(value, tuple) else (value,)
