"""Answers in parts of a model in steps, behind ringbatch and the servers that stream too.

A step takes 1 ms whatever rows are live, and at most 32 run at once. A closed loop of 32 clients
asks for answers of 50 parts, and for answers of geometric lengths with a mean of 50. mosec and Ray
Serve run a batch until its longest row ends; LitServe's loop, Triton's models and ringbatch let
rows join. In every round each server starts anew, gives a few answers that are looked at, and is
driven after a warm-up. ringbatch's own generator counts the events of all of them.
"""

import argparse
import http.client
import json
import random
import re
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from host import procfs
from host.server import HOST, Command, Server, free_port
from load.answers import WrongAnswer
from peers.servers import (
    LITSERVE,
    MODELS,
    MOSEC,
    RAY_SERVE,
    SERVICES,
    Environment,
    Section,
    install,
    mosec,
    ringbatch_command,
)
from peers.triton import TRITON, DecoupledTriton
from report.peer_rounds import OWN, run_entries
from report.record import Report
from report.rounds import number, ratios, spread, table

from ringbatch.bench.load.answers import post
from ringbatch.bench.load.arrivals import Arrivals, Kind
from ringbatch.bench.load.event_stream import EventReader
from ringbatch.bench.load.fleet import Fleet
from ringbatch.bench.load.outcome import Outcome, words_of
from ringbatch.bench.load.target import Target, Wire

PLACES: Final = 32
MEAN_PARTS: Final = 50
REQUESTS: Final = 64
"""Different lengths, asked for in turn."""
EVENTS: Final = (("Accept", "text/event-stream"), ("Content-Type", "application/json"))
LEAST_OF_FASTEST: Final = 1.5
LEAST_OF_PYTHON: Final = 5.0
MOST_GAP: Final = 0.5
"""The most of ringbatch's p99 of a gap, by that of the best peer."""
FIXED: Final = "50 parts"
GEOMETRIC: Final = "geometric"


def lengths(kind: str) -> list[int]:
    """Return the parts of each request's answer."""
    if kind == FIXED:
        return [MEAN_PARTS] * REQUESTS
    chance = random.Random(1)
    found = []
    for _ in range(REQUESTS):
        parts = 1
        while chance.random() > 1 / MEAN_PARTS:
            parts += 1
        found.append(parts)
    return found


@dataclass(frozen=True)
class Peer:
    """Server in the comparison.

    Attributes:
        command: makes the command, given a folder that outlives the server.
        path: path of its requests.
        body: returns the body of a request for an answer of so many parts.
        environment: None where it runs in this interpreter's own.
        python: whether its connections are Python's too.
        note: a remark for readers of the table.
    """

    command: Callable[[Path], Command]
    path: str
    body: Callable[[int], object]
    environment: Environment | None
    python: bool
    note: str


def _ringbatch(folder: Path) -> Command:
    model: Section = {"path": str(MODELS / "steps_1ms.py"), "max_batch_size": PLACES}
    return ringbatch_command(folder, {"steps": model})


def _script(
    environment: Environment, script: str, ready: str, stop: signal.Signals, _folder: Path
) -> Command:
    port = free_port()
    return Command(
        argv=[str(environment.python), str(SERVICES / script), f"--port={port}"],
        port=port,
        ready_path=ready,
        env={"BENCH_PLACES": str(PLACES)},
        start_timeout_s=120,
        stop_signal=stop,
        stop_timeout_s=60,
    )


def _body(parts: int) -> object:
    return {"n": parts}


def _triton(form: str, note: str) -> Peer:
    return Peer(
        DecoupledTriton(form, PLACES).command,
        f"/v2/models/{form}/generate_stream",
        _body,
        TRITON,
        False,
        f"decoupled model of the Python backend, {note}",
    )


PEERS: Final[Mapping[str, Peer]] = {
    OWN: Peer(
        _ringbatch,
        "/v1/models/steps:predict",
        lambda parts: {"instances": [parts]},
        None,
        False,
        "1 frontend, 1 worker, 32 places",
    ),
    "mosec": Peer(
        lambda folder: mosec(folder, "steps_mosec.py", timeout_ms=60_000, BENCH_PLACES=str(PLACES)),
        "/predict",
        _body,
        MOSEC,
        False,
        "1 worker of events, static batches of 32, wait 1 ms",
    ),
    "Triton, threads": _triton("threads", "a thread and steps of its own for each request"),
    "Triton, one loop": _triton("loop", "one thread, which sends while the next step runs"),
    "LitServe": Peer(
        partial(_script, LITSERVE, "steps_litserve.py", "/health", signal.SIGINT),
        "/predict",
        _body,
        LITSERVE,
        True,
        "1 worker, continuous batching loop",
    ),
    "Ray Serve": Peer(
        partial(_script, RAY_SERVE, "steps_ray.py", "/-/healthz", signal.SIGTERM),
        "/predict",
        _body,
        RAY_SERVE,
        True,
        "1 replica, @serve.batch of generators, wait 1 ms",
    ),
}


@dataclass(frozen=True)
class Run:
    """Figures of one run.

    Attributes:
        parts_per_s: parts that came in it.
        answers_per_s: answers that ended in it.
        first_p50_ms, first_p99_ms: from a request to its first part.
        gap_p50_ms, gap_p99_ms: between two parts, over all parts.
        cpu_us: CPU time of the server's processes for a part.
        busy: share of a CPU that the generator used.
    """

    parts_per_s: float
    answers_per_s: float
    first_p50_ms: float
    first_p99_ms: float
    gap_p50_ms: float
    gap_p99_ms: float
    cpu_us: float
    busy: float


def run_of(outcome: Outcome, cpu_s: float) -> Run:
    """Return the figures of a run.

    Args:
        outcome: of its requests.
        cpu_s: that the server used.

    Raises:
        WrongAnswer: an answer failed, or had fewer parts than asked for.
    """
    parts = outcome.parts
    assert parts is not None
    lost = {words_of(status): count for status, count in outcome.counts().items() if status != 200}
    if lost or parts.short or not outcome.count:
        raise WrongAnswer(f"{lost}, {parts.short} short, {outcome.problems}")
    first, gaps = outcome.first_parts(), outcome.gaps()
    return Run(
        parts.in_run / outcome.seconds,
        outcome.rate_per_s(),
        first.quantile_ns(0.5) / 1e6,
        first.quantile_ns(0.99) / 1e6,
        gaps.quantile_ns(0.5) / 1e6,
        gaps.quantile_ns(0.99) / 1e6,
        1e6 * cpu_s / int(parts.counts.sum()),
        parts.busy,
    )


def expect_parts(port: int, peer: Peer, parts: int) -> None:
    """Ask once for an answer of so many parts, which count from 0.

    Raises:
        WrongAnswer: it has another number of them, or not in their order.
    """
    connection = http.client.HTTPConnection(HOST, port, timeout=60)
    try:
        connection.request("POST", peer.path, json.dumps(peer.body(parts)), dict(EVENTS))
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    events = EventReader().take(text)
    if answer.status != 200 or len(events) != parts:
        raise WrongAnswer(
            f"status {answer.status}, {len(events)} parts and not {parts}: {text[:200]!r}"
        )
    for place, event in enumerate(events):
        # Each server has its own form of events. In all of them, the part is the last number.
        if not re.search(rb"\b%d\D*\Z" % place, event):
            raise WrongAnswer(f"part {place} is {event!r}")


def cpu_s(root: int) -> float:
    """Return the CPU time of a server's processes since their starts."""
    samples = [procfs.sample(pid) for pid in procfs.tree(root)]
    return sum(one.cpu_ns for one in samples if one is not None) / 1e9


def measure(name: str, kind: str, clients: int, seconds: float) -> Run:
    """Start a server, look at its answers, and drive it."""
    peer, asked = PEERS[name], lengths(kind)
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as made,
        Server(peer.command(Path(made))) as server,
    ):
        for parts in sorted(set(asked))[:5]:
            expect_parts(server.port, peer, parts)
        messages = [
            post(HOST, peer.path, json.dumps(peer.body(parts)).encode(), EVENTS) for parts in asked
        ]
        # A reference of so many events has an answer with fewer count as short.
        references = [b"data: 0\n\n" * parts for parts in asked]
        target = Target(HOST, server.port, Wire.EVENTS)
        with Fleet(1, target, messages, references, compares=False) as fleet:
            fleet.run(Arrivals(Kind.CLOSED, 1.0), clients, 60)
            before_s = cpu_s(server.pid)
            outcome = fleet.run(Arrivals(Kind.CLOSED, seconds), clients, 60)
            return run_of(outcome, cpu_s(server.pid) - before_s)


def hold_to_limits(report: Report, kind: str, runs: Mapping[str, Sequence[Run]]) -> None:
    """Compare ringbatch's parts/s and gaps with its peers'."""
    peers = {name: found for name, found in runs.items() if name != OWN}
    if OWN not in runs or not peers:
        return
    own = [run.parts_per_s for run in runs[OWN]]
    gains = {
        name: ratios(own, [run.parts_per_s for run in found]).median
        for name, found in peers.items()
    }
    least = min(gains.values())
    report.limit(f"{kind}: parts/s by the fastest peer's", least, at_least=LEAST_OF_FASTEST)
    for name, gain in gains.items():
        if PEERS[name].python:
            report.limit(f"{kind}: parts/s by {name}'s", gain, at_least=LEAST_OF_PYTHON)
    gaps = {name: spread([run.gap_p99_ms for run in found]).median for name, found in runs.items()}
    best = min(gaps[name] for name in peers)
    report.limit(f"{kind}: p99 of a gap by the best peer's", gaps[OWN] / best, at_most=MOST_GAP)


def rows(runs: Mapping[str, Sequence[Run]]) -> list[list[str]]:
    """Return the rows of a table: medians of the rounds."""
    names = [name for name in Run.__dataclass_fields__ if name != "busy"]
    return [
        [peer, *(number(spread([getattr(run, name) for run in found]).median) for name in names)]
        for peer, found in runs.items()
    ]


def main() -> int:
    """Run the rounds; the exit status is 1 where a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--clients", type=int, default=PLACES)
    kinds = (FIXED, GEOMETRIC)
    parser.add_argument("--lengths", nargs="+", choices=kinds, default=list(kinds))
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    options = parser.parse_args()
    absent = install({name: PEERS[name].environment for name in options.peers})
    names = [name for name in options.peers if name not in absent]
    report = Report("stream_peers", vars(options))
    report.without(absent)
    report.peer_versions(PEERS[name].environment for name in names)
    report.put("notes", {name: PEERS[name].note for name in names})
    for kind in options.lengths:

        def run(_turn: int, name: str, kind: str = kind) -> Run:
            found = measure(name, kind, options.clients, options.seconds)
            report.run(peer=name, lengths=kind, **vars(found))
            return found

        runs = run_entries(report, names, options.rounds, run)
        heads = ["parts/s", "answers/s", "first p50, ms", "first p99", "gap p50", "gap p99"]
        report.print_text(table([kind, *heads, "CPU µs a part"], rows(runs)))
        hold_to_limits(report, kind, runs)
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
