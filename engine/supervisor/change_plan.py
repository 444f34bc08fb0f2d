"""One change of one model: the workers that it takes, and the tables that it leads to. Pure.

    ROOM     until there are numbers for its workers, and indices for its entries
             its workers are started
    OPEN     until each has said what its model takes and returns
             the table is `entered`, and the workers are told of the segment
    LOAD     until each is ready, and the collector knows it
             the table is `switched`

Where a phase fails, the table is `undone`, and what served before serves on.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from ringbatch.engine.config.settings import ModelConfig
from ringbatch.engine.process.role_messages import Signature
from ringbatch.engine.supervisor.model_diff import Change
from ringbatch.engine.supervisor.model_versions import (
    Entries,
    Forwarding,
    account_of,
    adjusted,
    entry,
    free_indices,
    remote,
    with_entries,
    with_state,
    without_entries,
)
from ringbatch.shm.model_spec import LOADING, RETIRING, SERVING, ModelSpec

_UNFINISHED = "the engine did not come to an end with it"


class ChangeFailed(Exception):
    """A model could not be changed; what served before serves on. The text is for people."""


class Phase(Enum):
    """What a change waits for."""

    ROOM = "room"
    OPEN = "open"
    LOAD = "load"

    @property
    def late(self) -> str:
        """What is said where it does not come in time."""
        if self is Phase.ROOM:
            return "what was replaced before has not ended yet and leaves no room; try again later"
        return _UNFINISHED


class Room(NamedTuple):
    """For how many workers and models there is room in a segment, or in what is left of it."""

    workers: int
    models: int


def expect_over(phase: Phase, *, complete: bool, failures: Iterable[str]) -> None:
    """Look how a phase has ended: what it waited for has come, or failed, or its time is over.

    Args:
        phase: which.
        complete: whether what it waited for has come.
        failures: of its workers, why they have ended; empty for those that have not.

    Raises:
        ChangeFailed: its change goes no further.
    """
    if failure := next(filter(None, failures), ""):
        raise ChangeFailed(failure)
    if not complete:
        raise ChangeFailed(phase.late)


@dataclass(frozen=True, slots=True)
class Switched:
    """What holds once a change is made.

    Attributes:
        entries: the table.
        leaving: the numbers of the workers that are let go.
        gone: the references of the entries that retire.
    """

    entries: Entries
    leaving: tuple[int, ...]
    gone: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """What a change takes.

    Attributes:
        change: of one model.
        serving: the entries of that model that serve, by version.
        sizes: how many workers those that are loaded or adjusted are to have, by version.
        teams: how many of these are to be started, by version.
        chains: the references of the chain of that name, if one serves, whose place it takes.
        started: their numbers, once there is room for them.
    """

    change: Change
    serving: Mapping[str, ModelSpec]
    sizes: Mapping[str, int]
    teams: Mapping[str, int]
    chains: tuple[int, ...] = ()
    started: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, change: Change, entries: Entries) -> "ChangePlan":
        """For a change of what a table has."""
        own = [spec for spec in entries if spec.name == change.name and spec.state == SERVING]
        serving = {spec.version: spec for spec in own if spec.chain is None}
        chains = tuple(spec.reference for spec in own if spec.chain is not None)
        sizes = {model.version: _anew(model, serving.get(model.version)) for model in change.load}
        teams = dict(sizes)
        for model in change.adjust:
            spec = serving[model.version]
            running = change.running.get(model.version, spec.running)
            sizes[model.version] = size = model.processes_near(running)
            if (more := size - len(spec.workers)) > 0:
                teams[model.version] = more
        return cls(change, serving, sizes, teams, chains)

    @property
    def needs(self) -> Room:
        """What there must be room for."""
        return Room(sum(self.teams.values()), len(self.change.load))

    def expect_room(self, entries: Entries, most: Room) -> None:
        """Look whether there will ever be enough.

        Args:
            entries: of the table, before the change.
            most: what the segment has room for.

        Raises:
            ChangeFailed: there never will be.
        """
        serving = [spec for spec in entries if spec.state == SERVING]
        used = sum(len(spec.workers) for spec in serving)
        if used + self.needs.workers > most.workers:
            raise ChangeFailed(
                f"it needs {self.needs.workers} more workers; there is room for {most.workers}, "
                f"and {used} are in use. Restart the engine with a larger [server] spare_workers"
            )
        if (ever := self._ever(serving)) > most.workers:
            raise ChangeFailed(
                f"with it there may be {ever} workers, where the load wants them; there is room "
                f"for {most.workers}. Restart the engine, or lower the most of a range"
            )
        if len(serving) + self.needs.models > most.models:
            raise ChangeFailed(
                f"it needs {self.needs.models} more models; there is room for {most.models}, and "
                f"{len(serving)} are in use. Restart the engine"
            )

    def _ever(self, serving: Iterable[ModelSpec]) -> int:
        """How many workers there may be after it, where the load wants the most of all models."""
        changed = {model.version: model for model in (*self.change.load, *self.change.adjust)}
        gone = {*changed, *self.change.retire}
        others = (s for s in serving if s.name != self.change.name or s.version not in gone)
        kept = sum(max(len(spec.workers), spec.most + spec.spares) for spec in others)
        return kept + sum(model.most_processes for model in changed.values())

    def numbered(self, free: Iterable[int]) -> "ChangePlan":
        """The same with numbers for its workers, for which there is room."""
        numbers = iter(free)
        started = {
            version: tuple(next(numbers) for _ in range(count))
            for version, count in self.teams.items()
        }
        return replace(self, started=started)

    def starts(self) -> list[tuple[int, ModelConfig, int]]:
        """The workers to start: the number of each, its model, and which of that model's workers
        it is."""
        found = []
        for model in (*self.change.load, *self.change.adjust):
            is_new = model in self.change.load
            first = 0 if is_new else len(self.serving[model.version].workers)
            for index, number in enumerate(self.started.get(model.version, ()), first):
                found.append((number, model, index))
        return found

    def expect_agreement(self, said: Mapping[str, list[Signature]]) -> None:
        """Look whether the workers of each version have found the same.

        Args:
            said: by version, what its new workers say of their model.

        Raises:
            ChangeFailed: they have not.
        """
        for model in (*self.change.load, *self.change.adjust):
            signatures = [*said.get(model.version, ())]
            if model in self.change.adjust:
                spec = self.serving[model.version]
                signatures.append(
                    Signature(spec.inputs, spec.outputs, spec.tokens, spec.words is not None)
                )
            if any(signature != signatures[0] for signature in signatures):
                raise ChangeFailed(
                    "the model file now declares other inputs or outputs; "
                    f"run ringbatch reload --model {model.name}"
                )

    def loading(
        self,
        entries: Entries,
        said: Mapping[str, list[Signature]],
        forwarding: Forwarding,
        *,
        models: int,
        generation: int,
    ) -> dict[str, ModelSpec]:
        """The entries of what is loaded, by version.

        Args:
            entries: of the table, before.
            said: by version, what the new workers say of their model.
            forwarding: to the servers of others.
            models: how many entries there may be.
            generation: of the first of them; each has its own.
        """
        found: dict[str, ModelSpec] = {}
        loads = zip(self.change.load, free_indices(entries, models), strict=False)
        for number, (model, index) in enumerate(loads, generation):
            found[model.version] = entry(
                model,
                said[model.version][0],
                self.started[model.version],
                forwarding,
                index=index,
                account=account_of(model, (*entries, *found.values()), number, models),
                generation=number,
                state=LOADING,
            )
        return found

    def entered(self, entries: Entries, loading: Collection[ModelSpec]) -> Entries:
        """The table with what is loaded in it, and with the further workers of what is adjusted."""
        new = {spec.version for spec in loading}
        adjusted_to = {model.version: model for model in self.change.adjust}
        grown = []
        for version, spec in self._serving_in(entries).items():
            if version in self.started and version not in new:
                numbers = (*self.serving[version].workers, *self.started[version])
                far = remote(adjusted_to[version], numbers)
                grown.append(replace(spec, workers=numbers, remote=far))
        return with_entries(entries, [*loading, *grown])

    def switched(self, entries: Entries, loading: Collection[ModelSpec]) -> Switched:
        """The table in which the new entries serve and the old ones retire."""
        versions = {spec.version for spec in loading} | {*self.change.retire}
        old = [spec for version, spec in self.serving.items() if version in versions]
        leaving = [number for spec in old for number in spec.workers]
        now_adjusted = []
        serving = self._serving_in(entries)
        for model in self.change.adjust:
            before = self.serving[model.version]
            numbers = (*before.workers, *self.started.get(model.version, ()))
            size = self.sizes[model.version]
            leaving += numbers[size:]
            now_adjusted.append(adjusted(serving[model.version], model, numbers[:size]))
        gone = (*self.chains, *(spec.reference for spec in old))
        after = with_entries(entries, now_adjusted)
        after = with_state(after, {spec.reference for spec in loading}, SERVING)
        return Switched(with_state(after, gone, RETIRING), tuple(leaving), gone)

    def undone(self, entries: Entries) -> Entries:
        """The table as it was before, but for what has changed of other models.

        Args:
            entries: of the table, at any time before it is switched.
        """
        own = [spec for spec in entries if spec.name == self.change.name]
        loading = {spec.reference for spec in own if spec.state == LOADING}
        before = [
            replace(spec, workers=was.workers, remote=was.remote)
            for version, spec in self._serving_in(entries).items()
            if version in self.started and (was := self.serving[version])
        ]
        return with_entries(without_entries(entries, loading), before)

    def _serving_in(self, entries: Entries) -> dict[str, ModelSpec]:
        """The entries of `serving` as a table has them, which others may have published since."""
        now = {spec.reference: spec for spec in entries}
        return {version: now[spec.reference] for version, spec in self.serving.items()}


def _anew(model: ModelConfig, before: ModelSpec | None) -> int:
    """How many workers a version gets that is loaded: as many as the one in whose stead it comes,
    where the load decides, and one at the least that says what it takes and returns."""
    if before is None:
        return model.processes
    return max(model.processes_near(before.running), model.processes)
