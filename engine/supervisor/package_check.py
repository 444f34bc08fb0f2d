"""Check of optional packages: a start fails with the name of a missing one."""

import importlib.util
from collections.abc import Iterable

from ringbatch.shm.errors import StartupError, how_to_install


def expect_installed(user: str, extra: str, packages: Iterable[str]) -> None:
    """Check that the packages of an extra are installed.

    Args:
        user: the setting that needs them, as messages name it.
        extra: the name of the extra.
        packages: of the extra.

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
    except ModuleNotFoundError:  # its parent package is missing
        return True
