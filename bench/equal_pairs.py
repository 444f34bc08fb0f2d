"""False positives of `ringbatch bench --compare`: pairs of equal runs that it calls different.

Each run is the command itself, with an engine of its own and a model of no work. Requests come one
at a time, in a closed loop, and at recorded instants, so that no time goes into the search for the
knee. A pair is a run and the next one, whose files the command's own code compares. A pair is equal
if no figure is called worse or better.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from host.children import tied
from peers.servers import MODELS
from report.record import Report
from report.rounds import number, spread, table

from ringbatch.bench.command.main import differences
from ringbatch.bench.report.comparison import Compared

MODEL: Final = "null"
LEAST: Final = 19 / 20
TRACE_SEED: Final = 5


class BenchFailed(RuntimeError):
    """`ringbatch bench` gave no result; the message ends with its words."""


@dataclass(frozen=True)
class Pair:
    """Comparison of two runs.

    Attributes:
        figures: every figure that both runs have.
    """

    figures: Sequence[Compared]

    @property
    def equal(self) -> bool:
        """Return whether no figure is called worse or better."""
        return not any(figure.worse or figure.better for figure in self.figures)

    def runs(self, turn: int) -> Iterator[dict[str, Any]]:
        """Yield an entry of the report for each figure."""
        for one in self.figures:
            yield {
                "pair": turn,
                "figure": one.name,
                "cost": one.cost.ratio,
                "differs": int(one.cost.differs),
                "called": int(one.worse or one.better),
            }


def trace(rate_per_s: float, seconds: float) -> str:
    """Return arrivals of a Poisson process, a line each; the same each time."""
    random = np.random.default_rng(TRACE_SEED)
    instants = np.sort(random.uniform(0, seconds, int(rate_per_s * seconds)))
    return "".join(f"{instant:.6f}\n" for instant in instants)


def run(config: Path, instants: Path, folder: Path, options: argparse.Namespace) -> Path:
    """Measure once; the file of the result.

    Raises:
        BenchFailed: there is none.
    """
    done = subprocess.run(
        [
            *(sys.executable, "-P", "-m", "ringbatch.engine", "bench", "--config", str(config)),
            *("--even-if-busy", "--trace", str(instants), "--output", str(folder)),
            *("--rounds", str(options.rounds), "--duration-s", str(options.seconds)),
            *["--one-engine"] * options.one_engine,
        ],
        capture_output=True,
        text=True,
        preexec_fn=tied(),
    )
    found = list(folder.glob("*.json"))
    if done.returncode or len(found) != 1:
        raise BenchFailed(f"ringbatch bench ends with status {done.returncode}:\n{done.stderr}")
    return found[0]


def show(pairs: Sequence[Pair]) -> str:
    """Return for each figure how far runs were apart, and how often they counted as different."""
    costs: dict[str, list[Compared]] = {}
    for pair in pairs:
        for figure in pair.figures:
            costs.setdefault(figure.name, []).append(figure)
    rows = [
        [
            name,
            *map(number, _spread([figure.cost.ratio for figure in found])),
            str(sum(figure.cost.differs for figure in found)),
            str(sum(figure.worse or figure.better for figure in found)),
        ]
        for name, found in costs.items()
    ]
    return table(["cost of the later run", "median", "least", "most", "differ", "called"], rows)


def _spread(values: Sequence[float]) -> tuple[float, float, float]:
    found = spread(values)
    return found.median, found.low, found.high


def main() -> int:
    """Run the pairs; the exit status is 1 where too few are equal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5, help="of each run")
    parser.add_argument("--seconds", type=float, default=0.3, help="length of one load")
    parser.add_argument("--rate", type=float, default=1000, help="requests/s of the open loop")
    parser.add_argument("--threshold", type=float, default=0.03, help="as --compare has it")
    parser.add_argument("--one-engine", action="store_true", help="for all rounds of a run")
    parser.add_argument("--output", type=Path, help="where results are kept (default: nowhere)")
    options = parser.parse_args()
    report = Report("equal_pairs", {key: str(value) for key, value in vars(options).items()})
    pairs: list[Pair] = []
    with tempfile.TemporaryDirectory(prefix="bench-pairs-") as made:
        folder = options.output or Path(made)
        folder.mkdir(exist_ok=True)
        config, instants = folder / "ringbatch.toml", folder / "trace"
        config.write_text(f'[models.{MODEL}]\npath = "{MODELS / MODEL}.py"\n')
        instants.write_text(trace(options.rate, options.seconds))
        last = run(config, instants, folder / "0", options)
        for turn in range(options.pairs):
            files = last, run(config, instants, folder / str(turn + 1), options)
            last = files[1]
            pairs.append(Pair(differences(files, options.threshold, even_if_unlike=False)))
            for figure in pairs[-1].runs(turn):
                report.run(**figure)
    report.print_text(show(pairs))
    equal = sum(pair.equal for pair in pairs) / len(pairs)
    report.limit("share of the pairs that compare as equal", equal, at_least=LEAST)
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
