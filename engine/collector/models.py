"""Models of the table and their workers in the collector: queues, batches, times."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from ringbatch.engine.collector.agenda import Agenda
from ringbatch.engine.collector.backlog import NOTHING, Backlog, estimate
from ringbatch.engine.collector.backlog_words import BacklogWords
from ringbatch.engine.collector.batch_times import BatchTimes
from ringbatch.engine.collector.batching import Policy, bounded
from ringbatch.engine.collector.cost_estimate import costs_ns, full_batch_ns
from ringbatch.engine.collector.grouping import Grouping
from ringbatch.engine.collector.health import ModelHealth
from ringbatch.engine.collector.lingering import Lingering
from ringbatch.engine.collector.queue import Key
from ringbatch.engine.collector.queues import Queues
from ringbatch.engine.collector.retries import RetryQueue
from ringbatch.engine.ipc.shaping import padded_rows
from ringbatch.shm.account import MIXED, NOBODY
from ringbatch.shm.cost_profile import Trial
from ringbatch.shm.device_pace import Pace
from ringbatch.shm.engine_slots import BatchMark, Request
from ringbatch.shm.model_counters import ModelCounters
from ringbatch.shm.model_spec import RETIRING, ModelSpec
from ringbatch.shm.readiness import ModelState
from ringbatch.shm.ring import Producer
from ringbatch.shm.slot import Reason
from ringbatch.shm.tuples import unchecked_tuple

NEXT_UP_TO_NS: Final = 20_000_000
"""Longest cycle in ns with a next batch: longer ones lose little between two of them."""
NEXT_FROM_NS: Final = 1_000_000
"""Shortest cycle in ns with a next batch: in a shorter one its wake-ups cost more than it saves."""


class Batch(NamedTuple):
    """Batch that a worker was given to run.

    Attributes:
        costs: of its requests, if they share its time by more than rows.
        priority: their class, or `MIXED`.
    """

    mark: BatchMark
    requests: list[Request]
    costs: list[float] | None = None
    priority: int = MIXED


class Place(NamedTuple):
    """Place of a request that waits, or that waited until a worker got it.

    Attributes:
        model: the model that runs it.
        key: of its queue; None if it waits among the retries.
    """

    model: "Model"
    key: Key | None


InFlight = dict[int, Place | None]
"""Places of the requests taken in and not yet answered, by reference; None for requests that
this collector has never put into a queue."""


@dataclass(slots=True, eq=False)
class Worker:
    """Worker as the collector knows it: its model, its task ring, and the batches that it holds.

    Attributes:
        number: the worker's number.
        model: the model that it holds.
        tasks: the ring of its tasks.
        wake: rings its doorbell.
        remote: whether an actor elsewhere holds its model.
        ready: whether it takes tasks.
        ending: it was taken for hung; what it answers until its end still counts.
        leaving: the table has it no longer; it finishes its batch and gets no other.
        batches: the batch that it runs, and perhaps one to run next. Of a model in steps,
            all that run, in the order in which they were given.
        most_rows: returns how many rows of a model in steps it can hold by their costs, by its own
            word; 0 if these set no limit.
        left_out: requests of the one it runs that it has answered without running them.
        began_ns: when it began with the first.
        lead_ns: how long before the end of its batch it wants the next one; 0 if at the end.
        next_ns: while it is busy with one batch, the instant from which it takes the next one; 0 if
            it takes none.
    """

    number: int
    model: "Model"
    tasks: Producer
    wake: Callable[[], object]
    most_rows: Callable[[], int]
    remote: bool = False
    ready: bool = False
    ending: bool = False
    leaving: bool = False
    batches: list[Batch] = field(default_factory=list)
    left_out: int = 0
    began_ns: int = 0
    lead_ns: int = 0
    next_ns: int = 0

    @property
    def places(self) -> int:
        """Rows of a model in steps that it runs at once, each a batch; 0 for any other model."""
        return self.model.spec.places

    @property
    def has_place(self) -> bool:
        """True if it may be given a batch now.

        Nothing joins requests that run again: one of them may kill the worker.
        """
        if not self.batches:
            return True
        if not self.places or self.batches[0].mark.reason is Reason.RETRY:
            return False
        return self.free_places > 0

    @property
    def row_places(self) -> int:
        """As `places`, and no more than costs allow."""
        most_rows = self.most_rows()
        return min(self.places, most_rows) if most_rows else self.places

    @property
    def free_places(self) -> int:
        """Rows of a model in steps that it may be given now."""
        # Its word may have fallen since it was listed among the idle.
        return max(self.row_places - len(self.batches), 0)

    def find(self, batch: int) -> int:
        """Return the place among its batches of the one that it may report; -1 if there is none.

        Args:
            batch: the number that it reports.
        """
        batches = self.batches
        if batches and batches[0].mark.batch == batch:
            return 0
        numbers = [one.mark.batch for one in batches] if self.places else ()
        return numbers.index(batch) if batch in numbers else -1


@dataclass(slots=True, eq=False)
class Roster:
    """Workers of a model by what they do: wait for a batch, run one, or wait as spares.

    Attributes:
        health: says in the segment how many run batches.
        running: how many of them the model's entry wants.
        places: rows of a model in steps that each runs at once; 0 for any other model.
        ready: how many run batches now, or could.
        idle: workers without a batch, those elsewhere in front. Of a model in steps, the workers
            with a free place.
        busy: workers with one batch, the one that began first in front.
        spares: workers that are ready and wait for the death of another.
        row_places: of one worker of a model in steps, as the one that was listed last has them.
    """

    health: ModelHealth
    running: int
    places: int
    ready: int = 0
    idle: list[Worker] = field(default_factory=list)
    busy: list[Worker] = field(default_factory=list)
    spares: list[Worker] = field(default_factory=list)
    row_places: int = 0

    def adjust(self, running: int, places: int) -> None:
        """Take over what the model's entry wants now."""
        self.running, self.places = running, places
        surplus = max(self.ready - running, 0)
        for worker in self.idle[::-1][:surplus]:
            self.idle.remove(worker)
            self.mark_idle(worker)
        self._fill_up()

    def add(self, worker: Worker) -> None:
        """Add a worker that has loaded the model."""
        self._count(self.ready + 1)
        if worker.has_place:
            self.mark_idle(worker)

    def mark_idle(self, worker: Worker) -> None:
        """Mark a worker idle, or as a spare if enough others run.

        A worker of a model in steps becomes a spare once all of its rows have ended.
        """
        if self.ready > self.running:
            if worker.batches:
                return
            self._count(self.ready - 1)
            self.spares.append(worker)
        else:
            self._wait(worker)

    def remove(self, worker: Worker) -> None:
        """Remove a worker that was ready; a spare goes on in its place."""
        if worker in self.spares:
            self.spares.remove(worker)
        else:
            self._count(self.ready - 1)
            self.mark_unavailable(worker)
            self._fill_up()

    def _fill_up(self) -> None:
        while self.spares and self.ready < self.running:
            here = (number for number, spare in enumerate(self.spares) if not spare.remote)
            self._count(self.ready + 1)
            self._wait(self.spares.pop(next(here, 0)))

    def _wait(self, worker: Worker) -> None:
        """Put a worker among the idle; those elsewhere are given something last."""
        self.idle.insert(0 if worker.remote else len(self.idle), worker)

    def _count(self, ready: int) -> None:
        self.ready = ready
        self.health.publish_worker_count(ready)
        if ready:
            self.health.publish_state(ModelState.SERVING)

    def take_idle(self) -> Worker:
        """Remove and return the worker for the next batch.

        In steps it is one without rows, which alone may get what runs again; or else the one with
        most free places.
        """
        if not self.places:
            return self.idle.pop()
        worker = max(self.idle, key=_emptiness)
        self.idle.remove(worker)
        return worker

    def list_place(self, worker: Worker) -> None:
        """List a worker of a model in steps among the idle while it has a free place."""
        if worker.ready and not (worker.ending or worker.leaving or worker in self.spares):
            self.mark_unavailable(worker)
            self.row_places = worker.row_places
            if worker.has_place:
                self.mark_idle(worker)

    def mark_unavailable(self, worker: Worker) -> None:
        """Give a worker no batch until it is idle or busy again."""
        for workers in (self.idle, self.busy):
            if worker in workers:
                workers.remove(worker)


@dataclass(slots=True, eq=False)
class Model:
    """Model as the collector knows it: an entry of the model table, with its queues and workers.

    Attributes:
        spec: the entry.
        reference: of the entry.
        agenda: gets the model when its state changes.
        policy: how its batches are formed.
        counters: its block.
        most_rows: of any request; frontends may still cut by a larger limit of before.
        grouping: which of its requests may share a batch.
        queues: the requests that wait.
        health: says in the segment how its workers are.
        roster: its workers, by what they do.
        retries: what runs once more, before anything that has not run yet.
        lingering: whether its clients come back at once, and a batch waits for them.
        times: of its batches.
        backlog_words: where frontends read its backlog.
        backlog: as it was published last.
        since_ns: since when its queue has not been empty; 0 if it is, or may be for ever.
        in_flight: the requests of all models, shared with the pool.
        taken_requests: requests taken in since they were last counted.
        taken_rows: instances in them.
        until_ns: the instant of the next look without a change, as the agenda has it.
        rings: whether its requests wake the collector, as the agenda has it.
        chains: references of the chains that have it as a step.
        drained: whether the supervisor knows that nothing of it is left.
    """

    spec: ModelSpec
    reference: int
    agenda: Agenda
    policy: Policy
    counters: ModelCounters
    most_rows: int
    grouping: Grouping
    queues: Queues
    health: ModelHealth
    roster: Roster
    backlog_words: BacklogWords
    in_flight: InFlight
    retries: RetryQueue = field(default_factory=RetryQueue)
    lingering: Lingering = field(default_factory=Lingering)
    times: BatchTimes = field(default_factory=BatchTimes)
    backlog: Backlog = NOTHING
    taken_requests: int = 0
    taken_rows: int = 0
    until_ns: int | None = None
    rings: bool = False
    chains: tuple[int, ...] = ()
    drained: bool = False
    since_ns: int = 0

    @property
    def retiring(self) -> bool:
        """True if it gets no new requests."""
        return self.spec.state == RETIRING

    def adjust(self, spec: ModelSpec) -> None:
        """Take over an entry that says something new of the same model."""
        self.spec = spec
        self.most_rows = max(self.most_rows, spec.cap)
        self.policy = bounded(self.policy, spec)
        self.health.set_workers(spec.workers)
        self.times.adjust(spec)
        self.roster.adjust(spec.running, spec.places)

    def take_in(
        self,
        key: Key,
        requests: Sequence[Request],
        rows: int,
        earliest_ns: int,
        words: Sequence[int],
    ) -> None:
        """Queue requests that are in `in_flight`; the arguments are those of `Queues.extend`."""
        self.agenda.add(self.reference)
        self.queues.extend(key, requests, rows, earliest_ns, words)
        if self.lingering.watching:
            self.lingering.came(requests)
        self.taken_requests += len(requests)
        self.taken_rows += rows

    def place(self, key: Key | None) -> Place:
        """Return the place of requests with a key."""
        return unchecked_tuple(Place, (self, key))

    def remove(self, key: Key | None, ref: int) -> Request | None:
        """Remove and return a request, by the key of its `Place`; None if it does not wait."""
        self.agenda.add(self.reference)
        return self.retries.remove(ref) if key is None else self.queues.remove(key, ref)

    def expected(
        self, rows: int, least_rows: int = 0, account: int = NOBODY, most_ns: int = 0
    ) -> Backlog:
        """Return the backlog if so many instances wait; the arguments are those of `estimate`."""
        roster, size = self.roster, self.policy.max_batch_size
        ready, idle = roster.ready, len(roster.idle)
        behind = ready - idle - len(roster.busy)
        if roster.places:
            # A place is to a model in steps what a worker is to any other.
            ready *= roster.row_places or roster.places
            idle = min(sum([worker.free_places for worker in roster.idle]), ready)
            size, behind = 1, 0
        cycle_ns = self.times.cycle_ns
        return estimate(rows, size, idle, ready, cycle_ns, behind, least_rows, account, most_ns)

    def turned_away(self, rows: int) -> None:
        """Count a request that is refused.

        It counts as well as an arrival: further parts, of which it may be one, are subtracted from
        these.
        """
        self.agenda.add(self.reference)
        self.taken_requests += 1
        self.taken_rows += rows

    def run_again(self, groups: Iterable[list[Request]]) -> None:
        """Queue groups of requests for another run; no group is empty."""
        self.agenda.add(self.reference)
        place = self.place(None)
        for group in groups:
            self.retries.add([group])
            self.in_flight.update(dict.fromkeys([request.ref for request in group], place))

    @property
    def takes_next(self) -> bool:
        """True if its worker, busy and the only one, may be given a batch to run next.

        A full one loses nothing by it: it cannot grow, and no other worker could be free sooner.
        The worker leaves out requests that are given up meanwhile.
        """
        busy = self.roster.busy
        return (
            bool(busy)
            and self.roster.ready == 1
            and not self.retries
            and 0 < self.times.cycle_ns <= NEXT_UP_TO_NS
            and (not busy[0].lead_ns or busy[0].next_ns > 0)
        )

    @property
    def next_ns(self) -> int | None:
        """The instant from which a busy worker takes its next batch; None if none does.

        A lone worker takes none early if its clients come back, and to wait for them pays.
        """
        if self.times.by_size is None or self.roster.idle or self.retries:
            return None
        if self.roster.ready == 1 and self.lingering.pays:
            return None
        return min([worker.next_ns for worker in self.roster.busy if worker.next_ns], default=None)

    def take_busy(self) -> Worker:
        """Remove and return the busy worker that the next batch goes to."""
        busy = self.roster.busy
        if self.times.by_size is None:
            return busy.pop(0)
        worker = min(busy, key=_next_first)
        busy.remove(worker)
        return worker

    def expect_end(self, worker: Worker) -> None:
        """Set `next_ns` of a worker that begins with a batch, by the time that it should take.

        Nothing joins requests that run again: one of them may kill the worker.
        """
        mark, times = worker.batches[0].mark, self.times
        worker.next_ns = 0
        if mark.reason is not Reason.RETRY and times.by_size is not None:
            rows = padded_rows(mark.rows, self.policy.sizes)
            took_ns = times.by_size.of(rows) or times.cycle_ns
            worker.next_ns = worker.began_ns + max(took_ns - worker.lead_ns, 0)

    @property
    def wants_next(self) -> bool:
        """True if a next batch pays so much that requests are to wake the collector for it."""
        return self.times.cycle_ns >= NEXT_FROM_NS and self.takes_next

    def learn(self, worker: Worker, tried: list[Trial], pace: Pace) -> None:
        """Take a worker's pace, and its warm-up for what batches take until they are measured."""
        worker.lead_ns = pace.lead_ns
        sizes = sorted({trial.rows for trial in tried})
        if pace.sizes and len(sizes) == pace.sizes:
            self.policy = replace(self.policy, sizes=tuple(sizes))
        costs = costs_ns(tried, self.policy.sizes)
        if costs:
            self.policy = replace(self.policy, costs_ns=costs)
        self.times.learn(full_batch_ns(tried), pace.lead_ns)
        self.lingering.learn(tried)

    def waiting(self) -> Iterator[Request]:
        """Yield all waiting requests."""
        yield from self.retries
        for queue in self.queues:
            yield from queue

    def empty(self) -> list[Request]:
        """Remove everything that waits."""
        waiting = []
        while self.retries:
            waiting += self.retries.take()
        return waiting + self.queues.empty()


def _next_first(worker: Worker) -> tuple[bool, int]:
    return not worker.next_ns, worker.next_ns


def _emptiness(worker: Worker) -> tuple[bool, int]:
    return not worker.batches, worker.free_places
