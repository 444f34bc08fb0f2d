"""Limits within which an answer is good, and a measurement's percentiles beside them. Pure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from ringbatch.bench.load.outcome import Outcome


@dataclass(frozen=True)
class Slo:
    """Limits of a good answer, in milliseconds: of the whole one, or of its parts; None for none.

    Attributes:
        whole_ms: of the whole answer.
        first_part_ms: of the first part.
        gap_ms: of the gap between two parts.
    """

    whole_ms: float | None = None
    first_part_ms: float | None = None
    gap_ms: float | None = None

    @property
    def limits(self) -> dict[str, tuple[str, float]]:
        """Limits in milliseconds by the name of their figure, each with its words for sentences."""
        limits = {
            "p99 ms": ("", self.whole_ms),
            "first p99 ms": (" of first parts", self.first_part_ms),
            "gap p99 ms": (" of gaps", self.gap_ms),
        }
        return {name: (of, most) for name, (of, most) in limits.items() if most is not None}

    @property
    def strictest_ms(self) -> float:
        """The shortest limit; 0 without any."""
        return min((most for _, most in self.limits.values()), default=0.0)

    @property
    def words(self) -> str:
        """The limits: ``a p99 within 20 ms``."""
        return " and ".join(f"a p99{of} within {most:g} ms" for of, most in self.limits.values())

    @property
    def good(self) -> str:
        """The good answers, in words: ``answered within 20 ms``."""
        if self.whole_ms is not None:
            return f"answered within {self.whole_ms:g} ms"
        return f"first part within {self.first_part_ms:g} ms, each gap within {self.gap_ms:g} ms"

    def holds(self, figures: Mapping[str, float]) -> bool | None:
        """Return whether a measurement's percentiles are within the limits; None if one lacks."""
        found = [(figures.get(name), most) for name, (_, most) in self.limits.items()]
        if any(value is None for value, _ in found):
            return None
        return all(value is not None and value <= most for value, most in found)

    def lateness(self, figures: Mapping[str, float]) -> float:
        """Return the percentile that is farthest beyond its limit, as a multiple of that.

        A percentile that lacks counts as endless; without any limit it is 0.
        """
        limits = self.limits.items()
        return max((figures.get(name, math.inf) / most for name, (_, most) in limits), default=0.0)

    def measured_words(self, figures: Mapping[str, float]) -> str:
        """Return the limited percentiles of a measurement, in words."""
        limits = self.limits.items()
        found = [(of, figures[name]) for name, (of, _) in limits if name in figures]
        return ", ".join(f"p99{of} {value:.3g} ms" for of, value in found) or "no such time"

    @property
    def flags(self) -> str:
        """The flags of ``ringbatch tune`` that set the limits."""
        flags = {
            "--p99-ms": self.whole_ms,
            "--slo-first-part-ms": self.first_part_ms,
            "--slo-gap-ms": self.gap_ms,
        }
        return " or ".join(flag for flag, most in flags.items() if most is not None)

    def goodput_per_s(self, outcome: Outcome) -> float:
        """Return the rate of good answers."""
        if self.whole_ms is not None:
            return outcome.goodput_per_s(self.whole_ms)
        assert self.first_part_ms is not None
        assert self.gap_ms is not None
        return outcome.streams_per_s(self.first_part_ms, self.gap_ms)

    def as_settings(self) -> dict[str, float]:
        """Return the limits as settings of a result."""
        names = {
            "slo_ms": self.whole_ms,
            "slo_first_part_ms": self.first_part_ms,
            "slo_gap_ms": self.gap_ms,
        }
        return {name: most for name, most in names.items() if most is not None}

    @classmethod
    def of_settings(cls, settings: Mapping[str, Any]) -> Self:
        """Return the limits of `as_settings`."""
        names = ("slo_ms", "slo_first_part_ms", "slo_gap_ms")
        found = [settings.get(name) for name in names]
        return cls(*(None if most is None else float(most) for most in found))
