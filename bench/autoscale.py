"""The load changes, and the number of workers with it: how soon, how many too many, how often.

With `--simulate` the decision alone is tried, on a queue in simulated time
(`peers/simulated_workers.py`); otherwise a server, with a model that sleeps, so that two cores
suffice for eight workers.
"""

import argparse
import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from math import ceil
from pathlib import Path

from host.server import Server
from load.open_loop import Answer, open_loop
from peers.servers import MODELS, Ringbatch
from peers.simulated_workers import (
    Figures,
    Model,
    Outcome,
    Scenario,
    Simulation,
    figures,
    scenarios,
)
from report.record import Report
from report.rounds import number, table

from ringbatch.engine.supervisor.scaling import FILLED, TARGET_BATCHES, Decision, Rules
from ringbatch.shm.scalings import Cause

MOST = 8
EASE = 0.6
"""The share of one worker's full batches that the load takes where it is low."""
UP_AFTER_S, DOWN_AFTER_S, TIMEOUT_S = 2.0, 60.0, 60.0
_NS = 1_000_000_000
_HEADER = [
    "load",
    "start of a worker s",
    "recovered after s",
    "most workers",
    "too many",
    "at the end",
    "decisions",
    "needless turns",
    "p50 ms",
    "p99 ms",
]
_SCALED = re.compile(
    r"^\S+ (\S+) .* (\d+) of \d+ to \d+ workers run, (\d+) from now on: ([^;]+);", re.MULTILINE
)


def rules(scale: float) -> Rules:
    """Return the autoscaler's rules for the simulation and the server.

    The time before workers are let go is scaled as the load is.
    """
    return Rules(
        fewest=1,
        most=MOST,
        target_ns=0,
        timeout_ns=int(TIMEOUT_S * _NS),
        up_after_ns=int(UP_AFTER_S * _NS),
        down_after_ns=int(DOWN_AFTER_S * scale * _NS),
    )


def row(name: str, start_s: float, found: Figures) -> list[str]:
    """Return a row of the table."""
    return [
        name,
        number(start_s),
        "-" if found.recovered_s is None else number(found.recovered_s),
        str(found.most),
        str(found.overshoot),
        str(found.end),
        str(found.changes),
        str(found.turns),
        number(found.p50_s * 1e3),
        number(found.p99_s * 1e3),
    ]


def wanted(scenario: Scenario, model: Model) -> int:
    """Return the most workers that a load wants, by the decision's own rule."""
    return min(MOST, ceil(scenario.peak / model.per_s / FILLED))


def simulated(report: Report) -> None:
    """Try the decision alone."""
    rows = []
    for start_s in (1.0, 10.0):
        model = Model(start_s=start_s)
        for name, scenario in scenarios(EASE * model.per_s).items():
            outcome = Simulation(scenario.rate, scenario.peak, rules(1.0), model).run(scenario.s)
            target_s = TARGET_BATCHES * model.full_s
            found = figures(outcome, scenario, target_s, wanted(scenario, model))
            rows.append(row(name, start_s, found))
            report.run(load=name, start_s=start_s, figures=found)
            report.limit(f"{name}, {start_s:g} s: needless turns", found.turns, at_most=0)
            report.limit(f"{name}, {start_s:g} s: too many", found.overshoot, at_most=1)
    report.print_text(table(_HEADER, rows))


def outcome_of(answers: Sequence[Answer], log: str, began: datetime) -> Outcome:
    """Return the outcome for a server, from its answers and its log."""
    found = Outcome(latencies=[(answer.due_s, answer.took_s) for answer in answers])
    causes = {cause.words: cause for cause in Cause}
    running = 1
    found.workers.append((0.0, 1))
    for clock, before, after, words in _SCALED.findall(log):
        at = datetime.combine(began.date(), datetime.strptime(clock, "%H:%M:%S,%f").time())
        since_s = (at - began).total_seconds()
        if since_s < 0:
            continue
        running = int(after)
        found.decisions.append((since_s, int(before), Decision(running, causes[words])))
        found.workers.append((since_s, running))
    return found


def served(report: Report, scale: float) -> None:
    """Try a server."""
    model, rows = Model(base_s=0.1), []
    for name, scenario in scenarios(EASE * model.per_s, scale).items():
        peer = Ringbatch(
            "sleep",
            MODELS / "sleep_100ms.py",
            frontends=1,
            # What gathers until workers are ready is to find room.
            server={"max_in_flight": 8192},
            settings={
                "workers": [1, MOST],
                "max_batch_size": model.cap,
                "scale_up_after_s": UP_AFTER_S,
                "scale_down_after_s": DOWN_AFTER_S * scale,
            },
        )
        with (
            tempfile.TemporaryDirectory(prefix="bench-") as folder,
            Server(peer.command(Path(folder))) as server,
        ):
            began = datetime.now()
            path = "/v1/models/sleep:predict"
            answers = open_loop(server.port, path, scenario.rate, scenario.s)
            outcome = outcome_of(answers, server.log, began)
        target_s = TARGET_BATCHES * model.full_s
        found = figures(outcome, scenario, target_s, wanted(scenario, model))
        rows.append(row(name, model.start_s, found))
        decisions = ", ".join(
            f"{before} to {decision.workers} at {at:.0f} s"
            for at, before, decision in outcome.decisions
        )
        report.run(load=name, figures=found, decisions=decisions)
        failed = sum(not answer.right for answer in answers)
        report.run(load=name, statuses=dict(Counter(answer.status for answer in answers)))
        report.limit(f"{name}: requests that failed", failed, at_most=0)
        report.limit(f"{name}: needless turns", found.turns, at_most=0)
    report.print_text(table(_HEADER, rows))


def main() -> int:
    """Run the scenario; the exit status is 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulate", action="store_true", help="the decision alone, in seconds")
    parser.add_argument("--scale", type=float, default=0.25, help="of the time that loads take")
    options = parser.parse_args()
    report = Report("autoscale", vars(options))
    if options.simulate:
        simulated(report)
    else:
        served(report, options.scale)
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
