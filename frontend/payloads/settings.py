"""Settings of the payload log. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ALL: Final = "all"
REQUEST: Final = "request"
RESPONSE: Final = "response"


@dataclass(frozen=True, slots=True)
class Keeping:
    """Settings of a serving process for the payload log.

    Attributes:
        sample: the share of the requests, 0 to 1.
        body_bytes: the most bytes of a body.
        headers: names of headers of requests, in lower case.
    """

    sample: float
    body_bytes: int
    headers: frozenset[str]


@dataclass(frozen=True, slots=True)
class Delivery:
    """Settings of the control process for the payload log.

    Attributes:
        target: an address, http or https, or the path of a file.
        mode: the bodies that make events: `ALL`, `REQUEST` or `RESPONSE`.
        failures: True for events of answers with a status other than 200.
        source: of the events.
        attributes: of the events, besides those of each.
        file_bytes: of a file, before the next one is begun.
        files: that are kept, besides the one that is written.
        authority: the certificates that a server's must be signed by; None for the system's.
    """

    target: str
    mode: str
    failures: bool
    source: str
    attributes: tuple[tuple[str, str], ...]
    file_bytes: int
    files: int
    authority: Path | None


Send = Callable[[bytes], bool]
"""Passes a message on; returns False if it is lost."""
