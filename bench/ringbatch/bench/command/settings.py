"""Settings of a measurement, and how long it takes. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from ringbatch.bench.load.arrivals import Kind
from ringbatch.bench.report.slo import Slo


class Protocol(StrEnum):
    """Protocols of requests."""

    V1 = "v1"
    V2 = "v2"
    GRPC = "grpc"
    GENERATE = "generate"
    """Triton's generate extension."""
    COMPLETIONS = "completions"
    """OpenAI's."""
    CHAT = "chat"
    """OpenAI's completions of chats."""
    CLIENT = "client"
    """Calls of ringbatch's own Client, through shared memory."""


LOADS: Final = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
"""Rates that are looked at, as shares of the knee."""
OVERLOADS: Final = (1.25, 2.0, 4.0)
"""Further rates, as shares of the most that the server answers."""
KNEE_STEPS: Final = 9
WARM_UP_S: Final = 2.0
"""Shortest warm-up of the first engine, in seconds."""
_BETWEEN_S: Final = 0.8
"""Approximate time from the end of a run to the begin of the next."""
_SLOW_FACTOR: Final = 8
"""Factor by which runs may be longer than asked for, if a slow model answers too few requests
else."""
_SAMPLES: Final = 800
"""Samples that a run aims at, so that a p99 can be told."""


@dataclass(frozen=True)
class Settings:
    """Settings of the command.

    Attributes:
        model: that the requests are for; None for the only one.
        config: of the engine that is started; None if one runs.
        url: of the one that runs.
        control_url: of its metrics.
        grpc_url: of its gRPC.
        engine: of a Client, if one runs: its name, or the process id of its supervisor; None for
            the only one.
        request: file of the request; None if requests are made up.
        protocol: None for that of the request, else v1.
        headers: of each request.
        own_heads: True if each request also has a ``traceparent`` of its own.
        slo_ms: within which a whole answer is good.
        stream: True to ask for answers in parts, as events.
        slo_first_part_ms: within which the first part of a good answer comes.
        slo_gap_ms: within which each further part of it comes.
        rates: to measure; none for shares of the knee.
        arrivals: how requests come.
        trace: instants of replayed arrivals, in nanoseconds.
        seconds: of one run.
        rounds: of each run.
        connections: of a closed loop.
        connections_max: of an open one.
        generators: processes that send.
        one_engine: True if one started engine serves all rounds; else each has its own.
        check: True to compare answers with the first one.
        lag_max_ms: above which a run is void; None for a quarter of slo_ms.
        even_if_busy: True to measure on a host that has other work.
        output: folder of the written files.
        seed: of chance.
    """

    model: str | None = None
    config: Path | None = None
    url: str | None = None
    control_url: str | None = None
    grpc_url: str | None = None
    engine: str | int | None = None
    request: Path | None = None
    protocol: Protocol | None = None
    headers: Sequence[tuple[str, str]] = ()
    own_heads: bool = False
    slo_ms: float = 20.0
    stream: bool = False
    slo_first_part_ms: float = 200.0
    slo_gap_ms: float = 50.0
    rates: Sequence[float] = ()
    arrivals: Kind = Kind.POISSON
    trace: Sequence[int] = ()
    seconds: float = 2.0
    rounds: int = 5
    connections: int = 64
    connections_max: int = 1024
    generators: int = 1
    one_engine: bool = False
    check: bool = False
    lag_max_ms: float | None = None
    even_if_busy: bool = False
    output: Path = field(default_factory=lambda: Path("ringbatch-bench"))
    seed: int = 1

    @property
    def slo(self) -> Slo:
        """Within which an answer is good."""
        if self.stream:
            return Slo(first_part_ms=self.slo_first_part_ms, gap_ms=self.slo_gap_ms)
        return Slo(self.slo_ms)

    @property
    def lag_limit_ms(self) -> float:
        """The generator's own lag, its p99, above which a run is void."""
        return max(2.0, self.slo.strictest_ms / 4) if self.lag_max_ms is None else self.lag_max_ms

    @property
    def engine_each_round(self) -> bool:
        """True if each round has an engine of its own."""
        return self.config is not None and not self.one_engine

    @property
    def engines(self) -> str:
        """The engines that serve the rounds, in words."""
        return "one for each round" if self.engine_each_round else "one for all rounds"

    @property
    def warm_up_s(self) -> float:
        """Seconds of the first engine's warm-up, which also finds its highest rate."""
        return max(WARM_UP_S, self.seconds)

    @property
    def round_warm_up_s(self) -> float:
        """Seconds of warm-up of an engine that was started for one round."""
        return self.seconds

    @property
    def grace_s(self) -> float:
        """Seconds to wait for answers after the last request, or in parts for their first parts."""
        longest_ms = self.slo_first_part_ms if self.stream else self.slo_ms
        return max(2.0, longest_ms / 1e3 * 4)

    @property
    def replay_s(self) -> float:
        """Seconds that replayed arrivals take."""
        return (max(self.trace) + 1) / 1e9 if self.trace else 0.0

    def run_s(self, rate_per_s: float, rounds: int) -> float:
        """Return the seconds of one of so many runs at a rate: enough for a p99, within reason."""
        wanted_s = _SAMPLES / max(rate_per_s, 1e-9) / rounds
        return min(max(self.seconds, wanted_s), self.seconds * _SLOW_FACTOR)

    def knee_s(self, rate_per_s: float) -> float:
        """Return the seconds that the search for the knee stays at a rate."""
        return max(self.run_s(rate_per_s, 1), 2 * self.seconds)

    def duration_s(self, start_s: float = 0.0) -> tuple[float, float]:
        """Return about how long the whole measurement takes, and its most, in seconds.

        Args:
            start_s: how long an engine takes to start, and to stop.
        """
        usual_s, most_s = self._asking_s()
        if self.engine_each_round:
            more_s = self.rounds * (start_s + self.round_warm_up_s)
            return usual_s + more_s, most_s + 2 * more_s
        return usual_s, most_s

    def _asking_s(self) -> tuple[float, float]:
        kinds = len(self.rates) if self.rates else len(LOADS) + len(OVERLOADS)
        runs = (kinds + 2) * self.rounds
        if self.arrivals is Kind.REPLAY:
            each_s = self.replay_s + 2 * self.seconds + 3 * _BETWEEN_S
            usual = self.rounds * each_s + self.warm_up_s
            longer_s = 2 * self.seconds * (_SLOW_FACTOR - 1) + 3 * self.grace_s
            return usual, usual + self.rounds * longer_s
        usual = runs * (self.seconds + _BETWEEN_S) + KNEE_STEPS * (2 * self.seconds + _BETWEEN_S)
        longest_s = self.seconds * _SLOW_FACTOR + _BETWEEN_S + self.grace_s
        most = (runs + KNEE_STEPS) * longest_s + self.warm_up_s
        return usual + self.warm_up_s, most


def rates_of(settings: Settings, knee_per_s: float, most_per_s: float) -> list[float]:
    """Return the rates to measure.

    Args:
        settings: of the command.
        knee_per_s: the highest rate within the limit; 0 if none was.
        most_per_s: the most that the server answers.
    """
    if settings.rates:
        return sorted(settings.rates)
    below = [share * (knee_per_s or most_per_s) for share in LOADS]
    above = [share * most_per_s for share in OVERLOADS]
    found: list[float] = []
    for rate in sorted([*below, *above]):
        # Rounded, as nobody means more, and none that is as good as the one before.
        rounded = float(f"{rate:.2g}")
        if rounded > 0 and (not found or rounded > 1.1 * found[-1]):
            found.append(rounded)
    return found
