"""Wait of a polite client beside one that floods, and the rate that the flood keeps.

A model takes 10 ms for a batch of up to 32, and one frontend serves it over HTTP. The polite
client has one connection and sends its next request after each answer. The flood has many such
connections: from another address, so that it is another account, or from the polite client's own.
Each client is a process. Times count from a request's first byte to its answer's last.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import cast

import uvloop
from host.server import HOST, Server
from peers.servers import BENCH, MODELS, Ringbatch
from report.record import Report
from report.rounds import number, run_rounds, table

PATH = "/v1/models/sleep:predict"
OTHER = "127.0.0.2"
"""The flood's address, unless it is the polite client's."""
TIMES = 3.0
"""The polite client's p99 may be as many times what it is alone."""
FLOOD_SHARE = 0.97
"""The flood's least rate, as a share of that without fair shares."""
SKIPPED = 0.2
"""First part of each run that does not count."""
CASES = ("other account", "same account", "not fair")
"""The flood is another account, the same, or another without fair shares."""


@dataclass(frozen=True)
class Load:
    """Answers to one client, and their times.

    Attributes:
        requests: answered, after the first part.
        per_s: of them.
        p50_ms, p99_ms: until their answers.
        failed: answers with another status than 200.
    """

    requests: int
    per_s: float
    p50_ms: float
    p99_ms: float
    failed: int


@dataclass(frozen=True)
class Run:
    """One server: the polite client alone, then beside the flood."""

    alone: Load
    beside: Load
    flood: Load


class _Connection(asyncio.Protocol):
    """Sends the same request again as soon as it is answered."""

    def __init__(self, message: bytes, times: list[tuple[float, float, bool]]) -> None:
        self._message = message
        self._times = times
        self._data = b""
        self._began_s = 0.0
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._send()

    def _send(self) -> None:
        self._began_s = time.monotonic()
        self._transport.write(self._message)

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, end, body = self._data.partition(b"\r\n\r\n")
        if end:
            length = int(head.lower().rpartition(b"content-length: ")[2].split(b"\r\n")[0])
            if len(body) >= length:
                now_s = time.monotonic()
                right = head[9:12] == b"200"
                self._times.append((now_s, now_s - self._began_s, right))
                self._data = b""
                self._send()


async def _ask(
    port: int, source: str, connections: int, seconds: float
) -> list[tuple[float, float, bool]]:
    """Instants, times and outcomes of all answers of a client's connections."""
    body = b'{"instances": [3.0]}'
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    message = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    times: list[tuple[float, float, bool]] = []
    loop = asyncio.get_running_loop()
    for _ in range(connections):
        await loop.create_connection(
            lambda: _Connection(message, times), HOST, port, local_addr=(source, 0)
        )
    print("ready", flush=True)
    await asyncio.sleep(seconds)
    return [*times]


def summary(times: Sequence[tuple[float, float, bool]], seconds: float) -> Load:
    """Return the figures of the answers after the first part."""
    from_s = times[-1][0] - seconds * (1 - SKIPPED) if times else 0.0
    took = sorted(took_s for at_s, took_s, _ in times if at_s >= from_s)
    failed = sum(not right for _, _, right in times)

    def percentile_ms(share: float) -> float:
        return took[int(share * (len(took) - 1))] * 1e3 if took else 0.0

    per_s = len(took) / (seconds * (1 - SKIPPED))
    return Load(len(took), per_s, percentile_ms(0.5), percentile_ms(0.99), failed)


@contextmanager
def client(port: int, source: str, connections: int, seconds: float) -> Iterator[list[Load]]:
    """Run a client; the list has its answers afterwards."""
    argv = [sys.executable, str(BENCH / "fairness.py"), "--client", str(port), source]
    argv += [str(connections), str(seconds)]
    found: list[Load] = []
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None, "it is a pipe"
        process.stdout.readline()
        yield found
        printed, _ = process.communicate()
    found.append(Load(**json.loads(printed)))


def measure(case: str, connections: int, seconds: float) -> Run:
    """Start a server, and ask it without and with a flood."""
    settings = {"max_batch_size": 32}
    more = {"fair_shares": False} if case == "not fair" else {}
    ours = Ringbatch("sleep", MODELS / "sleep_10ms.py", 1, settings, more)
    source = HOST if case == "same account" else OTHER
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        Server(ours.command(Path(folder))) as server,
    ):
        with client(server.port, HOST, 1, seconds) as alone:
            pass
        with (
            client(server.port, source, connections, seconds + 1) as flood,
            client(server.port, HOST, 1, seconds) as beside,
        ):
            pass
    return Run(alone[0], beside[0], flood[0])


def hold_to_limits(report: Report, found: Mapping[str, Sequence[Run]]) -> None:
    """Compare the medians with the limits; no request may fail."""
    own = found["other account"]
    times = median(run.beside.p99_ms / run.alone.p99_ms for run in own)
    report.limit("polite p99 beside another account / alone", times, at_most=TIMES)
    rates = {case: median(run.flood.per_s for run in runs) for case, runs in found.items()}
    share = rates["other account"] / rates["not fair"]
    report.limit("rate of the flood, fair / not fair", share, at_least=FLOOD_SHARE)
    failed = sum(
        load.failed for runs in found.values() for run in runs for load in (run.beside, run.flood)
    )
    report.limit("requests that failed", failed, at_most=0)


def show(found: Mapping[str, Sequence[Run]]) -> str:
    """Return the table of medians."""
    rows = []
    for case, runs in found.items():
        figures = [
            median(run.alone.p50_ms for run in runs),
            median(run.alone.p99_ms for run in runs),
            median(run.beside.p50_ms for run in runs),
            median(run.beside.p99_ms for run in runs),
            median(run.flood.per_s for run in runs),
        ]
        rows.append([case, *map(number, figures)])
    head = ["flood", "alone p50 ms", "p99", "beside p50 ms", "p99", "flood, requests/s"]
    return table(head, rows)


def main() -> int:
    """Run the scenario; the exit status is 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="without, and with the flood")
    parser.add_argument("--connections", type=int, default=512, help="of the flood")
    parser.add_argument("--client", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        port, source, connections, seconds = options.client
        times = uvloop.run(_ask(int(port), source, int(connections), float(seconds)))
        print(json.dumps(vars(summary(times, float(seconds)))))
        return 0
    report = Report("fairness", vars(options))

    def run(turn: int, case: str) -> Run:
        done = measure(case, options.connections, options.seconds)
        report.run(round=turn, case=case, result=done)
        return done

    found = run_rounds(list(CASES), options.rounds, run)
    report.print_text(show(found))
    hold_to_limits(report, found)
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
