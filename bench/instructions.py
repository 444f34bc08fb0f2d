"""Instructions of each piece of the hot path, against those of a baseline that is committed.

Times on a shared machine differ by a tenth and more; instructions counted by valgrind's callgrind
repeat exactly, where interpreter, packages and valgrind are the same. So a piece that takes over
3 % more than in bench/instructions.json is an error. Who wants it so moves the baseline, in the
same commit, and says why:

    python bench/instructions.py --record "requests carry a priority now"

The baseline knows on which Python, with which packages and which valgrind it was counted. On any
other the counts are printed, with what differs, and judged by nobody. `--requirements` prints the
packages, for pip, that make an environment like the baseline's.
"""

import argparse
import gc
import hashlib
import itertools
import json
import os
import platform
import random
import re
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from unittest import mock

from hot_path.callgrind import CannotCount, Marks, counts, valgrind_version
from report.rounds import table

from ringbatch.shm.host.platform import is_compiled

BASELINE = Path(__file__).with_suffix(".json")
MAX_RATIO = 1.03
TIMES = 20
"""So many calls of a piece are counted together."""
_WARM_UP = 40
"""Calls until the interpreter has specialised the code."""
_NOTHING = "nothing"
_PACKAGES = ("hpack", "httptools", "numpy", "orjson", "uvicorn")
"""Packages whose instructions are counted too, or decide which others run."""
_CLOCK_STEP_NS = 2_000
_RECOUNTS = 3

Environment = Mapping[str, str]
Counts = Mapping[str, float]
"""Instructions for one run of a piece, by its name."""
Recount = Callable[[Sequence[str]], Counts]


@dataclass(frozen=True)
class Baseline:
    """Recorded counts that later counts are compared with.

    Attributes:
        environment: the environment of the counts, see `environment`.
        reason: why the baseline was moved to these counts.
        recorded_utc: the time of the counts.
        instructions: instructions of each piece.
    """

    environment: Environment
    reason: str
    recorded_utc: str
    instructions: Counts


@dataclass(frozen=True)
class Verdict:
    """Comparison of counts with a baseline.

    Attributes:
        lines: a row of the table for each piece: its name, both counts, what follows.
        dearer: pieces that take too many more, in words.
        unknown: pieces that one of the two lacks.
    """

    lines: Sequence[Sequence[str]]
    dearer: Sequence[str]
    unknown: Sequence[str]


def judge(found: Counts, baseline: Counts) -> Verdict:
    """Compare two counts of the same pieces in the same environment."""
    lines, dearer = [], []
    for name in [*baseline, *(name for name in found if name not in baseline)]:
        before, now = baseline.get(name), found.get(name)
        words = ""
        if before is not None and now is not None:
            words = f"{now / before - 1:+.1%}"
            if now > before * MAX_RATIO:
                words += " TOO MANY"
                dearer.append(f"{name}: {before:,.0f} instructions before, {now:,.0f} now")
        lines.append([name, _shown(before), _shown(now), words])
    return Verdict(lines, dearer, sorted(found.keys() ^ baseline.keys()))


def differences(here: Environment, there: Environment) -> list[str]:
    """Return the differences between two environments, as sentences."""
    return [
        f"{part} is {here.get(part, 'absent')} here, {there.get(part, 'absent')} in the baseline"
        for part in sorted(here.keys() | there.keys())
        if here.get(part) != there.get(part)
    ]


def kind(here: Environment) -> str:
    """Return the name of an environment's baseline: Python's version, and if it is compiled."""
    return f"{here['python'].rpartition('.')[0]} {here['ringbatch']}"


def environment() -> dict[str, str]:
    """Return everything that the counts of this interpreter depend on, beside ringbatch's own code.

    Raises:
        CannotCount: there is no valgrind, or a package is missing.
    """
    flags = str(sysconfig.get_config_var("CONFIG_ARGS")).encode()
    return {
        "architecture": platform.machine(),
        "AVX2": str("avx2" in Path("/proc/cpuinfo").read_text().split()).lower(),
        "libc": " ".join(platform.libc_ver()),
        "valgrind": valgrind_version(),
        "python": platform.python_version(),
        "Python's compiler": platform.python_compiler(),
        "Python's build options": hashlib.sha256(flags).hexdigest()[:12],
        "ringbatch": "compiled" if is_compiled() else "plain",
        "ringbatch's compiler": _compiler() if is_compiled() else "none",
        **{package: _version(package) for package in _PACKAGES},
    }


def read(file: Path) -> dict[str, Baseline]:
    """Return the baselines in a file, by `kind`; none without a file."""
    if not file.exists():
        return {}
    return {name: Baseline(**kept) for name, kept in json.loads(file.read_text()).items()}


def record(file: Path, here: Environment, reason: str, found: Counts) -> None:
    """Put counts in the place of those of the same kind of environment."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    kept: dict[str, Any] = {name: vars(baseline) for name, baseline in read(file).items()}
    kept[kind(here)] = vars(Baseline(here, reason, now, found))
    file.write_text(json.dumps(dict(sorted(kept.items())), indent=1) + "\n")


def count(program: Path = Path(__file__), names: Sequence[str] = ()) -> Counts:
    """Count the pieces of these names, or all.

    Args:
        program: what counts them, if it is not this.
        names: of pieces.

    Raises:
        CannotCount: also where nothing was counted.
    """
    options = [word for name in names for word in ("--piece", name)]
    found = counts([sys.executable, str(program), *options, "--count"])
    nothing = found.pop(_NOTHING, None)
    if nothing is None or not found:
        raise CannotCount("valgrind wrote no counts; does callgrind work here?")
    return {name: (total - nothing) / TIMES for name, total in found.items()}


def count_under_valgrind(library: str, names: Sequence[str]) -> None:
    """Run the counted program: time, random numbers and collections are the same each time."""
    random.seed(0)
    clock = itertools.count(1_000_000_000_000_000, _CLOCK_STEP_NS).__next__
    with (
        mock.patch("time.monotonic_ns", clock),
        mock.patch("secrets.randbits", lambda bits: 1 << bits - 1),
    ):
        # Only now, because modules may keep the functions that they import.
        pieces = import_module("hot_path.pieces")
        makers = pieces.pieces()
        if unknown := [name for name in names if name not in makers]:
            raise SystemExit(f"no such pieces: {unknown}; there are: {', '.join(makers)}")
        chosen = {_NOTHING: pieces.Piece(lambda: None, 1)}
        chosen |= {name: makers[name]() for name in names or makers}
        for piece in chosen.values():
            for _ in range(_WARM_UP):
                piece.turn()
        gc.collect()
        gc.freeze()
        gc.disable()
        marks = Marks(library)
        for name, piece in chosen.items():
            for _ in range(2):
                piece.turn()
            marks.count(name, piece.run, piece.before, piece.after, TIMES)


def print_counts(found: Counts, here: Environment, baselines: Mapping[str, Baseline]) -> int:
    """Print the counts against the baseline for here; the exit status."""
    baseline = baselines.get(kind(here))
    if baseline is None:
        known = ", ".join(baselines) or "none"
        print(_plain(found))
        print(f"not judged: there is no baseline for {kind(here)}, only for: {known}")
        return 0
    others = differences(here, baseline.environment)
    if others:
        print(_plain(found))
        print("not judged, because counts depend on it:", *others, sep="\n  ")
        return 0
    verdict = judge(found, baseline.instructions)
    print(table(["instructions", "baseline", "now", ""], verdict.lines))
    if not verdict.dearer and not verdict.unknown:
        print(f"no piece takes over {MAX_RATIO - 1:.0%} more than in the baseline")
        return 0
    for words in verdict.dearer:
        print(f"TOO MANY: {words}")
    for name in verdict.unknown:
        print(f"in the baseline or here alone: {name}")
    print(
        "If this is what you want, move the baseline in the same commit, with the reason:\n"
        f'  {Path(sys.executable).name} {Path(__file__).name} --record "why this costs more now"'
    )
    return 1


def recounted(
    found: Counts, here: Environment, baselines: Mapping[str, Baseline], again: Recount
) -> Counts:
    """Return the counts; pieces that seem too dear have the least of several counts.

    A count is now and then too high by chance, by 6 % once in some hundred counts on a busy host.
    The place of Python's objects in memory moves a count too, by up to 4 % for heads with a trace
    of their own. A baseline in the middle of that range allows for it.

    Args:
        found, here, baselines: as of `print_counts`.
        again: counts the pieces of these names once more.
    """
    baseline = baselines.get(kind(here))
    if baseline is None or differences(here, baseline.environment):
        return found
    lowest = dict(found)
    for _ in range(_RECOUNTS):
        limits = {name: kept * MAX_RATIO for name, kept in baseline.instructions.items()}
        names = [name for name, now in lowest.items() if now > limits.get(name, now)]
        if not names:
            break
        lowest |= {name: min(lowest[name], now) for name, now in again(names).items()}
    return lowest


def _plain(found: Counts) -> str:
    return table(["instructions", ""], [[name, _shown(n)] for name, n in found.items()])


def _shown(instructions: float | None) -> str:
    return "" if instructions is None else f"{instructions:,.0f}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        raise CannotCount(f"{package} is not installed: pip install '.[http2]'") from None


def _compiler() -> str:
    """Return the compiler of ringbatch's own modules, from their library."""
    library = import_module("ringbatch.shm.ring").__file__ or ""
    found = re.search(rb"GCC: \([^)]*\) [\d.]+|clang version [\d.]+", Path(library).read_bytes())
    return found[0].decode() if found else "unknown"


def main() -> int:
    """Count, compare or record; the exit status is 1 where a piece takes too many instructions,
    2 where none can be counted."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--record", metavar="REASON", help="move the baseline to what is counted")
    parser.add_argument("--baseline", type=Path, default=BASELINE, help="another file")
    parser.add_argument("--requirements", action="store_true", help="print what pip is to install")
    parser.add_argument("--piece", action="append", default=[], help="this alone; may be repeated")
    parser.add_argument("--count", metavar="LIBRARY", help="for valgrind: count with its help")
    options = parser.parse_args()
    if options.count:
        count_under_valgrind(options.count, options.piece)
        return 0
    if options.record is not None and (not options.record.strip() or options.piece):
        parser.error("--record takes a reason, and counts all pieces")
    try:
        here, baselines = environment(), read(options.baseline)
        if options.requirements:
            kept = baselines.get(kind(here))
            pinned = {} if kept is None else kept.environment
            print(*(f"{name}=={pinned[name]}" for name in _PACKAGES if name in pinned))
            return 0
        found = count(names=options.piece)
        if options.record is None:
            found = recounted(found, here, baselines, lambda names: count(names=names))
    except CannotCount as error:
        print(error, file=sys.stderr)
        return 2
    if options.record is None:
        return print_counts(found, here, baselines)
    record(options.baseline, here, options.record, found)
    print(_plain(found))
    print(f"{os.path.relpath(options.baseline)}: the baseline for {kind(here)} is moved")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
