"""The record of one scenario: every run, the limits it was held to, and the machine it ran on."""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from load import generators
from peers.servers import BENCH, Environment, frozen_packages

from report.rounds import number
from ringbatch.bench.served.machine import cpu_model
from ringbatch.shm.host.platform import is_compiled

QUIET_LOAD = 0.5
"""Above it something else is running, or an earlier scenario has only just ended."""


@dataclass(frozen=True)
class Limit:
    """A figure, the range it has to lie in, and whether it does. An absent bound is None."""

    name: str
    value: float
    at_least: float | None
    at_most: float | None
    unit: str

    @property
    def met(self) -> bool:
        """Return whether the figure lies in its range."""
        return (self.at_least is None or self.value >= self.at_least) and (
            self.at_most is None or self.value <= self.at_most
        )

    def __str__(self) -> str:
        bounds = [
            f"{word} {number(bound)}"
            for word, bound in (("at least", self.at_least), ("at most", self.at_most))
            if bound is not None
        ]
        verdict = "ok    " if self.met else "MISSED"
        unit = f" {self.unit}" if self.unit else ""
        return f"{verdict}  {self.name}: {number(self.value)}{unit} ({' and '.join(bounds)})"


class Report:
    """Collects what one scenario found; prints it as it comes and writes it at the end."""

    def __init__(self, scenario: str, settings: dict[str, Any]) -> None:
        self.scenario = scenario
        self.limits: list[Limit] = []
        self.runs: list[dict[str, Any]] = []
        self._absent: dict[str, str] = {}
        self._started = datetime.now(UTC)
        self._record: dict[str, Any] = {
            "scenario": scenario,
            "started_utc": self._started.isoformat(timespec="seconds"),
            "settings": settings,
            "machine": machine(),
            "versions": versions(),
            "git": git_state(),
            "runs": self.runs,
            "absent": self._absent,
        }
        print(f"== {scenario} ==", flush=True)
        load_before = os.getloadavg()[0]
        if load_before > QUIET_LOAD:
            print(f"the machine is busy (load average {load_before:.2f}); figures suffer")
        if not is_compiled():
            print("ringbatch is not compiled here; the limits are for an installation that is")

    def run(self, **fields: Any) -> None:
        """Record one run and print it in one line."""
        plain = {
            key: asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
            for key, value in fields.items()
        }
        self.runs.append(plain)
        print("  " + "  ".join(_inline(plain)), flush=True)

    def print_text(self, text: str) -> None:
        """Print a table or a remark."""
        print(f"\n{text}\n", flush=True)

    def put(self, key: str, value: Any) -> None:
        """Record something that is no run."""
        self._record[key] = value

    def limit(
        self,
        name: str,
        value: float,
        at_least: float | None = None,
        at_most: float | None = None,
        unit: str = "",
    ) -> None:
        """Hold a figure to a range, and print whether it lies in it."""
        found = Limit(name, value, at_least, at_most, unit)
        self.limits.append(found)
        print(found, flush=True)

    def peer_versions(self, environments: Iterable[Environment | None]) -> None:
        """Record what is installed in each peer's environment; None is this interpreter's."""
        own = dict.fromkeys(filter(None, environments))
        self._record["versions"]["peers"] = {e.name: e.packages() for e in own}
        self._record["pins"] = {e.name: list(e.requirements) for e in own}

    def without(self, absent: Mapping[str, str]) -> None:
        """Record entries that were to be compared and are not, each with the reason."""
        for name, why in absent.items():
            self._absent[name] = why
            print(f"without {name}: {why}", flush=True)

    def finish(self) -> int:
        """Write the JSON and return the exit status: 0 when every limit was met, else 1."""
        self._record["load_average_at_end"] = os.getloadavg()
        self._record["limits"] = [{**asdict(found), "met": found.met} for found in self.limits]
        folder = Path(os.environ.get("RINGBATCH_BENCH_RESULTS") or BENCH / "results")
        folder.mkdir(exist_ok=True)
        file = folder / f"{self.scenario}-{self._started:%Y%m%dT%H%M%SZ}.json"
        file.write_text(json.dumps(self._record, indent=1) + "\n")
        missed = [found for found in self.limits if not found.met]
        met = len(self.limits) - len(missed)
        print(f"{met} of {len(self.limits)} limits met; {os.path.relpath(file)}")
        return 1 if missed else 0


def machine() -> dict[str, Any]:
    """Return what the figures depend on: processor, cores, kernel, memory, and the load before."""
    memory = re.search(r"^MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text(), re.M)
    return {
        "cpu": cpu_model(Path("/proc/cpuinfo").read_text()) or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "memory_mib": int(memory[1]) // 1024 if memory else None,
        "load_average_before": os.getloadavg(),
    }


def versions() -> dict[str, Any]:
    """Return the versions of the interpreter, the packages beside it, and wrk."""
    return {
        "python": sys.version.split()[0],
        "packages": _own_packages(),
        "compiled": is_compiled(),
        "wrk": generators.wrk_version(),
    }


@cache
def _own_packages() -> list[str]:
    """Return what is installed beside this interpreter, which pip is asked for once."""
    return frozen_packages(sys.executable)


def git_state() -> dict[str, Any]:
    """Return the commit and whether the tree differs from it.

    The commit is None where there is none, no repository, or no git to ask.
    """
    commit = _git("rev-parse", "--verify", "--quiet", "HEAD")
    return {"commit": commit or None, "dirty": bool(_git("status", "--porcelain"))}


def _git(*arguments: str) -> str:
    """Return an answer of git's; empty where it has none, or is not installed."""
    if shutil.which("git") is None:
        return ""
    return subprocess.run(
        ["git", "-C", str(BENCH), *arguments], capture_output=True, text=True
    ).stdout.strip()


def _inline(fields: dict[str, Any]) -> Iterable[str]:
    for key, value in fields.items():
        if isinstance(value, dict):
            yield from _inline(value)
        else:
            yield f"{key}={number(value) if isinstance(value, float) else value}"
