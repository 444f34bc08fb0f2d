"""What a request calls a model: its name, or one version of it. Pure."""

from collections.abc import Iterable
from typing import Final

from ringbatch.shm.errors import ModelNotFound

OF_VERSION: Final = "/versions/"
_SHOWN_CHARACTERS: Final = 128


def address(name: str, version: str) -> str:
    """What a request calls a model, as in V2's paths: its name, and a version unless that is empty,
    which leaves the choice to the server."""
    return f"{name}{OF_VERSION}{version}" if version else name


def no_such_model(name: str, known: Iterable[str]) -> ModelNotFound:
    """What says that there is no model of that name, and which there are. Clients of Triton's look
    for its first words."""
    shown = name if len(name) <= _SHOWN_CHARACTERS else f"{name[:_SHOWN_CHARACTERS]}..."
    names = ", ".join(known) or "none"
    return ModelNotFound(
        f'Request for unknown model: there is no model "{shown}"; there is: {names}'
    )
