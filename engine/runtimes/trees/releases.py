"""Releases of a library with which a way around its Python methods was tested. Pure."""

import re

Release = tuple[int, int]
"""The first two numbers of a version."""


def numbers(version: str) -> tuple[int, ...]:
    """Return the first three numbers of a version."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def is_tested(version: str, tested: tuple[Release, Release]) -> bool:
    """Return whether a version is of a tested release, from the oldest to the newest of them."""
    oldest, newest = tested
    return oldest <= numbers(version)[:2] <= newest
