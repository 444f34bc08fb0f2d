"""The models of the table and their workers, as the collector keeps them while the table changes.

The supervisor publishes a table; the collector follows it. A model that retires keeps its workers
until every frontend has said that it knows of it and nothing of the model is left. A worker that is
in the table no longer keeps its batch until it has reported it. What comes later still is for the
entry that took the model's place, if that takes and returns the same.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from ringbatch.engine.collector.agenda import Agenda
from ringbatch.engine.collector.backlog_words import BacklogWords
from ringbatch.engine.collector.batch_times import BatchTimes
from ringbatch.engine.collector.batching import Policy, bounded
from ringbatch.engine.collector.chain_model import ChainModel
from ringbatch.engine.collector.grouping import Grouping
from ringbatch.engine.collector.health import ModelHealth
from ringbatch.engine.collector.models import InFlight, Model, Roster, Worker
from ringbatch.engine.collector.queues import Queues
from ringbatch.shm.chain import reference_in
from ringbatch.shm.descriptors import (
    BEAT_S,
    TASK_WORDS,
    HeaderWords,
    LaneWords,
    WorkerWords,
)
from ringbatch.shm.memory_order import load_acquire
from ringbatch.shm.model_counters import CounterBlocks, ModelCounters
from ringbatch.shm.model_spec import SERVING, ModelSpec, defaults
from ringbatch.shm.ring import Producer
from ringbatch.shm.segment import Segment

LOOK_NS: Final = int(BEAT_S * 1e9)
"""Interval of looks at models without workers."""
PATIENCE_NS: Final = 10_000_000_000
"""Longest time that a stopped frontend keeps a retiring model alive."""
_MODEL_TABLE: Final = HeaderWords.MODEL_TABLE
_REMEMBERED: Final = 256
"""Entries that are gone and may still have a replacement."""
_UNBOUNDED: Final = Policy(1, 0, eager=True)


class ModelPool:
    """The models of a segment's table, and their workers.

    Attributes:
        models: by reference.
        in_flight: the requests of all models.
        workers: by number; also those that leave and are not gone.
        retiring: those of the models that retire.
        leaving: those of the workers that leave.
        replaced: workers whose numbers others have; so they have died, and what they held is to be
            taken back.
        expected: workers that may report without a batch: workers that are not ready, and workers
            whose reports an earlier collector may have missed.
        agenda: the models that have something to do.
        look_ns: when to look at models without a worker.
    """

    def __init__(self, segment: Segment, wake_worker: Callable[[int], None]) -> None:
        self._segment = segment
        self._words = segment.words
        self._wake_worker = wake_worker
        self._number = 0
        self._gone: dict[int, ModelSpec] = {}
        self._accounts = CounterBlocks(segment.words, segment.layout)
        self._patient_until_ns = 0
        self._serving: dict[tuple[str, str], list[Model]] = {}
        self.agenda = Agenda()
        self.look_ns = 0
        self.models: dict[int, Model] = {}
        self.in_flight: InFlight = {}
        self.workers: dict[int, Worker] = {}
        self.retiring: list[Model] = []
        self.leaving: list[Worker] = []
        self.replaced: list[Worker] = []
        self.expected: set[int] = set()

    @property
    def outdated(self) -> bool:
        """True if there is another table by now."""
        outdated: bool = self._words[_MODEL_TABLE] != self._number
        return outdated

    def look_at_those_without_worker(self, now_ns: int) -> None:
        """Put the models without a worker on the agenda.

        The supervisor wakes no process when it publishes the state of their workers.
        """
        self.look_ns = now_ns + LOOK_NS
        self.agenda.add_all([r for r, model in self.models.items() if not model.roster.ready])

    def follow(self, now_ns: int) -> list[Model]:
        """Take over the table that holds now; the models that are no longer in it."""
        self._number = self._segment.read_models()
        specs = {spec.reference: spec for spec in self._segment.models}
        gone = [self.models.pop(reference) for reference in self.models.keys() - specs.keys()]
        for model in gone:
            self._remember(model.spec)
            self.agenda.forget(model.reference)
        for reference, spec in specs.items():
            if reference in self.models:
                self.models[reference].adjust(spec)
            else:
                self.models[reference] = _new_model(
                    self._segment,
                    spec,
                    self.agenda,
                    self._accounts.of(spec.account),
                    self.in_flight,
                    now_ns,
                )
        self._follow_chains()
        self._serving.clear()
        for model in self.models.values():
            # A chain's own requests at a step cannot move to another chain.
            if model.spec.state == SERVING and model.spec.chain is None:
                name = model.spec.name, model.spec.version
                self._serving.setdefault(name, []).append(model)
        holders = {n: self.models[spec.reference] for spec in specs.values() for n in spec.workers}
        for number, worker in list(self.workers.items()):
            if worker.leaving or holders.get(number) is not worker.model:
                self._dismiss(worker)
                if number in holders:
                    self.remove(worker)
                    self.replaced.append(worker)
            elif worker.places:
                # There may be more of them now, or fewer.
                worker.model.roster.list_place(worker)
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
        models = [model for model in self.models.values() if not isinstance(model, ChainModel)]
        for model in models:
            model.chains = ()
        if chains:
            of_version = serving(models)
            for chain in chains:
                chain.follow(of_version)
                self.models[chain.spec.reference] = self.models.pop(chain.spec.reference)

    def chain(self, word: int) -> ChainModel | None:
        """Return the chain of a word's step; None if there is none."""
        model = self.models.get(reference_in(word))
        return model if isinstance(model, ChainModel) else None

    def acknowledged(self, now_ns: int) -> bool:
        """Return whether no frontend sends requests to a retiring model any more.

        A look after that finds all requests that were sent before.
        """
        if now_ns >= self._patient_until_ns:
            return True
        layout, words = self._segment.layout, self._segment.words
        return not any(
            load_acquire(words, layout.lane(lane) + LaneWords.MODEL_TABLE) < self._number
            and self._segment.lane_is_held(lane)
            for lane in range(layout.frontend_lanes)
        )

    def busy(self, model: Model) -> bool:
        """Return whether requests to a model wait or run."""
        if isinstance(model, ChainModel):
            return self._on_their_way(model.spec.reference)
        if model.queues or model.retries:
            return True
        own = [self.workers[n] for n in model.spec.workers if n in self.workers]
        return any(w.batches for w in own + self.leaving if w.model is model)

    def _on_their_way(self, reference: int) -> bool:
        """Return whether requests for a chain wait or run at any of its steps."""
        held = (b.requests for worker in self.workers.values() for b in worker.batches)
        found = [*held, *(model.waiting() for model in self.models.values())]
        return any(reference_in(r.model) == reference for requests in found for r in requests)

    def replacement_of_gone(self, reference: int) -> Model | None:
        """Return the replacement of the model that had a reference; None if there is none."""
        gone = self._gone.get(reference)
        return None if gone is None else self.replacement(gone)

    def replacement(self, spec: ModelSpec) -> Model | None:
        """Return the model that serves in the place of one that no longer does, if any."""
        found = self._serving.get((spec.name, spec.version), ()) if spec.chain is None else ()
        return next((model for model in found if _takes_the_same(model.spec, spec)), None)

    def add_unlisted(self, number: int, reference: int) -> Worker | None:
        """Add and return a worker that left the table, but lives or has yet to be reclaimed.

        Args:
            number: the worker's.
            reference: of its model; None is returned if there is no worker of that.
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
        self.expected.discard(worker.number)

    def _dismiss(self, worker: Worker) -> None:
        if not worker.leaving:
            worker.leaving = True
            self.leaving.append(worker)
            if worker.ready:
                worker.model.roster.remove(worker)

    def _new_worker(self, number: int, model: Model) -> Worker:
        layout, words = self._segment.layout, self._segment.words
        self.expected.add(number)
        return Worker(
            number,
            model,
            Producer(words, layout.task_ring(number), TASK_WORDS),
            partial(self._wake_worker, number),
            partial(words.__getitem__, layout.worker(number) + WorkerWords.MOST_ROWS),
            remote=number in model.spec.remote,
        )

    def _remember(self, spec: ModelSpec) -> None:
        self._gone[spec.reference] = spec
        if len(self._gone) > _REMEMBERED:
            del self._gone[next(iter(self._gone))]


def _new_model(
    segment: Segment,
    spec: ModelSpec,
    agenda: Agenda,
    counters: ModelCounters,
    in_flight: InFlight,
    now_ns: int,
) -> Model:
    words, first = segment.words, segment.layout.model(spec.index)
    grouping = Grouping(spec, segment.memory)
    health = ModelHealth(words, first, spec.workers, now_ns)
    times = BatchTimes()
    times.adjust(spec)
    kind = Model if spec.chain is None else ChainModel
    return kind(
        spec,
        spec.reference,
        agenda,
        bounded(_UNBOUNDED, spec),
        counters,
        spec.cap,
        grouping,
        Queues(grouping.fitting, grouping.share) if grouping.bounded else Queues(),
        health,
        Roster(health, spec.running, spec.places),
        BacklogWords(words, first),
        in_flight,
        times=times,
    )


def serving(models: Iterable[Model]) -> dict[tuple[str, str], Model]:
    """Return the serving models by name and version, and each name's default also without one."""
    found = [model for model in models if model.spec.state == SERVING]
    of_version = {(model.spec.name, model.spec.version): model for model in found}
    for name, spec in defaults([model.spec for model in found]).items():
        of_version[name, ""] = of_version[name, spec.version]
    return of_version


def _takes_the_same(spec: ModelSpec, other: ModelSpec) -> bool:
    return (
        spec.inputs == other.inputs
        and spec.outputs == other.outputs
        and spec.batched == other.batched
    )
