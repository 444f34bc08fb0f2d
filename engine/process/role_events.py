"""Events: messages from the roles to the supervisor. Pure.

Each role has its own events, and the supervisor trusts no role that sends others.
`ringbatch.engine.process.role_commands` has the messages in the other direction,
`ringbatch.shm.host.messages` the events of frontends, and the encoding of all as lines.
"""

from dataclasses import dataclass
from typing import Final

from ringbatch.shm.host.messages import Beat, Failed, Ready, Vocabulary
from ringbatch.shm.tensor import Tensor
from ringbatch.shm.texts import Generator, Tokens


@dataclass(frozen=True, slots=True)
class Signature:
    """From a worker: what its model takes and returns.

    Attributes:
        inputs, outputs, tokens, asks, in_parts, in_steps, generator, resumes, numbered: as in
            `ringbatch.engine.models.model.Model`.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    tokens: Tokens | None = None
    asks: bool = False
    in_parts: bool = False
    in_steps: bool = False
    generator: Generator | None = None
    resumes: tuple[tuple[str, str], ...] = ()
    numbered: bool = False


@dataclass(frozen=True, slots=True)
class WarmUpStarted:
    """From a worker: its model is loaded, and warm-up begins."""


@dataclass(frozen=True, slots=True)
class WaitsForPlace:
    """From a worker: the actor that is to hold its model has no place yet."""


@dataclass(frozen=True, slots=True)
class ParityCompared:
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
class WorkerHung:
    """From the collector: a worker does not come back from a batch."""

    worker: int


@dataclass(frozen=True, slots=True)
class WorkerReclaimed:
    """From the collector: it has taken back the requests of a dead worker.

    Attributes:
        worker: the number.
        explained: True if the request that killed it is known, and will not be tried again.
    """

    worker: int
    explained: bool


@dataclass(frozen=True, slots=True)
class WorkerReleased:
    """From the collector: it expects nothing of a worker any more."""

    worker: int


@dataclass(frozen=True, slots=True)
class EntryLoaded:
    """From the collector: all workers of an entry of the table are ready."""

    reference: int


@dataclass(frozen=True, slots=True)
class EntryDrained:
    """From the collector: nothing of a retiring entry is left."""

    reference: int


FromFrontend = Ready | Failed | Beat
FromWorker = Ready | Failed | Signature | WarmUpStarted | WaitsForPlace | ParityCompared | FailsAll
ModelEvent = WorkerHung | WorkerReleased | EntryLoaded | EntryDrained
"""Messages that the collector sends during a step."""
FromCollector = Ready | Failed | StandingBy | WorkerReclaimed | ModelEvent
FromRole = FromFrontend | FromWorker | FromCollector

FROM_FRONTEND: Final = Vocabulary[FromFrontend](Ready, Failed, Beat)
FROM_WORKER: Final = Vocabulary[FromWorker](
    Ready, Failed, Signature, WarmUpStarted, WaitsForPlace, ParityCompared, FailsAll
)
FROM_COLLECTOR: Final = Vocabulary[FromCollector](
    Ready,
    Failed,
    StandingBy,
    WorkerReclaimed,
    WorkerHung,
    WorkerReleased,
    EntryLoaded,
    EntryDrained,
)
LOST_STATUS: Final = 75
"""Exit status of a worker whose actor is gone, by no known fault of a batch."""
MUTE_STATUS: Final = 76
"""Exit status of a worker that could not send why it ends."""
