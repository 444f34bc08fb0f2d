"""Figures of programs on a GPU, and the limits that they are held to. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from load.device_ways import Way

from report.rounds import number, table

RESNET: Final = "resnet50"
OF_BYTES: Final = "resnet50-uint8"
ENCODER: Final = "encoder"
LEAST: Final[Mapping[tuple[str, Way], float]] = {
    (RESNET, Way.CLIENT): 0.9,
    (RESNET, Way.V2): 0.6,
    (RESNET, Way.GRPC): 0.6,
    (RESNET, Way.SHARED): 0.85,
    (OF_BYTES, Way.V2): 0.85,
    (OF_BYTES, Way.GRPC): 0.85,
}
"""Least rows/s with one worker, as a share of those of the pipelined loop over the same program."""
ENCODER_LEAST: Final = {Way.V2: 40_000, Way.BULK: 80_000}
LONE_MS: Final = {Way.CLIENT: 0.2, Way.V2: 0.4}
"""Milliseconds that the p50 of a lone request may take beyond a graph of one row."""
OF_PEERS: Final = 2.0
"""Least rows/s over HTTP, as a multiple of those of the faster peer."""
START_S: Final = 8.0


@dataclass(frozen=True)
class Bare:
    """Figures of the bare loops over a program.

    Attributes:
        shape, dtype: of a row.
        eager, pipelined: rows/s; the second is 0 without a GPU.
        lone_ms: a row through its graph, likewise.
        bus: bytes/s of large copies to the device, likewise.
        block_ms, scattered_ms, straight_ms: a batch's results as one block, as a block that the CPU
            scatters, and by a copy of the device for each, likewise.
    """

    shape: tuple[int, ...]
    dtype: str
    eager: float
    pipelined: float = 0.0
    lone_ms: float = 0.0
    bus: float = 0.0
    block_ms: float = 0.0
    scattered_ms: float = 0.0
    straight_ms: float = 0.0


@dataclass(frozen=True)
class Run:
    """Figures of one way of asking ringbatch; None for what was not measured.

    Attributes:
        program, way, workers: the program, the way to ask it, and its workers.
        rows_per_s: of a closed loop.
        lone_p50_ms: of one request at a time.
        p99_ms: at 0.7 of that rate.
        busy: share of the time in which the GPU ran anything.
        bus_bytes_per_s: of rows on their way to the device.
    """

    program: str
    way: Way
    workers: int
    rows_per_s: float
    lone_p50_ms: float | None = None
    p99_ms: float | None = None
    busy: float | None = None
    bus_bytes_per_s: float = 0.0


@dataclass(frozen=True)
class Line:
    """A figure that is held to a limit.

    Attributes:
        name: its name.
        value: None if it was not measured.
        at_least, at_most: the limit; one of the two.
    """

    name: str
    value: float | None
    at_least: float | None = None
    at_most: float | None = None

    @property
    def verdict(self) -> str:
        """Verdict in a word or two."""
        if self.value is None:
            return "not measured"
        kept = (self.at_least is None or self.value >= self.at_least) and (
            self.at_most is None or self.value <= self.at_most
        )
        return "held" if kept else "NOT HELD"


def lines(
    bare: Mapping[str, Bare],
    runs: Sequence[Run],
    peers: Mapping[str, float],
    starts_s: Mapping[str, float],
) -> Iterator[Line]:
    """Yield every limit with its figure.

    Args:
        bare: by program.
        runs: of ringbatch.
        peers: rows/s of peers with the residual network.
        starts_s: seconds from start to ready, by program, with one worker.
    """
    found = {(run.program, run.way): run for run in runs if run.workers == 1}
    for (program, way), least in LEAST.items():
        run, loop = found.get((program, way)), bare.get(program)
        share = run.rows_per_s / loop.pipelined if run and loop and loop.pipelined else None
        yield Line(f"{program}, {way}: of the pipelined loop's rows/s", share, at_least=least)
    for way, most in LONE_MS.items():
        run, loop = found.get((RESNET, way)), bare.get(RESNET)
        lone_ms = None if run is None else run.lone_p50_ms
        beyond = lone_ms - loop.lone_ms if lone_ms is not None and loop else None
        yield Line(f"{RESNET}, {way}: ms of a lone request beyond a graph", beyond, at_most=most)
    for way, rate in ENCODER_LEAST.items():
        run = found.get((ENCODER, way))
        value = None if run is None else run.rows_per_s
        yield Line(f"{ENCODER}, {way}: rows/s", value, at_least=rate)
    run = found.get((RESNET, Way.V2))
    times = run.rows_per_s / max(peers.values()) if run and peers else None
    yield Line(f"{RESNET}, {Way.V2}: of the faster peer's rows/s", times, at_least=OF_PEERS)
    yield Line(f"{RESNET}: seconds from start to ready", starts_s.get(RESNET), at_most=START_S)


def verdict_table(found: Sequence[Line]) -> str:
    """Return the table of limits."""
    rows = [
        [
            line.name,
            _known(line.value),
            f">= {number(line.at_least)}" if line.at_least is not None else "",
            f"<= {number(line.at_most)}" if line.at_most is not None else "",
            line.verdict,
        ]
        for line in found
    ]
    return table(["limit", "figure", "at least", "at most", ""], rows)


def run_table(bare: Mapping[str, Bare], runs: Sequence[Run]) -> str:
    """Return the table of runs, with ratios to the bare loops."""
    rows = []
    for run in runs:
        loop = bare[run.program]
        rows.append(
            [
                run.program,
                str(run.way),
                str(run.workers),
                number(run.rows_per_s),
                _share(run.rows_per_s, loop.eager),
                _share(run.rows_per_s, loop.pipelined),
                _known(run.lone_p50_ms),
                _known(run.p99_ms),
                _share(run.bus_bytes_per_s, loop.bus),
                "-" if run.busy is None else f"{1 - run.busy:.0%}",
            ]
        )
    head = ["program", "way", "workers", "rows/s", "of eager", "of pipelined", "lone p50, ms"]
    return table([*head, "p99 at 0.7, ms", "of the bus", "GPU idle"], rows)


def way_out_table(bare: Mapping[str, Bare]) -> str:
    """Return the table of ways in which a batch's results come to places of their own."""
    rows = [
        [program, *map(number, (loop.block_ms, loop.scattered_ms, loop.straight_ms))]
        for program, loop in bare.items()
        if loop.block_ms
    ]
    head = ["results of a batch, ms", "one block", "scattered by the CPU", "a copy for each"]
    return table(head, rows) if rows else ""


def _share(value: float, whole: float) -> str:
    return f"{value / whole:.2f}" if whole else "-"


def _known(value: float | None) -> str:
    return "-" if value is None else number(value)
