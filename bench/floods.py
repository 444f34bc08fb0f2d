"""Cost of denial-of-service attacks, for the frontend and for its other clients.

One frontend serves HTTP/1 and HTTP/2. Requests come at a fixed rate, first with nothing else going
on, then beside an attacker of `load/attacks.py`. An answer's time counts from when its request was
due. Each attack gets a server of its own, so that its memory shows what that attack has it hold.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from host import procfs
from host.server import Server
from load.attacks import ATTACKS, PATH
from load.open_loop import Answer, open_loop
from peers.servers import BENCH, MODELS, Ringbatch
from report.record import Report
from report.rounds import number, run_rounds, table

MIB = 1 << 20
TIMES = 3.0
ADDED_MS = 20.0
"""The p99 of others may be as many times what it is without the attack, or so much more."""
GROWN_MIB = 16.0
"""Limit of memory growth during an attack, in MiB."""
CPU_FRACTION = 0.5
"""Limit of CPU use during an attack, as a share of a core, with that of other requests."""
WARM_S = 1.0
LOOK_S = 0.1


@dataclass(frozen=True)
class Run:
    """Figures of one attack. Times are in milliseconds, memory in MiB.

    Attributes:
        requests: requests of other clients during it.
        failed: how many of these failed.
        quiet_p99_ms: their p99 before it.
        p50_ms, p99_ms: their latencies during it.
        cpu_fraction: the frontend's use of a core during it.
        grown_mib: the most memory of the frontend beyond that before it.
        connects: connections that the attacker made.
        sent_mib: data that the attacker sent.
    """

    requests: int
    failed: int
    quiet_p99_ms: float
    p50_ms: float
    p99_ms: float
    cpu_fraction: float
    grown_mib: float
    connects: int
    sent_mib: float


class Memory:
    """The most memory that a process has at any of many looks.

    Attributes:
        most_bytes: so much.
    """

    def __init__(self, pid: int) -> None:
        self._file = Path(f"/proc/{pid}/statm")
        self.most_bytes = resident_bytes(self._file.read_text())
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_on)
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._over.set()
        self._thread.join()

    def _look_on(self) -> None:
        while not self._over.wait(LOOK_S):
            self.most_bytes = max(self.most_bytes, resident_bytes(self._file.read_text()))


def resident_bytes(statm: str) -> int:
    """Return the resident memory that is not shared with others, from /proc/PID/statm."""
    _, resident, shared, *_ = map(int, statm.split())
    return (resident - shared) * resource.getpagesize()


def percentile_ms(answers: Sequence[Answer], share: float) -> float:
    """Return a percentile of the latencies of all answers, right or wrong."""
    times = sorted(answer.took_s for answer in answers)
    return times[int(share * (len(times) - 1))] * 1e3


@contextmanager
def attacked(port: int, attack: str, connects_per_s: float) -> Iterator[dict[str, int]]:
    """Run an attacker during the block; yield a mapping that has its deeds afterwards."""
    argv = [sys.executable, "-m", "load.flooder", str(port), attack]
    argv += ["--connects-per-s", str(connects_per_s)]
    done: dict[str, int] = {}
    with subprocess.Popen(
        argv, cwd=BENCH, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as attacker:
        assert attacker.stdout is not None, "it is a pipe"
        try:
            attacker.stdout.readline()
            yield done
        finally:
            output, _ = attacker.communicate()
            done |= json.loads(output or "{}")


def frontend(server: Server) -> int:
    """Return the process id of the server's one frontend."""
    found = procfs.sample_tree(server.pid).values()
    (pid,) = (one.pid for one in found if one.title == "ringbatch: frontend 0")
    return pid


def measure(attack: str, rate_per_s: float, seconds: float, connects_per_s: float) -> Run:
    """Start a server, ask it for a while, and go on while it is attacked."""
    ours = Ringbatch("double", MODELS / "double.py", 1, server={"http2": True})
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        Server(ours.command(Path(folder))) as server,
    ):
        pid = frontend(server)
        open_loop(server.port, PATH, rate_per_s, WARM_S)
        quiet = open_loop(server.port, PATH, rate_per_s, seconds)
        memory = Memory(pid)
        try:
            before_bytes = memory.most_bytes
            with attacked(server.port, attack, connects_per_s) as done:
                before, began_s = procfs.sample(pid), time.monotonic()
                answers = open_loop(server.port, PATH, rate_per_s, seconds)
                after, took_s = procfs.sample(pid), time.monotonic() - began_s
        finally:
            memory.close()
        server.require_alive()
        if before is None or after is None or frontend(server) != pid:
            raise RuntimeError(f"{attack}: the frontend was replaced\n{server.log}")
    return Run(
        requests=len(answers),
        failed=sum(not answer.right for answer in answers),
        quiet_p99_ms=percentile_ms(quiet, 0.99),
        p50_ms=percentile_ms(answers, 0.5),
        p99_ms=percentile_ms(answers, 0.99),
        cpu_fraction=(after.cpu_ns - before.cpu_ns) / 1e9 / took_s,
        grown_mib=(memory.most_bytes - before_bytes) / MIB,
        connects=done["connects"],
        sent_mib=done["sent_bytes"] / MIB,
    )


def most_p99_ms(quiet_p99_ms: float) -> float:
    """Return the limit of other clients' p99 during an attack."""
    return max(TIMES * quiet_p99_ms, quiet_p99_ms + ADDED_MS)


def hold_to_limits(report: Report, attack: str, runs: Sequence[Run]) -> None:
    """Compare the medians with what ringbatch promises; no request may fail in any run."""
    quiet_ms = median(run.quiet_p99_ms for run in runs)
    p99_ms = median(run.p99_ms for run in runs)
    most_ms = most_p99_ms(quiet_ms)
    report.limit(f"p99 of others, {attack}", p99_ms, at_most=most_ms, unit="ms")
    grown = max(run.grown_mib for run in runs)
    report.limit(f"memory, {attack}", grown, at_most=GROWN_MIB, unit="MiB more")
    taken = median(run.cpu_fraction for run in runs)
    report.limit(f"CPU of the frontend, {attack}", taken, at_most=CPU_FRACTION, unit="of a core")
    failed = sum(run.failed for run in runs)
    report.limit(f"requests that failed, {attack}", failed, at_most=0)


def show(found: Mapping[str, Sequence[Run]]) -> str:
    """Return the table of medians."""
    names = ("quiet_p99_ms", "p50_ms", "p99_ms", "cpu_fraction", "grown_mib", "sent_mib")
    return table(
        ["", "quiet p99 ms", "p50 ms", "p99 ms", "CPU, cores", "MiB more", "MiB sent"],
        [
            [attack, *(number(median(getattr(run, name) for run in runs)) for name in names)]
            for attack, runs in found.items()
        ],
    )


def main() -> int:
    """Run the scenario; the exit status is 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="without, and with an attack")
    parser.add_argument("--rate", type=float, default=300.0, help="requests/s of others")
    parser.add_argument("--connects-per-s", type=float, default=10.0, help="of an attacker")
    parser.add_argument("--attacks", nargs="+", choices=ATTACKS, default=list(ATTACKS))
    options = parser.parse_args()
    report = Report("floods", vars(options))
    report.put("notes", {name: ATTACKS[name].about for name in options.attacks})

    def run(turn: int, attack: str) -> Run:
        done = measure(attack, options.rate, options.seconds, options.connects_per_s)
        report.run(round=turn, attack=attack, result=done)
        return done

    found = run_rounds(options.attacks, options.rounds, run)
    report.print_text(show(found))
    for attack, runs in found.items():
        hold_to_limits(report, attack, runs)
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
