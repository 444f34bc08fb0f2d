"""Model table as its one writer sees it: its entries, and the changes of them. Pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from ringbatch.engine.config.addresses import v1_path
from ringbatch.engine.config.chained import ChainConfig
from ringbatch.engine.config.kinds import OF_TABLES
from ringbatch.engine.config.settings import ModelConfig
from ringbatch.engine.process.role_events import Signature
from ringbatch.shm.model_spec import (
    FIRST_VERSION,
    INDEX_MASK,
    REFERENCE_BITS,
    SERVING,
    Forward,
    ModelSpec,
    State,
)

Entries = tuple[ModelSpec, ...]


@dataclass(frozen=True, slots=True)
class Forwarding:
    """Settings of all requests that model servers run.

    Attributes:
        any_path: as in `Forward`.
        withheld: headers that no model server may see, under any configuration.
    """

    any_path: bool = False
    withheld: tuple[str, ...] = ()

    def of(self, model: ModelConfig) -> Forward | None:
        """Return how requests to a model reach its model server; None if they are not forwarded."""
        if not is_forwarded(model):
            return None
        headers = tuple(name for name in model.forward_headers if name not in self.withheld)
        return Forward(v1_path(str(model.path), model.name), headers, any_path=self.any_path)


def is_forwarded(model: ModelConfig) -> bool:
    """Return whether requests to a model reach a model server as they came."""
    return model.platform == "http" and model.protocol == "v1"


def entry(
    model: ModelConfig,
    signature: Signature,
    workers: tuple[int, ...],
    forwarding: Forwarding,
    *,
    index: int,
    account: int,
    generation: int = 0,
    state: State = SERVING,
) -> ModelSpec:
    """Return the entry of one version of a model.

    Args:
        model: its settings.
        signature: its inputs and outputs, as a worker reports them.
        workers: the numbers of the workers that hold it.
        forwarding: to model servers.
        index, account, generation, state: as in `ModelSpec`.
    """
    blank = ModelSpec(
        index=index,
        name=model.name,
        platform=model.platform,
        inputs=signature.inputs,
        outputs=signature.outputs,
        tokens=signature.tokens,
        generator=signature.generator,
        words=model.headers if signature.asks else None,
        in_parts=signature.in_parts,
        places=int(signature.in_steps),
        resumes=signature.resumes,
        numbered=signature.numbered,
        max_batch_size=0,
        max_latency_ns=0,
        timeout_ns=0,
        policy="",
        workers=(),
        allowed_batch_sizes=model.allowed_batch_sizes,
        max_batch_elements=model.max_batch_elements,
        pad_variable_length=model.pad_variable_length,
        length_buckets=(
            model.length_buckets
            if signature.tokens is None
            else signature.tokens.edges(model.length_buckets)
        ),
        refuse_nan=model.nan_answers == "refuse",
        nulls=model.loader in OF_TABLES,
        forward=forwarding.of(model),
        version=model.version,
        generation=generation,
        state=state,
        account=account,
    )
    return adjusted(blank, model, workers)


def first_entries(
    models: Iterable[ModelConfig],
    signatures: Mapping[int, Signature],
    forwarding: Forwarding,
) -> Entries:
    """Return the entries at the start of an engine, which numbers its workers in order.

    Args:
        models: their settings.
        signatures: by worker, its model's inputs and outputs.
        forwarding: to model servers.
    """
    entries, first = [], 0
    for index, model in enumerate(models):
        numbers = tuple(range(first, first + model.processes))
        first += model.processes
        signature = signatures[numbers[0]]
        entries.append(entry(model, signature, numbers, forwarding, index=index, account=index))
    return tuple(entries)


def account_of(
    model: ModelConfig | ChainConfig, entries: Iterable[ModelSpec], generation: int, count: int
) -> int:
    """Return the account of a loaded version: the one of its name and version, or a new one.

    Args:
        model: the version.
        entries: those that have accounts.
        generation: of the entry.
        count: how many places there are; more than accounts.
    """
    entries = tuple(entries)
    version = FIRST_VERSION if isinstance(model, ChainConfig) else model.version
    own = (s.account for s in entries if (s.name, s.version) == (model.name, version))
    taken = {spec.account & INDEX_MASK for spec in entries}
    free = next(place for place in range(count) if place not in taken)
    return next(own, generation << REFERENCE_BITS | free)


def adjusted(spec: ModelSpec, model: ModelConfig, workers: tuple[int, ...]) -> ModelSpec:
    """Return an entry with the present value of every setting that can change live."""
    in_steps = spec.places > 0
    return replace(
        spec,
        places=model.max_batch_size if in_steps else 0,
        max_batch_size=1 if in_steps else model.max_batch_size,
        max_latency_ns=int(model.max_latency_ms * 1e6),
        timeout_ns=int(model.timeout_s * 1e9),
        max_queue_wait_ns=int(model.max_queue_wait_s * 1e9),
        first_part_timeout_ns=int(model.first_part_timeout_s * 1e9),
        part_gap_timeout_ns=int(model.part_gap_timeout_s * 1e9),
        stream_stall_ns=int(model.stream_stall_s * 1e9),
        batch_timeout_ns=int(model.hung_after_s * 1e9),
        policy=model.policy,
        workers=workers,
        remote=remote(model, workers),
        spares=model.spares,
        kserve_errors=model.kserve_errors,
        default=model.default,
        least=model.fewest_workers,
        most=model.most_workers if model.follows_load else 0,
    )


def remote(model: ModelConfig, workers: tuple[int, ...]) -> tuple[int, ...]:
    """Return the numbers of those workers of a model that drive actors."""
    return tuple(number for index, number in enumerate(workers) if model.is_in_ray(index))


def free_indices(entries: Entries, count: int) -> list[int]:
    """Return the indices below `count` that no entry has."""
    taken = {spec.index for spec in entries}
    return [index for index in range(count) if index not in taken]


def with_entries(entries: Entries, new: Collection[ModelSpec]) -> Entries:
    """Return the table with these entries, in place of those of the same reference."""
    references = {spec.reference: spec for spec in new}
    kept = tuple(references.pop(spec.reference, spec) for spec in entries)
    return (*kept, *references.values())


def without_entries(entries: Entries, references: Collection[int]) -> Entries:
    """Return the table without these entries."""
    return tuple(spec for spec in entries if spec.reference not in references)


def with_state(entries: Entries, references: Collection[int], state: State) -> Entries:
    """Return the table with that state for these entries."""
    return tuple(
        replace(spec, state=state) if spec.reference in references else spec for spec in entries
    )
