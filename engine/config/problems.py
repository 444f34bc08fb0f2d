"""Problems of a configuration, each with the place of the value."""

import datetime
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from ringbatch.shm.errors import StartupError

Place = tuple[str, ...]
"""Place of a value: the names of its sections, then its key."""
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_LONGEST_QUOTE: Final = 200


class ConfigError(StartupError):
    """The configuration is wrong.

    Attributes:
        problems: one line for each; the text of the exception is all of them.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class Problems:
    """The problems and notices found so far, each with the place of the value.

    Attributes:
        problems: lines about wrong values.
        notices: lines about legal values without effect.
    """

    def __init__(self, source: str, origins: Mapping[Place, str]) -> None:
        self._source = source
        self._origins = origins
        self._homes: dict[Place, Place] = {}
        self.problems: list[str] = []
        self.notices: list[str] = []

    def add(self, place: Place, words: str) -> None:
        """Note a problem with one key, once."""
        self._add_to(self.problems, place, words)

    def notice(self, place: Place, words: str) -> None:
        """Note that one key has no effect, once."""
        self._add_to(self.notices, place, words)

    def _add_to(self, lines: list[str], place: Place, words: str) -> None:
        place = self._homes.get(place, place)
        section = f"{heading(place[:-1])} " if place[:-1] else ""
        where = self._origins.get(place, f"{self._source}: {section}{key_text(place[-1])}")
        line = f"{where}: {words}"
        if line not in lines:
            lines.append(line)

    def moved(self, place: Place, home: Place) -> None:
        """Record the place in which a value used at `place` is written."""
        self._homes[place] = home

    def refuse(self, place: Place, found: str, words: str) -> None:
        """Note a value that is not what it must be."""
        self.add(place, f"found {found}, but it must be {words}")


def heading(section: Place) -> str:
    """Return the heading of a section."""
    return f"[{'.'.join(map(key_text, section))}]"


def key_text(name: str) -> str:
    """Return a key as TOML has it."""
    return name if _BARE_KEY.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def in_toml(value: object) -> str:
    """Return a value as a TOML document has it."""
    if isinstance(value, dict):
        pairs = ", ".join(f"{key_text(key)} = {in_toml(item)}" for key, item in value.items())
        return f"{{ {pairs} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(in_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)


def quoted(value: object) -> str:
    """Return a TOML value as a person would write it, shortened if it is long."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        text = f"[{', '.join(map(quoted, value))}]"
        return text if len(text) <= _LONGEST_QUOTE else "a long list"
    if isinstance(value, datetime.date | datetime.time):
        return f"the date or time {value}"
    if isinstance(value, int) and value.bit_length() > 64:
        return "a number beyond 64 bits"
    if isinstance(value, str) and len(value) > _LONGEST_QUOTE:
        return quoted(value[:_LONGEST_QUOTE]) + "..."
    if isinstance(value, float):
        return str(value)
    return json.dumps(value, ensure_ascii=False)


def valued(key: str, value: float, raw: Mapping[str, Any], unit: str = "") -> str:
    """Return a number for people, and whether it is there by default."""
    return f"{value:.15g}{unit}" + ("" if key in raw else " by default")
