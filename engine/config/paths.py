"""Absolute paths of the files in a configuration."""

import os
from pathlib import Path

from ringbatch.engine.config.problems import ConfigError


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


def _from_here(path: Path) -> Path:
    try:
        return path if path.is_absolute() else Path.cwd() / path
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: starts at the working directory, which is gone; give the whole path"
        ) from None
