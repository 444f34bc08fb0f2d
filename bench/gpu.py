"""ringbatch on a GPU, beside bare loops over the same device and beside peers.

The models are a residual network, with rows of FP32 (602 KB) and of pixels (151 KB), an encoder and
a perceptron (1 KB). One more network answers with images of FP32 (602 KB). They are exported
programs under FP16's autocast, in batches of up to 32. They are asked over `Client`, V2 binary over
HTTP and gRPC, with rows in system shared memory, and by `infer_many`: a crowd, one at a time, and
at 0.7 of the crowd's rate.

The bare loops, of one thread, gather and run eagerly, or copy out of registered memory and replay
CUDA graphs. mosec and LitServe run the residual network on the same device. After `--limit-s` no
further part begins, and the report lists the rest as not measured. With `--device cpu --programs
small small-uint8 small-to-image` all of it runs without a GPU, and no limits apply.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from host.gpu_busy import gpu_busy, mean
from host.server import HOST, Server, ServerDied, ServerNotReady, free_port
from load.device_ways import BulkDied, Way, bulk_rate, fleet, shared_row
from load.made_rows import Row
from peers.device_servers import PEERS, DevicePeer, ringbatch
from peers.servers import BENCH
from report.gpu_limits import Bare, Run, lines, run_table, verdict_table, way_out_table
from report.record import Report

from ringbatch.bench.load.answers import post
from ringbatch.bench.load.arrivals import Arrivals, Kind
from ringbatch.bench.load.fleet import Fleet
from ringbatch.bench.load.outcome import Outcome
from ringbatch.bench.load.target import Target

GRACE_S: Final = 20.0
LOOP_LIMIT_S: Final = 300
OF_HIGHEST: Final = 0.7
"""The share of the highest rate at which p99 is measured."""
PROGRAMS: Final = ("resnet50", "resnet50-uint8", "encoder", "mlp", "image-to-image")
LARGE_BYTES: Final = 8192
"""Size of a row from which shared memory pays; smaller rows are sent by `infer_many`."""


class NotAnswered(RuntimeError):
    """A request had no answer."""


class LoopFailed(RuntimeError):
    """The bare loops over a program have failed."""


class NoTime(RuntimeError):
    """The time of the whole measurement is over."""


FAILURES: Final = (
    NotAnswered,
    BulkDied,
    LoopFailed,
    ServerDied,
    ServerNotReady,
    subprocess.TimeoutExpired,
)
"""Failures that cost one part of the measurement alone, not the others."""


@dataclass
class Scenario:
    """The measurement, and what it has found so far.

    Attributes:
        options: of the command line.
        report: the report of the measurement.
        until_s: when nothing more is begun, on the monotonic clock.
        failed: parts that have failed.
        bare, runs, peers, starts_s: as `report.gpu_limits.lines` takes them.
    """

    options: argparse.Namespace
    report: Report
    until_s: float
    failed: list[str] = field(default_factory=list)
    bare: dict[str, Bare] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    peers: dict[str, float] = field(default_factory=dict)
    starts_s: dict[str, float] = field(default_factory=dict)

    def measure(self, program: str) -> None:
        """Measure a program: bare, by ringbatch with one and two workers, by peers."""
        self._expect_time()
        with tempfile.TemporaryDirectory(prefix="rb-") as folder:
            file = Path(folder) / "m.pt2"
            found = self._bare(program, file)
            self.bare[program] = found
            self.report.run(program=program, way="bare", **asdict(found))
            row = Row(found.shape, found.dtype)
            first = program == self.options.programs[0]
            for workers, ways in plan(row, first=first):
                try:
                    self._ringbatch(program, file, row, workers, ways)
                except FAILURES as failure:
                    self.fail(f"{program}, {workers} workers", failure)
            for name, peer in PEERS.items() if first else ():
                try:
                    self._peer(name, peer, file, row)
                except FAILURES as failure:
                    self.fail(name, failure)

    def _bare(self, program: str, file: Path) -> Bare:
        """Write a program and measure the bare loops over it, in a process of their own."""
        words = [program, self.options.device, str(file), str(self.options.seconds)]
        argv = [sys.executable, "-m", "peers.device_loop", *words]
        done = subprocess.run(argv, cwd=BENCH, capture_output=True, text=True, timeout=LOOP_LIMIT_S)
        if done.returncode:
            raise LoopFailed(f"{argv[2]} failed: {done.stderr[-2000:]}")
        found = json.loads(done.stdout)
        return Bare(**{**found, "shape": tuple(found["shape"])})

    def _ringbatch(
        self, program: str, file: Path, row: Row, workers: int, ways: Sequence[Way]
    ) -> None:
        self._expect_time()
        grpc_port, options = free_port(), self.options
        ours = ringbatch(
            options.device, file, options.frontends, options.generators, grpc_port, workers
        )
        with tempfile.TemporaryDirectory(prefix="rb-") as folder:
            began_s = time.monotonic()
            with Server(ours.command(Path(folder))) as server, shared_row(row, server):
                if workers == 1:
                    self.starts_s[program] = time.monotonic() - began_s
                for way in ways:
                    self._expect_time()
                    try:
                        run = self._asked(program, way, row, server, grpc_port, workers)
                    except FAILURES as failure:
                        self.fail(f"{program}, {way}", failure)
                        continue
                    self.report.run(**asdict(run))
                    self.runs.append(run)

    def _asked(
        self, program: str, way: Way, row: Row, server: Server, grpc_port: int, workers: int
    ) -> Run:
        options, seconds = self.options, self.options.seconds
        if way is Way.BULK:
            with gpu_busy(server.pid) as busy:
                rate = bulk_rate(options.generators, row, server, options.bulk_rows, seconds)
            return Run(
                program, way, workers, rate, busy=mean(busy), bus_bytes_per_s=rate * row.size
            )
        closed = Arrivals(Kind.CLOSED, seconds)
        p99_ms = None
        with fleet(way, options.generators, row, server, grpc_port) as many:
            with gpu_busy(server.pid) as busy:
                rate = answered(many.run(closed, options.connections, GRACE_S)).rate_per_s()
            if way is Way.V2:
                p99_ms = self._p99_ms(f"{program}, {way}, {workers} workers", many, rate)
        lone_ms = None
        if workers == 1:
            with fleet(way, 1, row, server, grpc_port) as one:
                alone = answered(one.run(Arrivals(Kind.CLOSED, seconds / 2), 1, GRACE_S))
            lone_ms = alone.times().quantile_ns(0.5) / 1e6
        sent = rate * row.size
        return Run(program, way, workers, rate, lone_ms, p99_ms, mean(busy), sent)

    def _p99_ms(self, title: str, many: Fleet, rate: float) -> float | None:
        """Return the p99 at a part of the highest rate; None if requests had no answer."""
        arrivals = Arrivals(Kind.POISSON, self.options.seconds, rate * OF_HIGHEST)
        outcome = many.run(arrivals, 4 * self.options.connections, GRACE_S)
        try:
            return answered(outcome).times().quantile_ns(0.99) / 1e6
        except NotAnswered as failure:
            self.fail(f"{title}, at {OF_HIGHEST} of the highest rate", failure)
            return None

    def _peer(self, name: str, peer: DevicePeer, file: Path, row: Row) -> None:
        self._expect_time()
        if peer.obstacle:
            self.report.without({name: peer.obstacle})
            return
        body = peer.body(row.values().tobytes())
        message = post(HOST, "/predict", body, [("Content-Type", peer.content_type)])
        options = self.options
        with tempfile.TemporaryDirectory(prefix="rb-") as folder:
            command = peer.command(Path(folder), file, options.device, row)
            with (
                Server(command) as server,
                Fleet(options.generators, Target(HOST, server.port), [message]) as many,
            ):
                arrivals = Arrivals(Kind.CLOSED, options.seconds)
                # Its first batches choose algorithms.
                many.run(Arrivals(Kind.CLOSED, options.seconds / 2), options.connections, GRACE_S)
                outcome = answered(many.run(arrivals, options.connections, GRACE_S))
        self.peers[name] = outcome.rate_per_s()
        self.report.run(program=options.programs[0], way=name, rows_per_s=self.peers[name])

    def fail(self, title: str, failure: Exception) -> None:
        """Note that a part has failed; the others are worth their time all the same."""
        self.failed.append(title)
        self.report.without({title: " ".join(str(failure).split())[:500]})

    def _expect_time(self) -> None:
        if time.monotonic() > self.until_s:
            raise NoTime

    def conclude(self) -> int:
        """Print the tables and hold figures to limits; return the exit status."""
        self.report.print_text(run_table(self.bare, self.runs))
        if ways := way_out_table(self.bare):
            self.report.print_text(ways)
        if all(run.busy is None for run in self.runs):
            print("GPU idle: not known, as NVML tells nothing here (the extra gpu)", flush=True)
        for program, start_s in self.starts_s.items():
            print(f"{program}: {start_s:.1f} s from start to ready", flush=True)
        if self.options.device == "cpu":
            return self.report.finish() or int(bool(self.failed))
        found = list(lines(self.bare, self.runs, self.peers, self.starts_s))
        self.report.print_text(verdict_table(found))
        for line in found:
            if line.value is not None:
                self.report.limit(line.name, line.value, line.at_least, line.at_most)
        missing = {line.name: "not measured" for line in found if line.value is None}
        self.report.without(missing)
        return self.report.finish() or int(bool(missing or self.failed))


def plan(row: Row, *, first: bool) -> Sequence[tuple[int, Sequence[Way]]]:
    """Return the ways of asking, by the number of workers.

    Args:
        row: of the program.
        first: whether it is the program that peers run too, and two workers.
    """
    last = Way.SHARED if row.size >= LARGE_BYTES else Way.BULK
    one = (1, (Way.CLIENT, Way.V2, Way.GRPC, last))
    return (one, (2, (Way.CLIENT, Way.V2))) if first else (one,)


def answered(outcome: Outcome) -> Outcome:
    """Return an outcome in which every request has its answer.

    Raises:
        NotAnswered: another.
    """
    if not outcome.answered.all():
        raise NotAnswered(f"{outcome.counts()}, {outcome.problems}")
    return outcome


def main() -> int:
    """Measure the programs; the exit status is 1 if a limit is missed or not measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--programs", nargs="+", default=[*PROGRAMS])
    parser.add_argument("--seconds", type=float, default=2, help="of a run")
    parser.add_argument("--limit-s", type=float, default=280, help="seconds of all runs")
    parser.add_argument("--frontends", type=int, default=4)
    parser.add_argument("--generators", type=int, default=4)
    parser.add_argument("--bulk-rows", type=int, default=4096, help="of a call of infer_many")
    parser.add_argument("--connections", type=int, default=64)
    options = parser.parse_args()
    report = Report("gpu", {key: str(value) for key, value in vars(options).items()})
    scenario = Scenario(options, report, time.monotonic() + options.limit_s)
    try:
        for program in options.programs:
            try:
                scenario.measure(program)
            except NoTime:
                report.without({program: f"not all of it: {options.limit_s:g} s are over"})
            except FAILURES as failure:
                scenario.fail(program, failure)
    finally:
        # An error may not cost the figures that there are.
        status = scenario.conclude()
    return status


if __name__ == "__main__":
    raise SystemExit(main())
