"""A request of a life: of which kind it is, what it meets, and how it ended."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from simulation.engine import Frontend
from simulation.machine import Process

from ringbatch.frontend.request.calls import RequestHandle
from ringbatch.shm.model_spec import ModelSpec

HARMLESS, LARGE, REFUSED, POISON, FATAL, HANGING = range(6)
STATUSES: Final = {
    HARMLESS: {200, 429, 503, 504},
    LARGE: {200, 429, 503, 504},
    REFUSED: {400, 429, 503, 504},
    POISON: {429, 500, 503, 504},
    FATAL: {429, 503, 504},
    HANGING: {429, 503, 504},
}
"""Statuses that a client may get, by kind of request."""
_STRANGE_BYTES: Final = 6_000
"""Size of a strange request, more than there is room for at first."""
NOT_READY: Final = b" is not ready: "
"""Part of the text of a refusal for want of a worker."""
TEXTS: Final = {
    400: (b"refused",),
    429: (b"for one client is reached",),
    500: (b"RuntimeError", b"it refused one of several requests behind parts of them"),
}
"""Texts of which the answer must have one, by status."""


@dataclass
class Asked:
    """A request, and how it ended."""

    number: int
    kind: int
    model: ModelSpec
    rows: int
    frontend: Frontend
    by: Process
    deaths: int
    timeout_ns: int
    lost_ns: int
    at: int = 0
    """Step in which, or part before which, the request has its effect."""
    wants_parts: bool = False
    parts: int = 0
    """Number of those that its client has been given."""
    due_ns: tuple[int, int] = (0, 0)
    """Bounds of its deadline, as the clock may move while the request is accepted."""
    body: bytes = b""
    call: RequestHandle | None = None
    victims: Counter[int] = field(default_factory=Counter)
    """Workers that ran it, where that is fatal, for each collector's life."""
    runs: Counter[int] = field(default_factory=Counter)
    """Number of its rows that each step has run."""
    copies_ns: set[int] = field(default_factory=set)
    """Times that a device took for the copies of the runs that it was in."""
    ready: bool = False
    """True if its model counted as ready when the request came."""
    status: int = 0
    """Status of the answer; 0 while there is none."""
    gone: bool = False
    """True once no client waits for it."""


def padding(number: int) -> str:
    """Return what an answer to a request of that number carries along."""
    return "." * _STRANGE_BYTES if number % 10 == LARGE else ""
