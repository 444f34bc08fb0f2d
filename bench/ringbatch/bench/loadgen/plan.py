"""Settings of LoadGen for one run. Pure.

Durations and counts are far below those of MLPerf's rules, and no submission could have them.
"""

import math
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from ringbatch.bench.statistics.samples import samples_needed

NOT_A_RESULT: Final = (
    "LoadGen is an independent judge here. This is not an MLPerf result and must not be called one."
)
PERCENTILE: Final = 0.99
MIN_QUERIES: Final = samples_needed(PERCENTILE)
LONGEST: Final = 8
"""Times the shortest duration, after which a run ends though a slow model had too few queries."""
_ANSWERS_MAX: Final = 4096
"""Most answers that are compared in one run."""
_HOPELESS: Final = 0.05
"""Share of a run's queries that wait at once, above which its p99 is lost."""


class Scenario(StrEnum):
    """Scenarios of LoadGen."""

    SERVER = "Server"
    """Each query for itself, when it is due; they come as Poisson's."""
    OFFLINE = "Offline"
    """All queries at once."""


class Mode(StrEnum):
    """Modes of LoadGen."""

    PERFORMANCE = "PerformanceOnly"
    ACCURACY = "AccuracyOnly"
    """Every sample is asked for once, and every answer is logged."""


@dataclass(frozen=True)
class Plan:
    """One run.

    Attributes:
        scenario: how queries come.
        mode: what is looked at.
        rate_per_s: target_qps; of Offline, what is expected.
        samples: in LoadGen's library; each stands for one of the prepared requests, in turn.
        limit_ms: within which 99 of 100 answers have to come.
        min_duration_ms: that a VALID run has at least.
        max_duration_ms: after which no query is issued.
        waiting_max: queries without answer, above which LoadGen ends the run.
    """

    scenario: Scenario
    mode: Mode
    rate_per_s: float
    samples: int
    limit_ms: float
    min_duration_ms: int
    max_duration_ms: int
    waiting_max: int

    def settings(self) -> dict[str, Any]:
        """By the names of LoadGen's TestSettings, without scenario and mode."""
        common = {
            "min_duration_ms": self.min_duration_ms,
            "max_duration_ms": self.max_duration_ms,
            "min_query_count": MIN_QUERIES,
        }
        if self.scenario is Scenario.OFFLINE:
            return {**common, "offline_expected_qps": self.rate_per_s}
        return {
            **common,
            "server_target_qps": self.rate_per_s,
            "server_target_latency_ns": round(self.limit_ms * 1e6),
            "server_target_latency_percentile": PERCENTILE,
            # What is overdue comes in one call, and so costs less; each still has its own time.
            "server_coalesce_queries": True,
            "server_max_async_queries": self.waiting_max,
        }

    def as_object(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_object(cls, found: dict[str, Any]) -> "Plan":
        """Back from `as_object`."""
        scenario, mode = Scenario(found["scenario"]), Mode(found["mode"])
        return cls(**{**found, "scenario": scenario, "mode": mode})


def planned(
    scenario: Scenario,
    rate_per_s: float,
    *,
    seconds: float,
    limit_ms: float,
    requests: int,
    connections: int,
) -> Plan:
    """Return the plan of a run that measures times.

    Args:
        scenario: how queries come.
        rate_per_s: the rate; of Offline, the expected one.
        seconds: of the run, or longer if there are fewer than `MIN_QUERIES` else.
        limit_ms: within which 99 of 100 answers have to come.
        requests: that were prepared.
        connections: that may be open; so many queries may always wait.

    Raises:
        ValueError: the rate or the duration is not above 0.
    """
    for name, value in (("rate", rate_per_s), ("duration", seconds), ("limit", limit_ms)):
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"found a {name} of {value:g}, but it must be a number above 0")
    shortest_ms = round(seconds * 1e3)
    return Plan(
        scenario,
        Mode.PERFORMANCE,
        rate_per_s,
        requests,
        limit_ms,
        shortest_ms,
        shortest_ms * LONGEST,
        max(connections, math.ceil(rate_per_s * seconds * _HOPELESS)),
    )


def accuracy_of(plan: Plan) -> Plan:
    """Return the plan of a run that compares as many answers as fit into its duration."""
    fitting = plan.rate_per_s * plan.min_duration_ms / 1e3
    times = max(1, math.ceil(min(fitting, _ANSWERS_MAX) / plan.samples))
    found = asdict(plan)
    return Plan(**{**found, "mode": Mode.ACCURACY, "samples": plan.samples * times})
