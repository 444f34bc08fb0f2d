"""Absolute paths of the files in a configuration."""

import os
from pathlib import Path
from typing import Final

from ringbatch.engine.config.problems import ConfigError

_OF_SHELLS: Final = ("~", "$")
"""Beginnings that a shell replaces, and nobody else."""


def absolute(path: Path) -> Path:
    """Return the absolute path; a relative one starts at the working directory.

    Raises:
        ConfigError: the working directory is gone.
    """
    return Path(os.path.normpath(_from_here(path)))


def resolved(path: Path) -> Path:
    """Return a model's path with its folders free of links.

    A file that is a link keeps its name and its neighbours, and may lead elsewhere later.

    Raises:
        ConfigError: as of `absolute`.
    """
    path = _from_here(path)
    if os.path.isdir(path):
        return Path(os.path.realpath(path))
    return Path(os.path.realpath(path.parent), path.name)


def absence(path: Path, given: str) -> str:
    """Return what is found at a path, to follow "a file that exists" or the same of a directory.

    Args:
        path: the absolute path, which has no such thing.
        given: the path as it was written.
    """
    if os.path.isdir(path):
        return f"; {path} is a directory"
    if os.path.exists(path):
        return f"; {path} is {'a' if os.path.isfile(path) else 'no ordinary'} file"
    reason = _refusal(path)
    if os.path.islink(path):
        there = "where none is" if reason is None else f"which cannot be looked at: {reason}"
        return f"; the link {path} leads to {os.readlink(path)}, {there}"
    if reason is not None:
        return f"; {path} cannot be looked at: {reason}"
    there = "" if str(path) == given else f"; none is at {path}"
    unexpanded = given.startswith(_OF_SHELLS)
    return f"{there}, because ~ and $ stay as they are here" if unexpanded else there


def _refusal(path: Path) -> str | None:
    """Return why the system does not say what is at a path; None if nothing is there.

    Such as ``Permission denied``, for a file in a folder of another user.
    """
    try:
        os.stat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        return error.strerror
    return None


def _from_here(path: Path) -> Path:
    try:
        return path if path.is_absolute() else Path.cwd() / path
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: starts at the working directory, which is gone; give the whole path"
        ) from None
