"""Memory of an engine over 100,000 short streams, and gaps beside clients that read nothing.

Clients ask again at once for answers of two to five parts. In every other run there are others
beside them: some leave behind the first part, and some ask for endless answers of 64 KiB a part and
read nothing, until the engine gives them up. Private memory of each role is looked at after each
run.
"""

import argparse
import json
import selectors
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

from host import procfs
from host.server import HOST, Server
from load.answers import WrongAnswer
from peers.servers import MODELS, Ringbatch
from report.record import Report
from report.rounds import number, table

from ringbatch.bench.load.answers import post
from ringbatch.bench.load.arrivals import Arrivals, Kind
from ringbatch.bench.load.fleet import Fleet
from ringbatch.bench.load.outcome import Outcome, words_of
from ringbatch.bench.load.target import Target, Wire
from ringbatch.bench.statistics.steadiness import theil_slope

MODEL: Final = "sized_steps"
PATH: Final = f"/v2/models/{MODEL}/generate_stream"
PLACES: Final = 64
PARTS: Final = (2, 3, 4, 5)
ENDLESS: Final = 1_000_000
LARGE: Final = 1 << 16
ROLES: Final = ("frontend", "worker", "collector")
MOST_GROWN_MIB: Final = 4.0
"""The most that a role may grow over 100,000 answers, once it has warmed up."""
MOST_GAP: Final = 1.25
"""The most of a p99 of gaps beside the others, by that without them, of a median of pairs."""
_WARM: Final = 1 / 3
"""Share of the looks at memory that come before the first that counts."""
_HELD_S: Final = 2.0
"""Seconds that a client which does not read keeps its connection."""
_PER: Final = 100_000


def message(parts: int, size: int = 8) -> bytes:
    """Return a request for an answer of so many parts of a size."""
    return post(HOST, PATH, json.dumps({"n": parts, "size": size}).encode())


@dataclass
class Counts:
    """Others' answers that have begun.

    Attributes:
        left: their clients left behind the first part.
        unread: their clients read nothing.
    """

    left: int = 0
    unread: int = 0


@dataclass
class _Guest:
    connection: socket.socket
    reads: bool
    until_s: float = field(default=0.0)


class Crowd:
    """Clients that leave, and clients that do not read; each is replaced by the next.

    Args:
        port: of the server.
        leaving: how many that leave there are at once.
        silent: how many that do not read.
        pause_s: how long one that leaves waits before the next comes.
    """

    def __init__(self, port: int, leaving: int, silent: int, pause_s: float) -> None:
        self._port, self._pause_s = port, pause_s
        self._kinds = [True] * leaving + [False] * silent
        self._over = threading.Event()
        self.counts = Counts()

    @contextmanager
    def present(self) -> Iterator[None]:
        """Run the other clients during the block."""
        self._over.clear()
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            silent: list[_Guest] = []
            due = [(0.0, reads) for reads in self._kinds]
            while not self._over.is_set():
                now_s = time.monotonic()
                for at_s, reads in [one for one in due if one[0] <= now_s]:
                    due.remove((at_s, reads))
                    guest = self._come(reads, now_s)
                    if reads:
                        selector.register(guest.connection, selectors.EVENT_READ, guest)
                    else:
                        silent.append(guest)
                for guest in [one for one in silent if one.until_s <= now_s]:
                    silent.remove(guest)
                    guest.connection.close()
                    due.append((now_s, False))
                for key, _ in selector.select(0.005):
                    connection: socket.socket = key.data.connection
                    if b"data: " in connection.recv(1 << 16):
                        self.counts.left += 1
                        selector.unregister(connection)
                        connection.close()
                        due.append((now_s + self._pause_s, True))
            for guest in [*silent, *(key.data for key in selector.get_map().values())]:
                guest.connection.close()

    def _come(self, reads: bool, now_s: float) -> _Guest:
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        connection.connect((HOST, self._port))
        connection.sendall(message(ENDLESS, 8 if reads else LARGE))
        self.counts.unread += not reads
        return _Guest(connection, reads, now_s + _HELD_S)


def private_mib(server: Server) -> dict[str, float]:
    """Return the memory of each role that is not shared, all its processes together."""
    found = dict.fromkeys(ROLES, 0.0)
    for one in procfs.sample_tree(server.pid).values():
        for role in ROLES:
            if one.title.startswith(f"ringbatch: {role}"):
                found[role] += (one.rss_bytes - one.shmem_bytes) / (1 << 20)
    return found


def grown_mib(looks: Sequence[tuple[int, float]]) -> float:
    """Return by how much memory grows over 100,000 answers, by a robust line.

    Args:
        looks: the number of answers so far and the memory, in MiB; the first third is left out.
    """
    kept = looks[int(len(looks) * _WARM) :]
    if len(kept) < 2 or kept[-1][0] == kept[0][0]:
        return 0.0
    step = (kept[-1][0] - kept[0][0]) / (len(kept) - 1)
    return theil_slope([mib for _, mib in kept]) / step * _PER


def gap_p99_ms(outcome: Outcome) -> float:
    """Return the p99 of the gaps of a run.

    Raises:
        WrongAnswer: an answer failed, or had fewer parts than asked for.
    """
    lost = {words_of(status): count for status, count in outcome.counts().items() if status != 200}
    if lost or outcome.parts is None or outcome.parts.short:
        raise WrongAnswer(f"{lost}, {outcome.problems}")
    return outcome.gaps().quantile_ns(0.99) / 1e6


def hold_to_limits(
    report: Report,
    looks: Mapping[str, Sequence[tuple[int, float]]],
    pairs: Sequence[tuple[float, float]],
) -> None:
    """Compare growth, and gaps beside others with those without them."""
    for role, found in looks.items():
        words = f"{role}: growth over 100,000 answers"
        report.limit(words, grown_mib(found), at_most=MOST_GROWN_MIB, unit="MiB")
    ratio = median(beside / alone for alone, beside in pairs)
    report.limit("p99 of a gap beside others, by alone", ratio, at_most=MOST_GAP)


def main() -> int:
    """Run pairs of runs; the exit status is 1 where a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=100_000, help="answers in all, at least")
    parser.add_argument("--seconds", type=float, default=5, help="length of one run")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--leaving", type=int, default=8, help="clients at once that leave")
    parser.add_argument("--pause-s", type=float, default=0.1, help="before the next of them comes")
    parser.add_argument("--silent", type=int, default=4, help="clients at once that do not read")
    options = parser.parse_args()
    report = Report("stream_memory", vars(options))
    looks: dict[str, list[tuple[int, float]]] = {role: [] for role in ROLES}
    pairs: list[tuple[float, float]] = []
    count = 0
    engine = Ringbatch(MODEL, MODELS / f"{MODEL}.py", settings={"max_batch_size": PLACES})
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as made,
        Server(engine.command(Path(made))) as server,
        Fleet(
            1,
            Target(HOST, server.port, Wire.EVENTS),
            [message(parts) for parts in PARTS],
            [b"data: {}\n\n" * parts for parts in PARTS],
            compares=False,
        ) as fleet,
    ):
        crowd = Crowd(server.port, options.leaving, options.silent, options.pause_s)

        def run() -> float:
            nonlocal count
            outcome = fleet.run(Arrivals(Kind.CLOSED, options.seconds), options.clients, 60)
            gap_ms = gap_p99_ms(outcome)
            count += outcome.count
            return gap_ms

        while count + crowd.counts.left + crowd.counts.unread < options.streams:
            alone_ms = run()
            with crowd.present():
                beside_ms = run()
            pairs.append((alone_ms, beside_ms))
            total = count + crowd.counts.left + crowd.counts.unread
            memory = private_mib(server)
            for role, mib in memory.items():
                looks[role].append((total, mib))
            report.run(
                answers=total, alone_p99_ms=alone_ms, beside_p99_ms=beside_ms, memory_mib=memory
            )
        left, unread = crowd.counts.left, crowd.counts.unread
    report.put("others", {"left": left, "unread": unread})
    first, last = ([number(one[at][1]) for one in looks.values()] for at in (0, -1))
    report.print_text(table(["private MiB", *ROLES], [["first", *first], ["last", *last]]))
    report.print_text(f"\n{count:,} answers, {left:,} more were left, {unread:,} were not read")
    hold_to_limits(report, looks, pairs)
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
