"""Autoscaler: changes the number of workers by the load, for models with a range of workers.

It reads the published counters, decides by `ringbatch.engine.supervisor.scaling`, and carries
decisions out as live changes. So workers that are let go finish their batch, and a worker that does
not become ready changes nothing. Several decisions are carried out at once;
`ringbatch.engine.supervisor.scaling_queue` orders them.
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Final

from ringbatch.engine.config.settings import ModelConfig
from ringbatch.engine.supervisor.host_gauge import HostGauge
from ringbatch.engine.supervisor.model_changes import ModelChanges
from ringbatch.engine.supervisor.scaling import (
    Decision,
    Headroom,
    Measurements,
    Rules,
    Scaler,
    bounded,
)
from ringbatch.engine.supervisor.scaling_queue import QueuedDecision, in_turn
from ringbatch.engine.supervisor.worker_pool import WorkerPool
from ringbatch.shm import cost_profile
from ringbatch.shm.counters import ModelCounter
from ringbatch.shm.descriptors import ModelWords
from ringbatch.shm.host.control_socket import Report
from ringbatch.shm.model_counters import Counted
from ringbatch.shm.model_spec import SERVING, ModelSpec
from ringbatch.shm.scalings import Cause, Scalings
from ringbatch.shm.segment import Segment

logger = logging.getLogger("ringbatch.supervisor")

LOOK_NS: Final = 250_000_000
"""Interval of looks; a request that finds no worker waits for the next."""
PAUSE_NS: Final = 60_000_000_000
"""Pause of decisions after an unexpected failure."""
LEAST_PLACES: Final = 4
"""Workers that may be started at once; one for each CPU if there are more CPUs. With more than that
on two CPUs, all take longer and the last is ready no sooner."""
_NS_PER_MS: Final = 1e6


@dataclass(slots=True)
class _Watched:
    """Model under the autoscaler.

    Attributes:
        scaler: decides for it.
        block: where its decisions are published.
        full_ns: the time of a full batch in warm-up; 0 if unknown.
        start_ns: the time of the latest start of workers.
        queued: its decision, while that waits for its turn.
    """

    scaler: Scaler
    block: Scalings
    full_ns: int = 0
    start_ns: int = 0
    queued: QueuedDecision | None = None

    def refused(self, running: int, now_ns: int) -> None:
        """Note that a decision could not be carried out; if no worker runs, tell clients."""
        self.scaler.refused(now_ns)
        if not running:
            self.block.fail(self.scaler.again_ns)


class Autoscaler:
    """The autoscaler of one engine.

    Attributes:
        next_ns: when to look next; None if no model has a range of workers.

    Args:
        segment: the engine's.
        changes: its live changes.
        pool: its workers.
        gauge: of the host.
        clock_ns: the monotonic clock.
    """

    def __init__(
        self,
        segment: Segment,
        changes: ModelChanges,
        pool: WorkerPool,
        gauge: HostGauge,
        clock_ns: Callable[[], int],
    ) -> None:
        self.next_ns: int | None = None
        self._segment = segment
        self._changes = changes
        self._served = changes.served
        self._pool = pool
        self._gauge = gauge
        self._clock_ns = clock_ns
        self._watched: dict[int, _Watched] = {}
        self._underway: dict[int, QueuedDecision] = {}

    def step(self) -> None:
        """Look at the load, if it is time, and decide; called after every turn of the loop."""
        elastic = [s for s in self._served.entries if s.most and s.state == SERVING]
        if not elastic:
            self.next_ns = None
            self._watched.clear()
            self._underway.clear()
            return
        now_ns = self._clock_ns()
        if self.next_ns is not None and now_ns < self.next_ns:
            return
        self.next_ns = now_ns + LOOK_NS
        self._gauge.look(now_ns, self._pids(self._pool.workers))
        self._watched = {s.reference: self._watch(s) for s in elastic}
        readings = {s.reference: self._read(s, self._watched[s.reference], now_ns) for s in elastic}
        decisions = list(filter(None, [self._queued(s, readings[s.reference]) for s in elastic]))
        if not decisions:
            return
        specs = {spec.reference: spec for spec in elastic}
        starting = sum(queued.starts for queued in self._underway.values())
        for queued in in_turn(decisions, starting, self._places):
            self._begin(queued, specs[queued.reference], readings[queued.reference])

    def pause(self) -> None:
        """Decide nothing for a while, after an unexpected failure."""
        self._underway.clear()
        self.next_ns = self._clock_ns() + PAUSE_NS

    @property
    def _places(self) -> int:
        return max(LEAST_PLACES, int(self._gauge.cpus))

    def _watch(self, spec: ModelSpec) -> _Watched:
        rules = rules_of(self._served.models[spec.reference])
        watched = self._watched.get(spec.reference)
        if watched is None:
            block = Scalings(self._segment.words, self._segment.layout, spec.account)
            block.open()
            watched = _Watched(Scaler(rules), block)
        watched.scaler.rules = rules
        return watched

    def _read(self, spec: ModelSpec, watched: _Watched, now_ns: int) -> Measurements:
        segment, words = self._segment, self._segment.words
        first = segment.layout.model(spec.index)
        counted = Counted(words, segment.layout, spec.account)
        watched.full_ns = watched.full_ns or self._full_ns(spec)
        ready = words[first + ModelWords.READY]
        # ROW_NS is the time of a full batch, divided by its instances and the ready workers.
        cycle_ns = words[first + ModelWords.ROW_NS] * spec.cap * ready
        return Measurements(
            now_ns=now_ns,
            wait_ns=words[first + ModelWords.ANSWER_NS],
            cycle_ns=cycle_ns,
            full_ns=max(watched.full_ns, cycle_ns),
            batch_rows=spec.cap,
            rows=counted[ModelCounter.ROWS],
            run_ns=counted.run_ns,
            running=spec.running,
            ready=ready,
            start_ns=watched.start_ns,
        )

    def _full_ns(self, spec: ModelSpec) -> int:
        trials = [t for n in spec.workers for t in cost_profile.read(self._segment, n)]
        return max((trial.run_ns for trial in trials if trial.rows == spec.cap), default=0)

    def _queued(self, spec: ModelSpec, reading: Measurements) -> QueuedDecision | None:
        """Return the decision for a model, if it can be carried out now."""
        watched = self._watched[spec.reference]
        decision = watched.scaler.step(reading)
        if not self._changes.can_scale(spec.reference):
            return None
        stays = spec.workers if decision is None else spec.workers[: decision.workers + spec.spares]
        starts = 0 if decision is None else max(decision.workers - spec.running, 0)
        if decision is None or not (starts or self._are_ready(stays)):
            watched.queued = None
            if not watched.scaler.holds(reading.now_ns):
                watched.block.want(spec.running)
            return None
        watched.block.want(decision.workers)
        before = watched.queued
        lasts = before is not None and bool(before.starts) == bool(starts)
        since_ns = before.since_ns if before is not None and lasts else reading.now_ns
        watched.queued = QueuedDecision(spec.reference, decision, starts, since_ns)
        return watched.queued

    def _begin(self, queued: QueuedDecision, spec: ModelSpec, reading: Measurements) -> None:
        """Start carrying out a decision, or log why it cannot be carried out."""
        watched, decision = self._watched[queued.reference], queued.decision
        watched.queued = None
        if queued.starts:
            decision = bounded(decision, spec.running, self._rooms(spec, decision.workers))
        watched.block.count(decision.cause)
        if decision.workers == spec.running:
            watched.refused(spec.running, reading.now_ns)
            _log(spec, watched, decision, reading, logging.WARNING)
            return
        _log(spec, watched, decision, reading, logging.INFO)
        starts = max(decision.workers - spec.running, 0)
        queued = QueuedDecision(queued.reference, decision, starts, reading.now_ns)
        self._underway[queued.reference] = queued
        self._changes.scale(queued.reference, decision.workers, partial(self._conclude, queued))

    def _rooms(self, spec: ModelSpec, wanted: int) -> list[Headroom]:
        """Return the room for each worker to be started, as `bounded` takes it.

        Local workers and workers that drive actors need different resources.
        """
        model = self._served.models[spec.reference]
        far = {*spec.remote}
        here = [number for number in spec.workers if number not in far]
        starting = [
            (self._pids(other.workers), self._underway[other.reference].starts)
            for other in self._served.entries
            if other.reference in self._underway
        ]
        rooms = {
            False: self._gauge.room(self._pids(here), starting),
            True: self._gauge.room(self._pids(spec.remote), starting),
        }
        return [rooms[model.is_in_ray(index)] for index in range(spec.running, wanted)]

    def _conclude(self, queued: QueuedDecision, report: Report) -> None:
        """Note the outcome of a decision, and begin the decisions whose turn it is now."""
        if self._underway.get(queued.reference) is not queued:
            return
        del self._underway[queued.reference]
        watched, now_ns = self._watched[queued.reference], self._clock_ns()
        if queued.starts:
            self.next_ns = now_ns
        if report.end != "done":
            running = {spec.reference: spec.running for spec in self._served.entries}
            watched.block.count(Cause.FAILED)
            watched.refused(running.get(queued.reference, 0), now_ns)
            return
        watched.block.succeed()
        watched.scaler.carried_out(queued.decision, now_ns)
        if queued.starts:
            watched.start_ns = now_ns - queued.since_ns

    def _are_ready(self, numbers: Collection[int]) -> bool:
        processes = [self._pool.workers[number] for number in numbers]
        return all(managed.child is not None and managed.ready_ns for managed in processes)

    def _pids(self, numbers: Collection[int]) -> list[int]:
        processes = [
            self._pool.workers[number] for number in numbers if number in self._pool.workers
        ]
        return [managed.child.pid for managed in processes if managed.child is not None]


def rules_of(model: ModelConfig) -> Rules:
    """Return the configured scaling rules of one model."""
    return Rules(
        fewest=model.fewest_workers,
        most=model.most_workers,
        target_ns=int((model.target_wait_ms or 0) * _NS_PER_MS),
        timeout_ns=int(model.timeout_s * 1e9),
        up_after_ns=int(model.scale_up_after_s * 1e9),
        down_after_ns=int(model.scale_down_after_s * 1e9),
    )


def _log(
    spec: ModelSpec, watched: _Watched, decision: Decision, reading: Measurements, level: int
) -> None:
    target_ns = watched.scaler.rules.target(reading.cycle_ns)
    logger.log(
        level,
        "%s version %s: %d of %d to %d workers run, %s: %s; predicted wait %.0f ms, target %.0f ms",
        spec.name,
        spec.version,
        spec.running,
        spec.least,
        spec.most,
        f"{decision.workers} from now on" if decision.workers != spec.running else "and no more",
        decision.cause.words,
        reading.wait_ns / _NS_PER_MS,
        target_ns / _NS_PER_MS,
    )
