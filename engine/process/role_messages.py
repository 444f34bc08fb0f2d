"""Messages between the supervisor and its roles, in both directions. Pure.

Each role has its own messages, and the supervisor trusts no role that sends others. Workers and the
collector receive messages; frontends get everything from their arguments.
`ringbatch.shm.host.messages` has the messages of frontends, and their encoding as lines.
"""

from dataclasses import dataclass
from typing import Final

from ringbatch.engine.models.runtime_options import RuntimeOptions
from ringbatch.shm.host.messages import Beat, Failed, Ready, Vocabulary
from ringbatch.shm.tensor import Tensor
from ringbatch.shm.texts import Tokens


@dataclass(frozen=True, slots=True)
class Signature:
    """From a worker: its model's inputs and outputs, and whether it takes the request context."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    tokens: Tokens | None = None
    asks: bool = False


@dataclass(frozen=True, slots=True)
class Warming:
    """From a worker: its model is loaded, and warm-up begins."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """From a worker: the actor that is to hold its model has no place yet."""


@dataclass(frozen=True, slots=True)
class Compared:
    """From a worker: the differences between its model's answers alone and in company.

    Attributes:
        lines: the findings, as text.
        apart: the findings beyond the tolerance.
    """

    lines: tuple[str, ...]
    apart: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FailsAll:
    """From a worker: its model fails every request.

    Attributes:
        batches: failed ones in a row.
        why: the error of the last of them.
        for_ns: nanoseconds since the first of them.
    """

    batches: int
    why: str
    for_ns: int


@dataclass(frozen=True, slots=True)
class StandingBy:
    """From the collector: it only waits for the end of the collector before it."""


@dataclass(frozen=True, slots=True)
class Hung:
    """From the collector: a worker does not come back from a batch."""

    worker: int


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """From the collector: it has taken back the requests of a dead worker.

    Attributes:
        worker: the number.
        explained: True if the request that killed it is known, and will not be tried again.
    """

    worker: int
    explained: bool


@dataclass(frozen=True, slots=True)
class Released:
    """From the collector: it expects nothing of a worker any more."""

    worker: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """From the collector: all workers of an entry of the table are ready."""

    reference: int


@dataclass(frozen=True, slots=True)
class Drained:
    """From the collector: nothing of a retiring entry is left."""

    reference: int


FromFrontend = Ready | Failed | Beat
FromWorker = Ready | Failed | Signature | Warming | Waiting | Compared | FailsAll
ModelNews = Hung | Released | Loaded | Drained
"""Messages that the collector sends during a step."""
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
    """File content that all workers of one version share, see `engine.models.model_file.Kept`."""

    fd: int
    stamp: tuple[int, ...]
    copied: bool


@dataclass(frozen=True, slots=True)
class BatchShape:
    """Padding of a model's batches, by the settings of these names.

    Attributes:
        lengths_input: empty if there is none.
    """

    max_batch_elements: int
    pad_variable_length: bool
    length_buckets: tuple[int, ...]
    padding_values: tuple[str, ...]
    lengths_input: str
    max_batch_cost: float


@dataclass(frozen=True, slots=True)
class WarmUp:
    """Warm-up of a worker.

    Attributes:
        required: True if a model that fails it is not to be served.
        limit_s: its time limit.
        limit: the name of that limit in messages.
        batch_timeout: the name of the time limit of a batch in messages.
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
    """Comparison of answers alone with answers in company, which a worker makes before it is ready.

    Attributes:
        file: with samples; empty to make them up.
        tolerance: of a difference.
        length: of open dimensions, in elements, if nothing else gives it.
    """

    file: str
    tolerance: float
    length: int


@dataclass(frozen=True, slots=True)
class HeldModel:
    """Description of a worker's model.

    Attributes:
        path: of its file, or the addresses of its model servers, separated by a space.
        warm_up: None without a warm-up.
        worker_memory_bytes: the memory limit of the process; 0 for none.
        parity: None without a comparison.
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
    """First message to a worker: open the model, and report its inputs and outputs.

    Attributes:
        number: the worker's.
        title: of its process in `ps`, behind ``worker``.
        log_level: of its log.
        parent_pid: the supervisor's; the worker ends with it.
    """

    number: int
    title: str
    log_level: str
    parent_pid: int
    file: KeptFile
    model: HeldModel


@dataclass(frozen=True, slots=True)
class AttachSegment:
    """Second message to a worker: load the model, and take tasks from this segment."""

    segment: str


@dataclass(frozen=True, slots=True)
class StartCollector:
    """First message to a collector: stand by at this segment."""

    segment: str
    log_level: str


@dataclass(frozen=True, slots=True)
class WorkerDied:
    """To the collector: a worker has ended, with proof.

    Attributes:
        worker: the number.
        killed: True if by SIGKILL.
    """

    worker: int
    killed: bool


@dataclass(frozen=True, slots=True)
class TableChanged:
    """To the collector: the table of models has changed."""


@dataclass(frozen=True, slots=True)
class Draining:
    """To the collector: the header now says that no further request comes."""


@dataclass(frozen=True, slots=True)
class Dismissed:
    """To a worker that serves: end; no other worker will need its model."""


ToWorker = StartWorker | AttachSegment | Dismissed
ToCollector = WorkerDied | TableChanged | Draining
"""Messages to a collector after its first."""
ToRole = ToWorker | StartCollector | ToCollector

START_WORKER: Final = Vocabulary[StartWorker](StartWorker)
ATTACH_SEGMENT: Final = Vocabulary[AttachSegment](AttachSegment)
START_COLLECTOR: Final = Vocabulary[StartCollector](StartCollector)
TO_COLLECTOR: Final = Vocabulary[ToCollector](WorkerDied, TableChanged, Draining)
LOST_STATUS: Final = 75
"""Exit status of a worker whose actor is gone, by no known fault of a batch."""
DISMISSED: Final = Vocabulary[Dismissed](Dismissed)
"""The one message to a worker that serves."""
