"""Entries of the model table: all that a frontend needs of a model, without its file.

Each version of each model that some process holds, or is about to, is an entry. The supervisor
writes the entries, each as a line of JSON, see `ringbatch.shm.model_table`; everyone else reads
them.

An entry has a place in the segment, its index. Places are used again, so requests carry a
reference: the index, and a generation that no two entries share. So a late message for an entry
that is gone never reaches the next one in its place.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal

from ringbatch.shm.chain import Chain, chain_of
from ringbatch.shm.request_context import REQUEST_CONTEXT
from ringbatch.shm.tensor import Tensor
from ringbatch.shm.texts import IDS, Generator, Tokens

REFERENCE_BITS: Final = 16
"""Low bits of a reference that hold the index."""
INDEX_MASK: Final = (1 << REFERENCE_BITS) - 1
FIRST_VERSION: Final = "1"
"""Version of a model whose configuration names none."""
State = Literal["loading", "serving", "retiring"]
LOADING: Final = "loading"
"""Workers are loading the model, and it gets no requests yet."""
SERVING: Final = "serving"
RETIRING: Final = "retiring"
"""The entry gets no new requests, and goes when its requests are answered."""
FILE_DIFFERS: Final = "the model file was changed or removed since it was loaded"
MOST_PLACES: Final = 2048
"""Rows that a worker of a model in steps runs at once: its task ring has room for each."""
_END: Final = b"\n\n"
"""End of a table: an empty line, which occurs nowhere else."""
_LISTS: Final = ("workers", "remote", "allowed_batch_sizes", "length_buckets")
"""Fields that JSON gives back as lists."""


@dataclass(frozen=True, slots=True)
class Forward:
    """Route of requests to the server that runs the model.

    Attributes:
        path: of its predictions.
        headers: names of the headers that are passed on, in lower case.
        any_path: requests for predictions of any model are for this one, and are passed on with
            the path they came by.
    """

    path: str
    headers: tuple[str, ...]
    any_path: bool


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Version of a model as frontends, collector and workers know it: an entry of the model table.

    Attributes:
        index: its place in the segment.
        name: what requests call it.
        platform: informative, such as ``python``.
        inputs: empty for an untyped model, which takes and returns lists of JSON values.
        outputs: empty exactly if `inputs` is.
        max_batch_size: the cap on instances in one batch; 0 if the model has no batch dimension,
            so that each instance runs alone.
        max_latency_ns: the longest wait of the oldest request for others to join it, while a worker
            is idle; only under ``fixed``.
        timeout_ns: from acceptance to the deadline, unless the request names less.
        policy: ``eager`` or ``fixed``.
        workers: the numbers of the workers that hold it, spares among them.
        remote: those of these workers whose model an actor in a Ray cluster holds.
        kserve_errors: failures are answered as KServe's own batcher answers them.
        max_queue_wait_ns: longest expected time to the answer of a new request while the queue has
            not been empty for long; 0 is no bound.
        batch_timeout_ns: a worker that runs one batch for longer is taken for hung.
        first_part_timeout_ns: from acceptance to the first part of an answer in parts, unless the
            request names less; 0 is no limit beside `timeout_ns`.
        part_gap_timeout_ns: the same from each part to the next.
        stream_stall_ns: a client that takes nothing of an answer in parts for so long, though parts
            wait for it, gets no more of it; 0 is no limit.
        allowed_batch_sizes: the numbers of rows that a batch is padded to, ascending; none if every
            number is right.
        max_batch_elements: of the largest input in one batch, padding included; 0 is no bound.
        pad_variable_length: open dimensions of the inputs are padded, so that they may differ
            within a batch.
        length_buckets: the sizes they are padded to, ascending; none if it is the longest of the
            batch.
        refuse_nan: a request fails whose answer holds NaN or infinity.
        forward: how requests reach the server that runs the model; None if values do not travel
            as `ringbatch.shm.forward_envelope` has them.
        nulls: its inputs are a table's columns, read as pandas reads a table. A null in JSON is a
            missing value: NaN among floating-point numbers, an empty text among BYTES. Among
            floating-point numbers, true and false are 1 and 0.
        words: headers that the model gets with the context of its requests, see
            `ringbatch.shm.request_context`; None if it does not ask for the context.
        version: of the model.
        default: whether requests that name no version are for this one.
        generation: of its place.
        state: what the entry is for.
        spares: how many of its workers only wait for the death of another.
        file_differs: another file lies at the model's path than the one that was loaded.
        least: how many of its workers run if there is no load.
        most: how many may run, if the load decides; 0 if their number is fixed.
        account: under which its requests are counted: a place for counts, and a generation as in a
            reference. What is loaded in the place of a model of the same name and version keeps it.
        tokens: how frontends turn texts into tokens, which stand in slots; None if inputs stand
            there as they are.
        chain: its steps, if other models run it; it has no workers of its own then.
        in_parts: clients may have its answers in parts, see `ringbatch.shm.parts`.
        places: of a model in steps, the rows that a worker runs at once, each of which joins and
            ends by itself; `max_batch_size` is 1 then. 0 for any other model.
        generator: how frontends make tokens of prompts, and texts of its answers; None for a model
            that generates no texts.
        resumes: of a model in steps that can go on with an answer which was cut off, pairs of an
            output and the input that takes the parts of it so far; empty for any other model.
        numbered: of a model in steps, whether it is given the numbers of its rows' places. Workers
            that hold it never get another number of places.
    """

    index: int
    name: str
    platform: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    max_batch_size: int
    max_latency_ns: int
    timeout_ns: int
    policy: str
    workers: tuple[int, ...]
    kserve_errors: bool = False
    batch_timeout_ns: int = 1 << 62
    max_queue_wait_ns: int = 0
    first_part_timeout_ns: int = 0
    part_gap_timeout_ns: int = 0
    stream_stall_ns: int = 0
    allowed_batch_sizes: tuple[int, ...] = ()
    max_batch_elements: int = 0
    pad_variable_length: bool = False
    length_buckets: tuple[int, ...] = ()
    forward: Forward | None = None
    refuse_nan: bool = False
    nulls: bool = False
    words: tuple[str, ...] | None = None
    version: str = FIRST_VERSION
    default: bool = False
    generation: int = 0
    state: State = SERVING
    spares: int = 0
    file_differs: bool = False
    account: int = 0
    least: int = 0
    most: int = 0
    remote: tuple[int, ...] = ()
    tokens: Tokens | None = None
    chain: Chain | None = None
    in_parts: bool = False
    places: int = 0
    generator: Generator | None = None
    resumes: tuple[tuple[str, str], ...] = ()
    numbered: bool = False

    @property
    def reference(self) -> int:
        """The model's reference: the word by which requests name it."""
        return self.generation << REFERENCE_BITS | self.index

    @property
    def typed(self) -> bool:
        """True if values travel as tensors rather than as JSON text."""
        return bool(self.inputs)

    @property
    def in_slots(self) -> "ModelSpec":
        """The same with the inputs that stand in slots, where others come from clients."""
        return self if self.tokens is None else replace(self, inputs=(IDS,))

    @property
    def carried(self) -> tuple[Tensor, ...]:
        """The tensors in the slots of a typed model's requests."""
        return self.inputs if self.words is None else (*self.inputs, REQUEST_CONTEXT)

    @property
    def answered(self) -> tuple[Tensor, ...]:
        """The tensors in the slots of a typed model's answers."""
        # What reads a configuration is to load no numpy: threads of math libraries are set first.
        from ringbatch.shm.ragged import answered

        return answered(self.outputs)

    @property
    def batched(self) -> bool:
        """True if tensors have a batch dimension in front of those of their signature."""
        return self.max_batch_size > 0

    @property
    def running(self) -> int:
        """Number of its workers that run batches while none is dead."""
        return len(self.workers) - self.spares

    @property
    def limits(self) -> tuple[int, int] | None:
        """The fewest and the most of its workers that run, if the load decides; else None."""
        return (self.least, self.most) if self.most else None

    @property
    def may_be_empty(self) -> bool:
        """True if the autoscaler may leave it without a worker until the next request."""
        return self.most > 0 and not self.least

    @property
    def cap(self) -> int:
        """The most instances that one run of the model takes."""
        return self.max_batch_size or 1


def version_order(version: str) -> tuple[bool, int, str]:
    """Return a sort key for versions: numbers by their value, above everything else."""
    number = version.isdecimal()
    return number, int(version) if number else 0, version


def workers_words(ready: int, running: int, limits: tuple[int, int] | None) -> str:
    """Return how many workers of a model are ready, for people.

    Args:
        ready: the number.
        running: out of so many; 0 for a chain, which is ready if each of its steps has one.
        limits: as of `ModelSpec`.
    """
    if limits is None and not running:
        return f"a chain, {'' if ready else 'not '}ready"
    if limits is None:
        return f"{ready} of {running} workers ready"
    fewest, most = limits
    starting = "" if ready == running else f", {running} wanted"
    return f"{ready} of {fewest} to {most} workers ready{starting}"


def defaults(models: Iterable[ModelSpec]) -> dict[str, ModelSpec]:
    """Return by name the version for requests that give none.

    It is the chosen one, else the highest that serves.
    """
    found: dict[str, ModelSpec] = {}
    for model in models:
        if model.state == SERVING:
            other = found.get(model.name)
            if other is None or _precedence(model) > _precedence(other):
                found[model.name] = model
    return found


def titled(models: Iterable[ModelSpec]) -> dict[str, ModelSpec]:
    """Return all entries by their titles for people: default versions by the model's name alone."""
    models = tuple(models)
    served = defaults(models).values()
    return {spec.name if spec in served else _title(spec): spec for spec in models}


def _title(spec: ModelSpec) -> str:
    state = "" if spec.state == SERVING else f", {spec.state}"
    return f"{spec.name} version {spec.version}{state}"


def _precedence(model: ModelSpec) -> tuple[bool, tuple[bool, int, str]]:
    return model.default, version_order(model.version)


def dumps(models: tuple[ModelSpec, ...]) -> bytes:
    """Return the model table as bytes for the segment."""
    return joined(line_of(model) for model in models)


def loads(text: bytes) -> tuple[ModelSpec, ...]:
    """Return the entries of a model table that `dumps` wrote."""
    return tuple(map(entry_of, lines_of(text)))


def joined(lines: Iterable[bytes]) -> bytes:
    """Return a model table of entries that `line_of` wrote."""
    return b"\n".join(lines) + _END


def lines_of(text: bytes) -> list[bytes]:
    """Return the entries of a model table, each as `line_of` wrote it.

    Raises:
        ValueError: it has no end.
    """
    end = text.index(_END)
    return text[:end].split(b"\n") if end else []


def line_of(model: ModelSpec) -> bytes:
    """Return an entry as one line of JSON."""
    fields = asdict(model) | {
        "inputs": [tensor.to_json() for tensor in model.inputs],
        "outputs": [tensor.to_json() for tensor in model.outputs],
        "chain": model.chain and model.chain.to_json(),
    }
    return json.dumps(fields).encode()


def entry_of(line: bytes) -> ModelSpec:
    """Return the entry that `line_of` wrote."""
    fields: dict[str, Any] = json.loads(line)
    tensors = {key: tuple(Tensor(**t) for t in fields[key]) for key in ("inputs", "outputs")}
    lists = {key: tuple(fields[key]) for key in _LISTS}
    given = fields["forward"]
    forward = given and Forward(**given | {"headers": tuple(given["headers"])})
    tokens = fields["tokens"] and Tokens(**fields["tokens"])
    made = fields["generator"]
    generator = made and Generator(**made | {"ends": tuple(made["ends"])})
    chain = fields["chain"] and chain_of(fields["chain"])
    words = None if fields["words"] is None else tuple(fields["words"])
    resumes = tuple((output, taken) for output, taken in fields["resumes"])
    parts = {"forward": forward, "tokens": tokens, "chain": chain, "words": words}
    parts |= {"generator": generator, "resumes": resumes}
    return ModelSpec(**fields | tensors | lists | parts)
