"""KServe's own batcher example: five clients, a batch of 32 that never fills, half a second's wait.

Measured with `hey`, five workers in a closed loop, from sending a request to having its answer.
With a batch of five the same load fills every batch and must not wait.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

from host.server import Server
from load import answers, generators
from peers.frameworks import FRAMEWORKS, RINGBATCH, Setting
from peers.servers import install
from report.peer_rounds import run_entries
from report.record import Report

CLIENTS = 5
LATENCY_MS = 500
PEER = "KServe's batcher"


def shared_batches(port: int, rounds: int) -> list[list[str]]:
    """Let five clients ask at once, `rounds` times; return the batchId of each, [rounds][5]."""

    def ask(client: answers.Client, index: int, turn: int) -> str:
        seed = turn * CLIENTS + index
        body: dict[str, Any] = client.post(answers.matmul16_post(seed))
        answers.check_matmul16(body, seed)
        found = body.get("batchId")
        if not isinstance(found, str) or not found:
            raise answers.WrongAnswer(f"no batchId in {body}")
        return found

    return answers.lock_step(port, CLIENTS, rounds, ask)


def measure(
    report: Report, peer: str, max_batch_size: int, seconds: float, groups: int
) -> generators.HeyRun:
    """Run one half: the lock-step groups, then `hey`. ringbatch is held to what it promises."""
    setting = Setting(
        {"matmul16": "matmul16"}, cap=max_batch_size, wait_ms=LATENCY_MS, policy="fixed"
    )
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        Server(FRAMEWORKS[peer].command(setting, Path(folder))) as server,
    ):
        batches = shared_batches(server.port, groups)
        found = generators.hey(server.url, answers.matmul16_post(), CLIENTS, seconds)
        server.require_alive()
    report.run(peer=peer, max_batch_size=max_batch_size, hey=found)
    if peer == RINGBATCH:
        hold_to_limits(report, max_batch_size, batches, found)
    return found


def hold_to_limits(
    report: Report, max_batch_size: int, batches: list[list[str]], found: generators.HeyRun
) -> None:
    """Compare who shared a batch, and how requests ended, with what is right."""
    label, groups = f"max_batch_size {max_batch_size}", len(batches)
    alone = sum(1 for ids in batches if len(set(ids)) == 1)
    report.limit(f"{label}: groups of five with one batchId", alone, at_least=groups)
    distinct = len({i for ids in batches for i in ids})
    report.limit(f"{label}: batchIds of {groups} groups", distinct, groups, groups)
    report.limit(f"{label}: answers 200", found.statuses.get(200, 0), at_least=1)
    others = sum(count for status, count in found.statuses.items() if status != 200)
    report.limit(f"{label}: answers not 200, or none", others + found.errors, at_most=0)


def main() -> int:
    """Run the scenario; the exit status is 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="length of one run of hey")
    parser.add_argument("--groups", type=int, default=8, help="groups of five in lock-step")
    options = parser.parse_args()

    generators.require_tools()
    absent = install({PEER: FRAMEWORKS[PEER].environment})
    report = Report("kserve_example", vars(options))
    report.without(absent)

    def run(_turn: int, peer: str) -> tuple[generators.HeyRun, generators.HeyRun]:
        waiting, filled = (
            measure(report, peer, size, options.seconds, options.groups) for size in (32, CLIENTS)
        )
        return waiting, filled

    names = [RINGBATCH, *(name for name in (PEER,) if name not in absent)]
    ((waiting, filled),) = run_entries(report, names, 1, run)[RINGBATCH]
    report.limit("max_batch_size 32: average", waiting.average_s, 0.500, 0.515, "s")
    # Only the last requests of a run lack company and wait; the average hides five among many.
    report.limit("max_batch_size 5: average", filled.average_s, at_most=0.05, unit="s")
    report.limit(
        "max_batch_size 5: p95",
        filled.percentiles_s.get(95, filled.slowest_s),
        at_most=0.05,
        unit="s",
    )
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
