"""A whole engine before a device that is a clock: the share that is left of the device's own rate.

The device takes the times of a GPU for copies and runs (`models/device_clock.py`), and has no other
limits, so what it could answer at best is known: a full batch after each other, without a pause. It
shows whether copies, dispatch and answers are hidden behind the runs. It is no measurement of a
GPU; `gpu.py` is.

    python bench/timed_device.py
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Final

from host.server import Server
from load.generators import Post, require_tools, wrk
from models.device_clock import COPY_S, run_s
from peers.servers import BENCH, Ringbatch, Section
from report.record import Report
from report.rounds import number, spread, table

CAP: Final = 32
CONNECTIONS: Final = (1, 16, 64, 128)
LEAST: Final = 0.9
"""Least rate with the most connections, as a share of the device's own rate."""


def main() -> int:
    """Run the scenario; the exit status is 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of one run")
    parser.add_argument("--connections", type=int, nargs="+", default=list(CONNECTIONS))
    options = parser.parse_args()
    require_tools()
    report = Report("timed_device", vars(options))
    most, serial = CAP / run_s(CAP), CAP / (run_s(CAP) + CAP * COPY_S)
    post = Post("/v1/models/m:predict", json.dumps({"instances": [[1.5]]}))
    settings: Section = {"device": "cuda:0", "max_batch_size": CAP}
    ours = Ringbatch("m", BENCH / "models" / "timed_device.py", 1, settings)
    rates: dict[int, list[float]] = {count: [] for count in options.connections}
    medians_ms: dict[int, list[float]] = {count: [] for count in options.connections}
    with (
        tempfile.TemporaryDirectory(prefix="rb-") as folder,
        Server(ours.command(Path(folder))) as server,
    ):
        wrk(server.url, post, options.connections[-1], 1)
        for turn in range(options.rounds):
            for count in options.connections:
                found = wrk(server.url, post, count, options.seconds)
                report.run(round=turn, connections=count, requests_per_s=found.requests_per_s)
                rates[count].append(found.requests_per_s)
                medians_ms[count].append(found.p50_ms)
    print(f"the device alone: {most:,.0f} rows/s; if copies waited for runs, {serial:,.0f}")
    print(
        table(
            ["connections", "requests/s", "of the device's", "p50, ms"],
            [
                [
                    str(count),
                    str(spread(found)),
                    number(spread(found).median / most),
                    str(spread(medians_ms[count])),
                ]
                for count, found in rates.items()
            ],
        )
    )
    reached = spread(rates[options.connections[-1]]).median / most
    report.limit("rows/s of the device's own", reached, at_least=LEAST)
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
