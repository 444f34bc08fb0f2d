"""Models that come, go and change while the engine serves.

One order is carried out after the other, and each model of it as `change_plan` says, so that
whatever fails or dies leaves what served before.

What is under way is a generator that yields what it waits for. After each turn of the supervisor's
loop `ModelChanges.advance` goes on as far as it goes, and returns what the supervisor is to do.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ringbatch.engine.config.document import ConfigError
from ringbatch.engine.config.settings import Config, ModelConfig, ServerConfig
from ringbatch.engine.process.role_messages import Drained, Loaded, Signature
from ringbatch.engine.runtimes.model_file import ModelFile
from ringbatch.engine.supervisor.change_plan import (
    ChangeFailed,
    ChangePlan,
    Phase,
    Room,
    Switched,
    expect_over,
)
from ringbatch.engine.supervisor.model_diff import (
    ChainChange,
    Change,
    UnfitSize,
    UnknownModel,
    compare,
    differing,
    loading,
    retirement,
    with_batch_size,
    with_chains,
)
from ringbatch.engine.supervisor.model_versions import Forwarding, is_forwarded
from ringbatch.engine.supervisor.process_slot import ProcessSlot
from ringbatch.engine.supervisor.served_models import ServedModels
from ringbatch.engine.supervisor.worker_pool import WorkerPool
from ringbatch.shm.host.control_socket import Order, Report
from ringbatch.shm.model_spec import RETIRING, ModelSpec

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
    """The orders to change what an engine serves.

    Attributes:
        served: what it serves.
        limit_ns: when to go on at the latest, whether what is waited for has come or not.

    Args:
        pool: of workers.
        served: what the engine serves.
        server: the settings with which it was started.
        reread: reads the configuration again; raises `ConfigError`.
        forwarding: to the servers of others.
        clock_ns: the monotonic clock.
    """

    def __init__(
        self,
        pool: WorkerPool,
        served: ServedModels,
        server: ServerConfig,
        reread: Callable[[], Config],
        forwarding: Forwarding,
        clock_ns: Callable[[], int],
    ) -> None:
        self.served = served
        self.limit_ns: int | None = None
        self._pool = pool
        self._server = server
        self._reread = reread
        self._forwarding = forwarding
        self._clock_ns = clock_ns
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
            # Nothing of a change that is over is kept, such as the model files of its workers.
            self._awaited = following or _at_once
        effects, self._effects = self._effects, []
        return effects

    @property
    def idle(self) -> bool:
        """Whether nothing is being carried out, and nothing waits for it."""
        return self._steps is None and not self._orders

    def scale(self, reference: int, running: int) -> None:
        """Have another number of workers run, as the load wants it; only where it is `idle`.

        Args:
            reference: of an entry that serves.
            running: how many.
        """
        assert self.idle, "one change is made after the other"
        model = self.served.models[reference]
        change = Change(model.name, adjust=(model,), running={model.version: running})
        self._steps, self._awaited = self._scale(change), _at_once

    def break_off(self) -> None:
        """What is carried out has failed as nobody expected: it is undone, and those behind it have
        their turn.

        Raises:
            ChangeFailed: it could not be undone. Where that fails as nobody expects too, whatever
                is raised then.
        """
        reply, self._reply, self._steps = self._reply, None, None
        self.limit_ns = None
        # Of what was to be done, nobody knows what is done.
        self._effects = [ShowTable()]
        if reply is not None:
            reply(Report("failed", ("ringbatch has failed; the engine's log says how",)))
        if self._underway is not None:
            self._undo(self._underway)
        entered = [n for s in self.served.entries if s.state != RETIRING for n in s.workers]
        if not all(n in self._pool.workers and self._pool.workers[n].lasting for n in entered):
            raise ChangeFailed("it could not be undone")

    def abandon(self) -> None:
        """The engine stops: whoever waits for an order is told."""
        replies = [reply for _, reply in self._orders]
        for reply in [self._reply, *replies] if self._reply is not None else replies:
            reply(Report("failed", ("the engine is stopping",)))
        self._orders.clear()
        self._steps = self._reply = None

    def heard(self, said: Loaded | Drained) -> None:
        """The collector says what has become of an entry."""
        (self.loaded if isinstance(said, Loaded) else self.drained)(said.reference)

    def loaded(self, reference: int) -> None:
        """The collector says: all workers of an entry are ready."""
        self._loaded.add(reference)

    def drained(self, reference: int) -> None:
        """The collector says: nothing of a retiring entry is left."""
        if self.served.drained(reference):
            self._effects.append(ShowTable())

    def differ(self, references: Collection[int]) -> None:
        """Other files lie at the paths of these entries, and of these alone; left out while a
        change is being carried out."""
        if self._steps is None and self.served.differ(references):
            self._effects.append(ShowTable())

    def _carry_out(self, order: Order, reply: Reply) -> Steps:
        try:
            changes, untaken = self._plan(order)
        except UnknownModel as unknown:
            reply(Report("unknown", (str(unknown),)))
            return
        except ConfigError as error:
            reply(Report("failed", error.problems))
            return
        except UnfitSize as error:
            reply(Report("failed", (str(error),)))
            return
        # Who names one model has asked for nothing else.
        lines, failed = list(untaken), bool(untaken) and order.model is None
        for change in changes:
            try:
                if isinstance(change, ChainChange):
                    yield from self._change_chain(change)
                else:
                    yield from self._change(change)
            except ChangeFailed as failure:
                failed = True
                lines.append(f"{change.name}: {failure}")
                logger.error("%s: %s", change.name, failure)
            else:
                lines.append(change.described())
                logger.info("%s", change.described())
        reply(Report("failed" if failed else "done", tuple(lines or ["nothing has changed"])))

    def _scale(self, change: Change) -> Steps:
        try:
            yield from self._change(change)
        except ChangeFailed as failure:
            logger.error("%s: %s", change.name, failure)

    def _plan(self, order: Order) -> tuple[list[Change | ChainChange], tuple[str, ...]]:
        """What an order comes to, and what the configuration says that no order brings about."""
        serving = tuple(self.served.models.values())
        chains = tuple(self.served.chains.values())
        if order.action == "unload":
            if any(chain.name == order.model for chain in chains):
                return [ChainChange(order.model or "", None)], ()
            return [retirement(order.model or "", serving)], ()
        config = self._reread()
        self.served.order = config.models
        untaken = self._untaken(config.server)
        if order.model is None:
            changes = compare(serving, config.models, self.served.is_another_file)
            return with_chains(changes, chains, config.chains), untaken
        put = [ChainChange(c.name, c) for c in config.chains if c.name == order.model]
        if put:
            if order.max_batch_size is not None:
                raise UnfitSize("max_batch_size: is not for a chain, which has steps")
            return [*put], untaken
        wanted: Sequence[ModelConfig] = config.models
        if order.max_batch_size is not None:
            wanted = with_batch_size(wanted, order.model, order.max_batch_size)
        return [loading(order.model, serving, wanted)], untaken

    def _untaken(self, server: ServerConfig) -> tuple[str, ...]:
        """Which settings of the configuration the engine goes on without, in a line for people."""
        names = sorted(differing(self._server, server))
        if not names:
            return ()
        line = (
            f"[server] {', '.join(names)}: not taken, because the engine runs; ringbatch handover "
            f"takes {'them' if len(names) > 1 else 'it'}, and so does a restart"
        )
        logger.warning("%s", line)
        return (line,)

    def _change_chain(self, change: ChainChange) -> Steps:
        if change.put is None:
            self.served.retire_chain(change.name)
        else:
            self._expect_own(self._serving(change.name))

            def is_there() -> bool:
                return bool(self.served.free_indices) and not self.served.is_step(change.name)

            yield from self._until(Phase.ROOM, [], is_there, _ROOM_WITHIN_S)
            self._generation += 1
            for number in self.served.put_chain(change.put, self._generation):
                self._pool.workers[number].let_go()
        self._effects.append(ShowTable())

    def _change(self, change: Change) -> Steps:
        if not change.running:
            self._expect_own([*change.load, *change.adjust, *self._serving(change.name)])
        yield from self._await_room(plan := ChangePlan.of(change, self.served.entries))
        plan = plan.numbered(self._free_numbers())
        files = {model.version: ModelFile(model.path) for model in change.load}
        files |= {
            model.version: self.served.files[plan.serving[model.version].reference]
            for model in change.adjust
        }
        self._underway = plan
        try:
            yield from self._start_workers(plan, files)
            entered = self._enter(plan)
            yield from self._await_loaded(plan, entered)
            switched = self._switch(plan, entered, files)
        except Exception:
            self._undo(plan)
            raise
        self._underway = None
        self._settle(plan, switched)

    def _serving(self, name: str) -> list[ModelConfig]:
        return [model for model in self.served.models.values() if model.name == name]

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
        plan.expect_room(self.served.entries, self.served.most)

        def is_there() -> bool:
            if self.served.is_step(plan.change.name):
                return False
            room = Room(len(self._free_numbers()), len(self.served.free_indices))
            return room.workers >= plan.needs.workers and room.models >= plan.needs.models

        yield from self._until(Phase.ROOM, [], is_there, _ROOM_WITHIN_S)

    def _free_numbers(self) -> list[int]:
        return [n for n in range(self.served.most.workers) if n not in self._pool.workers]

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
            self.served.entries,
            self._said(plan),
            self._forwarding,
            models=self.served.most.models,
            generation=self._generation + 1,
        )
        self._generation += len(entered)
        self.served.expect_whole(plan, entered.values())
        slots = self._slots(plan)
        if slots:
            self.served.enter(plan, entered.values())
            self._effects.append(ShowTable())
        for slot in slots:
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

    def _switch(
        self, plan: ChangePlan, entered: Mapping[str, ModelSpec], files: Mapping[str, ModelFile]
    ) -> Switched:
        """Have the new entries serve and the old ones retire. From then on nothing is undone."""
        switched = self.served.switch(plan, entered, files)
        self._effects.append(ShowTable())
        self._loaded -= {spec.reference for spec in entered.values()}
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
        before = plan.undone(self.served.entries)
        if before != self.served.entries:
            self.served.publish(before)
            self._effects.append(ShowTable())
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


def _at_once() -> bool:
    return True


def _limit_s(slots: Iterable[ProcessSlot]) -> float:
    """What workers and collector may take together for one phase."""
    return max((slot.limits.load.s + slot.limits.warm_up.s for slot in slots), default=0) + _GRACE_S
