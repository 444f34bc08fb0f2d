"""Served models: the writer of an engine's model table, and the source files of its models."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from ringbatch.engine.config.chained import ChainConfig
from ringbatch.engine.config.limit_messages import batch_timeout
from ringbatch.engine.config.settings import ModelConfig
from ringbatch.engine.models.model_file import ModelFile
from ringbatch.engine.supervisor.chains import Unfit, broken, with_limits
from ringbatch.engine.supervisor.chains import entry as chain_entry
from ringbatch.engine.supervisor.change_plan import Capacity, ChangeFailed, ChangePlan, Switched
from ringbatch.engine.supervisor.model_versions import (
    Entries,
    account_of,
    free_indices,
    with_state,
    without_entries,
)
from ringbatch.shm.counters import RestartCase
from ringbatch.shm.model_spec import RETIRING, SERVING, ModelSpec
from ringbatch.shm.readiness import ModelState, publish
from ringbatch.shm.scalings import Scalings
from ringbatch.shm.segment import Segment


class ServedModels:
    """Model table of an engine, with the settings and files of its models.

    Attributes:
        entries: the table.
        models: the models that serve, by the references of their entries.
        files: the source of each of them, by reference too.
        order: the models as they are configured; the table has their order.
        chains: the chains that serve, by the references of their entries.

    Args:
        segment: the engine's.
        entries: of its table at the start.
        models: as they are configured, in the same order.
        files: their sources, in the same order.
        chains: as they are configured, in the same order too.
    """

    def __init__(
        self,
        segment: Segment,
        entries: Entries,
        models: tuple[ModelConfig, ...],
        files: Iterable[ModelFile],
        chains: Iterable[ChainConfig] = (),
    ) -> None:
        self._segment = segment
        self.entries = entries
        plain = (spec.reference for spec in entries if spec.chain is None)
        self.models = dict(zip(plain, models, strict=True))
        chained = (spec.reference for spec in entries if spec.chain is not None)
        self.chains = dict(zip(chained, chains, strict=True))
        self.files = dict(zip(self.models, files, strict=True))
        self.order = models

    @property
    def names(self) -> list[str]:
        """Names of all models and chains that serve, each once."""
        names = [model.name for model in self.models.values()]
        return [*dict.fromkeys([*names, *(chain.name for chain in self.chains.values())])]

    @property
    def most(self) -> Capacity:
        """Workers and models that the whole segment has room for."""
        return Capacity(self._segment.layout.workers, self._segment.layout.models)

    @property
    def free_indices(self) -> list[int]:
        """Indices that no entry has."""
        return free_indices(self.entries, self.most.models)

    @property
    def entered(self) -> set[int]:
        """Numbers of the workers in the table."""
        return {number for spec in self.entries for number in spec.workers}

    @property
    def differing(self) -> set[int]:
        """Entries whose model files were replaced, according to the table."""
        return {spec.reference for spec in self.entries if spec.file_differs}

    def is_another_file(self, model: ModelConfig) -> bool:
        """Return whether another file lies at the path of a model that serves."""
        references = (ref for ref, serving in self.models.items() if serving is model)
        return any(self.files[reference].differs() for reference in references)

    def publish(self, entries: Entries) -> None:
        """Publish another table.

        Raises:
            ChangeFailed: there is no room for it; the one before stays.
        """
        names = [model.name for model in self.order]
        position_of = {name: position for position, name in enumerate(dict.fromkeys(names))}
        entries = with_limits(entries)
        ordered = tuple(sorted(entries, key=lambda s: position_of.get(s.name, len(position_of))))
        try:
            self._segment.model_table.publish(ordered)
        except ValueError as error:
            raise ChangeFailed(f"there is no room for more models: {error}") from None
        self.entries = ordered

    def enter(self, plan: ChangePlan, loading: Collection[ModelSpec]) -> None:
        """Publish the table with the entries that a change loads.

        Raises:
            ChangeFailed: as of `publish`.
        """
        for spec in loading:
            self._segment.model_table.clear_place(spec.index)
        for numbers in plan.started.values():
            for number in numbers:
                self._segment.enter_worker(number)
        self.publish(plan.entered(self.entries, loading))

    def expect_whole(self, plan: ChangePlan, loading: Collection[ModelSpec]) -> None:
        """Check that every chain stays as it was made.

        Args:
            plan: of a change.
            loading: the entries that it loads.

        Raises:
            ChangeFailed: a chain would change; the text says which.
        """
        after = plan.switched(plan.entered(self.entries, loading), loading)
        if words := broken(after.entries):
            raise ChangeFailed(words)

    def put_chain(self, config: ChainConfig, generation: int) -> list[int]:
        """Serve a chain, in place of the chain or model of its name.

        Returns:
            The numbers of the workers that get no more requests.

        Raises:
            ChangeFailed: its steps do not fit together, another chain needs the model, or there is
                no room.
        """
        own = [s for s in self.entries if s.name == config.name and s.state == SERVING]
        gone = {spec.reference for spec in own}
        kept = with_state(self.entries, gone, RETIRING)
        index, count = self.free_indices[0], self.most.models
        account = account_of(config, self.entries, generation, count)
        try:
            spec = chain_entry(config, kept, index=index, account=account, generation=generation)
        except Unfit as unfit:
            raise ChangeFailed(str(unfit)) from None
        if words := broken(kept):
            raise ChangeFailed(words)
        self._segment.model_table.clear_place(index)
        # Its steps serve: requests may come before the collector has read the table.
        publish(self._segment.words, self._segment.layout.model(index), ModelState.SERVING)
        self.publish((*kept, spec))
        self._forget(gone)
        self.chains[spec.reference] = config
        return [number for old in own for number in old.workers]

    def retire_chain(self, name: str) -> None:
        """Stop serving a chain."""
        gone = {reference for reference, chain in self.chains.items() if chain.name == name}
        self.publish(with_state(self.entries, gone, RETIRING))
        self._forget(gone)

    def _forget(self, references: Iterable[int]) -> None:
        """Forget retired models with their files, or retired chains, which have none."""
        for reference in references:
            if self.models.pop(reference, None) is None:
                del self.chains[reference]
            else:
                del self.files[reference]

    def is_step(self, name: str) -> bool:
        """Return whether requests for a retiring chain may still go to that model."""
        retiring = (spec.chain for spec in self.entries if spec.state == RETIRING)
        return any(step.model == name for chain in retiring if chain for step in chain.steps)

    def switch(
        self, plan: ChangePlan, entered: Mapping[str, ModelSpec], files: Mapping[str, ModelFile]
    ) -> Switched:
        """Have the new entries of a change serve and the old ones retire, in one store.

        Args:
            plan: of the change.
            entered: the new entries by version.
            files: their source files, by version.

        Raises:
            ChangeFailed: as of `publish`.
        """
        switched = plan.switched(self.entries, entered.values())
        self.publish(switched.entries)
        self._forget(switched.gone)
        for model in plan.change.load:
            reference = entered[model.version].reference
            self.models[reference], self.files[reference] = model, files[model.version]
        for model in plan.change.adjust:
            self.models[plan.serving[model.version].reference] = model
        return switched

    def differ(self, references: Collection[int]) -> bool:
        """Publish the entries whose model files were replaced; return whether that is news."""
        known = self.files.keys() & references
        if self.differing == known:
            return False
        self.publish(tuple(replace(s, file_differs=s.reference in known) for s in self.entries))
        return True

    def count_restart(self, worker: int, case: RestartCase) -> None:
        """Count a restart of a worker, for its model."""
        for spec in self.entries:
            if worker in spec.workers:
                block = Scalings(self._segment.words, self._segment.layout, spec.account)
                block.open()
                block.count_restart(case)

    def drained(self, reference: int) -> bool:
        """Forget a retiring entry of which nothing is left; return whether there was one."""
        if not any(s.reference == reference and s.state == RETIRING for s in self.entries):
            return False
        self.publish(without_entries(self.entries, {reference}))
        return True


def overrun(served: ServedModels | None, worker: int) -> str:
    """Return a message about a worker that does not come back from a batch.

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
