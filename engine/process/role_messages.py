"""Every message between the supervisor and its roles, in both directions. Pure.

Each role may say its own things alone, and whoever says anything else is not to be trusted with
more. Workers and the collector are told things; frontends learn all they need from their arguments.
`ringbatch.shm.host.messages` has what frontends say, and how a message becomes a line.
"""

from dataclasses import dataclass
from typing import Final

from ringbatch.shm.host.messages import Beat, Failed, Ready, Vocabulary
from ringbatch.shm.tensor import Tensor
from ringbatch.shm.texts import Tokens


@dataclass(frozen=True, slots=True)
class Signature:
    """Of a worker: what its model takes and returns, and whether it asks what requests say."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    tokens: Tokens | None = None
    asks: bool = False


@dataclass(frozen=True, slots=True)
class Warming:
    """Of a worker: its model is loaded, and warm-up begins."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Of a worker: what is to hold its model elsewhere has no place there yet."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Of a worker: how far its model's answers alone are from those in company.

    Attributes:
        lines: what was found, for people.
        apart: those of them that are beyond what is tolerated.
    """

    lines: tuple[str, ...]
    apart: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FailsAll:
    """Of a worker: its model fails every request.

    Attributes:
        batches: that failed in a row.
        why: the last of them did.
        for_ns: nanoseconds since the first of them.
    """

    batches: int
    why: str
    for_ns: int


@dataclass(frozen=True, slots=True)
class StandingBy:
    """Of the collector: it has nothing left to do but to wait until the one before has ended."""


@dataclass(frozen=True, slots=True)
class Hung:
    """Of the collector: a worker does not come back from a batch."""

    worker: int


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """Of the collector: it has taken back what a dead worker held.

    Attributes:
        worker: the number.
        explained: whether it is known what killed it, and that it will not be tried again.
    """

    worker: int
    explained: bool


@dataclass(frozen=True, slots=True)
class Released:
    """Of the collector: nothing is expected of a worker any more."""

    worker: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """Of the collector: all workers of an entry of the table are ready."""

    reference: int


@dataclass(frozen=True, slots=True)
class Drained:
    """Of the collector: nothing of a retiring entry is left."""

    reference: int


FromFrontend = Ready | Failed | Beat
FromWorker = Ready | Failed | Signature | Warming | Waiting | Compared | FailsAll
ModelNews = Hung | Released | Loaded | Drained
"""What the collector says while it is stepped."""
FromCollector = Ready | Failed | StandingBy | Reclaimed | ModelNews
FromRole = FromFrontend | FromWorker | FromCollector

FROM_FRONTEND: Final = Vocabulary[FromFrontend](Ready, Failed, Beat)
FROM_WORKER: Final = Vocabulary[FromWorker](
    Ready, Failed, Signature, Warming, Waiting, Compared, FailsAll
)
FROM_COLLECTOR: Final = Vocabulary[FromCollector](
    Ready, Failed, StandingBy, Reclaimed, Hung, Released, Loaded, Drained
)


@dataclass(frozen=True, slots=True)
class KeptFile:
    """The content that all workers of one version have, see `engine.models.model_file.Kept`."""

    fd: int
    stamp: tuple[int, ...]
    copied: bool


@dataclass(frozen=True, slots=True)
class Actor:
    """Where an actor is, as `ringbatch.engine.models.ray_place.RayPlace` has it."""

    engine: str
    version: str
    index: int
    loader: str
    threads: int
    address: str
    namespace: str
    cpus: float
    gpus: float
    resources: tuple[str, ...]
    scheduling: str
    placement_group: str
    keep_s: float
    load_timeout_s: float


@dataclass(frozen=True, slots=True)
class RuntimeOptions:
    """What a runtime is told, as `engine.models.model.Options` has it."""

    max_batch_size: int
    device: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    autocast: str
    channels_last: bool
    columns: str
    answers: tuple[str, ...]
    iterations: int
    class_names: tuple[str, ...]
    truncate: bool
    trusted_types: tuple[str, ...]
    trust_pickle: bool
    protocol: str
    timeout_s: float
    isolate_errors: bool
    ray: Actor | None
    retry: str
    upstream_ca: str | None
    upstream_certificate: str | None
    upstream_key: str | None
    headers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BatchShape:
    """How a model's batches are padded, as the settings of these names say it.

    Attributes:
        lengths_input: empty where there is none.
    """

    max_batch_elements: int
    pad_variable_length: bool
    length_buckets: tuple[int, ...]
    padding_values: tuple[str, ...]
    lengths_input: str
    max_batch_cost: float


@dataclass(frozen=True, slots=True)
class WarmUp:
    """What a worker is to warm up.

    Attributes:
        required: whether a model that fails is not to be served.
        limit_s: what it may take.
        limit: what that is called in messages.
        batch_timeout: what a batch may take, likewise.
        length: of open dimensions, in elements.
        file: with examples, if there is one.
    """

    required: bool
    limit_s: float
    limit: str
    batch_timeout: str
    length: int
    file: str | None


@dataclass(frozen=True, slots=True)
class Parity:
    """How a worker is to compare answers alone with those in company, before it is ready.

    Attributes:
        file: with samples; empty where they are made up.
        tolerance: of a difference.
        length: of open dimensions, in elements, where nothing else says it.
    """

    file: str
    tolerance: float
    length: int


@dataclass(frozen=True, slots=True)
class HeldModel:
    """What a worker is told of the model that it is to hold.

    Attributes:
        path: of its file, or the addresses of the servers that run it, a space between two.
        warm_up: None where nothing is warmed up.
        worker_memory_bytes: what the process may take; 0 for any amount.
        parity: None where answers are not compared.
    """

    name: str
    path: str
    runtime: str
    options: RuntimeOptions
    shape: BatchShape
    warm_up: WarmUp | None
    worker_memory_bytes: int
    parity: Parity | None = None


@dataclass(frozen=True, slots=True)
class StartWorker:
    """To a worker, at first: it is to open its model and to say what that takes and returns.

    Attributes:
        number: the worker's.
        title: of its process in `ps`, behind ``worker``.
        log_level: of its log.
        parent_pid: of the supervisor, with which it is to end.
    """

    number: int
    title: str
    log_level: str
    parent_pid: int
    file: KeptFile
    model: HeldModel


@dataclass(frozen=True, slots=True)
class AttachSegment:
    """To a worker, next: it is to load its model and to take tasks from this segment."""

    segment: str


@dataclass(frozen=True, slots=True)
class StartCollector:
    """To the collector, at first: it is to stand by at this segment."""

    segment: str
    log_level: str


@dataclass(frozen=True, slots=True)
class WorkerDied:
    """To the collector: a worker has ended, with proof.

    Attributes:
        worker: the number.
        killed: whether with SIGKILL.
    """

    worker: int
    killed: bool


@dataclass(frozen=True, slots=True)
class TableChanged:
    """To the collector: it is to look at the table of models."""


@dataclass(frozen=True, slots=True)
class Draining:
    """To the collector: it is to look at the header, which says that no further request comes."""


@dataclass(frozen=True, slots=True)
class Dismissed:
    """To a worker that serves: it is to end, and nobody will want its model again."""


ToWorker = StartWorker | AttachSegment | Dismissed
ToCollector = WorkerDied | TableChanged | Draining
"""Once it has been started."""
ToRole = ToWorker | StartCollector | ToCollector

START_WORKER: Final = Vocabulary[StartWorker](StartWorker)
ATTACH_SEGMENT: Final = Vocabulary[AttachSegment](AttachSegment)
START_COLLECTOR: Final = Vocabulary[StartCollector](StartCollector)
TO_COLLECTOR: Final = Vocabulary[ToCollector](WorkerDied, TableChanged, Draining)
LOST_STATUS: Final = 75
"""With which a worker ends where what holds its model elsewhere is gone, by no fault known of a
batch."""
DISMISSED: Final = Vocabulary[Dismissed](Dismissed)
"""All that a worker that serves is told."""
