"""Two engines behind HAProxy and nginx, of which one is killed, stopped, drained, slowed down or
replaced while an open loop asks: what fails, and how long requests take.

The balancers are set up as `systemd/proxies` has them, HAProxy by each algorithm with and without
its agent-check. The engines have a network of their own each; their model sleeps, so that what is
compared is who gets which request, and not whose CPUs are busy. A request fails without the right
answer; times count from the instant at which it was due, and are of those due after the act. While
one engine is slow, HAProxy's p99 with the agent-check is to be at most half of that without.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from host.children import tied
from host.network_namespaces import CAPACITY_PER_S, PATH, SLOW, Engine, obstacle, path_of
from host.server import HOST, free_port
from load.open_loop import Answer, open_loop
from report.rounds import table

EXAMPLES = Path(__file__).parents[1] / "systemd/proxies"
ACT_AT_S = 2.0
HELD_S = 3.0


@dataclass(frozen=True)
class Setup:
    """A balancer, and how it chooses.

    Attributes:
        program: HAProxy or nginx.
        algorithm: in the program's words; empty for what it does without any.
        agent: whether it asks the engines.
    """

    program: str
    algorithm: str
    agent: bool = False


SETUPS = (
    *(
        Setup("haproxy", algorithm, agent)
        for algorithm in ("leastconn", "random(2)", "roundrobin")
        for agent in (False, True)
    ),
    Setup("nginx", "random two least_conn"),
    Setup("nginx", ""),
)


@dataclass(frozen=True)
class Act:
    """Event during a run, which happens to the first engine.

    Attributes:
        name: its name in tables.
        seconds: length of the load, with the time before the event.
        do: makes it happen to an engine.
        planned: True if no request may fail.
    """

    name: str
    seconds: float
    do: Callable[[Engine], object]
    planned: bool = True


SLOWED = Act("slowed to a third", 14.0, lambda engine: engine.at_speed(SLOW))
AT_MOST = 0.5
"""Limit of the p99 with the agent-check under `SLOWED`, as a share of the p99 without it."""
ACTS = (
    Act("nothing", 8.0, lambda _engine: None),
    SLOWED,
    Act("killed", 8.0, Engine.kill, planned=False),
    Act("stopped for 3 s", 10.0, lambda engine: engine.hold(HELD_S)),
    Act("drained, started", 16.0, Engine.restart),
    Act("replaced", 10.0, lambda engine: engine.start("handover")),
)


@dataclass(frozen=True)
class Run:
    """Outcome of one event under load. Times are in milliseconds."""

    requests: int
    failed: int
    p50_ms: float
    p99_ms: float
    longest_ms: float


def summary(answers: Sequence[Answer]) -> Run:
    """Return the failures of all requests, and the latencies of those that came after the event."""
    times = sorted(answer.took_s for answer in answers if answer.due_s >= ACT_AT_S)
    p50_s, p99_s = (times[int(share * (len(times) - 1))] for share in (0.5, 0.99))
    failed = sum(not answer.right for answer in answers)
    return Run(len(answers), failed, p50_s * 1e3, p99_s * 1e3, times[-1] * 1e3)


def configuration(setup: Setup, port: int, spare_port: int, engines: Sequence[Engine]) -> str:
    """Return the balancer's example with another algorithm and other addresses.

    Args:
        setup: the balancer and its algorithm.
        port: where it listens for HTTP.
        spare_port: for gRPC, which nobody asks for.
        engines: behind it.
    """
    name = "haproxy.cfg" if setup.program == "haproxy" else "nginx.conf"
    text = (EXAMPLES / name).read_text()
    text = text.replace(f"{HOST}:8000", f"{HOST}:{port}").replace(
        f"{HOST}:8001", f"{HOST}:{spare_port}"
    )
    for engine in engines:
        text = text.replace(f"{HOST}:{engine.port}", f"{engine.host}:{engine.port}")
    if setup.program == "haproxy":
        text = text.replace("balance leastconn", f"balance {setup.algorithm}")
        text = text.partition("# gRPC, where")[0]
        return text if setup.agent else re.sub(r" agent-(check|inter \w+|port \d+)", "", text)
    text = text.replace("random two least_conn;", f"{setup.algorithm};" * bool(setup.algorithm))
    paths = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    lines = "".join(f"    {path}_temp_path {path};\n" for path in paths)
    return text.replace("http {\n", f"http {{\n{lines}")


@contextmanager
def balancer(setup: Setup, engines: Sequence[Engine]) -> Iterator[int]:
    """Run a balancer, and yield the port that it listens on."""
    program, port = path_of(setup.program), free_port()
    assert program is not None, "it was looked for"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "balancer.conf"
        file.write_text(configuration(setup, port, free_port(), engines))
        command = [program, "-db", "-f", str(file)]
        if setup.program == "nginx":
            directives = "daemon off; pid nginx.pid; user root;"
            command = [program, "-p", folder, "-e", "stderr", "-g", directives, "-c", str(file)]
        with (Path(folder) / "log").open("wb") as log:
            process = subprocess.Popen(
                command, cwd=folder, stdout=log, stderr=log, preexec_fn=tied()
            )
        try:
            # It has asked every engine by then.
            time.sleep(1.5)
            if process.poll() is not None:
                raise RuntimeError((Path(folder) / "log").read_text())
            yield port
        finally:
            process.terminate()
            process.wait()


def measure(setup: Setup, act: Act, engines: Sequence[Engine], rate_per_s: float) -> Run:
    """Return the outcome of an event under load. All engines run again afterwards."""
    with balancer(setup, engines) as port:
        acting = threading.Timer(ACT_AT_S, act.do, [engines[0]])
        acting.start()
        try:
            answers = open_loop(port, PATH, rate_per_s, act.seconds)
        finally:
            acting.join()
    engines[0].at_speed(1.0)
    if not engines[0].is_there():
        engines[0].start()
    return summary(answers)


def row(setup: Setup, act: Act, run: Run) -> list[str]:
    """Return a row of the table."""
    return [
        setup.program,
        setup.algorithm or "in turn",
        "yes" if setup.agent else "",
        act.name,
        f"{run.requests:,}",
        str(run.failed),
        f"{run.p50_ms:.0f}",
        f"{run.p99_ms:.0f}",
        f"{run.longest_ms:.0f}",
    ]


def gains(runs: Mapping[tuple[Setup, Act], Run]) -> dict[str, float]:
    """Return the p99 with the agent-check, divided by that without, by algorithm."""
    found = {}
    for setup, act in runs:
        without = runs.get((replace(setup, agent=False), act))
        if setup.agent and act is SLOWED and without is not None:
            found[setup.algorithm] = runs[setup, act].p99_ms / without.p99_ms
    return found


def main() -> int:
    """Print a line for each act; the exit status is 1 where a request failed without need, or the
    agent-check gains too little."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--load", type=float, default=0.4, metavar="SHARE", help="of two engines")
    parser.add_argument("--act", action="append", choices=[act.name for act in ACTS])
    parser.add_argument("--program", action="append", choices=["haproxy", "nginx"])
    options = parser.parse_args()
    setups = [s for s in SETUPS if s.program in (options.program or ["haproxy", "nginx"])]
    if why := obstacle(*{setup.program for setup in setups}):
        print(f"not possible here: {why}", file=sys.stderr)
        return 2
    rate_per_s = options.load * 2 * CAPACITY_PER_S
    rows, failed = [], 0
    runs: dict[tuple[Setup, Act], Run] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        engines = [Engine(number, Path(folder)) for number in range(2)]
        for engine in engines:
            stack.enter_context(engine.network())
            stack.callback(engine.kill)
            engine.start()
        for setup in setups:
            for act in ACTS:
                if act.name in (options.act or act.name):
                    run = runs[setup, act] = measure(setup, act, engines, rate_per_s)
                    rows.append(row(setup, act, run))
                    print(*rows[-1], sep="  ", flush=True)
                    failed += act.planned and run.failed
    heads = ["balancer", "chooses by", "agent-check", "one engine is", "requests", "failed"]
    print(table([*heads, "p50 ms", "p99 ms", "longest ms"], rows))
    gained = gains(runs)
    for algorithm, part in gained.items():
        print(f"{algorithm}, {SLOWED.name}: p99 with agent-check {part:.2f} of that without")
    return int(bool(failed) or max(gained.values(), default=0.0) > AT_MOST)


if __name__ == "__main__":
    sys.exit(main())
