"""Gain from several model servers, and the cost for clients if one of them fails.

Each server takes 100 ms a batch, one after the other, by sleeping: two cores are enough for four of
them. Requests/s with two and with four are compared with one; then, with two of them, one is
killed, stopped or slowed to a third while requests come, and no request may fail. A run in which
one fails ends the scenario.
"""

import argparse
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from host.server import Command, Server, ServerDied, free_port
from load import answers, generators
from report.record import Report
from report.rounds import ratios, run_rounds
from sidecar import predictor

CAP = 8
HOLD_MS = 100
CONNECTIONS_EACH = 4 * CAP + 8
"""Connections for full batches under way at each server, and for more that wait."""
COUNTS: Mapping[str, int] = {"one": 1, "two": 2, "four": 4}
AT_LEAST = {"two": 1.9, "four": 3.8}
_HIT_AFTER_S = 1.0
_STOPPED_S, _GOING_S = 0.2, 0.1


def engine(ports: Sequence[int], folder: Path) -> Command:
    """Return the command of an engine with one frontend in front of those servers."""
    port = free_port()
    urls = ", ".join(f'"http://127.0.0.1:{server}"' for server in ports)
    config = folder / "upstreams.toml"
    config.write_text(
        f"[server]\nport = {port}\nfrontends = 1\n"
        f'[models.matmul16]\npath = [{urls}]\nmax_batch_size = {CAP}\nretry = "always"\n'
    )
    return Command(
        argv=[sys.executable, "-m", "ringbatch.engine", "serve", "--config", str(config)],
        port=port,
        ready_path="/v2/health/ready",
    )


@contextmanager
def mortal(command: Command) -> Iterator[Server]:
    """Start a server that may be dead at the end."""
    with ExitStack() as stack:
        server = stack.enter_context(Server(command))
        yield server
        with suppress(ServerDied):
            stack.close()


@contextmanager
def running(count: int) -> Iterator[tuple[Server, list[Server]]]:
    """Start an engine in front of that many servers, and yield all of them."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        slow = ("--hold-ms", str(HOLD_MS), "--at-once", "1")
        behind = [stack.enter_context(mortal(predictor(*slow))) for _ in range(count)]
        front = stack.enter_context(Server(engine([one.port for one in behind], folder)))
        answers.check_one(front.port, answers.MATMUL16_PATH)
        yield front, behind


def drive(front: Server, count: int, seconds: float) -> generators.WrkRun:
    """Drive the engine with as many connections as keep that many servers busy."""
    return generators.wrk(front.url, answers.matmul16_post(0), CONNECTIONS_EACH * count, seconds)


def measure(name: str, seconds: float) -> generators.WrkRun:
    """Measure one run with all servers well."""
    with running(COUNTS[name]) as (front, _):
        drive(front, COUNTS[name], 1)
        return drive(front, COUNTS[name], seconds)


def kill(pid: int, done: threading.Event) -> None:
    """Kill a server."""
    done.wait(_HIT_AFTER_S)
    os.kill(pid, signal.SIGKILL)


def stop(pid: int, done: threading.Event) -> None:
    """Stop a server: it accepts connections, and answers no more."""
    done.wait(_HIT_AFTER_S)
    os.kill(pid, signal.SIGSTOP)
    done.wait()
    os.kill(pid, signal.SIGCONT)


def slow_down(pid: int, done: threading.Event) -> None:
    """Let a server run for a third of the time."""
    while not done.wait(_GOING_S):
        os.kill(pid, signal.SIGSTOP)
        done.wait(_STOPPED_S)
        os.kill(pid, signal.SIGCONT)


HITS: Mapping[str, Callable[[int, threading.Event], None]] = {
    "killed": kill,
    "stopped": stop,
    "slowed": slow_down,
}


def measure_hit(name: str, seconds: float) -> generators.WrkRun:
    """Measure one run with two servers, of which the first is hit."""
    with running(2) as (front, behind):
        done = threading.Event()
        hit = threading.Thread(target=HITS[name], args=(behind[0].pid, done))
        hit.start()
        try:
            return drive(front, 2, seconds)
        finally:
            done.set()
            hit.join()
            with suppress(ProcessLookupError):
                os.kill(behind[0].pid, signal.SIGCONT)


def main() -> int:
    """Run the scenario; the exit status is 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0, help="length of one run")
    options = parser.parse_args()
    generators.require_tools()
    report = Report("upstreams", vars(options))

    def run(turn: int, name: str) -> generators.WrkRun:
        measured = measure if name in COUNTS else measure_hit
        found = measured(name, options.seconds)
        report.run(round=turn, peer=name, result=asdict(found))
        return found

    runs = run_rounds(list(COUNTS), options.rounds, run)
    hits = run_rounds(list(HITS), options.rounds, run)
    rates = {name: [one.requests_per_s for one in found] for name, found in (runs | hits).items()}
    for name, least in AT_LEAST.items():
        times = ratios(rates[name], rates["one"]).median
        report.limit(f"req/s with {name} servers against one", times, at_least=least)
    for name, least in {"killed": 0.9, "stopped": 0.7, "slowed": 1.1}.items():
        times = ratios(rates[name], rates["one"]).median
        report.limit(f"req/s with one of two {name} against one", times, at_least=least)
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
