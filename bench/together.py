"""Models that share a server: a fast one beside a slow one that is overloaded, and eight at once.

Measured between `wrk` and the answer on the same machine. The fast model is one matrix product, 16
floats in; the slow one takes 100 ms a batch and is kept full by connections that outnumber its
batches. The same fast model is also asked under eight names, by eight `wrk`s at once, and the
requests/s of all are compared with those of one name.
"""

import argparse
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from host.server import Server
from load import generators, tensors
from load.answers import Client
from load.generators import Post
from load.tensors import MATMUL16, Subject
from peers.frameworks import FRAMEWORKS, RINGBATCH, Setting
from peers.servers import install
from report.peer_rounds import run_entries
from report.record import Report
from report.rounds import number, ratios, spread, table

FAST = MATMUL16.name
SLOW = "slow"
SLOW_POST = Post(f"/v1/models/{SLOW}:predict", '{"instances": [1.0]}')
BESIDE = Setting({FAST: FAST, SLOW: "sleep_100ms"})
MANY = 8
NAMED = Setting({FAST: FAST} | {f"{FAST}-{place}": FAST for place in range(1, MANY)})
SLOW_CONNECTIONS = 64
CONNECTIONS = 8
ALONE, FULL, ONE, ALL = "fast alone", "fast beside slow", "one of 8 models", "8 models at once"
SERVERS = tuple(name for name, each in FRAMEWORKS.items() if each.several)
MOST_P99 = 5.0
"""Limit of the fast model's p99 beside the slow one, as a multiple of its p99 alone."""


def rates(url: str, posts: Sequence[Post], connections: int, seconds: float) -> generators.WrkRun:
    """Drive several paths at once, each by connections of its own; requests/s are of all together,
    latencies of the slowest.
    """
    with ThreadPoolExecutor(len(posts)) as pool:
        each = list(pool.map(lambda post: generators.wrk(url, post, connections, seconds), posts))
    worst = max(each, key=lambda one: one.p99_ms)
    return replace(worst, requests_per_s=sum(one.requests_per_s for one in each))


def measure(name: str, seconds: float) -> dict[str, generators.WrkRun]:
    """Start the two servers of one framework, one after the other, and drive them."""
    framework = FRAMEWORKS[name]
    found = {}
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        Server(framework.command(BESIDE, Path(folder))) as server,
    ):
        fast = tensors.post(MATMUL16, framework.form, 0)
        tensors.check_crowd(server.port, MATMUL16, framework.form, clients=CONNECTIONS)
        client = Client(server.port)
        client.post(SLOW_POST)
        client.close()
        generators.wrk(server.url, fast, CONNECTIONS, 1)
        found[ALONE] = generators.wrk(server.url, fast, CONNECTIONS, seconds)
        with ThreadPoolExecutor(1) as pool:
            slow = pool.submit(
                generators.wrk, server.url, SLOW_POST, SLOW_CONNECTIONS, seconds + 1, 60
            )
            found[FULL] = generators.wrk(server.url, fast, CONNECTIONS, seconds)
            slow.result()
        server.require_alive()
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        Server(framework.command(NAMED, Path(folder))) as server,
    ):
        subjects: list[Subject] = [replace(MATMUL16, name=model) for model in NAMED.models]
        for subject in subjects:
            tensors.check_one(server.port, subject, framework.form)
        posts = [tensors.post(subject, framework.form, 0) for subject in subjects]
        rates(server.url, posts, 1, 1)
        found[ONE] = rates(server.url, posts[:1], MANY * CONNECTIONS, seconds)
        found[ALL] = rates(server.url, posts, CONNECTIONS, seconds)
        server.require_alive()
    return found


def main() -> int:
    """Run the scenario; the exit status is 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="length of one run")
    parser.add_argument("--peers", nargs="+", choices=SERVERS, default=list(SERVERS))
    options = parser.parse_args()

    generators.require_tools()
    absent = install({name: FRAMEWORKS[name].environment for name in options.peers})
    names = [name for name in options.peers if name not in absent]
    report = Report("together", vars(options))
    report.without(absent)
    report.peer_versions(FRAMEWORKS[name].environment for name in names)
    report.put("notes", {name: FRAMEWORKS[name].note for name in names})

    def run(turn: int, name: str) -> dict[str, generators.WrkRun]:
        found = measure(name, options.seconds)
        for figure, one in found.items():
            report.run(round=turn, peer=name, what=figure, result=one)
        return found

    runs = run_entries(report, names, options.rounds, run)
    report.print_text(
        table(
            ["requests/s; p99 ms", ALONE, FULL, ONE, ALL],
            [
                [
                    name,
                    *(
                        _cell([turn[figure] for turn in found])
                        for figure in (ALONE, FULL, ONE, ALL)
                    ),
                ]
                for name, found in runs.items()
            ],
        )
    )
    if own := runs.get(RINGBATCH):
        p99 = ratios([turn[FULL].p99_ms for turn in own], [turn[ALONE].p99_ms for turn in own])
        report.limit("p99 of the fast model beside the slow one", p99.median, at_most=MOST_P99)
    return report.finish()


def _cell(found: Sequence[generators.WrkRun]) -> str:
    rate = spread([one.requests_per_s for one in found]).median
    return f"{number(rate)}; {number(spread([one.p99_ms for one in found]).median)}"


if __name__ == "__main__":
    raise SystemExit(main())
