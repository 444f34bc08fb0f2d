"""Calculated cost of a request on a host of two NUMA nodes, by the placement of its processes.

python bench/numa.py
python bench/numa.py --far-ns 150 --payload-bytes 602112

Three ways are compared: one engine whose processes run anywhere; one engine whose frontends and
workers are pinned by node, with batches of their own, and its one collector on the first; an engine
for each node, on one address. Counted are the cache lines that one process stores and another
loads, with the request's words as `ringbatch.shm.descriptors` has them, and the bytes of its
tensors. A line from the cache of the other node costs `--far-ns` more than one of this node.
Published figures differ: memory of the own node 70 ns and of the other 130 on "modern servers", or
40 and more on top of 70 (aeron-tuning.com, NUMA and cache locality); cache to cache, two to four
times as long across sockets as within one (Chips and Cheese, Core to core latency data on large
systems, 2023; Velten et al., arXiv 2204.03290). So the default is 60, and the decision is looked at
up to 150. Tensors
are copied at `--near-gbs` from this node, and at half of that from the other.

What the engines lose that share nothing is that one may have idle workers while requests wait in
the other; that is Erlang's formula C, which knows no batches, and so errs against them.
"""

import argparse
from dataclasses import dataclass
from math import ceil
from typing import Final

from ringbatch.shm.descriptors import SlotWords

LINE_BYTES: Final = 64
WORD_BYTES: Final = 8
ROLES: Final = ("frontend", "collector", "worker")
REQUEST_LINES: Final = ceil((SlotWords.ACCOUNT + 1) * WORD_BYTES / LINE_BYTES)
ANSWER_LINES: Final = ceil((SlotWords.FINISHED_NS + 1 - SlotWords.DONE) * WORD_BYTES / LINE_BYTES)


@dataclass(frozen=True, slots=True)
class Costs:
    """Assumed costs.

    Attributes:
        far_ns: additional time of a cache line from the other node.
        near_gbs: rate of copies of tensors from this node, in GB/s.
        far_share: rate of copies from the other node, as a share of that.
    """

    far_ns: float = 60.0
    near_gbs: float = 10.0
    far_share: float = 0.5


def lines(batch: int) -> dict[tuple[str, str], float]:
    """Return the cache lines of a request that the first role stores and the second loads.

    Args:
        batch: requests that share a batch; words of rings and their heads are shared by them.
    """
    ring = WORD_BYTES / LINE_BYTES + 2 / batch
    return {
        ("frontend", "collector"): REQUEST_LINES + ring,
        ("collector", "worker"): ring,
        ("frontend", "worker"): REQUEST_LINES,
        ("worker", "collector"): 2 / batch,
        ("worker", "frontend"): ANSWER_LINES + ring,
    }


def far_shares(way: str) -> dict[tuple[str, str], float]:
    """Return how often two roles are on different nodes.

    Args:
        way: ``anywhere``; ``pinned``, where no batch mixes requests of two nodes, and each goes to
            a worker of its own, but the one collector is far from half of all others; ``engines``.
    """
    pairs = lines(1)
    if way == "anywhere":
        return dict.fromkeys(pairs, 0.5)
    return {pair: 0.5 * (way == "pinned" and "collector" in pair) for pair in pairs}


def extra_ns(way: str, batch: int, payload_bytes: int, costs: Costs) -> float:
    """Return the additional nanoseconds of a request, compared with all of it on one node.

    Args:
        way: see `far_shares`.
        batch: requests in a batch.
        payload_bytes: of its inputs; its outputs are taken for one line.
        costs: the assumed costs.
    """
    shares = far_shares(way)
    words = sum(count * shares[pair] for pair, count in lines(batch).items()) * costs.far_ns
    near_ns = payload_bytes / costs.near_gbs
    return words + near_ns * (1 / costs.far_share - 1) * shares["frontend", "worker"]


def waiting(workers: int, load: float) -> float:
    """Return the mean wait for a worker, in run times, by Erlang's formula C.

    Args:
        workers: of one engine.
        load: the share of their time that is taken, below 1.
    """
    offered = workers * load
    term = total = 1.0
    for served in range(1, workers):
        term *= offered / served
        total += term
    term *= offered / workers / (1 - load)
    return term / (total + term) / (workers * (1 - load))


def main() -> None:
    """Print what follows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--far-ns", type=float, default=60.0)
    parser.add_argument("--near-gbs", type=float, default=10.0)
    parser.add_argument("--payload-bytes", type=int, nargs="*", default=[64, 4096, 602112])
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--workers", type=int, default=32, help="on both nodes together")
    given = parser.parse_args()
    costs = Costs(given.far_ns, given.near_gbs)
    counted = lines(given.batch)
    print(f"lines of a request from one process to another: {sum(counted.values()):.1f}")
    for (one, other), count in counted.items():
        print(f"  {one} to {other}: {count:.2f}")
    for size in given.payload_bytes:
        found = (
            extra_ns(way, given.batch, size, costs) for way in ("anywhere", "pinned", "engines")
        )
        anywhere, pinned, engines = (f"{ns / 1e3:.2f}" for ns in found)
        print(
            f"{size} bytes: a request takes {anywhere} us longer anywhere, {pinned} pinned, "
            f"{engines} with an engine for each node"
        )
    for load in (0.5, 0.7, 0.9):
        whole, half = waiting(given.workers, load), waiting(given.workers // 2, load)
        print(
            f"{load:.0%} load: the mean wait for one of {given.workers} workers is {whole:.3f} "
            f"runs, for one of {given.workers // 2} it is {half:.3f}"
        )


if __name__ == "__main__":
    main()
