"""Commands: messages from the supervisor to workers and the collector. Pure.

Frontends get everything from their arguments. `ringbatch.engine.process.role_events` has the
messages in the other direction.
"""

from dataclasses import dataclass
from typing import Final

from ringbatch.engine.models.runtime_options import RuntimeOptions
from ringbatch.shm.account_limits import NO_LIMITS, AccountLimits
from ringbatch.shm.host.messages import Vocabulary


@dataclass(frozen=True, slots=True)
class KeptFile:
    """File content that all workers of one version share, see `model_file.HeldFile`."""

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
    max_joining_rows: int = 0


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
    """First message to a collector: stand by at this segment.

    Attributes:
        log_level: of its log.
        account_limits: of every account.
        api_keys: the file of API keys, which may have limits of their own; empty if there is none.
    """

    segment: str
    log_level: str
    account_limits: AccountLimits = NO_LIMITS
    api_keys: str = ""


@dataclass(frozen=True, slots=True)
class ReclaimWorker:
    """To the collector: take back the batches of a worker that has ended, with proof.

    Attributes:
        worker: the number.
        killed: True if by SIGKILL.
    """

    worker: int
    killed: bool


@dataclass(frozen=True, slots=True)
class ReadTable:
    """To the collector: read the table of models, which has changed."""


@dataclass(frozen=True, slots=True)
class Drain:
    """To the collector: drain; the header now says that no further request comes."""


@dataclass(frozen=True, slots=True)
class Dismiss:
    """To a worker that serves: end; no other worker will need its model."""


ToWorker = StartWorker | AttachSegment | Dismiss
ToCollector = ReclaimWorker | ReadTable | Drain
"""Messages to a collector after its first."""
ToRole = ToWorker | StartCollector | ToCollector

START_WORKER: Final = Vocabulary[StartWorker](StartWorker)
ATTACH_SEGMENT: Final = Vocabulary[AttachSegment](AttachSegment)
START_COLLECTOR: Final = Vocabulary[StartCollector](StartCollector)
TO_COLLECTOR: Final = Vocabulary[ToCollector](ReclaimWorker, ReadTable, Drain)
DISMISS: Final = Vocabulary[Dismiss](Dismiss)
"""The one message to a worker that serves."""
