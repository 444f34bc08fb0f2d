"""What an engine serves: its model table, of which this is the one writer, and what each model of
it was loaded from."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from ringbatch.engine.config.limit_words import batch_timeout
from ringbatch.engine.config.settings import ModelConfig
from ringbatch.engine.runtimes.model_file import ModelFile
from ringbatch.engine.supervisor.change_plan import ChangeFailed, ChangePlan, Room, Switched
from ringbatch.engine.supervisor.model_versions import Entries, free_indices, without_entries
from ringbatch.shm.model_spec import RETIRING, ModelSpec
from ringbatch.shm.segment import Segment


class ServedModels:
    """See above.

    Attributes:
        entries: the table.
        models: the models that serve, by the references of their entries.
        files: what each of them was loaded from, by reference too.
        order: the models as they are configured, in whose order the table has them.

    Args:
        segment: the engine's.
        entries: what its table has at the start.
        models: as they are configured, in the same order.
        files: what they were loaded from, in the same order.
    """

    def __init__(
        self,
        segment: Segment,
        entries: Entries,
        models: tuple[ModelConfig, ...],
        files: Iterable[ModelFile],
    ) -> None:
        self._segment = segment
        self.entries = entries
        self.models = {spec.reference: model for spec, model in zip(entries, models, strict=True)}
        self.files = dict(zip(self.models, files, strict=True))
        self.order = models

    @property
    def most(self) -> Room:
        """What the segment has room for."""
        return Room(self._segment.layout.workers, self._segment.layout.models)

    @property
    def free_indices(self) -> list[int]:
        """Those that no entry has."""
        return free_indices(self.entries, self.most.models)

    @property
    def entered(self) -> set[int]:
        """The numbers of the workers that the table has."""
        return {number for spec in self.entries for number in spec.workers}

    @property
    def differing(self) -> set[int]:
        """The entries at whose paths other files lie, as far as the table says so."""
        return {spec.reference for spec in self.entries if spec.file_differs}

    def is_another_file(self, model: ModelConfig) -> bool:
        """Whether another file lies at the path of a model that serves."""
        references = (ref for ref, serving in self.models.items() if serving is model)
        return any(self.files[reference].differs() for reference in references)

    def publish(self, entries: Entries) -> None:
        """Have another table hold.

        Raises:
            ChangeFailed: there is no room for it; the one before holds.
        """
        names = [model.name for model in self.order]
        position_of = {name: position for position, name in enumerate(dict.fromkeys(names))}
        ordered = tuple(sorted(entries, key=lambda s: position_of.get(s.name, len(position_of))))
        try:
            self._segment.model_table.publish(ordered)
        except ValueError as error:
            raise ChangeFailed(f"there is no room for more models: {error}") from None
        self.entries = ordered

    def enter(self, plan: ChangePlan, loading: Collection[ModelSpec]) -> None:
        """Have the table hold that has what a change loads in it.

        Raises:
            ChangeFailed: as of `publish`.
        """
        for spec in loading:
            self._segment.model_table.clear_place(spec.index)
        self.publish(plan.entered(self.entries, loading))

    def switch(
        self, plan: ChangePlan, entered: Mapping[str, ModelSpec], files: Mapping[str, ModelFile]
    ) -> Switched:
        """Have the new entries of a change serve and the old ones retire, in one store.

        Args:
            plan: of the change.
            entered: the new entries by version.
            files: what they are loaded from, by version.

        Raises:
            ChangeFailed: as of `publish`.
        """
        switched = plan.switched(self.entries, entered.values())
        self.publish(switched.entries)
        for reference in switched.gone:
            del self.models[reference], self.files[reference]
        for model in plan.change.load:
            reference = entered[model.version].reference
            self.models[reference], self.files[reference] = model, files[model.version]
        for model in plan.change.adjust:
            self.models[plan.serving[model.version].reference] = model
        return switched

    def differ(self, references: Collection[int]) -> bool:
        """Other files lie at the paths of these entries, and of these alone; whether that is
        news."""
        known = self.files.keys() & references
        if self.differing == known:
            return False
        self.publish(tuple(replace(s, file_differs=s.reference in known) for s in self.entries))
        return True

    def drained(self, reference: int) -> bool:
        """Nothing of a retiring entry is left; whether there was such an entry."""
        if not any(s.reference == reference and s.state == RETIRING for s in self.entries):
            return False
        self.publish(without_entries(self.entries, {reference}))
        return True


def overrun(served: ServedModels | None, worker: int) -> str:
    """What a worker has done that does not come back from a batch, for people.

    Args:
        served: None while the engine starts.
        worker: its number.
    """
    models = {} if served is None else served.models
    entries = () if served is None else served.entries
    for spec in entries:
        if worker in spec.workers and spec.reference in models:
            return f"a batch ran longer than {batch_timeout(models[spec.reference])}"
    return "a batch took too long"
