"""The model table as its one writer sees it: what stands in it, what may come next. Pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from ringbatch.engine.config.addresses import v1_path
from ringbatch.engine.config.chained import ChainConfig
from ringbatch.engine.config.kinds import OF_TABLES
from ringbatch.engine.config.settings import ModelConfig
from ringbatch.engine.process.role_messages import Signature
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
    """What holds for all requests that another server runs.

    Attributes:
        any_path: as in `Forward`.
        withheld: headers that the other server is not to see, whatever a model's configuration
            says.
    """

    any_path: bool = False
    withheld: tuple[str, ...] = ()

    def of(self, model: ModelConfig) -> Forward | None:
        """How requests to a model reach the server that runs it."""
        if not is_forwarded(model):
            return None
        headers = tuple(name for name in model.forward_headers if name not in self.withheld)
        return Forward(v1_path(str(model.path), model.name), headers, any_path=self.any_path)


def is_forwarded(model: ModelConfig) -> bool:
    """Whether requests to a model reach another server as they came."""
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
    """The entry of one version of a model.

    Args:
        model: as it is configured.
        signature: what a worker has said of its inputs and outputs.
        workers: the numbers of those that hold it.
        forwarding: to the servers of others.
        index, account, generation, state: as in `ModelSpec`.
    """
    blank = ModelSpec(
        index=index,
        name=model.name,
        platform=model.platform,
        inputs=signature.inputs,
        outputs=signature.outputs,
        tokens=signature.tokens,
        words=model.headers if signature.asks else None,
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
    """The entries at the start of an engine, which gives its workers numbers in order.

    Args:
        models: as they are configured.
        signatures: by worker, what it has said of its model's inputs and outputs.
        forwarding: to the servers of others.
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
    """The account of what is loaded: that of its name and version, or a new one.

    Args:
        model: what is loaded.
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
    """An entry with what its model's configuration says now of everything that can change live."""
    return replace(
        spec,
        max_batch_size=model.max_batch_size,
        max_latency_ns=int(model.max_latency_ms * 1e6),
        timeout_ns=int(model.timeout_s * 1e9),
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
    """Of the numbers of a model's workers, in order, those that drive actors."""
    return tuple(number for index, number in enumerate(workers) if model.is_in_ray(index))


def free_indices(entries: Entries, count: int) -> list[int]:
    """Of so many indices, those that no entry has."""
    taken = {spec.index for spec in entries}
    return [index for index in range(count) if index not in taken]


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
