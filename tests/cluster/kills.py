"""Kills actors and nodes of a Ray cluster under load, and looks that no request fails or is wrong.

python tests/cluster/kills.py --kills 200 --nodes 20
python tests/cluster/kills.py --kills 200 --nodes 20 --here 1
"""

import argparse
import http.client
import json
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(1, str(Path(__file__).parents[1] / "harness"))

from cluster.nodes import Nodes, about, actor_names, kill, nodes
from serve.server import Server

MODEL: Final = Path(__file__).with_name("model.py")
_BACK_WITHIN_S: Final = 90.0
_CLIENTS: Final = 8


@dataclass
class Ledger:
    """Outcomes of the requests."""

    right: int = 0
    wrong: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    slowest_s: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, status: int, body: bytes, x: list[list[float]], took_s: float) -> None:
        """Count an answered request, and note it if it is wrong."""
        with self.lock:
            self.slowest_s = max(self.slowest_s, took_s)
            if status != 200:
                self.failed.append(f"{status}: {body[:200]!r}")
            elif json.loads(body)["predictions"] != [[sum(row), max(row)] for row in x]:
                self.wrong.append(f"{x}: {body[:200]!r}")
            else:
                self.right += 1


def configuration(address: str, workers: object, here: int = 0, **more: object) -> str:
    """An engine with one model in the cluster.

    Args:
        address: of the cluster.
        workers: in it.
        here: workers on this host beside them.
        more: of the model.
    """
    counts = [f"workers = {here}", f"ray_workers = {json.dumps(workers)}"]
    if not here:
        counts = [f"workers = {json.dumps(workers)}", 'runtime = "ray"']
    lines = [
        "[server]",
        "port = 0",
        "control_port = 0",
        "frontends = 1",
        "",
        "[models.m]",
        f"path = {json.dumps(str(MODEL))}",
        *counts,
        *(f"{k} = {json.dumps(v)}" for k, v in ({"ray_address": address} | more).items()),
    ]
    return "\n".join(lines)


def ask_on(port: int, ledger: Ledger, stop: threading.Event, seed: int) -> None:
    """Send requests as one client until `stop` is set."""
    source = random.Random(seed)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    while not stop.is_set():
        rows = source.choice((1, 1, 1, 4, 900))
        x = [[float(source.randrange(1000)) for _ in range(16)] for _ in range(rows)]
        began = time.monotonic()
        connection.request("POST", "/v1/models/m:predict", json.dumps({"instances": x}))
        answer = connection.getresponse()
        ledger.note(answer.status, answer.read(), x, time.monotonic() - began)
        time.sleep(0.01)
    connection.close()


def ready_workers(control_port: int) -> int:
    """Workers of the model that are ready."""
    connection = http.client.HTTPConnection("127.0.0.1", control_port, timeout=10)
    try:
        connection.request("GET", "/v2/health/ready")
        answer = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    ready: int = answer["models"]["m"]["ready_workers"]
    return ready


def wait_for(done: Callable[[], bool], condition: str) -> None:
    """Wait until `done` holds, or end the program."""
    give_up_at = time.monotonic() + _BACK_WITHIN_S
    while not done():
        if time.monotonic() > give_up_at:
            raise SystemExit(f"waited {_BACK_WITHIN_S:g} s in vain for: {condition}")
        time.sleep(0.05)


def play(cluster: Nodes, server: Server, kills: int, of_nodes: int, workers: int) -> list[float]:
    """Kill actors and nodes; how long each time all workers took to be back, in seconds."""
    source = random.Random(1)
    control = server.control_port
    took_s = []
    deeds = [False] * kills + [True] * of_nodes
    source.shuffle(deeds)
    for number, of_node in enumerate(deeds, 1):
        wait_for(lambda: ready_workers(control) == workers, "all workers")
        name = source.choice(actor_names())
        began = time.monotonic()
        if of_node:
            cluster.remove(cluster.node_of(about(name)["node_id"]))
            cluster.add()
        else:
            kill(name)
        wait_for(lambda: ready_workers(control) < workers, "the engine to notice")
        wait_for(lambda: ready_workers(control) == workers, "all workers to be back")
        took_s.append(time.monotonic() - began)
        if number % 20 == 0:
            print(f"{number} of {len(deeds)}", flush=True)
    return took_s


def run(
    cluster: Nodes, kills: int, of_nodes: int, workers: int, folder: Path, here: int = 0
) -> Ledger:
    """Run an engine under kills, and return the outcomes of the requests."""
    ledger, stop = Ledger(), threading.Event()
    config = folder / "ringbatch.toml"
    config.write_text(configuration(cluster.address, workers, here))
    server = Server(folder, "--config", str(config))
    try:
        server.wait_ready()
        clients = [
            threading.Thread(target=ask_on, args=(server.port, ledger, stop, seed))
            for seed in range(_CLIENTS)
        ]
        for client in clients:
            client.start()
        try:
            took_s = play(cluster, server, kills, of_nodes, workers + here)
        finally:
            stop.set()
            for client in clients:
                client.join()
    finally:
        server.destroy()
    took_s.sort()
    print(
        f"{kills} kills of actors, {of_nodes} of nodes: {ledger.right} requests right, "
        f"{len(ledger.failed)} failed, {len(ledger.wrong)} wrong, the slowest after "
        f"{ledger.slowest_s:.1f} s; all workers were back after {took_s[len(took_s) // 2]:.1f} s "
        f"(median), {took_s[-1]:.1f} s at most"
    )
    for line in (*ledger.failed[:5], *ledger.wrong[:5]):
        print(f"  {line}")
    return ledger


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--here", type=int, default=0, help="workers on this host beside them")
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        where = arguments.folder or Path(folder)
        with nodes(arguments.workers) as cluster:
            ledger = run(
                cluster,
                arguments.kills,
                arguments.nodes,
                arguments.workers,
                where,
                arguments.here,
            )
    return int(bool(ledger.failed or ledger.wrong or not ledger.right))


if __name__ == "__main__":
    sys.exit(main())
