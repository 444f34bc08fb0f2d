"""Models that come, go and change while the engine serves.

One order is carried out after the other, and each model of it in these steps, so that whatever
fails or dies leaves what served before:

    hire     workers are started for what is to be loaded, in places that are free
    enter    once they have said what the model takes, it is entered in the table, to be loaded
    switch   once all are ready, one store has the new entries serve and the old ones retire
    retire   what was sent before is answered; then the collector lets the old workers go

The steps are generators that yield what they wait for; the supervisor's loop asks after each turn
whether it has come.
"""

import logging
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, Protocol

from ringbatch.engine.changes import Change, compare, differing
from ringbatch.engine.config import ConfigError
from ringbatch.engine.entries import (
    Entries,
    Forwarding,
    adjusted,
    entry,
    free_places,
    is_forwarded,
    signature_of,
    with_entries,
    with_state,
    without_entries,
)
from ringbatch.engine.place import Place
from ringbatch.engine.settings import Config, ModelConfig
from ringbatch.shm.control import Order, Report
from ringbatch.shm.manifest import LOADING, RETIRING, SERVING, ModelSpec
from ringbatch.shm.segment import Segment

logger = logging.getLogger("ringbatch.supervisor")

MAX_ORDERS: Final = 64
"""Orders that may wait for their turn."""

Condition = Callable[[], bool]
Steps = Iterator[Condition]
Reply = Callable[[Report], None]
Stamp = tuple[int, ...]


class ChangeFailed(Exception):
    """A model could not be changed; what served before serves on. The text is for people."""


class Crew(Protocol):
    """What live changes need of the supervisor.

    Attributes:
        workers: the places of the workers, by number.
    """

    workers: dict[int, Place]

    def hire(self, number: int, model: ModelConfig, index: int) -> None:
        """Start a worker that is not started again where it dies; raises `OSError` where it cannot
        be started.

        Args:
            number: which.
            model: that it is to hold.
            index: which of that model's workers it is.
        """

    def introduce(self, place: Place) -> None:
        """Tell a worker of the segment, so that it loads its model."""

    def dismiss(self, place: Place) -> None:
        """End a worker that nothing is expected of."""

    def table_changed(self) -> None:
        """Have the collector look at the table."""


class LiveChanges:
    """What an engine serves, and the orders to change it.

    Args:
        crew: the supervisor.
        segment: the engine's.
        config: with which it was started.
        entries: what serves, in the order of the configuration.
        stamps: of the files, in the same order, from before they were loaded.
        reread: reads the configuration again; raises `ConfigError`.
        forwarding: to the servers of others.
    """

    def __init__(
        self,
        crew: Crew,
        segment: Segment,
        config: Config,
        entries: Entries,
        stamps: Iterable[Stamp],
        reread: Callable[[], Config],
        forwarding: Forwarding,
    ) -> None:
        self._crew = crew
        self._segment = segment
        self._server = config.server
        self._wanted = config.models
        self._entries = entries
        self._reread = reread
        self._forwarding = forwarding
        self._serving = {
            spec.reference: model for spec, model in zip(entries, config.models, strict=True)
        }
        self._stamps = dict(zip(self._serving, stamps, strict=True))
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
            if not self._awaited():
                return
            following = next(self._steps, None)
            if following is None:
                self._steps = self._reply = None
            else:
                self._awaited = following

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
        serving = tuple(self._serving.values())
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
        references = (ref for ref, serving in self._serving.items() if serving is model)
        return any(self._stamps[reference] != stamp(model) for reference in references)

    def _change(self, change: Change) -> Steps:
        before = [model for model in self._serving.values() if model.name == change.name]
        if any(map(is_forwarded, (*change.load, *change.adjust, *before))):
            # Frontends look at where its requests go when they start, and at heads only once.
            raise ChangeFailed("a model that another server runs cannot change; restart the engine")
        serving = {
            spec.version: spec
            for spec in self._entries
            if spec.name == change.name and spec.state == SERVING
        }
        teams = [(model, model.workers) for model in change.load]
        teams += [
            (model, more)
            for model in change.adjust
            if (more := model.workers - len(serving[model.version].workers)) > 0
        ]
        yield from self._await_room(sum(count for _, count in teams), len(change.load))
        numbers = iter(self._free_numbers())
        hired = {
            model.version: tuple(next(numbers) for _ in range(count)) for model, count in teams
        }
        stamps = {model.version: stamp(model) for model in change.load}
        try:
            yield from self._hire(change, hired, serving)
            entered = yield from self._enter(change, hired, serving)
            self._switch(change, hired, serving, entered)
        except ChangeFailed:
            self._undo(hired, serving)
            raise
        for version, spec in entered.items():
            self._stamps[spec.reference] = stamps[version]

    def _await_room(self, workers: int, models: int) -> Steps:
        """Until retired workers and models have left enough places.

        Raises:
            ChangeFailed: there never will be enough.
        """
        layout = self._segment.layout
        serving = [spec for spec in self._entries if spec.state == SERVING]
        used = sum(len(spec.workers) for spec in serving)
        if used + workers > layout.workers:
            raise ChangeFailed(
                f"it needs {workers} more places for workers; there are {layout.workers}, and "
                f"{used} are in use. Restart the engine with a larger [server] spare_workers"
            )
        if len(serving) + models > layout.models:
            raise ChangeFailed(
                f"it needs {models} more places for models; there are {layout.models}, and "
                f"{len(serving)} are in use. Restart the engine"
            )
        yield (
            lambda: (
                len(self._free_numbers()) >= workers
                and len(free_places(self._entries, layout.models)) >= models
            )
        )

    def _free_numbers(self) -> list[int]:
        return [n for n in range(self._segment.layout.workers) if n not in self._crew.workers]

    def _hire(
        self,
        change: Change,
        hired: Mapping[str, tuple[int, ...]],
        serving: Mapping[str, ModelSpec],
    ) -> Steps:
        """Start workers, and wait until each has said what its model takes and returns."""
        for model in (*change.load, *change.adjust):
            is_new = model in change.load
            first = 0 if is_new else len(serving[model.version].workers)
            for index, number in enumerate(hired.get(model.version, ()), first):
                try:
                    self._crew.hire(number, model, index)
                except OSError as error:
                    raise ChangeFailed(f"no process can be started: {error.strerror}") from None
        places = self._places(hired)
        yield from self._until(places, lambda: all(p.signature is not None for p in places))
        for model in (*change.load, *change.adjust):
            team = self._places({"": hired.get(model.version, ())})
            said = [place.signature for place in team]
            if model in change.adjust and said:
                said.append(signature_of(serving[model.version]))
            if any(_tensors(one) != _tensors(said[0]) for one in said):
                raise ChangeFailed(
                    "the model file now declares other inputs or outputs; "
                    f"run ringbatch reload {model.name}"
                )

    def _enter(
        self,
        change: Change,
        hired: Mapping[str, tuple[int, ...]],
        serving: Mapping[str, ModelSpec],
    ) -> Generator[Condition, None, dict[str, ModelSpec]]:
        """Have the new workers load their models, and wait until all are ready.

        Returns:
            The new entries by version.
        """
        free = iter(free_places(self._entries, self._segment.layout.models))
        entered = {}
        for model in change.load:
            numbers = hired[model.version]
            signature = self._crew.workers[numbers[0]].signature
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
            replace(spec, workers=(*spec.workers, *hired[version]))
            for version, spec in serving.items()
            if version in hired and version not in entered
        ]
        for spec in entered.values():
            self._segment.table.clear_place(spec.index)
        places = self._places(hired)
        if places:
            self._publish(with_entries(self._entries, [*entered.values(), *grown]))
        for place in places:
            place.known = True
            self._crew.introduce(place)
        new = {spec.reference for spec in entered.values()}
        yield from self._until(
            places, lambda: all(place.ready_ns for place in places) and new <= self._loaded
        )
        return entered

    def _switch(
        self,
        change: Change,
        hired: Mapping[str, tuple[int, ...]],
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
            numbers = (*spec.workers, *hired.get(model.version, ()))
            going += numbers[model.workers :]
            now_adjusted.append(adjusted(spec, model, numbers[: model.workers]))
        entries = with_entries(self._entries, now_adjusted)
        entries = with_state(entries, new, SERVING)
        self._publish(with_state(entries, {spec.reference for spec in old}, RETIRING))
        for place in self._places(hired):
            place.lasting = True
        for number in going:
            self._crew.workers[number].let_go()
        for spec in old:
            del self._serving[spec.reference], self._stamps[spec.reference]
        for model in change.load:
            self._serving[entered[model.version].reference] = model
        for model in change.adjust:
            self._serving[serving[model.version].reference] = model
        self._loaded -= new

    def _undo(self, hired: Mapping[str, tuple[int, ...]], serving: Mapping[str, ModelSpec]) -> None:
        """Take back what was entered and let the workers go; the collector does so with those it
        knows of."""
        before = without_entries(
            self._entries, {s.reference for s in self._entries if s.state == LOADING}
        )
        before = with_entries(before, [s for s in serving.values() if s.version in hired])
        if before != self._entries:
            self._publish(before)
        for place in self._places(hired):
            if not place.known:
                self._crew.dismiss(place)

    def _until(self, places: list[Place], done: Condition) -> Steps:
        yield lambda: any(place.failure for place in places) or done()
        for place in places:
            if place.failure:
                raise ChangeFailed(place.failure)

    def _places(self, hired: Mapping[str, tuple[int, ...]]) -> list[Place]:
        numbers = [number for team in hired.values() for number in team]
        # Where one cannot be started, none of those behind it has a place.
        return [self._crew.workers[n] for n in numbers if n in self._crew.workers]

    def _publish(self, entries: Entries) -> None:
        """Have another table hold, its models in the order of the configuration."""
        names = [model.name for model in self._wanted]
        place_of = {name: place for place, name in enumerate(dict.fromkeys(names))}
        ordered = tuple(sorted(entries, key=lambda s: place_of.get(s.name, len(place_of))))
        try:
            self._segment.table.publish(ordered)
        except ValueError as error:
            raise ChangeFailed(f"there is no room for more models: {error}") from None
        self._entries = ordered
        self._crew.table_changed()


class _UnknownModel(Exception):
    def __init__(self, name: str | None, known: tuple[ModelConfig, ...], who: str) -> None:
        names = ", ".join(dict.fromkeys(model.name for model in known)) or "none"
        super().__init__(f'{who} no model "{name}"; there is: {names}')


def _at_once() -> bool:
    return True


def _tensors(signature: Mapping[str, object] | None) -> tuple[object, object]:
    assert signature is not None, "it was waited for"
    return signature["inputs"], signature["outputs"]


def stamp(model: ModelConfig) -> Stamp:
    """What tells one content of a model file from the next; nothing where there is no file."""
    try:
        found = os.stat(model.path)
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
