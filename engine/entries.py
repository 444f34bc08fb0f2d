"""The table of models as its one writer sees it: what stands in it, what may come next. Pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from ringbatch.engine.settings import ModelConfig
from ringbatch.shm.manifest import SERVING, ModelSpec, State
from ringbatch.shm.tensor import Tensor

Entries = tuple[ModelSpec, ...]


def entry(
    model: ModelConfig,
    signature: Mapping[str, Any],
    workers: tuple[int, ...],
    *,
    index: int,
    generation: int = 0,
    state: State = SERVING,
) -> ModelSpec:
    """The entry of one version of a model.

    Args:
        model: as it is configured.
        signature: what a worker has said of its inputs and outputs.
        workers: the numbers of those that hold it.
        index, generation, state: as in `ModelSpec`.
    """
    blank = ModelSpec(
        index=index,
        name=model.name,
        platform=model.platform,
        inputs=tuple(Tensor(**fields) for fields in signature["inputs"]),
        outputs=tuple(Tensor(**fields) for fields in signature["outputs"]),
        max_batch_size=0,
        max_latency_ns=0,
        timeout_ns=0,
        policy="",
        workers=(),
        version=model.version,
        generation=generation,
        state=state,
    )
    return adjusted(blank, model, workers)


def first_entries(
    models: Iterable[ModelConfig], signatures: Mapping[int, Mapping[str, Any]]
) -> Entries:
    """The entries at the start of an engine, which gives its workers numbers in order.

    Args:
        models: as they are configured.
        signatures: by worker, what it has said of its model's inputs and outputs.
    """
    entries, first = [], 0
    for index, model in enumerate(models):
        numbers = tuple(range(first, first + model.workers))
        first += model.workers
        entries.append(entry(model, signatures[numbers[0]], numbers, index=index))
    return tuple(entries)


def adjusted(spec: ModelSpec, model: ModelConfig, workers: tuple[int, ...]) -> ModelSpec:
    """An entry with what its model's configuration says now of everything that can change live."""
    return replace(
        spec,
        max_batch_size=model.max_batch_size,
        max_latency_ns=int(model.max_latency_ms * 1e6),
        timeout_ns=int(model.timeout_s * 1e9),
        batch_timeout_ns=int(model.batch_limit_s * 1e9),
        policy=model.policy,
        workers=workers,
        kserve_errors=model.kserve_errors,
        default=model.default,
    )


def signature_of(spec: ModelSpec) -> dict[str, Any]:
    """Inputs and outputs, as a worker says them."""
    return {
        "inputs": [tensor.to_json() for tensor in spec.inputs],
        "outputs": [tensor.to_json() for tensor in spec.outputs],
    }


def free_places(entries: Entries, places: int) -> list[int]:
    """The indices that no entry has."""
    taken = {spec.index for spec in entries}
    return [index for index in range(places) if index not in taken]


def with_entries(entries: Entries, new: Collection[ModelSpec]) -> Entries:
    """The table with these in it, in place of those of the same reference."""
    references = {spec.reference: spec for spec in new}
    kept = tuple(references.pop(spec.reference, spec) for spec in entries)
    return (*kept, *references.values())


def without_entries(entries: Entries, references: Collection[int]) -> Entries:
    """The table without those."""
    return tuple(spec for spec in entries if spec.reference not in references)


def with_state(entries: Entries, references: Collection[int], state: State) -> Entries:
    """The table with that state for those."""
    return tuple(
        replace(spec, state=state) if spec.reference in references else spec for spec in entries
    )
