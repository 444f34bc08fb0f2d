"""Runner of model changes: starts a model's workers, waits for them, switches the table.

A change is a generator that yields the conditions it waits for. Changes of several models can be
under way at once: each touches the entries and the workers of its own model alone. A change that
fails is undone.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from ringbatch.engine.config.settings import ModelConfig
from ringbatch.engine.models.model_file import ModelFile
from ringbatch.engine.process.role_events import Signature
from ringbatch.engine.supervisor.change_plan import (
    Capacity,
    ChangeFailed,
    ChangePhase,
    ChangePlan,
    Switched,
    expect_over,
)
from ringbatch.engine.supervisor.managed_process import ManagedProcess
from ringbatch.engine.supervisor.model_diff import ChainChange, Change
from ringbatch.engine.supervisor.model_versions import Forwarding, is_forwarded
from ringbatch.engine.supervisor.served_models import ServedModels
from ringbatch.engine.supervisor.worker_pool import WorkerPool
from ringbatch.shm.model_spec import ModelSpec

_GRACE_S: Final = 30.0
"""Time that the engine itself may take, beyond the limits of a model's workers."""
_ROOM_WITHIN_S: Final = 120.0
"""Seconds that a change waits for the end of workers that an earlier change replaced."""


@dataclass(frozen=True, slots=True)
class Start:
    """Effect: start a worker, and do not restart it if it dies.

    Attributes:
        number: of the worker.
        model: that it holds.
        index: of the worker within its model.
        file: that it loads.
    """

    number: int
    model: ModelConfig
    index: int
    file: ModelFile


@dataclass(frozen=True, slots=True)
class Attach:
    """Effect: attach a worker to the segment, so that it loads its model."""

    managed: ManagedProcess


@dataclass(frozen=True, slots=True)
class NotifyTableChanged:
    """Effect: have the collector read the table of models."""


Effect = Start | Attach | NotifyTableChanged
"""Action for the supervisor."""

Condition = Callable[[], bool]


class Wait(NamedTuple):
    """Condition that a change waits for, and the time limit."""

    is_over: Condition
    limit_ns: int | None = None


AT_ONCE: Final = Wait(lambda: True)
Steps = Generator[Wait, None, None]


class ChangeRunner:
    """Runner of changes of several models at once.

    Attributes:
        effects: the supervisor's next actions, in order.
        loaded: references of the entries whose workers are all ready, by the collector's report.

    Args:
        pool: of workers.
        served: the engine's models.
        forwarding: to model servers.
        clock_ns: the monotonic clock.
    """

    def __init__(
        self,
        pool: WorkerPool,
        served: ServedModels,
        forwarding: Forwarding,
        clock_ns: Callable[[], int],
    ) -> None:
        self.effects: list[Effect] = []
        self.loaded: set[int] = set()
        self._pool = pool
        self._served = served
        self._forwarding = forwarding
        self._clock_ns = clock_ns
        self._generation = 0
        self._underway: dict[str, ChangePlan] = {}

    def is_changing(self, name: str) -> bool:
        """Return whether a change of the model of that name is under way."""
        return name in self._underway

    def change(self, change: Change) -> Steps:
        """Change a model. From this call on, `is_changing` is True for its name.

        Raises:
            ChangeFailed: from the steps: it could not be changed, and is as it was.
        """
        assert not self.is_changing(change.name), "changes of one model are made in turn"
        plan = ChangePlan.of(change, self._served.entries)
        self._underway[change.name] = plan
        return self._carry_out(plan)

    def change_chain(self, change: ChainChange) -> Steps:
        """Put a chain in the place of the model or chain of its name, or remove it.

        Raises:
            ChangeFailed: as of `change`.
        """
        if change.put is None:
            self._served.retire_chain(change.name)
        else:
            self._expect_own(self._serving(change.name))

            def is_there() -> bool:
                held = self._served.is_step(change.name) or self.is_changing(change.name)
                return bool(self._served.free_indices) and not held

            yield from self._until(ChangePhase.ROOM, [], is_there, _ROOM_WITHIN_S)
            self._generation += 1
            for number in self._served.put_chain(change.put, self._generation):
                self._pool.workers[number].let_go()
        self.effects.append(NotifyTableChanged())

    def break_off(self) -> None:
        """Undo all that is under way; its steps are taken no further.

        Raises:
            ChangeFailed: something could not be undone.
        """
        # Some of the effects may have been carried out.
        self.effects = [NotifyTableChanged()]
        for plan in list(self._underway.values()):
            self._undo(plan)

    def _carry_out(self, plan: ChangePlan) -> Steps:
        change = plan.change
        try:
            if not change.running:
                self._expect_own([*change.load, *change.adjust, *self._serving(change.name)])
            yield from self._await_room(plan)
            self._underway[change.name] = plan = plan.numbered(self._free_numbers())
            files = {model.version: ModelFile(model.path) for model in change.load}
            files |= {
                model.version: self._served.files[plan.serving[model.version].reference]
                for model in change.adjust
            }
            yield from self._start_workers(plan, files)
            entered = self._enter(plan)
            yield from self._await_loaded(plan, entered)
            switched = self._switch(plan, entered, files)
        except Exception:
            self._undo(plan)
            raise
        del self._underway[change.name]
        self._settle(plan, switched)

    def _serving(self, name: str) -> list[ModelConfig]:
        return [model for model in self._served.models.values() if model.name == name]

    @staticmethod
    def _expect_own(models: Iterable[ModelConfig]) -> None:
        if any(map(is_forwarded, models)):
            # Frontends read where its requests go when they start, and each head only once.
            raise ChangeFailed("a model that another server runs cannot change; restart the engine")

    def _await_room(self, plan: ChangePlan) -> Steps:
        """Wait until retired workers and models have left enough room.

        Raises:
            ChangeFailed: there never will be enough.
        """
        plan.expect_room(self._served.entries, self._served.most)
        plan.expect_places()

        def is_there() -> bool:
            if self._served.is_step(plan.change.name):
                return False
            room = Capacity(len(self._free_numbers()), len(self._served.free_indices))
            return room.workers >= plan.needs.workers and room.models >= plan.needs.models

        yield from self._until(ChangePhase.ROOM, [], is_there, _ROOM_WITHIN_S)

    def _free_numbers(self) -> list[int]:
        plans = self._underway.values()
        held = {n for plan in plans for numbers in plan.started.values() for n in numbers}
        held |= self._pool.workers.keys()
        return [n for n in range(self._served.most.workers) if n not in held]

    def _start_workers(self, plan: ChangePlan, files: Mapping[str, ModelFile]) -> Steps:
        """Start workers, and wait until each has reported its model's signature."""
        for number, model, index in plan.starts():
            self.effects.append(Start(number, model, index, files[model.version]))
        yield AT_ONCE
        processes = self._started(plan)
        yield from self._until(
            ChangePhase.OPEN,
            processes,
            lambda: all(managed.signature for managed in processes),
            _limit_s(processes),
        )
        plan.expect_agreement(self._signatures(plan))

    def _enter(self, plan: ChangePlan) -> dict[str, ModelSpec]:
        """Have the new workers load their models.

        Returns:
            The new entries by version.
        """
        entered = plan.loading(
            self._served.entries,
            self._signatures(plan),
            self._forwarding,
            models=self._served.most.models,
            generation=self._generation + 1,
        )
        self._generation += len(entered)
        self._served.expect_whole(plan, entered.values())
        processes = self._started(plan)
        if processes:
            self._served.enter(plan, entered.values())
            self.effects.append(NotifyTableChanged())
        for managed in processes:
            self.effects.append(Attach(managed))
        return entered

    def _await_loaded(self, plan: ChangePlan, entered: Mapping[str, ModelSpec]) -> Steps:
        """Wait until all new workers are ready, and the collector knows it."""
        processes = self._started(plan)
        new = {spec.reference for spec in entered.values()}
        yield from self._until(
            ChangePhase.LOAD,
            processes,
            lambda: all(managed.ready_ns for managed in processes) and new <= self.loaded,
            _limit_s(processes),
        )

    def _switch(
        self, plan: ChangePlan, entered: Mapping[str, ModelSpec], files: Mapping[str, ModelFile]
    ) -> Switched:
        """Have the new entries serve and the old ones retire. A change is not undone after this."""
        switched = self._served.switch(plan, entered, files)
        self.effects.append(NotifyTableChanged())
        self.loaded -= {spec.reference for spec in entered.values()}
        return switched

    def _settle(self, plan: ChangePlan, switched: Switched) -> None:
        """Keep the new workers, and let those go that get no more requests."""
        for managed in self._started(plan):
            managed.lasting = True
        for number in switched.leaving:
            self._pool.workers[number].let_go()

    def _undo(self, plan: ChangePlan) -> None:
        """Undo the table's change and let the workers go.

        The collector lets go of the workers that it knows.
        """
        before = plan.undone(self._served.entries)
        if before != self._served.entries:
            self._served.publish(before)
            self.effects.append(NotifyTableChanged())
        for managed in self._started(plan):
            if not managed.tie.known:
                self._pool.end(managed)
        del self._underway[plan.change.name]

    def _until(
        self,
        phase: ChangePhase,
        processes: Collection[ManagedProcess],
        complete: Condition,
        limit_s: float,
    ) -> Steps:
        """Wait until a phase is complete.

        Raises:
            ChangeFailed: one of the workers, or the collector, has failed or taken too long.
        """
        limit_ns = self._clock_ns() + int(limit_s * 1e9)
        yield Wait(lambda: complete() or any(managed.failure for managed in processes), limit_ns)
        expect_over(phase, complete=complete(), failures=[managed.failure for managed in processes])

    def _started(self, plan: ChangePlan) -> list[ManagedProcess]:
        """Return the started workers; if a change fails early, some were not started."""
        numbers = [number for team in plan.started.values() for number in team]
        return [self._pool.workers[n] for n in numbers if n in self._pool.workers]

    def _signatures(self, plan: ChangePlan) -> dict[str, list[Signature]]:
        """Return the signatures that the new workers of each version report."""
        return {
            version: [
                found for n in numbers if (found := self._pool.workers[n].signature) is not None
            ]
            for version, numbers in plan.started.items()
        }


def _limit_s(processes: Iterable[ManagedProcess]) -> float:
    """Return the time limit of workers and collector together for one phase."""
    return (
        max((managed.limits.load.s + managed.limits.warm_up.s for managed in processes), default=0)
        + _GRACE_S
    )
