"""Packages that a setting needs: missing, they end the start in words."""

import importlib.util
from collections.abc import Iterable

from ringbatch.shm.errors import StartupError, how_to_install


def expect_installed(user: str, extra: str, packages: Iterable[str]) -> None:
    """Expect the packages that an extra installs.

    Args:
        user: what needs it, for people.
        extra: its name.
        packages: that it has.

    Raises:
        StartupError: one is missing.
    """
    for package in filter(_is_missing, packages):
        raise StartupError(
            f"{user} need the package {package}, which is not installed; {how_to_install(extra)}"
        )


def _is_missing(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is None
    except ModuleNotFoundError:  # what it would lie in is missing
        return True
