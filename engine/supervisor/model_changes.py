"""Models that come, go and change while the engine serves.

One order is carried out after the other, and each model of it in these steps, so that whatever
fails or dies leaves what served before:

    start    workers are started for what is to be loaded, under numbers that are free
    enter    once they have said what the model takes, the model table gets an entry to be loaded
    switch   once all are ready, one store has the new entries serve and the old ones retire
    retire   what was sent before is answered; then the collector lets the old workers go

The steps are generators that yield what they wait for; the supervisor's loop asks after each turn
whether it has come.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, Protocol

from ringbatch.engine.config.document import ConfigError
from ringbatch.engine.config.settings import Config, ModelConfig
from ringbatch.engine.process.role_messages import Signature
from ringbatch.engine.runtimes.model_file import ModelFile
from ringbatch.engine.supervisor.model_diff import Change, compare, differing
from ringbatch.engine.supervisor.model_versions import (
    Entries,
    Forwarding,
    adjusted,
    entry,
    free_indices,
    is_forwarded,
    with_entries,
    with_state,
    without_entries,
)
from ringbatch.engine.supervisor.process_slot import ProcessSlot
from ringbatch.shm.host.control_socket import Order, Report
from ringbatch.shm.model_spec import LOADING, RETIRING, SERVING, ModelSpec
from ringbatch.shm.segment import Segment

logger = logging.getLogger("ringbatch.supervisor")

MAX_ORDERS: Final = 64
"""Orders that may wait for their turn."""

_GRACE_S: Final = 30.0
"""What the engine itself may take for what a model's workers have their own limits for."""
_ROOM_WITHIN_S: Final = 120.0
"""How long a change waits for what an earlier one replaced."""

Condition = Callable[[], bool]
Steps = Iterator[Condition]
Reply = Callable[[Report], None]
Numbers = Mapping[str, tuple[int, ...]]
"""Of the workers that are started, by version."""


class ChangeFailed(Exception):
    """A model could not be changed; what served before serves on. The text is for people."""


class Pool(Protocol):
    """What model changes need of the worker pool.

    Attributes:
        workers: the process slots of the workers, by number.
    """

    workers: dict[int, ProcessSlot]

    def start(self, number: int, model: ModelConfig, index: int, file: ModelFile) -> None:
        """Start a worker that is not started again where it dies. Where none can be started, its
        slot says why.

        Args:
            number: which.
            model: that it is to hold.
            index: which of that model's workers it is.
            file: what it is to load.
        """

    def introduce(self, slot: ProcessSlot) -> None:
        """Tell a worker of the segment, so that it loads its model."""

    def end(self, slot: ProcessSlot) -> None:
        """End a worker that nothing is expected of."""

    def table_changed(self) -> None:
        """Have the collector look at the table."""


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
        pool: Pool,
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

    def take(self, order: Order, reply: Reply) -> None:
        """Carry an order out when those before it are; `reply` is called once."""
        if len(self._orders) >= MAX_ORDERS:
            reply(Report("failed", (f"{MAX_ORDERS} changes wait already; try again later",)))
            return
        self._orders.append((order, reply))

    def advance(self) -> None:
        """Go on as far as it goes; after every turn of the supervisor's loop."""
        while self._steps is not None or self._orders:
            if self._steps is None:
                order, self._reply = self._orders.popleft()
                self._steps, self._awaited = self._carry_out(order, self._reply), _at_once
            if not (self._awaited() or self._is_late()):
                return
            following = next(self._steps, None)
            if following is None:
                self._steps = self._reply = None
            else:
                self._awaited = following

    def break_off(self) -> None:
        """What is carried out has failed as nobody expected: those behind it have their turn, but
        where it could not even be undone; then this raises `ChangeFailed`."""
        reply, self._reply, self._steps = self._reply, None, None
        self.limit_ns = None
        if reply is not None:
            reply(Report("failed", ("ringbatch has failed; the engine's log says how",)))
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

    def holds(self, number: int) -> bool:
        """Whether the table has a worker of that number."""
        return any(number in spec.workers for spec in self._entries)

    def _carry_out(self, order: Order, reply: Reply) -> Steps:
        try:
            changes, lines = self._plan(order)
        except _UnknownModel as unknown:
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
            own = tuple(model.version for model in serving if model.name == order.model)
            if not own:
                raise _UnknownModel(order.model, serving, "the engine serves")
            return [Change(order.model or "", retire=own)], []
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
        wanted = [model for model in config.models if model.name == order.model]
        if not wanted:
            raise _UnknownModel(order.model, config.models, "the configuration has")
        own_serving = [model for model in serving if model.name == order.model]
        return compare(own_serving, wanted, lambda _: True), lines

    def _is_another_file(self, model: ModelConfig) -> bool:
        references = (ref for ref, serving in self.serving.items() if serving is model)
        return any(self.files[reference].differs() for reference in references)

    def _change(self, change: Change) -> Steps:
        before = [model for model in self.serving.values() if model.name == change.name]
        if any(map(is_forwarded, (*change.load, *change.adjust, *before))):
            # Frontends look at where its requests go when they start, and at heads only once.
            raise ChangeFailed("a model that another server runs cannot change; restart the engine")
        serving = {
            spec.version: spec
            for spec in self._entries
            if spec.name == change.name and spec.state == SERVING
        }
        teams = [(model, model.processes) for model in change.load]
        teams += [
            (model, more)
            for model in change.adjust
            if (more := model.processes - len(serving[model.version].workers)) > 0
        ]
        yield from self._await_room(sum(count for _, count in teams), len(change.load))
        numbers = iter(self._free_numbers())
        started = {
            model.version: tuple(next(numbers) for _ in range(count)) for model, count in teams
        }
        files = {model.version: ModelFile(model.path) for model in change.load}
        files |= {
            model.version: self.files[serving[model.version].reference] for model in change.adjust
        }
        try:
            yield from self._start_workers(change, started, serving, files)
            entered = yield from self._enter(change, started, serving)
            self._switch(change, started, serving, entered)
        except Exception:
            self._undo(started, serving)
            raise
        for version, spec in entered.items():
            self.files[spec.reference] = files[version]

    def _await_room(self, workers: int, models: int) -> Steps:
        """Until retired workers and models have left enough room.

        Raises:
            ChangeFailed: there never will be enough.
        """
        layout = self._segment.layout
        serving = [spec for spec in self._entries if spec.state == SERVING]
        used = sum(len(spec.workers) for spec in serving)
        if used + workers > layout.workers:
            raise ChangeFailed(
                f"it needs {workers} more workers; there is room for {layout.workers}, and "
                f"{used} are in use. Restart the engine with a larger [server] spare_workers"
            )
        if len(serving) + models > layout.models:
            raise ChangeFailed(
                f"it needs {models} more models; there is room for {layout.models}, and "
                f"{len(serving)} are in use. Restart the engine"
            )
        yield from self._wait(
            lambda: (
                len(self._free_numbers()) >= workers
                and len(free_indices(self._entries, layout.models)) >= models
            ),
            _ROOM_WITHIN_S,
            "what was replaced before has not ended yet and leaves no room; try again later",
        )

    def _free_numbers(self) -> list[int]:
        return [n for n in range(self._segment.layout.workers) if n not in self._pool.workers]

    def _start_workers(
        self,
        change: Change,
        started: Numbers,
        serving: Mapping[str, ModelSpec],
        files: Mapping[str, ModelFile],
    ) -> Steps:
        """Start workers, and wait until each has said what its model takes and returns."""
        for model in (*change.load, *change.adjust):
            is_new = model in change.load
            first = 0 if is_new else len(serving[model.version].workers)
            for index, number in enumerate(started.get(model.version, ()), first):
                self._pool.start(number, model, index, files[model.version])
        slots = self._slots(started)
        yield from self._until(slots, lambda: all(p.signature is not None for p in slots))
        for model in (*change.load, *change.adjust):
            team = self._slots({"": started.get(model.version, ())})
            said = [slot.signature for slot in team]
            if model in change.adjust and said:
                said.append(_signature_of(serving[model.version]))
            if any(one != said[0] for one in said):
                raise ChangeFailed(
                    "the model file now declares other inputs or outputs; "
                    f"run ringbatch reload {model.name}"
                )

    def _enter(
        self, change: Change, started: Numbers, serving: Mapping[str, ModelSpec]
    ) -> Generator[Condition, None, dict[str, ModelSpec]]:
        """Have the new workers load their models, and wait until all are ready.

        Returns:
            The new entries by version.
        """
        free = iter(free_indices(self._entries, self._segment.layout.models))
        entered = {}
        for model in change.load:
            numbers = started[model.version]
            signature = self._pool.workers[numbers[0]].signature
            assert signature is not None, "it was waited for"
            self._generation += 1
            entered[model.version] = entry(
                model,
                signature,
                numbers,
                self._forwarding,
                index=next(free),
                generation=self._generation,
                state=LOADING,
            )
        grown = [
            replace(spec, workers=(*spec.workers, *started[version]))
            for version, spec in serving.items()
            if version in started and version not in entered
        ]
        for spec in entered.values():
            self._segment.model_table.clear_place(spec.index)
        slots = self._slots(started)
        if slots:
            self._publish(with_entries(self._entries, [*entered.values(), *grown]))
        for slot in slots:
            slot.known = True
            self._pool.introduce(slot)
        new = {spec.reference for spec in entered.values()}
        yield from self._until(
            slots, lambda: all(slot.ready_ns for slot in slots) and new <= self._loaded
        )
        return entered

    def _switch(
        self,
        change: Change,
        started: Numbers,
        serving: Mapping[str, ModelSpec],
        entered: Mapping[str, ModelSpec],
    ) -> None:
        """Have the new entries serve and the old ones retire, in one store."""
        old = [spec for v, spec in serving.items() if v in entered or v in change.retire]
        new = {spec.reference for spec in entered.values()}
        going = [number for spec in old for number in spec.workers]
        now_adjusted = []
        for model in change.adjust:
            spec = serving[model.version]
            numbers = (*spec.workers, *started.get(model.version, ()))
            going += numbers[model.processes :]
            now_adjusted.append(adjusted(spec, model, numbers[: model.processes]))
        entries = with_entries(self._entries, now_adjusted)
        entries = with_state(entries, new, SERVING)
        self._publish(with_state(entries, {spec.reference for spec in old}, RETIRING))
        for slot in self._slots(started):
            slot.lasting = True
        for number in going:
            self._pool.workers[number].let_go()
        for spec in old:
            del self.serving[spec.reference], self.files[spec.reference]
        for model in change.load:
            self.serving[entered[model.version].reference] = model
        for model in change.adjust:
            self.serving[serving[model.version].reference] = model
        self._loaded -= new

    def _undo(self, started: Numbers, serving: Mapping[str, ModelSpec]) -> None:
        """Take back what was entered and let the workers go; the collector does so with those it
        knows of."""
        before = without_entries(
            self._entries, {s.reference for s in self._entries if s.state == LOADING}
        )
        before = with_entries(before, [s for s in serving.values() if s.version in started])
        if before != self._entries:
            self._publish(before)
        for slot in self._slots(started):
            if not slot.known:
                self._pool.end(slot)

    def _until(self, slots: list[ProcessSlot], done: Condition) -> Steps:
        """Wait for the workers in these slots.

        Raises:
            ChangeFailed: one of them, or the collector, does not do what is waited for.
        """
        limits = [slot.limits.load_s + slot.limits.warm_up_s for slot in slots]
        yield from self._wait(
            lambda: any(slot.failure for slot in slots) or done(),
            max(limits, default=0) + _GRACE_S,
            "the engine did not come to an end with it",
        )
        for slot in slots:
            if slot.failure:
                raise ChangeFailed(slot.failure)

    def _wait(self, condition: Condition, limit_s: float, otherwise: str) -> Steps:
        """Until something holds.

        Raises:
            ChangeFailed: it does not within that time; with the text `otherwise`.
        """
        self.limit_ns = self._clock_ns() + int(limit_s * 1e9)
        yield condition
        self.limit_ns = None
        if not condition():
            raise ChangeFailed(otherwise)

    def _is_late(self) -> bool:
        return self.limit_ns is not None and self._clock_ns() >= self.limit_ns

    def _slots(self, started: Numbers) -> list[ProcessSlot]:
        numbers = [number for team in started.values() for number in team]
        # Where a change fails early, not all have a slot.
        return [self._pool.workers[n] for n in numbers if n in self._pool.workers]

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
        self._pool.table_changed()


class _UnknownModel(Exception):
    def __init__(self, name: str | None, known: tuple[ModelConfig, ...], who: str) -> None:
        names = ", ".join(dict.fromkeys(model.name for model in known)) or "none"
        super().__init__(f'{who} no model "{name}"; there is: {names}')


def _at_once() -> bool:
    return True


def _signature_of(spec: ModelSpec) -> Signature:
    return Signature(spec.inputs, spec.outputs)
