"""Many lives of the engine, the simplest wrong one, or how soon each mutant is found.

- `python tests/simulation/run.py --seeds 100000 --from 50000`
- `python tests/simulation/run.py --seeds 10000000 --seconds 7200`
- `python tests/simulation/run.py --from 4711 --seeds 1` tells one life, step by step
- `python tests/simulation/run.py --mutants`
- `python tests/simulation/run.py --supervisor --seeds 100000 --seconds 3600`
"""

import argparse
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(1, str(Path(__file__).parents[1] / "harness"))

from simulation import supervised, supervisor_mutants
from simulation.mutants import MUTANTS
from simulation.mutation import Late, Mutant, Several
from simulation.search import COMMAND, Found, Wrong, first_wrong, live, quiet, simplest, story
from simulation.sought_in import SOUGHT_IN

_PROGRESS_EVERY = 1_000
_SEEDS_FOR_A_MUTANT = 20_000


def main() -> int:
    """Exit status 1 where a life went wrong, or a mutant was not found."""
    parser = argparse.ArgumentParser(
        description="A seeded simulation of the engine under every kind of misfortune."
    )
    parser.add_argument("--seeds", type=int, default=10_000, help="how many lives")
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="at most so long, and no other lives then"
    )
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first seed")
    parser.add_argument("--mutants", action="store_true", help="find each mutant instead")
    parser.add_argument(
        "--as-it-is", action="store_true", help="tell a wrong life without simplifying it"
    )
    parser.add_argument(
        "--supervisor", action="store_true", help="lives of the supervisor, among played processes"
    )
    options = parser.parse_args()
    if options.supervisor:
        with supervised.quiet():
            if options.mutants:
                return _find_mutants(
                    supervisor_mutants.MUTANTS, lambda _, s: supervised.first_wrong(s)
                )
            return _live_supervised(options.first, options.seeds, options.seconds)
    with quiet():
        if options.mutants:
            return _find_mutants(MUTANTS, lambda name, s: first_wrong(s, SOUGHT_IN.get(name)))
        if options.seeds == 1 and options.as_it_is:
            print(story(options.first))
            return 0
        return _live(options.first, options.seeds, options.seconds, simplify=not options.as_it_is)


def _live(first: int, count: int, seconds: float, *, simplify: bool) -> int:
    began, until = time.process_time(), time.monotonic() + seconds
    found = Found()
    wrong: list[Wrong] = []
    seed, end = first, first + count
    while seed < end and time.monotonic() < until:
        start, batch_end = seed, min(end, seed + _PROGRESS_EVERY)
        try:
            batch = live(range(start, batch_end))
            seed = batch_end
        except Wrong as failed:
            print(failed, flush=True)
            wrong.append(failed)
            batch, seed = failed.before, failed.seed + 1
        found = found.with_more(batch)
        rate = (seed - first) / (time.process_time() - began)
        print(f"seeds {start} to {seed - 1}: {batch}; {rate:.0f}/s of CPU", flush=True)
    if wrong:
        wrong_seed = wrong[0].seed
        print(story(*simplest(wrong_seed)) if simplify else story(wrong_seed))
    kinds = Counter(failed.kind for failed in wrong)
    counts = ", ".join(f"{kinds[kind]} {kind}" for kind in ("violations", "hangs", "crashes"))
    print(f"in all: {found.lives + len(wrong):,} lives, {counts}; {found}", flush=True)
    return 1 if wrong else 0


def _live_supervised(first: int, count: int, seconds: float) -> int:
    if count == 1:
        print(supervised.story(first))
    lived = supervised.live(range(first, first + count), time.monotonic() + seconds)
    for seed, why in lived.wrong.items():
        print(f"seed {seed}: {why}\nto see it: {COMMAND} --supervisor --from {seed} --seeds 1")
    print(lived, flush=True)
    return 1 if lived.wrong else 0


def _find_mutants(
    mutants: Mapping[str, Mutant | Late | Several], find: Callable[[str, range], int | None]
) -> int:
    missed = 0
    for name, mutant in mutants.items():
        began = time.process_time()
        with mutant.applied():
            seed = find(name, range(_SEEDS_FOR_A_MUTANT))
        missed += seed is None
        took_s = time.process_time() - began
        print(f"{name:62} {'NOT FOUND' if seed is None else f'seed {seed}':>10} {took_s:6.1f} s")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
