"""Gain of a Unix socket over TCP on loopback.

One engine listens on both. A closed loop asks over one and the other in turn, with the same
requests: 16 floats in, JSON.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Final

from host.server import HOST, Server
from peers.servers import MODELS, Ringbatch
from report.record import Report
from report.rounds import number, ratios, run_rounds, spread, table

from ringbatch.bench.load.answers import post
from ringbatch.bench.load.arrivals import Arrivals, Kind
from ringbatch.bench.load.fleet import Fleet
from ringbatch.bench.load.target import Target

CONNECTIONS: Final = (1, 32, 128)
TCP: Final = "TCP"
UNIX: Final = "Unix socket"
PATH: Final = "/v1/models/matmul16:predict"
BODY: Final = b'{"instances":[[%b]]}' % b",".join(b"%f" % (n / 7) for n in range(16))
GRACE_S: Final = 10.0
LEAST: Final = 0.95
"""A Unix socket is at no number of connections slower, as far as a median of few runs tells."""


class NotAnswered(RuntimeError):
    """A request had no right answer."""


def rate(fleet: Fleet, connections: int, seconds: float) -> float:
    """Return the requests answered in a second of a closed loop."""
    outcome = fleet.run(Arrivals(Kind.CLOSED, seconds), connections, GRACE_S)
    if not outcome.answered.all():
        raise NotAnswered(f"of {outcome.count} requests: {outcome.counts()}, {outcome.problems}")
    return outcome.rate_per_s()


def main() -> int:
    """Run the rounds; the exit status is 1 where a Unix socket is slower."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    options = parser.parse_args()
    report = Report("unix_sockets", {key: str(value) for key, value in vars(options).items()})
    rows = []
    with tempfile.TemporaryDirectory(prefix="rb-") as made:
        folder = Path(made)
        path = folder / "http.sock"
        engine = Ringbatch("matmul16", MODELS / "matmul16.py", server={"unix_socket": str(path)})
        with Server(engine.command(folder)) as server:
            targets = {TCP: Target(HOST, server.port), UNIX: Target(str(path), 0)}
            message = post("localhost", PATH, BODY, [("Content-Type", "application/json")])
            with (
                Fleet(1, targets[TCP], [message]) as over_tcp,
                Fleet(1, targets[UNIX], [message]) as over_unix,
            ):
                fleets = {TCP: over_tcp, UNIX: over_unix}
                for connections in CONNECTIONS:

                    def run(_turn: int, way: str, connections: int = connections) -> float:
                        found = rate(fleets[way], connections, options.seconds)
                        report.run(way=way, connections=connections, requests_per_s=found)
                        return found

                    rates = run_rounds((TCP, UNIX), options.rounds, run)
                    gain = ratios(rates[UNIX], rates[TCP])
                    figures = [number(spread(rates[way]).median) for way in (TCP, UNIX)]
                    rows.append([str(connections), *figures, str(gain)])
                    words = f"requests/s over a Unix socket, of TCP's, {connections} connections"
                    report.limit(words, gain.median, at_least=LEAST)
    report.print_text(table(["connections", TCP, UNIX, "ratio"], rows))
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
