"""CPU time and delay of answers in parts.

Each client asks again once its answer has ended, for 20 parts that the model makes 2 ms apart, or
`--parts` and `--step-ms`. With `--in-steps` rows need not begin together, and the CPU time of the
model's own steps is measured alone and left out of the limit. The same clients then ask for one
answer with all parts joined. Clients, frontends and the worker share the machine's cores.
"""

import argparse
import json
import os
import runpy
import selectors
import socket
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from host import procfs
from host.server import HOST, Server
from peers.servers import MODELS, Ringbatch
from report.record import Report
from report.rounds import number, run_rounds, spread, table

EVENTS: Final = "events"
WHOLE: Final = "one answer"
WAYS: Final = (EVENTS, WHOLE)
PARTS: Final = 20
PATH: Final = "/v1/models/parts:predict"
MOST_GAP_MS: Final = 100.0
"""The longest gap between two parts that may be, beyond the model's step."""
MOST_STEP_US: Final = 60.0
MOST_ROW_US: Final = 15.0
"""CPU time of a step that all roles may take beyond the model's own: for the step, and each row."""
_MEASURED_STEPS: Final = 500
_HEAD_END: Final = b"\r\n\r\n"
_EVENT_END: Final = b"\n\n"
_LAST_CHUNK: Final = b"0\r\n\r\n"


class WrongAnswer(RuntimeError):
    """An answer is not the right one."""


def message(way: str, value: int) -> bytes:
    """Return a request."""
    body = b'{"instances":[%d]}' % value
    accept = "Accept: text/event-stream\r\n" if way == EVENTS else ""
    head = f"POST {PATH} HTTP/1.1\r\nHost: {HOST}\r\n{accept}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


@dataclass
class Times:
    """Times of the answers of all clients, in milliseconds.

    Attributes:
        first: from the request to the first part, or to the answer.
        gaps: between two parts.
        answers: that have ended.
        parts: in them, and in those that have begun.
    """

    first: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    answers: int = 0
    parts: int = 0


class Reader:
    """Reads the answers of one client, as the bytes come.

    Args:
        way: the form of the answers.
        value: the instance that the client sends.
        times: takes note of the parts.
        parts: of an answer.
    """

    def __init__(self, way: str, value: int, times: Times, parts: int = PARTS) -> None:
        self._way = way
        self._value = value
        self._times = times
        self._parts = parts
        self._unread = b""
        self._sent_s = self._last_s = 0.0
        self._found: list[float] = []
        self._in_body = False

    def sent(self, now_s: float) -> None:
        """Begin the next answer."""
        self._sent_s = now_s
        self._in_body = False
        self._found = []

    def take(self, data: bytes, now_s: float) -> bool:
        """Take bytes; return whether the answer has ended.

        Raises:
            WrongAnswer: see there.
        """
        self._unread += data
        if not self._in_body:
            head, found, rest = self._unread.partition(_HEAD_END)
            if not found:
                return False
            if not head.startswith(b"HTTP/1.1 200"):
                raise WrongAnswer(head.decode() + rest.decode())
            self._in_body, self._unread = True, rest
        ended = self._take_events(now_s) if self._way == EVENTS else self._take_whole(now_s)
        if ended:
            expected = [float(self._value + step) for step in range(self._parts)]
            if self._found != expected:
                raise WrongAnswer(f"{self._found} and not {expected}")
            self._times.answers += 1
            self._unread = b""
        return ended

    def _take_events(self, now_s: float) -> bool:
        *events, self._unread = self._unread.split(_EVENT_END)
        for event in events:
            self._read(event[event.index(b"{") :])
            if len(self._found) == 1:
                self._times.first.append(1e3 * (now_s - self._sent_s))
            else:
                self._times.gaps.append(1e3 * (now_s - self._last_s))
            self._times.parts += 1
            self._last_s = now_s
        return self._unread.endswith(_LAST_CHUNK)

    def _take_whole(self, now_s: float) -> bool:
        if not self._unread.endswith(b"]]}"):
            return False
        self._read(self._unread)
        self._times.first.append(1e3 * (now_s - self._sent_s))
        self._times.parts += self._parts
        return True

    def _read(self, text: bytes) -> None:
        answer = json.loads(text)
        if "error" in answer:
            raise WrongAnswer(answer["error"])
        self._found += answer["predictions"][0]


def drive(port: int, way: str, clients: int, parts: int, seconds: float) -> Times:
    """Keep that many clients asking for some time; return the times of their answers.

    Raises:
        WrongAnswer: an answer was not right.
    """
    times = Times()
    until_s = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for value in range(clients):
            connection = socket.create_connection((HOST, port))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            reader = Reader(way, value, times, parts)
            selector.register(connection, selectors.EVENT_READ, (reader, message(way, value)))
            reader.sent(time.monotonic())
            connection.sendall(message(way, value))
        while selector.get_map():
            for key, _ in selector.select():
                connection = key.fileobj  # type: ignore[assignment]
                reader, ask = key.data
                data = connection.recv(1 << 16)
                now_s = time.monotonic()
                if not data:
                    raise WrongAnswer("a connection has ended")
                if not reader.take(data, now_s):
                    continue
                if now_s >= until_s:
                    selector.unregister(connection)
                    connection.close()
                    continue
                reader.sent(now_s)
                connection.sendall(ask)
    return times


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of all do not exceed; 0 if there is none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


@dataclass(frozen=True)
class Run:
    """Figures of one run.

    Attributes:
        parts_per_s: parts that reached clients.
        answers_per_s: answers that ended.
        first_p50_ms, first_p99_ms: from the request to the first part, or to the answer.
        gap_p50_ms, gap_p99_ms, gap_most_ms: between two parts; 0 without any.
        cpu_us: CPU time of the engine for a part, the model's sleep left out.
    """

    parts_per_s: float
    answers_per_s: float
    first_p50_ms: float
    first_p99_ms: float
    gap_p50_ms: float
    gap_p99_ms: float
    gap_most_ms: float
    cpu_us: float


def model_us(file: Path, rows: int) -> float:
    """Return the CPU time of the model's own step for each of that many rows."""
    model = runpy.run_path(str(file))
    states = model["begin"](range(rows))
    begun_s = time.process_time()
    for _ in range(_MEASURED_STEPS):
        model["step"](states)
    return 1e6 * (time.process_time() - begun_s) / _MEASURED_STEPS / rows


def measure(server: Server, way: str, clients: int, parts: int, seconds: float) -> Run:
    """Drive the server, and sample its processes at the same time."""
    usages: list[procfs.ProcessUsage] = []
    watch = threading.Thread(
        target=lambda: usages.extend(procfs.watch_tree(server.pid, seconds)), daemon=True
    )
    watch.start()
    begun_s = time.monotonic()
    times = drive(server.port, way, clients, parts, seconds)
    took_s = time.monotonic() - begun_s
    watch.join()
    busy = sum(usage.cpu_fraction for usage in usages)
    rate = times.parts / took_s
    return Run(
        parts_per_s=rate,
        answers_per_s=times.answers / took_s,
        first_p50_ms=percentile(times.first, 0.5),
        first_p99_ms=percentile(times.first, 0.99),
        gap_p50_ms=percentile(times.gaps, 0.5),
        gap_p99_ms=percentile(times.gaps, 0.99),
        gap_most_ms=max(times.gaps, default=0.0),
        cpu_us=1e6 * busy / rate,
    )


def row(clients: int, way: str, runs: Sequence[Run]) -> list[str]:
    """Return a row of the table: medians of the rounds."""
    names = ("parts_per_s", "first_p50_ms", "first_p99_ms", "gap_p50_ms", "gap_p99_ms", "cpu_us")
    found = [spread([getattr(run, name) for run in runs]).median for name in names]
    gapless = way == WHOLE
    return [
        str(clients),
        way,
        *(
            "" if gapless and name.startswith("gap") else number(value)
            for name, value in zip(names, found, strict=True)
        ),
    ]


def hold_to_limits(report: Report, clients: int, step_ms: float, runs: Sequence[Run]) -> None:
    """Compare the gaps of a load with what ringbatch promises."""
    longest = spread([run.gap_p99_ms for run in runs]).median - step_ms
    words = f"p99 of a gap beyond the step, {clients} clients"
    report.limit(words, longest, at_most=MOST_GAP_MS, unit="ms")


def hold_steps_to_limit(report: Report, clients: int, own_us: float, runs: Sequence[Run]) -> None:
    """Compare the CPU time of a step, beyond the model's own, with what it may be."""
    found_us = clients * (spread([run.cpu_us for run in runs]).median - own_us)
    words = f"CPU time of a step of {clients} rows beyond the model's own"
    report.limit(words, found_us, at_most=MOST_STEP_US + clients * MOST_ROW_US, unit="µs")


def main() -> int:
    """Run the rounds; the exit status is 1 where gaps are too long, or steps cost too much."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=[32, 64])
    parser.add_argument("--step-ms", type=float, default=2.0, help="time of a part")
    parser.add_argument("--parts", type=int, default=PARTS, help="of an answer")
    parser.add_argument("--in-steps", action="store_true", help="by a model in steps")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    options = parser.parse_args()
    report = Report("streams", {key: str(value) for key, value in vars(options).items()})
    rows = []
    with tempfile.TemporaryDirectory(prefix="bench-") as made:
        settings = {"max_batch_size": max(options.clients)}
        file = MODELS / ("parts_in_steps.py" if options.in_steps else "parts.py")
        engine = Ringbatch("parts", file, settings=settings)
        os.environ |= {"BENCH_STEP_MS": f"{options.step_ms:g}", "BENCH_PARTS": f"{options.parts}"}
        with Server(engine.command(Path(made))) as server:
            for clients in options.clients:

                def run(_turn: int, way: str, clients: int = clients) -> Run:
                    found = measure(server, way, clients, options.parts, options.seconds)
                    report.run(way=way, clients=clients, **vars(found))
                    return found

                found = run_rounds(WAYS, options.rounds, run)
                rows += [row(clients, way, found[way]) for way in WAYS]
                hold_to_limits(report, clients, options.step_ms, found[EVENTS])
                if options.in_steps:
                    own_us = model_us(file, clients)
                    report.print_text(f"the model's own step: {own_us:.2f} µs of CPU a row")
                    hold_steps_to_limit(report, clients, own_us, found[EVENTS])
    heads = ["clients", "answers as", "parts/s", "first p50, ms", "first p99", "gap p50", "gap p99"]
    report.print_text(table([*heads, "CPU µs a part"], rows))
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
