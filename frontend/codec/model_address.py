"""Addresses of models in requests: a name, or one version of it. Pure."""

from collections.abc import Iterable
from typing import Final

from ringbatch.shm.errors import ModelNotFound

OF_VERSION: Final = "/versions/"
_SHOWN_CHARACTERS: Final = 128


def address(name: str, version: str) -> str:
    """Return a model's address as in V2's paths: its name, and a version unless that is empty.

    Without a version the server chooses.
    """
    return f"{name}{OF_VERSION}{version}" if version else name


def no_such_model(name: str, known: Iterable[str]) -> ModelNotFound:
    """Return the error that there is no model of that name, with the names that there are.

    Clients of Triton's look for its first words.
    """
    shown = name if len(name) <= _SHOWN_CHARACTERS else f"{name[:_SHOWN_CHARACTERS]}..."
    names = ", ".join(known) or "none"
    return ModelNotFound(
        f'Request for unknown model: there is no model "{shown}"; there is: {names}'
    )
