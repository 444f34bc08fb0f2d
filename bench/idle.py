"""Cost of an idle server: CPU time, wake-ups and memory without requests.

Measured from /proc over the supervisor and every process below it: CPU time and voluntary context
switches over a window, resident memory at its end. A process that polls shows as switches.
"""

import argparse
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from host import procfs
from host.server import Server
from load import answers
from peers.servers import PEERS
from report.record import Report
from report.rounds import number, table

MIB = 1024 * 1024
MAX_CPU_PERCENT = 1.0
MAX_RSS_MIB = 80.0
MAX_WAKE_UPS_PER_S = 5.0
"""A loop that looks every 100 ms makes 10; Gunicorn's and the supervisor's beats make 1 or 2."""


def show(processes: list[procfs.ProcessUsage]) -> str:
    """Return the table of processes."""
    return table(
        ["process", "pid", "CPU %", "wake-ups/s", "RSS MiB", "of it shared memory", "PSS MiB"],
        [
            [p.title[:60], str(p.pid), f"{100 * p.cpu_fraction:.3f}"]
            + [number(p.voluntary_switches_per_s)]
            + [f"{b / MIB:.1f}" for b in (p.rss_bytes, p.shmem_bytes, p.pss_bytes)]
            for p in processes
        ],
    )


def role(title: str) -> str:
    """Return the role in a process title: ``frontend`` for ``ringbatch: frontend 0``."""
    return title.partition("ringbatch: ")[2].partition(" ")[0]


def hold_to_limits(report: Report, processes: list[procfs.ProcessUsage]) -> None:
    """Compare the figures with what ringbatch promises."""
    cpu = 100 * sum(p.cpu_fraction for p in processes)
    report.limit("CPU of the whole server", cpu, at_most=MAX_CPU_PERCENT, unit="% of a core")
    roles = [role(p.title) for p in processes]
    report.limit("frontends seen", float(roles.count("frontend")), at_least=1)
    report.limit("collectors seen", float(roles.count("collector")), at_least=1, at_most=1)
    for p in processes:
        name = p.title[:40] or str(p.pid)
        if role(p.title) in ("frontend", "collector", "standby"):
            rss = p.rss_bytes / MIB
            report.limit(f"resident, {name}", rss, at_most=MAX_RSS_MIB, unit="MiB")
        wakes = p.voluntary_switches_per_s
        report.limit(f"wake-ups, {name}", wakes, at_most=MAX_WAKE_UPS_PER_S, unit="a second")


def main() -> int:
    """Run the scenario; the exit status is 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settle", type=float, default=5.0, help="seconds before the window")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of the window")
    options = parser.parse_args()

    report = Report("idle", vars(options))
    peer = PEERS["ringbatch"]
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        Server(peer.command(Path(folder))) as server,
    ):
        # Memory is judged after work: a process that never served has not loaded everything.
        answers.check_crowd(server.port, peer.path)
        time.sleep(options.settle)
        processes = procfs.watch_tree(server.pid, options.seconds)
        server.require_alive()
    for process in processes:
        report.run(process=asdict(process))
    report.print_text(show(processes))
    hold_to_limits(report, processes)
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
