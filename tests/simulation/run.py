"""Many lives of the engine, the simplest wrong one, or how soon each mutant is found.

python tests/simulation/run.py --seeds 100000 --from 50000
python tests/simulation/run.py --from 4711 --seeds 1       one life, told step by step
python tests/simulation/run.py --mutants
"""

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from simulation.mutants import MUTANTS
from simulation.search import Wrong, first_wrong, live, quiet, simplest, story

_PROGRESS_EVERY = 1_000
_SEEDS_FOR_A_MUTANT = 20_000


def main() -> int:
    """Exit status 1 where a life went wrong, or a mutant was not found."""
    parser = argparse.ArgumentParser(
        description="A seeded simulation of the engine under every kind of misfortune."
    )
    parser.add_argument("--seeds", type=int, default=10_000, help="how many lives")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first seed")
    parser.add_argument("--mutants", action="store_true", help="find each mutant instead")
    parser.add_argument(
        "--as-it-is", action="store_true", help="tell a wrong life without simplifying it"
    )
    options = parser.parse_args()
    with quiet():
        if options.mutants:
            return _find_mutants()
        if options.seeds == 1 and options.as_it_is:
            print(story(options.first))
            return 0
        return _live(options.first, options.seeds, simplify=not options.as_it_is)


def _live(first: int, count: int, *, simplify: bool) -> int:
    began = time.process_time()
    done = 0
    while done < count:
        batch = min(_PROGRESS_EVERY, count - done)
        start = first + done
        try:
            found = live(range(start, start + batch))
        except Wrong as wrong:
            print(wrong, flush=True)
            seed = first_wrong(range(start, start + batch))
            assert seed is not None, "it went wrong a moment ago"
            print(story(*simplest(seed)) if simplify else story(seed))
            return 1
        done += batch
        rate = done / (time.process_time() - began)
        print(f"seeds {start} to {start + batch - 1}: {found}; {rate:.0f}/s of CPU", flush=True)
    return 0


def _find_mutants() -> int:
    missed = 0
    for name, mutant in MUTANTS.items():
        began = time.process_time()
        with mutant.applied():
            seed = first_wrong(range(_SEEDS_FOR_A_MUTANT))
        missed += seed is None
        took_s = time.process_time() - began
        print(f"{name:62} {'NOT FOUND' if seed is None else f'seed {seed}':>10} {took_s:6.1f} s")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
