"""What a request calls a model: its name, or one version of it. Pure."""

from typing import Final

OF_VERSION: Final = "/versions/"


def address(name: str, version: str) -> str:
    """What a request calls a model, as in V2's paths: its name, and a version unless that is empty,
    which leaves the choice to the server."""
    return f"{name}{OF_VERSION}{version}" if version else name
