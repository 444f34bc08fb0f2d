"""Plan of one model's change: the workers to start, and the model tables before and after. Pure.

    ROOM     until there are numbers for its workers, and indices for its entries
             its workers are started
    OPEN     until each has reported its model's inputs and outputs
             the table is `entered`, and the workers attach to the segment
    LOAD     until each is ready, and the collector knows it
             the table is `switched`

If a phase fails, the table is `undone`, and the models from before serve on.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from ringbatch.engine.config.settings import ModelConfig
from ringbatch.engine.process.role_events import Signature
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
from ringbatch.shm.model_spec import LOADING, MOST_PLACES, RETIRING, SERVING, ModelSpec

_UNFINISHED = "the engine did not come to an end with it"


class ChangeFailed(Exception):
    """A model could not be changed, and serves as before; the text says why."""


class ChangePhase(Enum):
    """Condition that a change waits for."""

    ROOM = "room"
    OPEN = "open"
    LOAD = "load"

    @property
    def late(self) -> str:
        """Message for a phase that takes too long."""
        if self is ChangePhase.ROOM:
            return "what was replaced before has not ended yet and leaves no room; try again later"
        return _UNFINISHED


class Capacity(NamedTuple):
    """Number of workers and models that a segment, or what is left of it, has room for."""

    workers: int
    models: int


def expect_over(phase: ChangePhase, *, complete: bool, failures: Iterable[str]) -> None:
    """Check that a phase is complete, once it has ended or its time is over.

    Args:
        phase: the phase to check.
        complete: True if its condition holds.
        failures: why its workers have ended; empty for those that have not.

    Raises:
        ChangeFailed: its change goes no further.
    """
    if failure := next(filter(None, failures), ""):
        raise ChangeFailed(failure)
    if not complete:
        raise ChangeFailed(phase.late)


@dataclass(frozen=True, slots=True)
class Switched:
    """The state after a change has taken effect.

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
    """The plan of one model's change.

    Attributes:
        change: of one model.
        serving: the entries of that model that serve, by version.
        sizes: the number of workers of each loaded or adjusted version, after the change.
        teams: how many of these are to be started, by version.
        chains: the reference of a chain of that name that the model replaces, if one serves.
        started: the numbers of the started workers, once there is room for them.
    """

    change: Change
    serving: Mapping[str, ModelSpec]
    sizes: Mapping[str, int]
    teams: Mapping[str, int]
    chains: tuple[int, ...] = ()
    started: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, change: Change, entries: Entries) -> "ChangePlan":
        """Return the plan for a change of a table."""
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
    def needs(self) -> Capacity:
        """Workers and models that the change needs."""
        return Capacity(sum(self.teams.values()), len(self.change.load))

    def expect_room(self, entries: Entries, most: Capacity) -> None:
        """Check that there can ever be enough room.

        Args:
            entries: of the table, before the change.
            most: the room of the whole segment.

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

    def expect_places(self) -> None:
        """Check that workers which go on can run as many rows as they are to.

        Raises:
            ChangeFailed: a model in steps would have more than `MOST_PLACES`.
        """
        for model in self.change.adjust:
            if self.serving[model.version].places and model.max_batch_size > MOST_PLACES:
                raise ChangeFailed(
                    f"the model works in steps, so max_batch_size, which is {model.max_batch_size},"
                    " must be the number of rows that a worker runs at once, from 1 to "
                    f"{MOST_PLACES}"
                )

    def _ever(self, serving: Iterable[ModelSpec]) -> int:
        """Return the number of workers after the change if the load wants the most everywhere."""
        changed = {model.version: model for model in (*self.change.load, *self.change.adjust)}
        gone = {*changed, *self.change.retire}
        others = (s for s in serving if s.name != self.change.name or s.version not in gone)
        kept = sum(max(len(spec.workers), spec.most + spec.spares) for spec in others)
        return kept + sum(model.most_processes for model in changed.values())

    def numbered(self, free: Iterable[int]) -> "ChangePlan":
        """Return the plan with numbers for its workers, for which there is room."""
        numbers = iter(free)
        started = {
            version: tuple(next(numbers) for _ in range(count))
            for version, count in self.teams.items()
        }
        return replace(self, started=started)

    def starts(self) -> list[tuple[int, ModelConfig, int]]:
        """Return the number, the model and the index within the model of each worker to start."""
        found = []
        for model in (*self.change.load, *self.change.adjust):
            is_new = model in self.change.load
            first = 0 if is_new else len(self.serving[model.version].workers)
            for index, number in enumerate(self.started.get(model.version, ()), first):
                found.append((number, model, index))
        return found

    def expect_agreement(self, signatures_by_version: Mapping[str, list[Signature]]) -> None:
        """Check that all workers of a version report the same signature.

        Args:
            signatures_by_version: by version, the signatures that its new workers report.

        Raises:
            ChangeFailed: they differ.
        """
        for model in (*self.change.load, *self.change.adjust):
            signatures = [*signatures_by_version.get(model.version, ())]
            if model in self.change.adjust:
                spec = self.serving[model.version]
                signatures.append(
                    Signature(
                        spec.inputs,
                        spec.outputs,
                        spec.tokens,
                        spec.words is not None,
                        spec.in_parts,
                        spec.places > 0,
                        spec.generator,
                        spec.resumes,
                        spec.numbered,
                    )
                )
            if any(signature != signatures[0] for signature in signatures):
                raise ChangeFailed(
                    "the model file now declares other inputs or outputs; "
                    f"run ringbatch reload --model {model.name}"
                )

    def loading(
        self,
        entries: Entries,
        signatures_by_version: Mapping[str, list[Signature]],
        forwarding: Forwarding,
        *,
        models: int,
        generation: int,
    ) -> dict[str, ModelSpec]:
        """Return the entries of the loaded versions, by version.

        Args:
            entries: of the table, before.
            signatures_by_version: by version, the signatures that the new workers report.
            forwarding: to model servers.
            models: the most entries of the table.
            generation: of the first of them; each has its own.
        """
        found: dict[str, ModelSpec] = {}
        loads = zip(self.change.load, free_indices(entries, models), strict=False)
        for number, (model, index) in enumerate(loads, generation):
            found[model.version] = entry(
                model,
                signatures_by_version[model.version][0],
                self.started[model.version],
                forwarding,
                index=index,
                account=account_of(model, (*entries, *found.values()), number, models),
                generation=number,
                state=LOADING,
            )
        return found

    def entered(self, entries: Entries, loading: Collection[ModelSpec]) -> Entries:
        """Return the table with the loaded entries, and further workers of adjusted ones."""
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
        """Return the table in which the new entries serve and the old ones retire."""
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
        """Return the table as it was before, but with later changes of other models.

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
        """Return the entries of `serving` as a table has them now, after other changes."""
        now = {spec.reference: spec for spec in entries}
        return {version: now[spec.reference] for version, spec in self.serving.items()}


def with_new_workers(change: Change, entries: Entries) -> Change:
    """Return a change that loads versions whose workers cannot get another number of places.

    Args:
        change: adjusts versions of a model.
        entries: of the table.
    """
    places = {
        spec.version: spec.places
        for spec in entries
        if spec.name == change.name and spec.state == SERVING and spec.numbered
    }
    load = tuple(
        model
        for model in change.adjust
        if places.get(model.version, model.max_batch_size) != model.max_batch_size
    )
    kept = tuple(model for model in change.adjust if model not in load)
    return replace(change, load=(*change.load, *load), adjust=kept)


def _anew(model: ModelConfig, before: ModelSpec | None) -> int:
    """Return the number of workers of a version that is loaded.

    An autoscaled version gets as many as the version it replaces, and at least one that reports its
    signature.
    """
    if before is None:
        return model.processes
    return max(model.processes_near(before.running), model.processes)
