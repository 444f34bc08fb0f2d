"""Result of a measurement as a value, and as JSON. Pure."""

import math
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from ringbatch.bench.report.point import Point
from ringbatch.bench.report.slo import Slo

FORMAT: Final = 1
_AS_HIGH: Final = 1.05
"""Tolerance: rounds use rounded rates, which may lie this much above the knee they come from."""


@dataclass(frozen=True)
class Result:
    """Result of a measurement.

    Attributes:
        model: the model that was asked.
        started_utc: start of the measurement.
        settings: settings of the measurement.
        machine: the machine that it ran on.
        lone: the run with one request after the other.
        closed: the run with as many requests at once as connections.
        points: the runs at rates, in their order.
        knee: highest rate within the limit, what missed it, and words; empty where none was sought.
        warnings: reasons to doubt all of it.
        stopped: whether a signal stopped the measurement before its end.
        others_share: of all CPUs, taken by others in the run with the most; the search for the knee
            counts.
    """

    model: str
    started_utc: str
    settings: dict[str, Any]
    machine: dict[str, Any]
    lone: Point
    closed: Point
    points: tuple[Point, ...]
    knee: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    stopped: bool = False
    others_share: float = 0.0

    @property
    def slo(self) -> Slo:
        """Within which an answer is good."""
        return Slo.of_settings(self.settings)

    @property
    def in_parts(self) -> bool:
        """True if answers came in parts."""
        return self.slo.first_part_ms is not None

    @property
    def valid_points(self) -> list[Point]:
        """The points that have figures."""
        return [point for point in self.points if not point.void]

    @property
    def knee_per_s(self) -> float | None:
        """The highest rate within the limit, by the search and the rounds; None without any."""
        rates = self._judged_rates()
        found = self.knee.get("rate_per_s") or None
        least_missed = min((rate for rate, held in rates if not held), default=math.inf)
        most_held = max((r for r, held in rates if held and r < least_missed), default=None)
        if self.refuted_per_s is not None or found is None:
            return most_held
        return most_held if most_held is not None and most_held > _AS_HIGH * found else found

    @property
    def refuted_per_s(self) -> float | None:
        """Lowest rate that missed the limit in the rounds, though not in the search; or None."""
        most = _AS_HIGH * self.knee.get("rate_per_s", 0.0)
        missed = (rate for rate, held in self._judged_rates() if not held and rate <= most)
        return min(missed, default=None)

    def _judged_rates(self) -> list[tuple[float, bool]]:
        """Return the rates of rounds with a verdict, and whether each is within the limit."""
        held = [(point.asked.rate_per_s, point.holds(self.slo)) for point in self.points]
        return [(rate, holds) for rate, holds in held if rate is not None and holds is not None]

    def as_json(self) -> bytes:
        """Return the result as JSON for a file."""
        plain = {
            "format": FORMAT,
            "model": self.model,
            "started_utc": self.started_utc,
            "settings": self.settings,
            "machine": self.machine,
            "warnings": list(self.warnings),
            "knee": self.knee,
            "lone": self.lone.as_object(),
            "closed": self.closed.as_object(),
            "points": [point.as_object() for point in self.points],
            "stopped": self.stopped,
            "others_share": self.others_share,
        }
        return orjson.dumps(plain, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)

    @classmethod
    def from_json(cls, text: bytes) -> "Result":
        """Return the result of `as_json`.

        Raises:
            ValueError: it is no result, or one of another format; in words.
        """
        try:
            found = orjson.loads(text)
        except ValueError as error:
            raise ValueError(f"it is no JSON: {error}") from None
        version = found.get("format") if isinstance(found, dict) else None
        if version is None:
            raise ValueError("it is no result of ringbatch bench")
        if version != FORMAT:
            raise ValueError(f"its format is {version}, but it must be {FORMAT}: measure it again")
        try:
            return cls(
                model=found["model"],
                started_utc=found["started_utc"],
                settings=found["settings"],
                machine=found["machine"],
                lone=Point.from_object(found["lone"]),
                closed=Point.from_object(found["closed"]),
                points=tuple(map(Point.from_object, found["points"])),
                knee=found["knee"],
                warnings=tuple(found["warnings"]),
                stopped=found.get("stopped", False),
                others_share=found.get("others_share", 0.0),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"it lacks what a result has: {error!r}") from None
