"""Cost of the page at the control address: with nobody there, with one browser, with the most.

Clients ask at a fixed rate at the same time. CPU time is that of the control process and of the
collector, from /proc, over windows that follow one another in turn. So the difference between two
windows is the cost of watching.
"""

import argparse
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from host import procfs
from host.server import HOST, Server, free_port
from load.open_loop import open_loop
from peers.servers import MODELS, Ringbatch
from report.record import Report
from report.rounds import spread, table

MAX_CPU_PERCENT = 1.0
ROLES = ("control", "collector")
WATCHERS = (0, 1, 16)


def read_all(connection: socket.socket) -> None:
    """Read what comes until the connection is closed."""
    with connection:
        while connection.recv(1 << 16):
            pass


@contextmanager
def watching(port: int, count: int) -> Iterator[None]:
    """Keep that many readers of the page's stream during the block."""
    with ExitStack() as stack:
        for _ in range(count):
            connection = socket.create_connection((HOST, port))
            connection.sendall(b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            reader = threading.Thread(target=read_all, args=(connection,))
            reader.start()
            stack.callback(reader.join)
            stack.callback(connection.shutdown, socket.SHUT_RDWR)
        yield


def measure(
    server: Server, control_port: int, watchers: int, options: argparse.Namespace
) -> dict[str, float]:
    """Return the share of a core that each role takes meanwhile, in percent."""
    found: list[procfs.ProcessUsage] = []

    def look() -> None:
        found.extend(procfs.watch_tree(server.pid, options.seconds))

    with watching(control_port, watchers):
        looking = threading.Thread(target=look)
        looking.start()
        open_loop(server.port, "/v1/models/sleep:predict", options.rate, options.seconds)
        looking.join()
    server.require_alive()
    titles = {f"ringbatch: {role}": role for role in ROLES}
    return {titles[p.title]: 100 * p.cpu_fraction for p in found if p.title in titles}


def main() -> int:
    """Run the scenario; the exit status is 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help="length of each window")
    parser.add_argument("--rate", type=float, default=300.0, help="requests a second")
    options = parser.parse_args()

    report = Report("page", vars(options))
    control_port = free_port()
    peer = Ringbatch(
        "sleep",
        MODELS / "sleep_20ms.py",
        frontends=1,
        settings={"max_batch_size": 8},
        server={"control_port": control_port},
    )
    runs: dict[int, list[dict[str, float]]] = {count: [] for count in WATCHERS}
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        Server(peer.command(Path(folder))) as server,
    ):
        for _ in range(options.rounds):
            for count in WATCHERS:
                shares = measure(server, control_port, count, options)
                runs[count].append(shares)
                report.run(watchers=count, cpu_percent=shares)
    medians = {
        (count, role): spread([run[role] for run in runs[count]]).median
        for count in WATCHERS
        for role in ROLES
    }
    report.print_text(
        table(
            ["pages open", *(f"{role}, CPU %" for role in ROLES)],
            [[str(c), *(f"{medians[c, role]:.3f}" for role in ROLES)] for c in WATCHERS],
        )
    )
    alone = medians[0, "control"]
    report.limit("control process, no page", alone, at_most=MAX_CPU_PERCENT, unit="% of a core")
    for count in WATCHERS[1:]:
        for role in ROLES:
            more = medians[count, role] - medians[0, role]
            name = f"{role}, more with {count} open"
            report.limit(name, more, at_most=MAX_CPU_PERCENT, unit="% of a core")
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
