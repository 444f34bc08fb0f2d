"""Unary calls over gRPC through the whole engine, against Triton: 16 floats, and 602 KB.

`h2load` sends one message over and over, in a closed loop: a call sent, its answer read. Both
servers have one model in Python, one instance of it, a cap of 32 and no wait for a batch, and share
all cores with h2load. To send 602 KB takes it as long as ringbatch takes to answer, so that on two
cores it is what a rate tells of; therefore each server is also held to a part of a core, all of its
processes together, by control groups, which takes root.

ringbatch's own generator, slower than h2load, sends the small calls once more: with the same
heads, and with a ``traceparent`` of its own in each, as behind a mesh. The benchmark compares the
CPU times of the two.
"""

import argparse
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path

import grpc
import numpy as np
from host import procfs
from host.cpu_share import cpu_shares
from host.server import HOST, Command, Server, free_port
from load import h2load
from load.answers import WrongAnswer
from load.tensors import IMAGE, MATMUL16, Subject
from peers.servers import MODELS, Environment, Ringbatch, Section, install
from peers.triton import TRITON, Triton, triton_command
from report.peer_rounds import OWN, run_entries
from report.record import Report
from report.rounds import number, ratios, spread, table

from ringbatch.bench.load.arrivals import Arrivals, Kind
from ringbatch.bench.load.fleet import Fleet
from ringbatch.bench.load.grpc_call import call_head, prefixed
from ringbatch.bench.load.target import Target, Wire
from ringbatch.frontend.grpc.messages import inference

METHOD = "/inference.GRPCInferenceService/ModelInfer"
NOTES = {
    OWN: "1 frontend for gRPC, 1 worker, eager, cap 32",
    "triton": "Python backend, 1 instance, cap 32, no queue delay",
}
ENVIRONMENTS: Mapping[str, Environment | None] = {OWN: None, "triton": TRITON}
MAX_CPU_WITH_TRACES = 1.3
_CONNECTIONS = 32
_SAME, _TRACED = (f"{_CONNECTIONS} x 1, {heads}" for heads in ("one head", "traces"))
Start = Callable[[Path, int], Command]
"""Given a folder, and the port for gRPC."""


@dataclass(frozen=True)
class Workload:
    """Calls with one instance of a model each.

    Attributes:
        subject: the model.
        shapes: connections, and calls under way on each; the first is a lone call.
        at_least: times Triton's calls a second, with many under way.
        traced: whether further runs give each call a trace of its own.
        held: whether each server is also driven on the same part of a core, by all loads but the
            lone call; then that is held to the limit.
    """

    subject: Subject
    shapes: tuple[tuple[int, int], ...]
    at_least: float
    traced: bool = False
    held: bool = False


WORKLOADS = {
    "small": Workload(MATMUL16, ((1, 1), (1, 32), (8, 4), (32, 1)), 3.0, traced=True),
    "large": Workload(IMAGE, ((1, 1), (8, 1)), 2.0, held=True),
}


@dataclass(frozen=True)
class Run:
    """Figures of one server at one load.

    Attributes:
        result: figures of h2load.
        cpu_us: CPU time of all its processes for a call.
        by_process: that of each, by its title.
    """

    result: h2load.H2Run
    cpu_us: float
    by_process: Mapping[str, float]


def starts(subject: Subject) -> dict[str, Start]:
    """Return the functions that start each server."""

    def ringbatch(folder: Path, grpc_port: int) -> Command:
        settings: Section = {"max_batch_size": 32, "workers": 1, "policy": "eager"}
        server = {"grpc_port": grpc_port, "grpc_frontends": 1}
        model = MODELS / f"{subject.name}.py"
        return Ringbatch(subject.name, model, 1, settings, server).command(folder)

    def triton(folder: Path, grpc_port: int) -> Command:
        return triton_command(folder, [Triton(subject.name, subject.x, subject.y)], grpc_port)

    return {OWN: ringbatch, "triton": triton}


def request(subject: Subject) -> bytes:
    """Return the message with one instance."""
    x = subject.instance(0)[np.newaxis]
    message = inference("ModelInferRequest")(
        model_name=subject.name,
        inputs=[{"name": "x", "datatype": "FP32", "shape": x.shape}],
        raw_input_contents=[x.astype("<f4").tobytes()],
    )
    data: bytes = message.SerializeToString()
    return data


def checked_answer(subject: Subject, port: int, sent: bytes) -> bytes:
    """Return the answer to it, after a look into it.

    Raises:
        WrongAnswer: it is not the right one.
    """
    with grpc.insecure_channel(f"{HOST}:{port}") as channel:
        received: bytes = channel.unary_unary(METHOD)(sent, timeout=30, wait_for_ready=True)
    (raw,) = inference("ModelInferResponse").FromString(received).raw_output_contents
    expected = subject.expected(subject.instance(0)[np.newaxis])
    if not np.allclose(np.frombuffer(raw, "<f4"), expected.ravel(), rtol=1e-4, atol=1e-5):
        raise WrongAnswer(f"expected {expected.tolist()}, found {received[:500]!r}")
    return received


def measure(workload: Workload, start: Start, seconds: float, share: float) -> dict[str, Run]:
    """Start one server, check it, and drive it at each load; last on its share of a core, if so."""
    subject, port = workload.subject, free_port()
    sent, found = request(subject), {}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, ExitStack() as stack:
        hold = stack.enter_context(cpu_shares()) if workload.held else None
        server = stack.enter_context(Server(start(Path(folder), port)))
        answer = checked_answer(subject, port, sent)

        def drive(load: Callable[[], h2load.H2Run], more_calls: int) -> Run:
            before = procfs.sample_tree(server.pid)
            result = load()
            after = procfs.sample_tree(server.pid)
            checked_answer(subject, port, sent)
            used = cpu_us(before, after, result.requests + more_calls)
            return Run(result, sum(used.values()), used)

        def by_h2load(connections: int, streams: int) -> Run:
            url, size = f"http://{HOST}:{port}{METHOD}", len(h2load.framed(answer))
            load = partial(h2load.h2load, url, sent, size, connections, streams, seconds)
            return drive(load, h2load.WARM_UP_REQUESTS)

        for shape in workload.shapes:
            found[named(shape)] = by_h2load(*shape)
        for name, traces in ((_SAME, False), (_TRACED, True)) if workload.traced else ():
            found[name] = drive(partial(by_generator, port, sent, seconds, traces=traces), 0)
        if hold is not None:
            hold(procfs.tree(server.pid), share)
            for shape in workload.shapes[1:]:
                found[named(shape, share)] = by_h2load(*shape)
    return found


def by_generator(port: int, sent: bytes, seconds: float, *, traces: bool) -> h2load.H2Run:
    """Send a message over and over by ringbatch's generator, in a closed loop.

    Raises:
        WrongAnswer: a call has no answer.
    """
    target = Target(HOST, port, Wire.GRPC, own_heads=traces)
    head = call_head(f"{HOST}:{port}", (), enters=traces)
    with Fleet(1, target, [prefixed(sent)], (), head) as fleet:
        outcome = fleet.run(Arrivals(Kind.CLOSED, seconds), _CONNECTIONS, grace_s=10.0)
    if outcome.counts().keys() != {200}:
        raise WrongAnswer(f"calls ended with {outcome.counts()}")
    took_ms, count = outcome.took_ns / 1e6, outcome.count
    mean, most, middle = (float(f(took_ms)) for f in (np.mean, np.max, np.median))
    return h2load.H2Run(_CONNECTIONS, 1, count, count / seconds, mean, most, middle)


def named(shape: tuple[int, int], share: float = 0.0) -> str:
    """Return a load's name for tables."""
    connections, streams = shape
    return f"{connections} x {streams}" + (f" on {share:g} cores" if share else "")


def cpu_us(
    before: Mapping[int, procfs.ProcessSample],
    after: Mapping[int, procfs.ProcessSample],
    calls: int,
) -> dict[str, float]:
    """Return the CPU time of a call in each process that took a noticeable part."""
    found: dict[str, float] = {}
    for pid, one in after.items():
        used_us = (one.cpu_ns - before[pid].cpu_ns) / 1e3 / calls if pid in before else 0.0
        if used_us > 0.1:
            own = one.title.partition("ringbatch: ")[2]
            title = own or Path(one.title.split()[0]).name
            found[title] = found.get(title, 0.0) + used_us
    return found


def compare(
    report: Report, name: str, servers: Sequence[str], options: argparse.Namespace
) -> dict[str, list[dict[str, Run]]]:
    """Measure servers with one workload, and print what they reached."""
    workload = WORKLOADS[name]
    begin = starts(workload.subject)
    report.print_text(f"{name}: one instance of {workload.subject.name} a call")

    def run(turn: int, server: str) -> dict[str, Run]:
        found = measure(workload, begin[server], options.seconds, options.share)
        for load_name, one in found.items():
            report.run(round=turn, workload=name, peer=server, load=load_name, **asdict(one))
        return found

    found = run_entries(report, servers, options.rounds, run)
    loads = list(next(iter(found.values()))[0])
    rows = [
        [
            server,
            at,
            str(spread([turn[at].result.requests_per_s for turn in turns])),
            str(spread([turn[at].result.p50_ms for turn in turns])),
            str(spread([turn[at].cpu_us for turn in turns])),
            processes([turn[at].by_process for turn in turns]),
        ]
        for server, turns in found.items()
        for at in loads
    ]
    head = ["server", "load", "calls/s", "p50 ms", "CPU µs a call", "by process"]
    report.print_text(table(head, rows))
    return found


def processes(rounds: Sequence[Mapping[str, float]]) -> str:
    """Return the medians of each process's CPU time."""
    titles = sorted(set[str]().union(*rounds))
    medians = [spread([one.get(title, 0.0) for one in rounds]).median for title in titles]
    named = zip(titles, medians, strict=True)
    return ", ".join(f"{title} {number(median)}" for title, median in named)


def main() -> int:
    """Run the scenario; the exit status is 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of one run")
    parser.add_argument("--share", type=float, default=0.5, help="of a core, for each server held")
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--servers", nargs="+", choices=NOTES, default=list(NOTES))
    options = parser.parse_args()

    h2load.require()
    absent = install({name: ENVIRONMENTS[name] for name in options.servers})
    servers = [name for name in options.servers if name not in absent]
    report = Report("grpc_triton", vars(options))
    report.without(absent)
    report.peer_versions(ENVIRONMENTS[name] for name in servers)
    report.put("notes", NOTES)
    for name in options.workloads:
        found = compare(report, name, servers, options)
        if OWN in found and WORKLOADS[name].traced:
            traced, same = ([turn[at].cpu_us for turn in found[OWN]] for at in (_TRACED, _SAME))
            cost = ratios(traced, same).median
            words = f"{name}, CPU time of calls with traces against those with one head"
            report.limit(words, cost, at_most=MAX_CPU_WITH_TRACES)
        if found.keys() == NOTES.keys():
            limit(report, name, found[OWN], found["triton"], options.share)
    return report.finish()


def limit(
    report: Report,
    name: str,
    own: Sequence[Mapping[str, Run]],
    triton: Sequence[Mapping[str, Run]],
    share: float,
) -> None:
    """Hold ringbatch to its limits."""
    workload = WORKLOADS[name]
    alone = named(workload.shapes[0])
    for shape, part in product(workload.shapes[1:], (0.0, share) if workload.held else (0.0,)):
        at = named(shape, part)
        rates = [[turn[at].result.requests_per_s for turn in turns] for turns in (own, triton)]
        title = f"{name}, calls/s against Triton at {at}"
        if workload.held and not part:
            # Half of what this tells is of h2load, whoever answers.
            report.print_text(f"{title}: {number(ratios(*rates).median)}")
        else:
            report.limit(title, ratios(*rates).median, at_least=workload.at_least)
    p50s = [[turn[alone].result.p50_ms for turn in turns] for turns in (own, triton)]
    report.limit(f"{name}, p50 of a lone call against Triton", ratios(*p50s).median, at_most=1.0)


if __name__ == "__main__":
    raise SystemExit(main())
