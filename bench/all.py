"""Run every scenario and write the report: report.json, report.md and README's table.

A scenario whose result is there is not run again, so that a run which was interrupted goes on where
it ended; --again runs it anew. What is neither there nor asked for stays in the report as it is,
with its own commit, machine and date. What fails stands in it as failed. The exit status is 1 where
a limit was missed or a scenario failed.
"""

import argparse
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from host.children import tied
from host.procfs import cpu_busy_s
from peers.servers import BENCH
from report import readme_table
from report.scenarios import SCENARIOS, Scenario
from report.summary import FAILED, MEASURED, NOT_RUN, Outcome, Summary, not_run, summarize
from report.text import as_json, markdown

REPORT_JSON = BENCH / "report.json"
REPORT_MD = BENCH / "report.md"
OUTCOME = "outcome.json"
LOG = "log.txt"
TAIL_LINES = 30
LOOK_S = 2.0
PATIENCE = 4.0
"""Time limit of a scenario, as a multiple of its expected minutes; the first run installs peers
too."""
INSTALLING_S = 1800.0
UNDONE = (NOT_RUN, FAILED)


def busy_share() -> float:
    """Return the share of all cores in use, 0 to 1, while nothing of this script runs."""
    cores = sorted(os.sched_getaffinity(0))
    before = sum(map(cpu_busy_s, cores))
    time.sleep(LOOK_S)
    return round((sum(map(cpu_busy_s, cores)) - before) / LOOK_S / len(cores), 3)


def run(scenario: Scenario, minutes: float, options: Sequence[str], folder: Path) -> Outcome:
    """Run one script; its result and the end of what it printed lie in `folder` afterwards."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    argv = [sys.executable, str(BENCH / f"{scenario.name}.py"), *options]
    busy_before, began = busy_share(), time.monotonic()
    with (folder / LOG).open("w") as log:
        process = subprocess.Popen(
            argv,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "RINGBATCH_BENCH_RESULTS": str(folder), "PYTHONUNBUFFERED": "1"},
            preexec_fn=tied(),
        )
        status = wait(process, minutes * 60 * PATIENCE + INSTALLING_S)
    tail = (folder / LOG).read_text(errors="replace").splitlines()[-TAIL_LINES:]
    took_s = round(time.monotonic() - began, 1)
    outcome = Outcome(status, took_s, busy_before, busy_share(), "\n".join(tail))
    (folder / OUTCOME).write_text(json.dumps(asdict(outcome)))
    return outcome


def wait(process: subprocess.Popen[bytes], limit_s: float) -> int:
    """Return the exit status; after the limit, or at an interrupt, ask the script to end."""
    try:
        return process.wait(limit_s)
    except (subprocess.TimeoutExpired, KeyboardInterrupt) as error:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if isinstance(error, KeyboardInterrupt):
            raise
        return process.returncode or 1


def found(scenario: Scenario, folder: Path) -> Summary:
    """Return the report's summary of a scenario from its folder."""
    if not (folder / OUTCOME).exists():
        return not_run(scenario)
    outcome = Outcome(**json.loads((folder / OUTCOME).read_text()))
    results = sorted(folder.glob(f"{scenario.name}-*.json"))
    record = json.loads(results[-1].read_text()) if results else None
    return summarize(scenario, outcome, record)


def kept(summary: Summary, earlier: Summary | None) -> Summary:
    """Return an older entry of the report, if there is nothing new about the scenario."""
    return earlier if earlier is not None and summary["outcome"] == NOT_RUN else summary


def write(summaries: Mapping[str, Summary], pins: Mapping[str, Any], command: str) -> None:
    """Write the report and README's table.

    Args:
        summaries: by scenario.
        pins: what peers were made of in runs before.
        command: that has made the report.
    """
    peers = dict(pins)
    for summary in summaries.values():
        peers |= summary.get("pins", {})
    scenarios = {
        name: {key: value for key, value in summary.items() if key != "pins"}
        for name, summary in summaries.items()
    }
    report = {"command": command, "peers": peers, "scenarios": scenarios}
    REPORT_JSON.write_text(as_json(report) + "\n")
    REPORT_MD.write_text(markdown(json.loads(REPORT_JSON.read_text())))
    readme_table.write()


def minutes_of(scenario: Scenario, quick: bool) -> float:
    """Return the expected duration of a scenario in minutes."""
    return scenario.quick_minutes if quick else scenario.full_minutes


def chosen(names: Sequence[str]) -> list[Scenario]:
    """Return the scenarios of these names; all without names."""
    return [one for one in SCENARIOS if not names or one.name in names]


def main() -> int:
    """Run what is missing and write the report."""
    names = [scenario.name for scenario in SCENARIOS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter runs, fewer of them")
    parser.add_argument("--only", nargs="+", choices=names, default=[], metavar="SCENARIO")
    parser.add_argument("--again", nargs="+", choices=names, default=[], metavar="SCENARIO")
    parser.add_argument("--options", help="of the scripts of --only, in place of the mode's")
    parser.add_argument("--write", action="store_true", help="run nothing, write the report")
    options = parser.parse_args()
    mode = "quick" if options.quick else "full"
    folders = BENCH / "results" / mode
    todo = [
        one
        for one in (() if options.write else chosen([*options.only, *options.again]))
        if one.name in options.again or found(one, folders / one.name)["outcome"] in UNDONE
    ]
    if options.options is not None and len(todo) > 1:
        parser.error("--options are those of one script: name it with --only")
    expected = sum(minutes_of(one, options.quick) for one in todo)
    print(f"{len(todo)} scenarios to run, {mode}, some {expected:.0f} minutes", flush=True)
    for place, one in enumerate(todo, 1):
        minutes = minutes_of(one, options.quick)
        print(f"{place}/{len(todo)} {one.name}, some {minutes:g} minutes", flush=True)
        usual = one.quick if options.quick else ""
        words = shlex.split(usual if options.options is None else options.options)
        outcome = run(one, minutes, words, folders / one.name)
        entry = found(one, folders / one.name)
        print(f"  {entry['outcome']} after {outcome.took_s / 60:.1f} minutes", flush=True)
        if entry["outcome"] == FAILED:
            print(f"  {entry['why']}\n  see {folders / one.name / LOG}", flush=True)
    report = json.loads(REPORT_JSON.read_text())
    summaries = {
        one.name: kept(found(one, folders / one.name), report["scenarios"].get(one.name))
        for one in SCENARIOS
    }
    write(summaries, report["peers"], f"python bench/all.py{' --quick' * options.quick}")
    worse = {name: s["outcome"] for name, s in summaries.items() if s["outcome"] != MEASURED}
    for name, outcome_word in worse.items():
        print(f"{name}: {outcome_word}")
    print(f"wrote {REPORT_MD.relative_to(BENCH.parent)} and README's table")
    return 1 if worse else 0


if __name__ == "__main__":
    raise SystemExit(main())
