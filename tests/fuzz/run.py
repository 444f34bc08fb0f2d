"""Strangers' bytes for as long as one likes, by seed or led by coverage.

    python tests/fuzz/run.py --seconds 600
    python tests/fuzz/run.py --target connection --from 1000000 --seconds 600
    python tests/fuzz/run.py --target "v1 fixed" --atheris

The last needs the package atheris, and runs until something is found or it is interrupted.
"""

import argparse
import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from fuzz.connection import Pair, check, check_head
from fuzz.corpora import mutator
from fuzz.decoders import TARGETS, try_one
from fuzz.mutate import Mutator, cuts
from fuzz.requests import CORPUS, TOKENS
from fuzz.segment import live_beside_hostility

CONNECTION, SEGMENT = "connection", "segment"
_LEAD_BATCH = 100


def main() -> int:
    """Exit status 1 where something was found; it is printed with what repeats it."""
    names = [CONNECTION, SEGMENT, *TARGETS]
    parser = argparse.ArgumentParser(description="Fuzz whatever reads strangers' bytes.")
    parser.add_argument("--target", choices=names, help="one alone; by default all, in turn")
    parser.add_argument("--seconds", type=float, default=60, help="for all targets together")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first seed")
    parser.add_argument("--atheris", action="store_true", help="let coverage lead")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    targets = [options.target] if options.target else names
    if options.atheris:
        return _led_by_coverage(targets[0])
    return asyncio.run(_fuzz(targets, options.first, options.seconds / len(targets)))


async def _fuzz(targets: list[str], first: int, each_s: float) -> int:
    failed = 0
    for target in targets:
        attempt = _attempt(target)
        seed, until = first, time.monotonic() + each_s
        try:
            while time.monotonic() < until:
                for _ in range(_LEAD_BATCH):
                    await attempt(seed)
                    seed += 1
        except Exception as failure:
            failed = 1
            print(f"{target}, seed {seed}: {type(failure).__name__}: {failure}", flush=True)
        print(f"{target:20} {seed - first:12,} inputs", flush=True)
    return failed


def _attempt(target: str) -> Callable[[int], Awaitable[object]]:
    if target == SEGMENT:
        return _beside_hostility
    if target == CONNECTION:
        made, pair = Mutator(CORPUS, TOKENS), Pair()

        async def talk(seed: int) -> None:
            data = made.make(seed)
            await check(pair, cuts(data, seed))
            check_head(data)

        return talk
    inputs = mutator(target)

    async def decode(seed: int) -> None:
        try_one(target, inputs.make(seed))

    return decode


async def _beside_hostility(seed: int) -> None:
    live_beside_hostility(seed)


def _led_by_coverage(target: str) -> int:
    import atheris

    assert target in TARGETS, "coverage leads through a decoder"
    atheris.instrument_all()
    atheris.Setup(sys.argv[:1], lambda data: try_one(target, data))
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
