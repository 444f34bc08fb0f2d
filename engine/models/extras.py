"""Packages that only some models need; they are extras of the distribution."""

import importlib
from pathlib import Path
from typing import Any

from ringbatch.shm.errors import StartupError, how_to_install


def required(module: str, extra: str, path: Path) -> Any:
    """Import a module of an optional package.

    Args:
        module: its full name.
        extra: of ringbatch, which brings the package.
        path: the model file that needs it.

    Raises:
        StartupError: it is not installed; with the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise StartupError(
            f"{path}: the runtime {extra} needs the module {error.name}, which is not installed; "
            f"{how_to_install(extra)}"
        ) from None
