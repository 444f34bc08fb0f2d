"""Fuzzer: strangers' bytes without a time limit, by seed or led by coverage.

    python tests/fuzz/run.py --seconds 600
    python tests/fuzz/run.py --target connection --from 1000000 --seconds 600
    python tests/fuzz/run.py --target "v1 fixed" --atheris

The last needs the package atheris, and runs until something is found or it is interrupted.
"""

import argparse
import logging
import signal
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(1, str(Path(__file__).parents[1] / "harness"))

from fuzz.connection import Pair, live
from fuzz.corpora import mutator
from fuzz.decoders import TARGETS, try_one
from fuzz.growth import NAMES, check_growth
from fuzz.grpc_life import live_over_grpc
from fuzz.http2 import GrpcTarget, RestTarget
from fuzz.http2_oracle import compare
from fuzz.limits import Difference, Endless, Overrun
from fuzz.model_server import answer_one
from fuzz.segment import live_beside_hostility
from fuzz.virtual_time import in_virtual_time

CONNECTION, SEGMENT, ORACLE = "connection", "segment", "http2 beside h2"
MODEL_SERVER, GRPC_LIFE = "model server", "grpc life"
HTTP2: dict[str, type[GrpcTarget | RestTarget]] = {
    "http2 grpc": GrpcTarget,
    "http2 rest": RestTarget,
}
GROWTH = "growth of "
_LEAD_BATCH = 100
_HANG_S = 60
_SHOWN = 3
"""Failures of a target, in full."""
_KINDS = {
    Difference: "differences",
    Endless: "hangs",
    Overrun: "budget overruns",
    Exception: "crashes",
}


def main() -> int:
    """Exit status 1 where something was found; it is printed with what repeats it."""
    growth = [GROWTH + name for name in NAMES]
    names = [CONNECTION, SEGMENT, MODEL_SERVER, GRPC_LIFE, *HTTP2, ORACLE, *TARGETS, *growth]
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
    signal.signal(signal.SIGVTALRM, _too_long)
    return in_virtual_time(_fuzz(targets, options.first, options.seconds / len(targets)))


async def _fuzz(targets: list[str], first: int, each_s: float) -> int:
    totals: Counter[str] = Counter()
    for target in targets:
        seed, until = first, time.monotonic() + each_s
        found: Counter[str] = Counter()
        with _attempts(target) as attempt:
            while time.monotonic() < until:
                for _ in range(_LEAD_BATCH):
                    # A loop that never ends would otherwise never be heard of.
                    signal.setitimer(signal.ITIMER_VIRTUAL, _HANG_S)
                    try:
                        await attempt(seed)
                    except Exception as failure:
                        found[_kind_of(failure)] += 1
                        if found.total() <= _SHOWN:
                            complaint = f"{type(failure).__name__}: {failure}"
                            print(f"{target}, seed {seed}: {complaint}", flush=True)
                    seed += 1
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        print(f"{target:20} {seed - first:12,} executions, {_counts(found)}", flush=True)
        totals += found
        totals["executions"] += seed - first
    print(f"in all: {totals['executions']:,} executions, {_counts(totals)}", flush=True)
    return 1 if any(totals[kind] for kind in _KINDS.values()) else 0


def _kind_of(failure: Exception) -> str:
    return next(name for kind, name in _KINDS.items() if isinstance(failure, kind))


def _counts(found: Counter[str]) -> str:
    return ", ".join(f"{found[kind]} {kind}" for kind in _KINDS.values())


def _too_long(_signal: int, _frame: object) -> None:
    raise Endless(f"it takes more than {_HANG_S} s of CPU time")


@contextmanager
def _attempts(target: str) -> Iterator[Callable[[int], Awaitable[object]]]:
    if target == SEGMENT:
        yield _awaitable(live_beside_hostility)
    elif target == MODEL_SERVER:
        yield _awaitable(answer_one)
    elif target == ORACLE:
        yield _awaitable(compare)
    elif target == GRPC_LIFE:
        yield live_over_grpc
    elif target == CONNECTION:
        yield partial(live, {asks: Pair(asks_for_keys=asks) for asks in (False, True)})
    elif target in HTTP2:
        with TemporaryDirectory() as folder, HTTP2[target](Path(folder)) as server:
            yield _awaitable(server.attempt)
    elif target.startswith(GROWTH):
        yield _awaitable(partial(check_growth, target.removeprefix(GROWTH)))
    else:
        inputs = mutator(target)
        yield _awaitable(lambda seed: try_one(target, inputs.make(seed)))


def _awaitable(call: Callable[[int], object]) -> Callable[[int], Awaitable[object]]:
    async def attempt(seed: int) -> None:
        call(seed)

    return attempt


def _led_by_coverage(target: str) -> int:
    import atheris

    assert target in TARGETS, "coverage leads through a decoder"
    atheris.instrument_all()
    atheris.Setup(sys.argv[:1], lambda data: try_one(target, data))
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
