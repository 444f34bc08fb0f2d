"""Changes the number of workers by the load, for the models whose workers are a range.

It looks at words that others have published, decides by `ringbatch.engine.supervisor.scaling`, and
has decisions carried out as live changes: so what is let go finishes its batch, and what does not
become ready changes nothing. One decision is carried out after the other, and none beside an order.
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

from ringbatch.engine.config.settings import ModelConfig
from ringbatch.engine.supervisor.host_gauge import HostGauge
from ringbatch.engine.supervisor.model_changes import ModelChanges
from ringbatch.engine.supervisor.scaling import Decision, Reading, Room, Rules, Scaler, bounded
from ringbatch.engine.supervisor.worker_pool import WorkerPool
from ringbatch.shm import cost_profile
from ringbatch.shm.counters import ModelCounter
from ringbatch.shm.descriptors import ModelWords
from ringbatch.shm.model_counters import Counted
from ringbatch.shm.model_spec import SERVING, ModelSpec
from ringbatch.shm.scalings import Cause, Scalings
from ringbatch.shm.segment import Segment

logger = logging.getLogger("ringbatch.supervisor")

LOOK_NS: Final = 250_000_000
"""How often it looks; a request that finds no worker waits for it."""
PAUSE_NS: Final = 60_000_000_000
"""How long nothing is decided after what nobody expected."""
_NS_PER_MS: Final = 1e6


class _Pending(NamedTuple):
    """A decision that is being carried out, since an instant."""

    reference: int
    decision: Decision
    since_ns: int


@dataclass(slots=True)
class _Watched:
    """One model.

    Attributes:
        scaler: decides for it.
        block: where that is told.
        full_ns: what a full batch took in warm-up; 0 where nobody knows.
        start_ns: what it took to start workers, the last time.
    """

    scaler: Scaler
    block: Scalings
    full_ns: int = 0
    start_ns: int = 0

    def refused(self, running: int, now_ns: int) -> None:
        """Take note that what was decided could not be done; if no worker runs, tell clients."""
        self.scaler.refused(now_ns)
        if not running:
            self.block.fail(self.scaler.again_ns)


class Autoscaler:
    """Of one engine.

    Attributes:
        next_ns: when to look next; None where no model's workers are a range.

    Args:
        segment: the engine's.
        changes: its live changes, which nobody else begins in the same turn.
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
        self._pending: _Pending | None = None

    def step(self) -> None:
        """Look, where it is time, and decide; after every turn of the supervisor's loop."""
        elastic = [s for s in self._served.entries if s.most and s.state == SERVING]
        if not elastic:
            self.next_ns = self._pending = None
            self._watched.clear()
            return
        now_ns = self._clock_ns()
        if self.next_ns is not None and now_ns < self.next_ns:
            return
        self.next_ns = now_ns + LOOK_NS
        self._gauge.look(now_ns, self._pids(self._pool.workers))
        self._conclude(now_ns)
        self._watched = {s.reference: self._watch(s) for s in elastic}
        for spec in elastic:
            watched = self._watched[spec.reference]
            reading = self._read(spec, watched, now_ns)
            decision = watched.scaler.step(reading)
            if not self._changes.idle:
                continue
            if decision is not None:
                self._begin(spec, watched, decision, reading)
            elif not watched.scaler.holds(now_ns):
                watched.block.want(spec.running)

    def pause(self) -> None:
        """Something has failed as nobody expected: decide nothing for a while."""
        self._pending = None
        self.next_ns = self._clock_ns() + PAUSE_NS

    def _watch(self, spec: ModelSpec) -> _Watched:
        rules = rules_of(self._served.models[spec.reference])
        watched = self._watched.get(spec.reference)
        if watched is None:
            block = Scalings(self._segment.words, self._segment.layout, spec.account)
            block.open()
            watched = _Watched(Scaler(rules), block)
        watched.scaler.rules = rules
        return watched

    def _read(self, spec: ModelSpec, watched: _Watched, now_ns: int) -> Reading:
        segment, words = self._segment, self._segment.words
        first = segment.layout.model(spec.index)
        counted = Counted(words, segment.layout, spec.account)
        watched.full_ns = watched.full_ns or self._full_ns(spec)
        ready = words[first + ModelWords.READY]
        # Of no idle worker it says nothing, of others how much each instance adds.
        cycle_ns = words[first + ModelWords.ROW_NS] * spec.cap * ready
        return Reading(
            now_ns=now_ns,
            wait_ns=words[first + ModelWords.ANSWER_NS],
            cycle_ns=cycle_ns,
            full_ns=max(watched.full_ns, cycle_ns),
            batch_rows=spec.cap,
            rows=counted[ModelCounter.ROWS],
            run_ns=counted[ModelCounter.RUN_NS],
            running=spec.running,
            ready=ready,
            start_ns=watched.start_ns,
        )

    def _full_ns(self, spec: ModelSpec) -> int:
        trials = [t for n in spec.workers for t in cost_profile.read(self._segment, n)]
        return max((trial.run_ns for trial in trials if trial.rows == spec.cap), default=0)

    def _begin(
        self, spec: ModelSpec, watched: _Watched, decision: Decision, reading: Reading
    ) -> None:
        """Have a decision carried out, or say why not."""
        goes_up = decision.cause.direction == "up"
        if not goes_up and not self._are_ready(spec.workers[: decision.workers + spec.spares]):
            return
        watched.block.want(decision.workers)
        if goes_up:
            decision = bounded(decision, spec.running, self._rooms(spec, decision.workers))
        watched.block.count(decision.cause)
        if decision.workers == spec.running:
            watched.refused(spec.running, reading.now_ns)
            _log(spec, watched, decision, reading, logging.WARNING)
            return
        _log(spec, watched, decision, reading, logging.INFO)
        self._pending = _Pending(spec.reference, decision, reading.now_ns)
        self._changes.scale(spec.reference, decision.workers)

    def _rooms(self, spec: ModelSpec, wanted: int) -> list[Room]:
        """What `bounded` asks for: workers here and those that drive actors take unlike much."""
        model = self._served.models[spec.reference]
        far = {*spec.remote}
        here = [number for number in spec.workers if number not in far]
        rooms = {
            False: self._gauge.room(self._pids(here)),
            True: self._gauge.room(self._pids(spec.remote)),
        }
        return [rooms[model.is_in_ray(index)] for index in range(spec.running, wanted)]

    def _conclude(self, now_ns: int) -> None:
        """Take note of what has become of the last decision."""
        if self._pending is None or not self._changes.idle:
            return
        (reference, decision, since_ns), self._pending = self._pending, None
        watched = self._watched.get(reference)
        spec = next((s for s in self._served.entries if s.reference == reference), None)
        if watched is None or spec is None or not spec.most:
            return
        if spec.running != decision.workers:
            watched.block.count(Cause.FAILED)
            watched.refused(spec.running, now_ns)
            return
        watched.block.succeed()
        watched.scaler.carried_out(decision, now_ns)
        if decision.cause.direction == "up":
            watched.start_ns = now_ns - since_ns

    def _are_ready(self, numbers: Collection[int]) -> bool:
        slots = [self._pool.workers[number] for number in numbers]
        return all(slot.child is not None and slot.ready_ns for slot in slots)

    def _pids(self, numbers: Collection[int]) -> list[int]:
        slots = [self._pool.workers[number] for number in numbers if number in self._pool.workers]
        return [slot.child.pid for slot in slots if slot.child is not None]


def rules_of(model: ModelConfig) -> Rules:
    """What is configured for one model."""
    return Rules(
        fewest=model.fewest_workers,
        most=model.most_workers,
        target_ns=int((model.target_wait_ms or 0) * _NS_PER_MS),
        timeout_ns=int(model.timeout_s * 1e9),
        up_after_ns=int(model.scale_up_after_s * 1e9),
        down_after_ns=int(model.scale_down_after_s * 1e9),
    )


def _log(
    spec: ModelSpec, watched: _Watched, decision: Decision, reading: Reading, level: int
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
