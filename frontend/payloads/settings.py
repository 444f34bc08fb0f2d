"""Settings of the payload log. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ALL: Final = "all"
REQUEST: Final = "request"
RESPONSE: Final = "response"


@dataclass(frozen=True, slots=True)
class EventSettings:
    """Settings of events.

    Attributes:
        mode: the bodies that make events: `ALL`, `REQUEST` or `RESPONSE`.
        failures: True for events of answers with a status other than 200.
        attributes: of every event, the source among them.
        lines: True for a file of lines, False for a server.
    """

    mode: str
    failures: bool
    attributes: Mapping[str, str]
    lines: bool


@dataclass(frozen=True, slots=True)
class Keeping:
    """Settings of a serving process for the payload log.

    Attributes:
        sample: the share of the requests, 0 to 1.
        body_bytes: the most bytes of a body.
        headers: names of headers of requests, in lower case.
        events: of the events that it makes.
    """

    sample: float
    body_bytes: int
    headers: frozenset[str]
    events: EventSettings


@dataclass(frozen=True, slots=True)
class Delivery:
    """Settings of the control process for the payload log.

    Attributes:
        target: an address, http or https, or the path of a file.
        file_bytes: of a file, before the next one is begun.
        files: that are kept, besides the one that is written.
        authority: the certificates that a server's must be signed by; None for the system's.
    """

    target: str
    file_bytes: int
    files: int
    authority: Path | None


Send = Callable[[bytes], bool]
"""Passes a message on; returns False if it is lost."""
