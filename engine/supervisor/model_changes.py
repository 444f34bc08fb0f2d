"""Models that come, go and change while the engine serves.

One order is carried out after the other, and each model of it as `change_plan` says, so that
whatever fails or dies leaves what served before.

What is under way is a generator that yields what it waits for. After each turn of the supervisor's
loop `ModelChanges.advance` goes on as far as it goes, and returns what the supervisor is to do.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from ringbatch.engine.config.document import ConfigError
from ringbatch.engine.config.settings import Config, ModelConfig
from ringbatch.engine.process.role_messages import Signature
from ringbatch.engine.runtimes.model_file import ModelFile
from ringbatch.engine.supervisor.change_plan import (
    ChangeFailed,
    ChangePlan,
    Phase,
    Room,
    expect_over,
)
from ringbatch.engine.supervisor.model_diff import (
    Change,
    UnknownModel,
    compare,
    differing,
    loading,
    retirement,
)
from ringbatch.engine.supervisor.model_versions import (
    Entries,
    Forwarding,
    free_indices,
    is_forwarded,
    without_entries,
)
from ringbatch.engine.supervisor.process_slot import ProcessSlot
from ringbatch.engine.supervisor.worker_pool import WorkerPool
from ringbatch.shm.host.control_socket import Order, Report
from ringbatch.shm.model_spec import RETIRING, ModelSpec
from ringbatch.shm.segment import Segment

logger = logging.getLogger("ringbatch.supervisor")

MAX_ORDERS: Final = 64
"""Orders that may wait for their turn."""

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
Steps = Generator[Condition, None, None]
Reply = Callable[[Report], None]


class ModelChanges:
    """What an engine serves, and the orders to change it.

    Attributes:
        limit_ns: when to go on at the latest, whether what is waited for has come or not.
        serving: the models that serve, by reference.

    Args:
        pool: of workers.
        segment: the engine's.
        config: with which it was started.
        entries: what serves, in the order of the configuration.
        files: what they were loaded from, in the same order.
        reread: reads the configuration again; raises `ConfigError`.
        forwarding: to the servers of others.
        clock_ns: the monotonic clock.
    """

    def __init__(
        self,
        pool: WorkerPool,
        segment: Segment,
        config: Config,
        entries: Entries,
        files: Iterable[ModelFile],
        reread: Callable[[], Config],
        forwarding: Forwarding,
        clock_ns: Callable[[], int],
    ) -> None:
        self.limit_ns: int | None = None
        self._pool = pool
        self._segment = segment
        self._server = config.server
        self._wanted = config.models
        self._entries = entries
        self._reread = reread
        self._forwarding = forwarding
        self._clock_ns = clock_ns
        self.serving = {
            spec.reference: model for spec, model in zip(entries, config.models, strict=True)
        }
        self.files = dict(zip(self.serving, files, strict=True))
        """By reference, what was loaded of each entry that serves."""
        self._generation = 0
        self._loaded: set[int] = set()
        self._orders: deque[tuple[Order, Reply]] = deque()
        self._reply: Reply | None = None
        self._steps: Steps | None = None
        self._awaited: Condition = _at_once
        self._underway: ChangePlan | None = None
        self._effects: list[Effect] = []

    def take(self, order: Order, reply: Reply) -> None:
        """Carry an order out when those before it are; `reply` is called once."""
        if len(self._orders) >= MAX_ORDERS:
            reply(Report("failed", (f"{MAX_ORDERS} changes wait already; try again later",)))
            return
        self._orders.append((order, reply))

    def advance(self) -> list[Effect]:
        """Go on as far as it goes; after every turn of the supervisor's loop.

        Returns:
            What is to be done before this is called again, in order; nothing where it only waits.
        """
        while not self._effects and (self._steps is not None or self._orders):
            if self._steps is None:
                order, self._reply = self._orders.popleft()
                self._steps, self._awaited = self._carry_out(order, self._reply), _at_once
            if not (self._awaited() or self._is_late()):
                break
            following = next(self._steps, None)
            if following is None:
                self._steps = self._reply = None
            else:
                self._awaited = following
        effects, self._effects = self._effects, []
        return effects

    def break_off(self) -> None:
        """What is carried out has failed as nobody expected: it is undone, and those behind it have
        their turn.

        Raises:
            ChangeFailed: it could not even be undone.
        """
        reply, self._reply, self._steps = self._reply, None, None
        self.limit_ns = None
        # Of what was to be done, nobody knows what is done.
        self._effects = [ShowTable()]
        if reply is not None:
            reply(Report("failed", ("ringbatch has failed; the engine's log says how",)))
        if self._underway is not None:
            self._undo(self._underway)
        entered = [n for s in self._entries if s.state != RETIRING for n in s.workers]
        if not all(n in self._pool.workers and self._pool.workers[n].lasting for n in entered):
            raise ChangeFailed("it could not be undone")

    def abandon(self) -> None:
        """The engine stops: whoever waits for an order is told."""
        replies = [reply for _, reply in self._orders]
        for reply in [self._reply, *replies] if self._reply is not None else replies:
            reply(Report("failed", ("the engine is stopping",)))
        self._orders.clear()
        self._steps = self._reply = None

    def loaded(self, reference: int) -> None:
        """The collector says: all workers of an entry are ready."""
        self._loaded.add(reference)

    def drained(self, reference: int) -> None:
        """The collector says: nothing of a retiring entry is left."""
        if any(s.reference == reference and s.state == RETIRING for s in self._entries):
            self._publish(without_entries(self._entries, {reference}))

    @property
    def differing(self) -> set[int]:
        """The entries at whose paths other files lie, as far as the table says so."""
        return {spec.reference for spec in self._entries if spec.file_differs}

    def differ(self, references: Collection[int]) -> None:
        """Other files lie at the paths of these entries, and of these alone; left out while a
        change is being carried out."""
        if self._steps is None and self.differing != (known := self.files.keys() & references):
            self._publish(
                tuple(replace(s, file_differs=s.reference in known) for s in self._entries)
            )

    @property
    def entered(self) -> set[int]:
        """The numbers of the workers that the table has."""
        return {number for spec in self._entries for number in spec.workers}

    def _carry_out(self, order: Order, reply: Reply) -> Steps:
        try:
            changes, lines = self._plan(order)
        except UnknownModel as unknown:
            reply(Report("unknown", (str(unknown),)))
            return
        except ConfigError as error:
            reply(Report("failed", error.problems))
            return
        failed = False
        for change in changes:
            try:
                yield from self._change(change)
            except ChangeFailed as failure:
                failed = True
                lines.append(f"{change.name}: {failure}")
                logger.error("%s: %s", change.name, failure)
            else:
                lines.append(change.described())
                logger.info("%s", change.described())
        reply(Report("failed" if failed else "done", tuple(lines or ["nothing has changed"])))

    def _plan(self, order: Order) -> tuple[list[Change], list[str]]:
        serving = tuple(self.serving.values())
        if order.action == "unload":
            return [retirement(order.model or "", serving)], []
        config = self._reread()
        self._wanted = config.models
        lines = []
        if fixed := differing(self._server, config.server):
            lines.append(
                f"[server] {', '.join(sorted(fixed))}: cannot change while the engine runs; "
                "restart it"
            )
            logger.warning("%s", lines[0])
        if order.model is None:
            return compare(serving, config.models, self._is_another_file), lines
        return [loading(order.model, serving, config.models)], lines

    def _is_another_file(self, model: ModelConfig) -> bool:
        references = (ref for ref, serving in self.serving.items() if serving is model)
        return any(self.files[reference].differs() for reference in references)

    def _change(self, change: Change) -> Steps:
        before = [model for model in self.serving.values() if model.name == change.name]
        if any(map(is_forwarded, (*change.load, *change.adjust, *before))):
            # Frontends look at where its requests go when they start, and at heads only once.
            raise ChangeFailed("a model that another server runs cannot change; restart the engine")
        yield from self._await_room(plan := ChangePlan.of(change, self._entries))
        plan = plan.numbered(self._free_numbers())
        files = {model.version: ModelFile(model.path) for model in change.load}
        files |= {
            model.version: self.files[plan.serving[model.version].reference]
            for model in change.adjust
        }
        self._underway = plan
        try:
            yield from self._start_workers(plan, files)
            entered = self._enter(plan)
            yield from self._await_loaded(plan, entered)
            self._switch(plan, entered)
        except Exception:
            self._undo(plan)
            raise
        self._underway = None
        for version, spec in entered.items():
            self.files[spec.reference] = files[version]

    def _await_room(self, plan: ChangePlan) -> Steps:
        """Until retired workers and models have left enough room.

        Raises:
            ChangeFailed: there never will be enough.
        """
        layout = self._segment.layout
        plan.expect_room(self._entries, Room(layout.workers, layout.models))

        def is_there() -> bool:
            indices = free_indices(self._entries, layout.models)
            room = Room(len(self._free_numbers()), len(indices))
            return room.workers >= plan.needs.workers and room.models >= plan.needs.models

        yield from self._until(Phase.ROOM, [], is_there, _ROOM_WITHIN_S)

    def _free_numbers(self) -> list[int]:
        return [n for n in range(self._segment.layout.workers) if n not in self._pool.workers]

    def _start_workers(self, plan: ChangePlan, files: Mapping[str, ModelFile]) -> Steps:
        """Start workers, and wait until each has said what its model takes and returns."""
        for number, model, index in plan.starts():
            self._effects.append(Start(number, model, index, files[model.version]))
        yield _at_once
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
            self._entries,
            self._said(plan),
            self._forwarding,
            models=self._segment.layout.models,
            generation=self._generation + 1,
        )
        self._generation += len(entered)
        for spec in entered.values():
            self._segment.model_table.clear_place(spec.index)
        slots = self._slots(plan)
        if slots:
            self._publish(plan.entered(self._entries, entered.values()))
        for slot in slots:
            slot.known = True
            self._effects.append(Introduce(slot))
        return entered

    def _await_loaded(self, plan: ChangePlan, entered: Mapping[str, ModelSpec]) -> Steps:
        """Until all new workers are ready, and the collector knows it."""
        slots = self._slots(plan)
        new = {spec.reference for spec in entered.values()}
        yield from self._until(
            Phase.LOAD,
            slots,
            lambda: all(slot.ready_ns for slot in slots) and new <= self._loaded,
            _limit_s(slots),
        )

    def _switch(self, plan: ChangePlan, entered: Mapping[str, ModelSpec]) -> None:
        """Have the new entries serve and the old ones retire, in one store."""
        switched = plan.switched(self._entries, entered.values())
        self._publish(switched.entries)
        for slot in self._slots(plan):
            slot.lasting = True
        for number in switched.leaving:
            self._pool.workers[number].let_go()
        for reference in switched.gone:
            del self.serving[reference], self.files[reference]
        for model in plan.change.load:
            self.serving[entered[model.version].reference] = model
        for model in plan.change.adjust:
            self.serving[plan.serving[model.version].reference] = model
        self._loaded -= {spec.reference for spec in entered.values()}

    def _undo(self, plan: ChangePlan) -> None:
        """Take back what was entered and let the workers go; the collector does so with those it
        knows of."""
        before = plan.undone(self._entries)
        if before != self._entries:
            self._publish(before)
        for slot in self._slots(plan):
            if not slot.known:
                self._pool.end(slot)
        self._underway = None

    def _until(
        self, phase: Phase, slots: Collection[ProcessSlot], complete: Condition, limit_s: float
    ) -> Steps:
        """Wait until a phase is complete.

        Raises:
            ChangeFailed: one of the workers in the slots, or the collector, does not do what is
                waited for within that time.
        """
        self.limit_ns = self._clock_ns() + int(limit_s * 1e9)
        yield lambda: complete() or any(slot.failure for slot in slots)
        self.limit_ns = None
        expect_over(phase, complete=complete(), failures=[slot.failure for slot in slots])

    def _is_late(self) -> bool:
        return self.limit_ns is not None and self._clock_ns() >= self.limit_ns

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

    def _publish(self, entries: Entries) -> None:
        """Have another table hold, its models in the order of the configuration."""
        names = [model.name for model in self._wanted]
        position_of = {name: position for position, name in enumerate(dict.fromkeys(names))}
        ordered = tuple(sorted(entries, key=lambda s: position_of.get(s.name, len(position_of))))
        try:
            self._segment.model_table.publish(ordered)
        except ValueError as error:
            raise ChangeFailed(f"there is no room for more models: {error}") from None
        self._entries = ordered
        self._effects.append(ShowTable())


def _at_once() -> bool:
    return True


def _limit_s(slots: Iterable[ProcessSlot]) -> float:
    """What workers and collector may take together for one phase."""
    return max((slot.limits.load_s + slot.limits.warm_up_s for slot in slots), default=0) + _GRACE_S
