"""A life in which the workers of a model end over and over: how long is the model without one?

The restart rule is played by the real supervisor. Nothing else goes wrong meanwhile, so that what
follows an end can be told to a few tenths of a second.
"""

import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from simulation.kernel import S, Violation
from simulation.played import Member, WorkerProcess
from simulation.supervision import Life

from ringbatch.shm.counters import WorkerCounter
from ringbatch.shm.descriptors import ModelWords

_LASTS_S: Final = 45.0
_LEAST_S: Final = 0.4
_MOST_S: Final = 1.2
_LOOK_S: Final = 0.05


class Way(Enum):
    """Ways in which workers end."""

    KILLED = "somebody kills them"
    ANSWERED = "they crash after they have answered"
    CRASHED = "they crash and have answered nothing"
    LOADING = "they end before they are ready"


@dataclass(frozen=True)
class Rule:
    """A bound that must hold.

    Attributes:
        way: way in which workers end.
        awaited: whether requests wait while no worker holds the model.
        without_s: longest time without any worker's process.
        starts: most starts in all.
    """

    way: Way
    awaited: bool
    without_s: float
    starts: int = 1 << 30


RULES: Final = {
    "killed, at once": Rule(Way.KILLED, awaited=False, without_s=0.2),
    "answered, at once": Rule(Way.ANSWERED, awaited=False, without_s=0.2),
    "crashed, within a second": Rule(Way.CRASHED, awaited=True, without_s=1.4),
    "fails to load, within a second": Rule(Way.LOADING, awaited=True, without_s=1.4),
    # Each of the two starts at once, then after 0.5 to 1 s, 1 to 2 s, 2 to 4 s and so on.
    "fails to load, later and later": Rule(Way.LOADING, awaited=False, without_s=60, starts=16),
}


class Hail(Life):
    """Life of a model with two workers, under such ends.

    Args:
        seed: decides everything.
        rule: the rule that must hold.
    """

    def __init__(self, seed: int, rule: Rule) -> None:
        super().__init__(seed, calm=True)
        model = replace(self._config.models[0], workers=2)
        self._config = replace(self._config, models=(model,))
        self._rule = rule
        self._until_ns = self._without_ns = 0
        self._before: set[int] = set()
        self._cast.slips, self._cast.explained = self._ends_early, 0.0

    def _behave(self) -> None:
        if self._missing():
            self._kernel.after(1.0, self._behave)
            return
        self._until_ns = self._kernel.now_ns + int(_LASTS_S * S)
        self._before = {process.pid for process in self._cast.living(WorkerProcess)}
        for act in (self._hit, self._watch):
            act()

    def _hit(self) -> None:
        """End a worker that is ready, if there is one."""
        if self._kernel.now_ns >= self._until_ns:
            self._until_ns = 0
            super()._behave()
            return
        ready = [process for process in self._cast.living(WorkerProcess) if process.well]
        if ready:
            victim = self._chance.choice(ready)
            if self._rule.way is Way.ANSWERED:
                self._answers(victim)
            by = signal.SIGKILL if self._rule.way is Way.KILLED else signal.SIGSEGV
            victim.end(-by)
        self._kernel.after(self._chance.uniform(_LEAST_S, _MOST_S), self._hit)

    def _answers(self, worker: WorkerProcess) -> None:
        segment = self._cast.segment
        assert segment is not None
        first = segment.layout.worker_counters(worker.number)
        segment.words[first + WorkerCounter.BATCHES] += 1

    def _ends_early(self, process: Member, step: str) -> bool:
        """End a worker in place of loading its model; see `Life`."""
        early = self._rule.way is Way.LOADING and self._until_ns > 0
        if not (early and isinstance(process, WorkerProcess) and step == "warm_up"):
            return False
        process.end(1)
        return True

    def _watch(self) -> None:
        if not self._until_ns:
            return
        kernel, segment = self._kernel, self._cast.segment
        assert segment is not None
        (spec,) = segment.model_table.read()[1]
        first, words = segment.layout.model(spec.index), segment.words
        words[first + ModelWords.AWAITED] = (
            self._rule.awaited and not words[first + ModelWords.READY]
        )
        living = self._cast.living(WorkerProcess)
        if living or not self._without_ns:
            self._without_ns = kernel.now_ns
        if kernel.now_ns - self._without_ns > self._rule.without_s * S:
            raise Violation("no process holds the model, and none is started")
        started = sum(isinstance(p, WorkerProcess) for p in kernel.processes.values())
        if started - len(self._before) > self._rule.starts:
            raise Violation("processes are started in circles")
        kernel.after(_LOOK_S, self._watch)


def first_wrong(rules: dict[str, Rule], seeds: range, failure: Callable[[Life], str]) -> str:
    """Say which of these lives goes wrong first, and why; empty if none does."""
    for name, rule in rules.items():
        for seed in seeds:
            if complaint := failure(Hail(seed, rule)):
                return f"{name}, seed {seed}: {complaint}"
    return ""
