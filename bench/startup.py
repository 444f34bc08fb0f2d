"""Start-up time of each framework, and its cost without requests: memory, CPU, wake-ups.

Measured from the start of its first process until it says that it is ready, and until its first
right answer; then from /proc over all of its processes. 16 floats in, 10 out, one worker.
"""

import argparse
import tempfile
import time
from pathlib import Path

from host import procfs
from host.server import Server
from load import tensors
from load.tensors import MATMUL16
from peers.frameworks import FRAMEWORKS, Framework, Setting
from peers.servers import install
from report.peer_rounds import run_entries
from report.record import Report
from report.rounds import number, spread, table

MIB = 1024 * 1024
SETTING = Setting({MATMUL16.name: MATMUL16.name})
FIGURES = ("ready_s", "answered_s", "pss_mib", "cpu_percent", "wake_ups_per_s")


def measure(framework: Framework, settle_s: float, seconds: float) -> dict[str, float]:
    """Start one server, ask it once, ask it by many, and watch it idle."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        command = framework.command(SETTING, Path(folder))
        began_s = time.monotonic()
        with Server(command) as server:
            ready_s = time.monotonic() - began_s
            tensors.check_one(server.port, MATMUL16, framework.form)
            answered_s = time.monotonic() - began_s
            # Memory is judged after work: a process that never served has not loaded everything.
            tensors.check_crowd(server.port, MATMUL16, framework.form)
            time.sleep(settle_s)
            processes = procfs.watch_tree(server.pid, seconds)
            server.require_alive()
    return {
        "ready_s": ready_s,
        "answered_s": answered_s,
        "pss_mib": sum(p.pss_bytes for p in processes) / MIB,
        "cpu_percent": 100 * sum(p.cpu_fraction for p in processes),
        "wake_ups_per_s": sum(p.voluntary_switches_per_s for p in processes),
    }


def main() -> int:
    """Run the scenario; it holds nobody to anything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--settle", type=float, default=3.0, help="seconds before the window")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of the window")
    parser.add_argument("--peers", nargs="+", choices=FRAMEWORKS, default=list(FRAMEWORKS))
    options = parser.parse_args()

    absent = install({name: FRAMEWORKS[name].environment for name in options.peers})
    names = [name for name in options.peers if name not in absent]
    report = Report("startup", vars(options))
    report.without(absent)
    report.peer_versions(FRAMEWORKS[name].environment for name in names)
    report.put("notes", {name: FRAMEWORKS[name].note for name in names})

    def run(turn: int, name: str) -> dict[str, float]:
        found = measure(FRAMEWORKS[name], options.settle, options.seconds)
        report.run(round=turn, peer=name, result=found)
        return found

    runs = run_entries(report, names, options.rounds, run)
    report.print_text(
        table(
            ["", *FIGURES],
            [
                [name, *(number(spread([one[key] for one in found]).median) for key in FIGURES)]
                for name, found in runs.items()
            ],
        )
    )
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
