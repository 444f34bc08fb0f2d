"""Interleaved rounds in which a peer may fail without taking the others' figures with it."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from host.server import ServerDied, ServerLeftProcesses, ServerNotReady
from load.answers import WrongAnswer
from load.generators import LoadFailed
from peers.servers import PeerUnfit

from report.record import Report
from report.rounds import interleave

T = TypeVar("T")

OWN = "ringbatch"
FAILURES = (
    WrongAnswer,
    ServerDied,
    ServerLeftProcesses,
    ServerNotReady,
    LoadFailed,
    PeerUnfit,
    OSError,
)


def run_entries(
    report: Report, names: Sequence[str], rounds: int, run: Callable[[int, str], T]
) -> dict[str, list[T]]:
    """Call `run(round, name)` in interleaved order; return the results of each name by round.

    A peer that fails is left out from then on, with what it has reached, and the report says why.
    What ringbatch does wrong is raised: it is what is measured.
    """
    results: dict[str, list[T]] = {name: [] for name in names}
    failed: dict[str, str] = {}
    for turn, name in interleave(names, rounds):
        if name in failed:
            continue
        try:
            results[name].append(run(turn, name))
        except FAILURES as error:
            if name.startswith(OWN):
                raise
            failed[name] = f"{type(error).__name__} in round {turn}: {str(error)[:300]}"
            report.without({name: failed[name]})
    return {name: found for name, found in results.items() if name not in failed}
