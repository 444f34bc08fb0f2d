"""The table of a batching project built on a Redis queue, against what is possible.

A model takes half a second a batch of up to five. N clients each spend half a second on decoding
an image, all at the same time, and then send it. Measured from the start of decoding to the last
answer; the ideal is 0.5 + 0.5 * ceil(N / (5 * workers)) seconds. A real Redis with polling workers
runs beside it, and the table has what that project reports of its own.

The policy is `fixed` with a short wait. All images arrive within a few milliseconds, and every
batch but the last can be full. `eager` would start a batch as soon as the first image is there: a
batch of one, half a second, and one batch too many in the end (N = 10 on one worker: 1 + 5 + 4).
`fixed` waits for more, so the wait has to outlast the arrival of five images and no more: it is
added in full where the last batch is not full, as it never is for N = 1.
"""

import argparse
import asyncio
import json
import math
import tempfile
import time
from pathlib import Path

from host.server import HOST, Server
from load.answers import WrongAnswer
from peers.frameworks import FRAMEWORKS, RINGBATCH, Setting
from peers.servers import install
from report.peer_rounds import run_entries
from report.record import Report
from report.rounds import table

BATCH = 5
DECODE_S = 0.5
MODEL_S = 0.5
WAIT_MS = 20
TOLERANCE = 0.05
PEER = "Redis queue"
THEIRS_S = {
    1: {1: 1.07, 10: 2.26, 50: 7.49, 100: 12.72, 200: 25.1},
    2: {1: 1.07, 10: 1.67, 50: 4.05, 100: 7.18, 200: 13.0},
}
"""Workers to images to the seconds that project reports for itself."""


def ideal_s(images: int, workers: int) -> float:
    """Return the time that full batches on always busy workers would take."""
    return DECODE_S + MODEL_S * math.ceil(images / (BATCH * workers))


async def client(port: int, index: int) -> None:
    """Decode for half a second, connect, send one image, and check that the answer is its own."""
    await asyncio.sleep(DECODE_S)
    reader, writer = await asyncio.open_connection(HOST, port)
    body = json.dumps({"instances": [[index]]}).encode()
    writer.write(
        b"POST /v1/models/sleep_half:predict HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    head, _, answer = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    if not head.startswith(b"HTTP/1.1 200 "):
        raise WrongAnswer(f"image {index}: {head[:200]!r} {answer[:200]!r}")
    if json.loads(answer).get("predictions") != [[2.0 * index]]:
        raise WrongAnswer(f"image {index} got {answer[:200]!r}")


async def all_at_once(port: int, images: int) -> float:
    """Run one client an image; return the seconds until the last has its answer."""
    start = time.monotonic()
    await asyncio.gather(*(client(port, index) for index in range(images)))
    return time.monotonic() - start


def measure(report: Report, peer: str, workers: int, counts: list[int], rounds: int) -> None:
    """Fill one part of the table: one server, every number of images."""
    setting = Setting(
        {"sleep_half": "sleep_half"}, BATCH, wait_ms=WAIT_MS, policy="fixed", workers=workers
    )
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        Server(FRAMEWORKS[peer].command(setting, Path(folder))) as server,
    ):
        for turn in range(rounds):
            for images in counts:
                total_s, ideal = (
                    asyncio.run(all_at_once(server.port, images)),
                    ideal_s(images, workers),
                )
                report.run(
                    round=turn,
                    peer=peer,
                    workers=workers,
                    images=images,
                    total_s=total_s,
                    ideal=ideal,
                )
                if peer == RINGBATCH:
                    limit = f"{images} images, {workers} workers: total against ideal"
                    report.limit(limit, total_s / ideal, 1 - TOLERANCE, 1 + TOLERANCE)
                server.require_alive()


def show(report: Report) -> str:
    """Return the table beside that project's figures."""
    return table(
        ["", "images", "workers", "s", "ideal, s", "of ideal", "Redis project, s"],
        [
            [
                run["peer"],
                str(run["images"]),
                str(run["workers"]),
                f"{run['total_s']:.3f}",
                f"{run['ideal']:.1f}",
                f"{run['total_s'] / run['ideal']:.3f}",
                str(THEIRS_S.get(run["workers"], {}).get(run["images"], "-")),
            ]
            for run in report.runs
        ],
    )


def main() -> int:
    """Run the scenario; the exit status is 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--images", type=int, nargs="+", default=[1, 10, 50, 100, 200])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()

    absent = install({PEER: FRAMEWORKS[PEER].environment})
    report = Report("redis_table", vars(options))
    report.without(absent)
    names = [RINGBATCH, *(name for name in (PEER,) if name not in absent)]

    def run(_turn: int, peer: str) -> None:
        for workers in options.workers:
            measure(report, peer, workers, options.images, options.rounds)

    run_entries(report, names, 1, run)
    report.print_text(show(report))
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
