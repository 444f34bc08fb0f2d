"""Requests/s by the number of frontends, workers and lanes, and the first process to be full.

A control group holds each frontend, the collector and each worker to the same small share of a
core, as if each ran on a slow core of its own. So sixteen frontends and thirty-two workers fit on
two cores, and the most that one collector can carry is measured there. A rate divided by the share
is a rate in requests/s a core. It takes control groups, so mostly root.

Three series: frontends, with one worker for each two; workers, below all frontends; lanes for
clients, which no client uses, but which the collector looks at. A process is full if it used nine
tenths of its share. If none is, the report says that the host or the load generator was the limit.
"""

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from host import procfs
from host.cpu_share import cpu_shares
from host.server import Server, ServerNotReady
from idle import role
from load import answers, generators
from peers.servers import MODELS, Ringbatch
from report.record import Report
from report.rounds import number, run_rounds, spread, table

from ringbatch.engine.config.dimensions import layout_of
from ringbatch.engine.config.settings import ServerConfig
from ringbatch.shm.model_spec import ModelSpec

ROLES = ("frontend", "collector", "worker")
FULL = 0.9
"""Use of a process's share of a core at which it counts as full: it is stopped in most periods."""
MIN_QUOTA_US = 1_000
"""The kernel gives no less in a period."""
START_TIMEOUT_S = 300.0
CAP = 32
MIB = 1 << 20


@dataclass(frozen=True)
class Shape:
    """Size of an engine.

    Attributes:
        frontends, workers: number of processes.
        client_lanes: lanes beside those of the frontends.
    """

    frontends: int
    workers: int
    client_lanes: int = 8

    def __str__(self) -> str:
        return f"{self.frontends} frontends, {self.workers} workers, {self.client_lanes} lanes"


@dataclass(frozen=True)
class Run:
    """Figures of one engine.

    Attributes:
        requests_per_s: requests answered each second.
        cpu_us: CPU time a request, of all processes of a role together.
        used: use by the busiest process of each role, as a part of its share.
    """

    requests_per_s: float
    cpu_us: Mapping[str, float]
    used: Mapping[str, float]

    @property
    def full(self) -> str:
        """The role that has no more to give; empty where none has reached that."""
        busiest = max(self.used, key=lambda name: self.used[name])
        return busiest if self.used[busiest] >= FULL else ""

    def per_core(self, name: str) -> float:
        """Return the requests/s that a whole core of a role would carry."""
        return 1e6 / self.cpu_us[name]


def shapes(most_frontends: int, most_workers: int, most_lanes: int) -> dict[str, list[Shape]]:
    """Return the series, by name."""
    return {
        "frontends": [Shape(n, max(1, n // 2)) for n in powers_of_two(most_frontends)],
        "workers": [Shape(most_frontends, n) for n in powers_of_two(most_workers)],
        "lanes": [Shape(max(1, most_frontends // 4), 2, n) for n in powers_of_two(most_lanes)[::3]],
    }


def powers_of_two(most: int) -> list[int]:
    """Return the powers of two from 1 up to `most`."""
    return [1 << bits for bits in range(most.bit_length())]


def used(
    before: Mapping[int, procfs.ProcessSample],
    after: Mapping[int, procfs.ProcessSample],
    requests: int,
    seconds: float,
    share: float,
) -> tuple[dict[str, float], dict[str, float]]:
    """Return CPU microseconds a request of each role, and the busiest process's use of its share.

    Args:
        before, after: the engine's processes.
        requests: answered between the two.
        seconds: between the two.
        share: of a core that each process has.
    """
    cpu_us, busiest = dict.fromkeys(ROLES, 0.0), dict.fromkeys(ROLES, 0.0)
    for pid, one in after.items():
        name = role(one.title)
        if name in ROLES and pid in before:
            took_ns = one.cpu_ns - before[pid].cpu_ns
            cpu_us[name] += took_ns / 1e3 / requests
            busiest[name] = max(busiest[name], took_ns / 1e9 / seconds / share)
    return cpu_us, busiest


def measure(shape: Shape, share: float, seconds: float, connections: int) -> Run:
    """Start an engine, hold its processes, and ask it for so long."""
    peer = Ringbatch(
        "matmul16",
        MODELS / "matmul16.py",
        frontends=shape.frontends,
        settings={"max_batch_size": CAP, "workers": shape.workers},
        server={"client_lanes": shape.client_lanes},
    )
    post = answers.matmul16_post()
    with (
        cpu_shares(period_us=max(10_000, round(MIN_QUOTA_US / share))) as hold,
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        # To start so many processes takes a core its time.
        Server(replace(peer.command(Path(folder)), start_timeout_s=START_TIMEOUT_S)) as server,
    ):
        answers.check_one(server.port)
        for pid in await_all(server.pid, shape):
            hold([pid], share)
        generators.wrk(server.url, post, connections, seconds, timeout_s=60)
        before, began_s = procfs.sample_tree(server.pid), time.monotonic()
        found = generators.wrk(server.url, post, connections, seconds, timeout_s=60)
        after, took_s = procfs.sample_tree(server.pid), time.monotonic() - began_s
    cpu_us, busiest = used(before, after, found.requests, took_s, share)
    return Run(found.requests_per_s, cpu_us, busiest)


def await_all(supervisor: int, shape: Shape) -> list[int]:
    """The processes to be held, once all of them are there; the first frontend answers before the
    last has started.

    Raises:
        ServerNotReady: there are others than were asked for, after a long time.
    """
    wanted = {"frontend": shape.frontends, "collector": 1, "worker": shape.workers}
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        pids, found = [], dict.fromkeys(ROLES, 0)
        for one in procfs.sample_tree(supervisor).values():
            name = role(one.title)
            # A frontend without a number has no lane yet.
            if name in ROLES and (name != "frontend" or one.title[-1].isdigit()):
                pids.append(one.pid)
                found[name] += 1
        if found == wanted:
            return pids
        if time.monotonic() > deadline:
            raise ServerNotReady(f"asked for {wanted}, found {found}")
        time.sleep(0.2)


def rate_table(runs: Mapping[Shape, Sequence[Run]], share: float) -> str:
    """Return the table of a series: rates, costs and what was full."""
    rows = []
    for shape, found in runs.items():
        rates = spread([one.requests_per_s for one in found])
        costs = [number(spread([one.cpu_us[name] for one in found]).median) for name in ROLES]
        parts = [f"{spread([one.used[name] for one in found]).median:.0%}" for name in ROLES]
        full = ", ".join(sorted({one.full or "none" for one in found}))
        rows.append([str(shape), str(rates), number(rates.median / share), *costs, *parts, full])
    head = ["", "req/s, median (min..max)", "by the share"]
    head += [f"{name}, CPU µs" for name in ROLES] + [f"{name}, of its share" for name in ROLES]
    return table([*head, "full"], rows)


def first_full(runs: Mapping[Shape, Sequence[Run]]) -> str:
    """Return the process that limits the rate of the largest engine of a series, as sentences."""
    shape, found = list(runs.items())[-1]
    best = max(found, key=lambda one: one.requests_per_s)
    words = ", ".join(f"{name} {best.per_core(name):,.0f}" for name in ROLES)
    carried = best.per_core("collector") / best.per_core("frontend")
    return (
        f"{shape}: full is {best.full or 'none of its processes, so the host was the limit'}.\n"
        f"requests/s that one core of each role carries: {words};\n"
        f"so one collector keeps up with {carried:.1f} frontends that have a core each."
    )


def memory_table() -> str:
    """Return the shared memory that an engine takes by lanes and slots, with the payload memory
    that a lane has by default."""
    spec = ModelSpec(
        index=0,
        name="m",
        platform="python",
        inputs=(),
        outputs=(),
        max_batch_size=CAP,
        max_latency_ns=0,
        timeout_ns=1,
        policy="eager",
        workers=(0,),
    )
    rows = []
    for frontends in (1, 4, 16, 64):
        for slots in (256, 1024, 4096):
            server = ServerConfig(frontends=frontends, max_in_flight=slots)
            layout = layout_of(server, (spec,))
            payload_bytes = layout.lanes * layout.lane_bytes
            own_bytes = layout.size - payload_bytes
            row = (frontends, layout.lanes, layout.slots)
            row_mib = (own_bytes / MIB, payload_bytes / MIB, own_bytes / layout.lanes / 1024)
            rows.append([*map(str, row), *map(number, row_mib)])
    head = ["frontends", "lanes", "slots a lane", "words, MiB", "payload, MiB"]
    return table([*head, "words of a lane, KiB"], rows)


def main() -> int:
    """Measure; the exit status is 1 where more frontends bring less than they should."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of one run")
    parser.add_argument("--share", type=float, default=0.05, help="of a core, for each process")
    parser.add_argument("--connections", type=int, default=1024)
    parser.add_argument("--frontends", type=int, default=16, help="the most")
    parser.add_argument("--workers", type=int, default=32, help="the most")
    parser.add_argument("--lanes", type=int, default=64, help="for clients, the most")
    parser.add_argument("--series", nargs="+", default=["frontends", "workers", "lanes"])
    options = parser.parse_args()

    generators.require_tools()
    report = Report("scaling", vars(options))
    report.print_text(memory_table())
    for series, members in shapes(options.frontends, options.workers, options.lanes).items():
        if series not in options.series:
            continue

        def run(turn: int, shape: Shape, series: str = series) -> Run:
            found = measure(shape, options.share, options.seconds, options.connections)
            report.run(series=series, round=turn, **asdict(shape), result=asdict(found))
            return found

        runs = run_rounds(members, options.rounds, run)
        report.print_text(rate_table(runs, options.share))
        report.print_text(first_full(runs))
        if series == "frontends" and len(members) > 1:
            one, two = (spread([r.requests_per_s for r in runs[s]]).median for s in members[:2])
            report.limit("req/s of 2 frontends against one", two / one, at_least=1.7)
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
