"""The models of the table and their workers, as the collector keeps them while the table changes.

The supervisor publishes a table; the collector follows it. A model that retires keeps its workers
until every frontend has said that it knows of it and nothing of the model is left. A worker that is
in the table no longer keeps its batch until it has reported it. What comes later still is for the
entry that took the model's place, if that takes and returns the same.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, NamedTuple

from ringbatch.engine.collector.backlog import NOTHING, Backlog
from ringbatch.engine.collector.batching import Policy
from ringbatch.engine.collector.costs import costs_ns, full_batch_ns
from ringbatch.engine.collector.grouping import Grouping
from ringbatch.engine.collector.health import ModelHealth
from ringbatch.engine.collector.lingering import Lingering
from ringbatch.engine.collector.passing import at_step
from ringbatch.engine.collector.queues import Key, Queues, RetryQueue
from ringbatch.engine.collector.sides import Sides
from ringbatch.shm.chain import asked, reference_in, step_in
from ringbatch.shm.cost_profile import Trial
from ringbatch.shm.descriptors import TASK_WORDS, HeaderWords, LaneWords, ModelWords
from ringbatch.shm.engine_port import BatchMark, Request
from ringbatch.shm.model_counters import Accounts, ModelCounters
from ringbatch.shm.model_spec import RETIRING, SERVING, ModelSpec, defaults
from ringbatch.shm.ring import Producer
from ringbatch.shm.segment import Segment

NEXT_UP_TO_NS: Final = 20_000_000
"""Batches that take longer lose nothing that counts between two of them."""
NEXT_FROM_NS: Final = 1_000_000
"""For shorter ones, to ring while the worker is busy costs more than it brings."""
PATIENCE_NS: Final = 10_000_000_000
"""How long a frontend that is stopped can keep a retiring model alive."""
_MODEL_TABLE: Final = HeaderWords.MODEL_TABLE
_REMEMBERED: Final = 256
"""Entries that are gone and may still have a successor."""
_UNBOUNDED: Final = Policy(1, 0, eager=True)


class Batch(NamedTuple):
    """What a worker was given to run."""

    mark: BatchMark
    requests: list[Request]


@dataclass(slots=True, eq=False)
class Worker:
    """One worker, as the collector knows it.

    Attributes:
        number: which.
        model: that it holds.
        tasks: to it.
        wake: rings it.
        remote: whether an actor elsewhere holds its model.
        ready: whether it takes tasks.
        ending: it was taken for hung; what it answers until its end still counts.
        leaving: the table has it no longer; it finishes its batch and gets no other.
        batches: what it holds: the one it runs, and perhaps one to run next.
        began_ns: when it began with the first.
        limit_ns: when that has run too long.
    """

    number: int
    model: "Model"
    tasks: Producer
    wake: Callable[[], object]
    remote: bool = False
    ready: bool = False
    ending: bool = False
    leaving: bool = False
    batches: list[Batch] = field(default_factory=list)
    began_ns: int = 0
    limit_ns: int = 0


@dataclass(slots=True, eq=False)
class Model:
    """One entry of the table, and what the collector holds of it.

    Attributes:
        spec: the entry.
        policy: how its batches are formed.
        counters: its block.
        most_rows: of any request; frontends may still cut by a larger limit of before.
        grouping: which of its requests may share a batch.
        queues: what waits.
        health: says in the segment how its workers are.
        retries: what runs once more, before anything that has not run yet.
        lingering: whether its clients come back at once, and a batch waits for them.
        sides: what batches take here and elsewhere; None where it has not both.
        idle: workers without a batch, those elsewhere in front.
        spares: workers that are ready and wait for the death of another.
        busy: workers with one batch, the one that began first in front.
        ready: how many workers run batches now, or could.
        running: how many of them the entry wants.
        service_ns: of a run, of late.
        cycle_ns: from dispatch to report, of late; before the first report, what warm-up took.
        backlog: as it was published last.
        answer_word: where its time to an answer stands.
        row_word: where its time for every instance stands.
        taken_requests: requests taken in since they were last counted.
        taken_rows: instances in them.
        drained: whether the supervisor was told that nothing of it is left.
    """

    spec: ModelSpec
    policy: Policy
    counters: ModelCounters
    most_rows: int
    grouping: Grouping
    queues: Queues
    health: ModelHealth
    answer_word: int
    row_word: int
    retries: RetryQueue = field(default_factory=RetryQueue)
    lingering: Lingering = field(default_factory=Lingering)
    sides: Sides | None = None
    idle: list[Worker] = field(default_factory=list)
    busy: list[Worker] = field(default_factory=list)
    spares: list[Worker] = field(default_factory=list)
    ready: int = 0
    running: int = 0
    service_ns: int = 0
    cycle_ns: int = 0
    backlog: Backlog = NOTHING
    taken_requests: int = 0
    taken_rows: int = 0
    drained: bool = False

    @property
    def retiring(self) -> bool:
        """Whether it gets no new requests."""
        return self.spec.state == RETIRING

    def adjust(self, spec: ModelSpec) -> None:
        """Take over an entry that says something new of the same model."""
        self.spec = spec
        self.most_rows = max(self.most_rows, spec.cap)
        self.policy = _bounded(self.policy, spec)
        self.health.held_by(spec.workers)
        if _has_both(spec) != (self.sides is not None):
            self.sides = Sides() if self.sides is None else None
        self.running = spec.running
        while self.idle and self.ready > self.running:
            self.rest(self.idle.pop())
        self._fill_up()

    def take_in(self, key: Key, requests: Sequence[Request], rows: int, earliest_ns: int) -> None:
        """Have requests wait; the arguments are those of `Queues.extend`."""
        self.queues.extend(key, requests, rows, earliest_ns)
        if self.lingering.watching:
            self.lingering.came(requests)
        self.taken_requests += len(requests)
        self.taken_rows += rows

    def join(self, worker: Worker) -> None:
        """A worker has loaded the model."""
        self._count(self.ready + 1)
        if not worker.batches:
            self.rest(worker)

    def rest(self, worker: Worker) -> None:
        """A worker has no batch; where enough others run, it waits as a spare."""
        if self.ready > self.running:
            self._count(self.ready - 1)
            self.spares.append(worker)
        elif worker.remote:
            self.idle.insert(0, worker)
        else:
            self.idle.append(worker)

    def leave(self, worker: Worker) -> None:
        """A worker that was ready gets no further batch; a spare goes on in its place."""
        if worker in self.spares:
            self.spares.remove(worker)
        else:
            self._count(self.ready - 1)
            self.let_go(worker)
            self._fill_up()

    def _fill_up(self) -> None:
        while self.spares and self.ready < self.running:
            self._count(self.ready + 1)
            self.idle.append(self.spares.pop(0))

    def _count(self, ready: int) -> None:
        self.ready = ready
        self.health.ready(ready)

    def let_go(self, worker: Worker) -> None:
        """Give a worker no batch, until it is put among the idle or the busy again."""
        for workers in (self.idle, self.busy):
            if worker in workers:
                workers.remove(worker)

    @property
    def takes_next(self) -> bool:
        """Whether its worker, busy and the only one, may be given a batch to run next.

        A full one loses nothing by it: it cannot grow, and no other worker could be free sooner.
        What is given up meanwhile, the worker leaves out.
        """
        return (
            bool(self.busy)
            and self.ready == 1
            and not self.retries
            and 0 < self.cycle_ns <= NEXT_UP_TO_NS
        )

    @property
    def wants_next(self) -> bool:
        """Whether that pays so much that requests are to ring for it."""
        return self.takes_next and self.cycle_ns >= NEXT_FROM_NS

    def learn(self, tried: list[Trial]) -> None:
        """Take what a worker's warm-up took for what batches take, until they are measured."""
        costs = costs_ns(tried, self.policy.sizes)
        if costs:
            self.policy = replace(self.policy, costs_ns=costs)
        self.cycle_ns = self.cycle_ns or full_batch_ns(tried)
        self.lingering.learn(tried)

    def waiting(self) -> Iterator[Request]:
        """Everything that waits."""
        yield from self.retries
        for queue in self.queues:
            yield from queue

    def empty(self) -> list[Request]:
        """Remove everything that waits."""
        waiting = []
        while self.retries:
            waiting += self.retries.take()
        for queue in self.queues:
            waiting += queue.empty()
        self.queues.drop_empty()
        return waiting


@dataclass(slots=True, eq=False)
class ChainModel(Model):
    """An entry whose steps other models run: it has no workers, and its requests wait at its steps.

    Attributes:
        steps: the model of each; None where none serves, which the supervisor does not allow.
        words: what is asked of each.
        key_starts: where the key of each is in a request's result memory.
        key_bytes: of each.
    """

    steps: list[Model | None] = field(default_factory=list)
    words: list[int] = field(default_factory=list)
    key_starts: tuple[int, ...] = ()
    key_bytes: list[int] = field(default_factory=list)

    def follow(self, models: Sequence[Model]) -> None:
        """Take the models that serve now for its steps."""
        found = self.spec.chain
        assert found is not None, "only a chain has steps"
        of_version = {(m.spec.name, m.spec.version): m for m in models}
        for name, spec in defaults(model.spec for model in models).items():
            of_version[name, ""] = of_version[name, spec.version]
        self.steps = [of_version.get((step.model, step.version)) for step in found.steps]
        self.words = [asked(self.spec.reference, n) for n in range(len(found.steps))]
        self.key_starts = found.key_starts
        self.key_bytes = [step.key_bytes for step in found.steps]

    def take_in(self, key: Key, requests: Sequence[Request], rows: int, earliest_ns: int) -> None:
        """As in `Model`: they wait for the first step. The key is not looked at."""
        self.taken_requests += len(requests)
        self.taken_rows += rows
        size = self.key_bytes[0]
        if requests[0].key_bytes != size:
            # Tensors for later steps have open dimensions too, behind those of the first.
            requests = [
                request._replace(key_bytes=min(size, request.key_bytes)) for request in requests
            ]
        self._enter(0, requests)

    def pass_on(self, requests: Sequence[Request], now_ns: int) -> None:
        """Have requests wait for the step after that which they were at, from now on."""
        number = step_in(requests[0].model) + 1
        word, start, size = self.words[number], self.key_starts[number], self.key_bytes[number]
        self._enter(number, at_step(requests, word, start, size, now_ns))

    def _enter(self, number: int, requests: Sequence[Request]) -> None:
        model, word = self.steps[number], self.words[number]
        if model is None:
            for request in requests:
                self.queues.extend(b"", [request], request.rows, request.deadline_ns)
            return
        groups: dict[bytes, list[Request]] = {}
        if self.key_bytes[number]:
            for request in requests:
                key = model.grouping.key(request) if request.key_bytes else b""
                groups.setdefault(key, []).append(request)
        else:
            groups[b""] = [*requests]
        for key, own in groups.items():
            rows = sum([request.rows for request in own])
            model.take_in((word, key), own, rows, min([request.deadline_ns for request in own]))


class ModelPool:
    """The models of a segment's table, and their workers.

    Attributes:
        models: by reference.
        workers: by number; also those that leave and are not gone.
        retiring: those of the models that retire.
        leaving: those of the workers that leave.
        replaced: workers whose numbers others have; so they have died, and what they held is to be
            taken back.
    """

    def __init__(self, segment: Segment, wake_worker: Callable[[int], None]) -> None:
        self._segment = segment
        self._words = segment.words
        self._wake_worker = wake_worker
        self._number = 0
        self._gone: dict[int, ModelSpec] = {}
        self._accounts = Accounts(segment.words, segment.layout)
        self._patient_until_ns = 0
        self.models: dict[int, Model] = {}
        self.workers: dict[int, Worker] = {}
        self.retiring: list[Model] = []
        self.leaving: list[Worker] = []
        self.replaced: list[Worker] = []

    @property
    def outdated(self) -> bool:
        """Whether there is another table by now."""
        outdated: bool = self._words[_MODEL_TABLE] != self._number
        return outdated

    def follow(self, now_ns: int) -> list[Model]:
        """Take over the table that holds now; the models that are no longer in it."""
        self._number = self._segment.read_models()
        specs = {spec.reference: spec for spec in self._segment.models}
        gone = [self.models.pop(reference) for reference in self.models.keys() - specs.keys()]
        for model in gone:
            self._remember(model.spec)
        for reference, spec in specs.items():
            if reference in self.models:
                self.models[reference].adjust(spec)
            else:
                self.models[reference] = _new_model(
                    self._segment, spec, self._accounts.of(spec.account), now_ns
                )
        self._follow_chains()
        holders = {n: self.models[spec.reference] for spec in specs.values() for n in spec.workers}
        for number, worker in list(self.workers.items()):
            if worker.leaving or holders.get(number) is not worker.model:
                self._dismiss(worker)
                if number in holders:
                    self.remove(worker)
                    self.replaced.append(worker)
        for number in sorted(holders.keys() - self.workers.keys()):
            self.workers[number] = self._new_worker(number, holders[number])
        retiring = [model for model in self.models.values() if model.retiring]
        if len(retiring) > len(self.retiring):
            self._patient_until_ns = now_ns + PATIENCE_NS
        self.retiring = retiring
        return gone

    def _follow_chains(self) -> None:
        """Find the models of all steps. Chains stand behind the models that run them."""
        chains = [model for model in self.models.values() if isinstance(model, ChainModel)]
        if chains:
            models = [model for model in self.models.values() if not isinstance(model, ChainModel)]
            for chain in chains:
                chain.follow([model for model in models if model.spec.state == SERVING])
                self.models[chain.spec.reference] = self.models.pop(chain.spec.reference)

    def chain(self, word: int) -> ChainModel | None:
        """The chain of which a step is asked; None where there is none."""
        model = self.models.get(reference_in(word))
        return model if isinstance(model, ChainModel) else None

    def acknowledged(self, now_ns: int) -> bool:
        """Whether no frontend sends requests to a retiring model any more; what was sent before is
        found by who looks after this."""
        if now_ns >= self._patient_until_ns:
            return True
        layout, words = self._segment.layout, self._segment.words
        return not any(
            words[layout.lane(lane) + LaneWords.MODEL_TABLE] < self._number
            and self._segment.lane_is_held(lane)
            for lane in range(layout.frontend_lanes)
        )

    def busy(self, model: Model) -> bool:
        """Whether requests to a model wait or run."""
        if isinstance(model, ChainModel):
            return self._on_their_way(model.spec.reference)
        held = (worker.batches for worker in self.workers.values() if worker.model is model)
        return bool(model.queues or model.retries) or any(held)

    def _on_their_way(self, reference: int) -> bool:
        """Whether requests for a chain wait or run at any of its steps."""
        held = (b.requests for worker in self.workers.values() for b in worker.batches)
        found = [*held, *(model.waiting() for model in self.models.values())]
        return any(reference_in(r.model) == reference for requests in found for r in requests)

    def heir(self, reference: int) -> Model | None:
        """The model in the place of one that is gone, if there is any."""
        gone = self._gone.get(reference)
        return None if gone is None else self.successor(gone)

    def successor(self, spec: ModelSpec) -> Model | None:
        """The model that serves in the place of one that does so no longer."""
        return next((m for m in self.models.values() if _succeeds(m.spec, spec)), None)

    def left_over(self, number: int, reference: int) -> Worker | None:
        """A worker that the table has no longer, and that still lives or has yet to be reclaimed.

        Args:
            number: the worker's.
            reference: of the model that it holds; None is returned where there is none of that.
        """
        model = self.models.get(reference)
        if model is None:
            return None
        worker = self.workers[number] = self._new_worker(number, model)
        self._dismiss(worker)
        return worker

    def remove(self, worker: Worker) -> None:
        """Forget a worker that leaves and holds no batch."""
        self.leaving.remove(worker)
        del self.workers[worker.number]

    def _dismiss(self, worker: Worker) -> None:
        if not worker.leaving:
            worker.leaving = True
            self.leaving.append(worker)
            if worker.ready:
                worker.model.leave(worker)

    def _new_worker(self, number: int, model: Model) -> Worker:
        layout, words = self._segment.layout, self._segment.words
        return Worker(
            number,
            model,
            Producer(words, layout.task_ring(number), TASK_WORDS),
            partial(self._wake_worker, number),
            remote=number in model.spec.remote,
        )

    def _remember(self, spec: ModelSpec) -> None:
        self._gone[spec.reference] = spec
        if len(self._gone) > _REMEMBERED:
            del self._gone[next(iter(self._gone))]


def _new_model(segment: Segment, spec: ModelSpec, counters: ModelCounters, now_ns: int) -> Model:
    words, layout = segment.words, segment.layout
    grouping = Grouping(spec, segment.memory)
    kind = Model if spec.chain is None else ChainModel
    return kind(
        spec,
        _bounded(_UNBOUNDED, spec),
        counters,
        spec.cap,
        grouping,
        Queues(grouping.fitting if grouping.bounded else None),
        ModelHealth(words, layout.model(spec.index), spec.workers, now_ns),
        layout.model(spec.index) + ModelWords.ANSWER_NS,
        layout.model(spec.index) + ModelWords.ROW_NS,
        running=spec.running,
        sides=Sides() if _has_both(spec) else None,
    )


def _has_both(spec: ModelSpec) -> bool:
    return 0 < len(spec.remote) < len(spec.workers)


def _bounded(policy: Policy, spec: ModelSpec) -> Policy:
    """A policy with the bounds of an entry."""
    return replace(
        policy,
        max_batch_size=spec.cap,
        max_latency_ns=spec.max_latency_ns,
        eager=spec.policy == "eager",
        sizes=spec.allowed_batch_sizes,
    )


def _succeeds(spec: ModelSpec, other: ModelSpec) -> bool:
    if spec.chain is not None or other.chain is not None:
        # A request at one of its steps is for that chain alone.
        return False
    return spec.state == SERVING and all(
        getattr(spec, what) == getattr(other, what)
        for what in ("name", "version", "inputs", "outputs", "batched")
    )
