"""Carries out the change of one model: starts its workers, waits for them, switches the table.

A change is a generator that yields what it waits for. Changes of several models can be under way at
once: each touches the entries and the workers of its own model alone. Whatever fails is undone.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from ringbatch.engine.config.settings import ModelConfig
from ringbatch.engine.models.model_file import ModelFile
from ringbatch.engine.process.role_messages import Signature
from ringbatch.engine.supervisor.change_plan import (
    ChangeFailed,
    ChangePlan,
    Phase,
    Room,
    Switched,
    expect_over,
)
from ringbatch.engine.supervisor.model_diff import ChainChange, Change
from ringbatch.engine.supervisor.model_versions import Forwarding, is_forwarded
from ringbatch.engine.supervisor.process_slot import ProcessSlot
from ringbatch.engine.supervisor.served_models import ServedModels
from ringbatch.engine.supervisor.worker_pool import WorkerPool
from ringbatch.shm.model_spec import ModelSpec

_GRACE_S: Final = 30.0
"""What the engine itself may take for what a model's workers have their own limits for."""
_ROOM_WITHIN_S: Final = 120.0
"""How long a change waits for what an earlier one replaced."""


@dataclass(frozen=True, slots=True)
class Start:
    """A worker is to be started, and not again where it dies.

    Attributes:
        number: which.
        model: that it is to hold.
        index: which of that model's workers it is.
        file: what it is to load.
    """

    number: int
    model: ModelConfig
    index: int
    file: ModelFile


@dataclass(frozen=True, slots=True)
class Introduce:
    """A worker is to be told of the segment, so that it loads its model."""

    slot: ProcessSlot


@dataclass(frozen=True, slots=True)
class ShowTable:
    """The collector is to look at the table of models."""


Effect = Start | Introduce | ShowTable
"""What the supervisor is to do."""

Condition = Callable[[], bool]


class Wait(NamedTuple):
    """What a change waits for, and until when at the latest."""

    is_over: Condition
    limit_ns: int | None = None


AT_ONCE: Final = Wait(lambda: True)
Steps = Generator[Wait, None, None]


class ChangeRunner:
    """Changes of several models at once.

    Attributes:
        effects: what the supervisor is to do next, in order.
        loaded: references of the entries all of whose workers are ready, as the collector says.

    Args:
        pool: of workers.
        served: what the engine serves.
        forwarding: to the servers of others.
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
        """Change a model. From this call on its name `is_changing`.

        Raises:
            ChangeFailed: from the steps: it could not be changed, and is as it was.
        """
        assert not self.is_changing(change.name), "changes of one model are made in turn"
        plan = ChangePlan.of(change, self._served.entries)
        self._underway[change.name] = plan
        return self._carry_out(plan)

    def change_chain(self, change: ChainChange) -> Steps:
        """Put a chain in the place of what has its name, or take it away.

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

            yield from self._until(Phase.ROOM, [], is_there, _ROOM_WITHIN_S)
            self._generation += 1
            for number in self._served.put_chain(change.put, self._generation):
                self._pool.workers[number].let_go()
        self.effects.append(ShowTable())

    def break_off(self) -> None:
        """Undo all that is under way; its steps are taken no further.

        Raises:
            ChangeFailed: something could not be undone.
        """
        # Nobody knows which of the effects have been carried out.
        self.effects = [ShowTable()]
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
            # Frontends look at where its requests go when they start, and at heads only once.
            raise ChangeFailed("a model that another server runs cannot change; restart the engine")

    def _await_room(self, plan: ChangePlan) -> Steps:
        """Until retired workers and models have left enough room.

        Raises:
            ChangeFailed: there never will be enough.
        """
        plan.expect_room(self._served.entries, self._served.most)

        def is_there() -> bool:
            if self._served.is_step(plan.change.name):
                return False
            room = Room(len(self._free_numbers()), len(self._served.free_indices))
            return room.workers >= plan.needs.workers and room.models >= plan.needs.models

        yield from self._until(Phase.ROOM, [], is_there, _ROOM_WITHIN_S)

    def _free_numbers(self) -> list[int]:
        plans = self._underway.values()
        held = {n for plan in plans for numbers in plan.started.values() for n in numbers}
        held |= self._pool.workers.keys()
        return [n for n in range(self._served.most.workers) if n not in held]

    def _start_workers(self, plan: ChangePlan, files: Mapping[str, ModelFile]) -> Steps:
        """Start workers, and wait until each has said what its model takes and returns."""
        for number, model, index in plan.starts():
            self.effects.append(Start(number, model, index, files[model.version]))
        yield AT_ONCE
        slots = self._slots(plan)
        yield from self._until(
            Phase.OPEN, slots, lambda: all(slot.signature for slot in slots), _limit_s(slots)
        )
        plan.expect_agreement(self._said(plan))

    def _enter(self, plan: ChangePlan) -> dict[str, ModelSpec]:
        """Have the new workers load their models.

        Returns:
            The new entries by version.
        """
        entered = plan.loading(
            self._served.entries,
            self._said(plan),
            self._forwarding,
            models=self._served.most.models,
            generation=self._generation + 1,
        )
        self._generation += len(entered)
        self._served.expect_whole(plan, entered.values())
        slots = self._slots(plan)
        if slots:
            self._served.enter(plan, entered.values())
            self.effects.append(ShowTable())
        for slot in slots:
            self.effects.append(Introduce(slot))
        return entered

    def _await_loaded(self, plan: ChangePlan, entered: Mapping[str, ModelSpec]) -> Steps:
        """Until all new workers are ready, and the collector knows it."""
        slots = self._slots(plan)
        new = {spec.reference for spec in entered.values()}
        yield from self._until(
            Phase.LOAD,
            slots,
            lambda: all(slot.ready_ns for slot in slots) and new <= self.loaded,
            _limit_s(slots),
        )

    def _switch(
        self, plan: ChangePlan, entered: Mapping[str, ModelSpec], files: Mapping[str, ModelFile]
    ) -> Switched:
        """Have the new entries serve and the old ones retire. From then on nothing is undone."""
        switched = self._served.switch(plan, entered, files)
        self.effects.append(ShowTable())
        self.loaded -= {spec.reference for spec in entered.values()}
        return switched

    def _settle(self, plan: ChangePlan, switched: Switched) -> None:
        """Have the new workers stay, and those that nothing more is given to go."""
        for slot in self._slots(plan):
            slot.lasting = True
        for number in switched.leaving:
            self._pool.workers[number].let_go()

    def _undo(self, plan: ChangePlan) -> None:
        """Take back what was entered and let the workers go; the collector does so with those it
        knows of."""
        before = plan.undone(self._served.entries)
        if before != self._served.entries:
            self._served.publish(before)
            self.effects.append(ShowTable())
        for slot in self._slots(plan):
            if not slot.known:
                self._pool.end(slot)
        del self._underway[plan.change.name]

    def _until(
        self, phase: Phase, slots: Collection[ProcessSlot], complete: Condition, limit_s: float
    ) -> Steps:
        """Wait until a phase is complete.

        Raises:
            ChangeFailed: one of the workers in the slots, or the collector, does not do what is
                waited for within that time.
        """
        limit_ns = self._clock_ns() + int(limit_s * 1e9)
        yield Wait(lambda: complete() or any(slot.failure for slot in slots), limit_ns)
        expect_over(phase, complete=complete(), failures=[slot.failure for slot in slots])

    def _slots(self, plan: ChangePlan) -> list[ProcessSlot]:
        """Of the workers that were started; where a change fails early, not all have one."""
        numbers = [number for team in plan.started.values() for number in team]
        return [self._pool.workers[n] for n in numbers if n in self._pool.workers]

    def _said(self, plan: ChangePlan) -> dict[str, list[Signature]]:
        """What the new workers of each version say of their model."""
        return {
            version: [
                said for n in numbers if (said := self._pool.workers[n].signature) is not None
            ]
            for version, numbers in plan.started.items()
        }


def _limit_s(slots: Iterable[ProcessSlot]) -> float:
    """What workers and collector may take together for one phase."""
    return max((slot.limits.load.s + slot.limits.warm_up.s for slot in slots), default=0) + _GRACE_S
