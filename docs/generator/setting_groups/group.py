"""Setting of a group, and a group of settings, as the reference page shows them."""

from collections.abc import Sequence
from typing import NamedTuple


class Entry(NamedTuple):
    """Setting of a group.

    Attributes:
        key: the setting.
        example: a value in TOML.
        see: related settings.
        path: the model's path in the example.
        beside: further lines of the example.
    """

    key: str
    example: str
    see: Sequence[str] = ()
    path: str = '"model.py"'
    beside: str = ""


class Group(NamedTuple):
    """Settings that are read together."""

    title: str
    entries: Sequence[Entry]
