"""Round trips and throughput of `ringbatch.frontend.Client` beside `multiprocessing.Queue`.

Measured in the client's own process: from the call to the array in hand. One request is 16 floats,
its answer 10. Each entry starts anew in every round, its answers are checked, and it is warmed up.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from host.server import Server
from numpy.typing import NDArray
from peers.queue_worker import QueueWorker
from peers.servers import MODELS, Ringbatch, TomlValue
from report.record import Report
from report.rounds import ratios, run_rounds, spread, table

from ringbatch.frontend import Client

MODEL = MODELS / "matmul16.py"
NAME = "matmul16"
MAX_P50_US = 60
MIN_PER_S = 150_000
WINDOW = 896
"""Requests that `infer_many` has under way at most, by the default of max_in_flight."""
WEIGHTS = np.random.RandomState(16).standard_normal((16, 10)).astype(np.float32)
"""Weights of the model."""

FIGURES = ("p50_us", "p99_us", "requests_per_s")

Floats = NDArray[np.float32]


class WrongAnswers(RuntimeError):
    """An entry answered something else than the model does."""


@dataclass(frozen=True)
class Figures:
    """Figures of one entry in one round."""

    p50_us: float
    p99_us: float
    requests_per_s: float


@dataclass(frozen=True)
class Asked:
    """Functions that ask an entry: for one instance, [16] to [10], and for many at once."""

    one: Callable[[Floats], Floats]
    many: Callable[[Floats], Floats]


@contextmanager
def ringbatch(cap: int) -> Iterator[Asked]:
    """Yield a client of a fresh engine with one worker."""
    settings: dict[str, TomlValue] = {"max_batch_size": cap, "workers": 1}
    peer = Ringbatch(NAME, MODEL, frontends=1, settings=settings)
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        Server(peer.command(Path(folder))) as server,
        Client(server.pid) as client,
    ):

        def many(instances: Floats) -> Floats:
            outputs, errors = client.infer_many(NAME, instances)
            if errors:
                raise WrongAnswers(f"{len(errors)} requests failed: {next(iter(errors.values()))}")
            return outputs

        yield Asked(lambda instance: client.infer(NAME, instance[np.newaxis])[0], many)


@contextmanager
def queues(cap: int) -> Iterator[Asked]:
    """Yield a fresh process behind two queues."""
    with QueueWorker(MODEL, cap) as worker:
        yield Asked(worker.infer, lambda instances: worker.infer_many(instances, WINDOW))


ENTRIES = {
    "ringbatch": lambda: ringbatch(128),
    "ringbatch, cap 32": lambda: ringbatch(32),
    "multiprocessing.Queue": lambda: queues(128),
}


def measure(asked: Asked, trips: int, requests: int) -> Figures:
    """Check and warm an entry, then measure it.

    Raises:
        WrongAnswers
    """
    instances = np.random.RandomState(0).standard_normal((requests, 16)).astype(np.float32)
    expected = instances @ WEIGHTS
    for index in range(200):
        expect(asked.one(instances[index]), expected[index])
    expect(asked.many(instances[:2000]), expected[:2000])
    took_us = []
    for index in range(trips):
        began = time.perf_counter_ns()
        asked.one(instances[index % requests])
        took_us.append((time.perf_counter_ns() - began) / 1e3)
    began_s = time.perf_counter()
    answers = asked.many(instances)
    many_s = time.perf_counter() - began_s
    expect(answers, expected)
    p50, p99 = np.percentile(took_us, [50, 99])
    return Figures(float(p50), float(p99), requests / many_s)


def expect(found: Floats, expected: Floats) -> None:
    """Refuse other numbers than the model's."""
    if found.shape != expected.shape or not np.allclose(found, expected, rtol=1e-4, atol=1e-4):
        raise WrongAnswers("the answers are not those of the model")


def show(runs: Mapping[str, Sequence[Figures]]) -> str:
    """Return the table of figures: median and spread."""
    return table(
        ["median (min..max)", "p50, us", "p99, us", "requests/s"],
        [
            [name, *(str(spread(_field(found, key))) for key in FIGURES)]
            for name, found in runs.items()
        ],
    )


def main() -> int:
    """Run the scenario; the exit status is 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--trips", type=int, default=10_000, help="requests one at a time")
    parser.add_argument("--requests", type=int, default=200_000, help="requests in bulk")
    options = parser.parse_args()

    report = Report("client", vars(options))

    def run(turn: int, name: str) -> Figures:
        # A queue takes some ten times as long.
        requests = options.requests // (1 if name.startswith("ringbatch") else 8)
        with ENTRIES[name]() as asked:
            found = measure(asked, options.trips, requests)
        report.run(round=turn, entry=name, result=asdict(found))
        return found

    runs = run_rounds(list(ENTRIES), options.rounds, run)
    report.print_text(show(runs))
    ours, theirs = runs["ringbatch"], runs["multiprocessing.Queue"]
    for key, figure in (("p50_us", "round trip"), ("requests_per_s", "requests/s")):
        found = ratios(_field(ours, key), _field(theirs, key))
        report.print_text(f"{figure} against multiprocessing.Queue: {found}")
    p50 = spread(_field(ours, "p50_us")).median
    report.limit("p50 of a round trip", p50, at_most=MAX_P50_US, unit="us")
    rate = spread(_field(ours, "requests_per_s")).median
    report.limit("requests/s in bulk", rate, at_least=MIN_PER_S)
    return report.finish()


def _field(runs: Sequence[Figures], key: str) -> list[float]:
    return [getattr(found, key) for found in runs]


if __name__ == "__main__":
    raise SystemExit(main())
