"""Findings of checks. Pure."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """Severity of a finding.

    An error keeps ringbatch from working as configured, a warning costs requests or much speed, a
    note is good to know.
    """

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """Finding of one check.

    Attributes:
        check: its name, which stays the same from release to release.
        level: how bad it is.
        found: on this host.
        why: it matters.
        do: the remedy; empty if there is nothing to do.
    """

    check: str
    level: Level
    found: str
    why: str
    do: str = ""


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, for people."""
    return f"{count} {noun}{'s' * (count != 1)}"


def sized(count: int) -> str:
    """Return a number of bytes with a unit, for people."""
    if count >= 10 << 30:
        return f"{count / (1 << 30):.0f} GiB"
    if count >= 1 << 20:
        return f"{count / (1 << 20):.{0 if count >= 10 << 20 else 1}f} MiB"
    return f"{count / (1 << 10):.0f} KiB"
