"""Arrival times of requests. Pure.

Chance comes from a seed, so every generator can make the whole plan and take its part of it.
"""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_S: Final = 1_000_000_000

Times = NDArray[np.int64]
"""Nanoseconds from the begin of a run, in order."""


class Kind(StrEnum):
    """Kinds of arrivals."""

    POISSON = "poisson"
    """Independently of each other, as those of many users do."""
    CONSTANT = "constant"
    BURST = "burst"
    """Several at the same instant, the bursts as Poisson's."""
    REPLAY = "replay"
    """Requests at instants that were recorded."""
    CLOSED = "closed"
    """Each connection sends its next request as soon as it has its answer."""


@dataclass(frozen=True)
class Arrivals:
    """A plan of requests.

    Attributes:
        kind: how they come.
        seconds: for how long.
        rate_per_s: on average; has no meaning for replayed and closed ones.
        seed: of chance.
        burst: requests at one instant, for bursts.
        recorded_ns: for replayed ones, in order, from the begin; none behind `seconds` is sent.
    """

    kind: Kind
    seconds: float
    rate_per_s: float = 0.0
    seed: int = 0
    burst: int = 10
    recorded_ns: tuple[int, ...] = ()

    def times_ns(self) -> Times:
        """Return the instants at which requests are due, in nanoseconds from the start: [count]."""
        end = int(self.seconds * _S)
        if self.kind is Kind.REPLAY:
            times = np.asarray(self.recorded_ns, np.int64)
        elif self.kind is Kind.CONSTANT:
            count = int(self.rate_per_s * self.seconds)
            times = (np.arange(count) * (_S / self.rate_per_s)).astype(np.int64)
        elif self.kind is Kind.BURST:
            times = np.repeat(self._poisson_ns(self.rate_per_s / self.burst), self.burst)
        elif self.kind is Kind.POISSON:
            times = self._poisson_ns(self.rate_per_s)
        else:
            times = np.zeros(0, np.int64)
        found: Times = times[times < end]
        return found

    def _poisson_ns(self, rate_per_s: float) -> Times:
        random = np.random.default_rng(self.seed)
        expected = rate_per_s * self.seconds
        count = int(expected + 6 * expected**0.5 + 10)
        gaps = random.exponential(_S / rate_per_s, count)
        return np.cumsum(gaps).astype(np.int64)

    def as_object(self) -> dict[str, Any]:
        """Return the arrivals as an object for JSON."""
        return asdict(self)

    @classmethod
    def from_object(cls, found: dict[str, Any]) -> "Arrivals":
        """Return the arrivals of `as_object`."""
        recorded = tuple(found["recorded_ns"])
        return cls(**{**found, "kind": Kind(found["kind"]), "recorded_ns": recorded})


def recorded(text: str) -> tuple[int, ...]:
    """Return the instants in a file: seconds, a line each; the first becomes 0.

    Raises:
        ValueError: with the line that is no time.
    """
    times = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            time_s = float(line)
        except ValueError:
            time_s = float("nan")
        if not np.isfinite(time_s):
            raise ValueError(f"line {number}: found {line.strip()[:40]!r}, not a time in seconds")
        times.append(time_s)
    if not times:
        raise ValueError("there is no time in it; one in seconds is expected in each line")
    first = min(times)
    return tuple(sorted(round((time_s - first) * _S) for time_s in times))
