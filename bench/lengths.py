"""Texts of unequal length: batches by exact length, padded to the longest, and in length buckets.

The lengths are skewed, as those of texts are: most are short, a few are forty times as long. The
model's cost grows with the square of the length, and one thread runs it. The client keeps a window
of requests under way through `ringbatch.frontend.Client`, which takes little of the CPU. Every
answer is compared with what the model gives for that text alone.
"""

import argparse
import importlib.util
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from host.server import Server
from numpy.typing import NDArray
from peers.servers import MODELS, Ringbatch, TomlValue
from report.record import Report
from report.rounds import number, ratios, run_rounds, spread, table

from ringbatch.engine.report.status import snapshot
from ringbatch.frontend import Client

MODEL: Final = MODELS / "attention.py"
NAME: Final = "attention"
LONGEST: Final = 512
TOLERANCE: Final = 1e-4
MIN_RATIO: Final = 1.3
BUCKETS: Final = (16, 32, 64, 128, 256, 512)
ENTRIES: Final[dict[str, dict[str, TomlValue]]] = {
    "by exact length": {},
    "padded to the longest": {"pad_variable_length": True},
    "length buckets": {"pad_variable_length": True, "length_buckets": list(BUCKETS)},
    "padded, 4096 elements at most": {"pad_variable_length": True, "max_batch_elements": 4096},
}

Ids = NDArray[np.int64]


class WrongAnswers(RuntimeError):
    """An answer is further from what the model gives for the text alone than rounding explains."""


@dataclass(frozen=True)
class Figures:
    """Figures of one entry in one round; `model_ms` is the time in the model for each request."""

    requests_per_s: float
    requests_a_batch: float
    model_ms: float
    furthest: float


def texts(count: int) -> list[Ids]:
    """Return that many texts, the same each time: their median has 20 words, their mean 35."""
    random = np.random.RandomState(3)
    lengths = np.clip(np.exp(random.normal(3.0, 1.0, count)), 1, LONGEST).astype(int)
    return [random.randint(0, 1000, size).astype(np.int64) for size in lengths]


def model() -> Callable[[Ids, Ids], NDArray[np.float32]]:
    """Return the model's `predict`, in this process."""
    spec = importlib.util.spec_from_file_location(NAME, MODEL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    predict: Callable[[Ids, Ids], NDArray[np.float32]] = module.predict
    return predict


def measure(
    settings: Mapping[str, TomlValue],
    sent: Sequence[Ids],
    right: Sequence[NDArray[np.float32]],
    window: int,
) -> Figures:
    """Start a server, send every text once, and look at each answer."""
    peer = Ringbatch(NAME, MODEL, frontends=1, settings={"threads": 1, **settings})
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        Server(peer.command(Path(folder))) as server,
        Client(server.pid) as client,
    ):
        under_way: deque[Future[Any]] = deque()
        answers = []
        started_s = time.perf_counter()
        for ids in sent:
            if len(under_way) == window:
                answers.append(under_way.popleft().result())
            inputs = {"ids": ids[None], "mask": np.ones((1, len(ids)), np.int64)}
            under_way.append(client.infer_async(NAME, inputs))
        answers += [future.result() for future in under_way]
        took_s = time.perf_counter() - started_s
        status = snapshot(server.pid).models[NAME]
        furthest = max(
            float(np.abs(found[0] - expected).max())
            for found, expected in zip(answers, right, strict=True)
        )
        if furthest > TOLERANCE:
            raise WrongAnswers(f"an answer is off by {furthest}")
        batches = sum(status.batches.values())
        return Figures(
            requests_per_s=len(sent) / took_s,
            requests_a_batch=len(sent) / batches,
            model_ms=status.run_ms * batches / len(sent),
            furthest=furthest,
        )


def show(runs: Mapping[str, Sequence[Figures]]) -> str:
    """Return the table of medians."""
    keys = ("requests_per_s", "requests_a_batch", "model_ms")
    return table(
        ["", "requests/s", "requests a batch", "model ms/request"],
        [
            [name, *(number(spread([getattr(run, key) for run in found]).median) for key in keys)]
            for name, found in runs.items()
        ],
    )


def main() -> int:
    """Run the scenario; the exit status is 1 when the ratio is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=6000)
    parser.add_argument("--window", type=int, default=256, help="requests under way at once")
    parser.add_argument("--entries", nargs="+", choices=ENTRIES, default=list(ENTRIES))
    options = parser.parse_args()
    report = Report("lengths", vars(options))
    sent = texts(options.requests)
    predict = model()
    right = [predict(ids[None], np.ones((1, len(ids)), np.int64))[0] for ids in sent]

    def run(turn: int, name: str) -> Figures:
        found = measure(ENTRIES[name], sent, right, options.window)
        report.run(round=turn, entry=name, result=asdict(found))
        return found

    runs = run_rounds(options.entries, options.rounds, run)
    report.print_text(show(runs))
    plain, buckets = runs.get("padded to the longest"), runs.get("length buckets")
    if plain and buckets:
        ratio = ratios(
            [found.requests_per_s for found in buckets], [found.requests_per_s for found in plain]
        )
        report.limit("length buckets / padded to the longest", ratio.median, at_least=MIN_RATIO)
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
