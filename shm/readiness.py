"""Readiness of a model: its states, and what each means for probes and for requests. Pure.

`TABLE` is the one rule. The model is in the first of its states that holds. The collector publishes
the state that follows from the workers, and this one alone says what becomes of requests. Readers
add the states that follow from instants and from the engine as a whole. No state is ready that
refuses requests.
"""

from collections.abc import Iterable, Sequence
from enum import Enum, IntEnum
from typing import Final, NamedTuple

from ringbatch.shm.descriptors import ModelWords, WorkerState, WorkerWords
from ringbatch.shm.layout import Layout
from ringbatch.shm.memory_order import load_acquire, store_release
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.scalings import Scalings

_S: Final = 1_000_000_000
_STARTS: Final = 2
"""So many that fail in a row are no accident."""


class ModelState(IntEnum):
    """States of a model. The collector publishes the first seven, as numbers.

    A segment begins with zeros, so 0 is a model that no worker has held yet.
    """

    LOADING = 0
    SERVING = 1
    AT_REST = 2
    WAKING = 3
    RESTARTING = 4
    CANNOT_LOAD = 5
    CANNOT_WAKE = 6
    STOPPING = 7
    NO_COLLECTOR = 8
    UNSTEADY = 9
    STUCK = 10
    FAILING = 11
    NO_SERVER = 12


class RequestFate(Enum):
    """Fates of a request that comes now."""

    RUN = "a worker takes it"
    WAIT = "it waits for a worker, until its deadline"
    REFUSED = "it gets 503 at once, and so does what waits"


class StateMeaning(NamedTuple):
    """Meaning of a state.

    Attributes:
        ready: the answer of probes.
        requests: the fate of requests; None in a state that only readers add.
    """

    ready: bool
    requests: RequestFate | None = None


TABLE: Final = {
    # The engine stops: what comes is still served, and balancers are to turn away.
    ModelState.STOPPING: StateMeaning(False),
    # No collector looks for requests; the next one finds them.
    ModelState.NO_COLLECTOR: StateMeaning(False),
    # No worker has held the model yet.
    ModelState.LOADING: StateMeaning(False, RequestFate.REFUSED),
    # All its workers have died, and the last two starts of each have failed.
    ModelState.CANNOT_LOAD: StateMeaning(False, RequestFate.REFUSED),
    # The load had left no worker, and the last one that was to be started was not ready.
    ModelState.CANNOT_WAKE: StateMeaning(False, RequestFate.REFUSED),
    # Its workers die soon after they are ready, again and again.
    ModelState.UNSTEADY: StateMeaning(False),
    # Its workers have died, and are being started again.
    ModelState.RESTARTING: StateMeaning(False, RequestFate.WAIT),
    # Its workers have not finished a batch for too long.
    ModelState.STUCK: StateMeaning(False),
    # Its workers fail every request.
    ModelState.FAILING: StateMeaning(False),
    # None of the model servers behind its workers answers.
    ModelState.NO_SERVER: StateMeaning(False),
    # The load had left no worker; a request has come, and one is being started.
    ModelState.WAKING: StateMeaning(True, RequestFate.WAIT),
    # The load has left no worker; the next request has one started.
    ModelState.AT_REST: StateMeaning(True, RequestFate.WAIT),
    # A worker holds the model. A new version is loaded beside the one that serves.
    ModelState.SERVING: StateMeaning(True, RequestFate.RUN),
}
"""Meaning of each state; of several that hold, the first counts."""
_PLACE: Final = {state: place for place, state in enumerate(TABLE)}


class Loss(IntEnum):
    """Ways to lose a worker."""

    NONE = 0
    DIED = 1
    """The worker's process was ready and has ended."""
    NOT_BACK = 2
    """Two more starts have failed since: their processes ended early, or none started."""


def first(states: Iterable[ModelState]) -> ModelState:
    """Return the state that counts of those that hold: of one model, or of a chain's steps."""
    return min(states, key=_PLACE.__getitem__)


def state_of(
    ready: int, losses: Sequence[Loss], *, served: bool, may_rest: bool, failed: bool
) -> ModelState:
    """Return the state that follows from a model's workers.

    Args:
        ready: how many workers hold the model.
        losses: of each worker that the model is to have.
        served: whether a worker has ever held the model.
        may_rest: whether the load may leave the model without a worker.
        failed: whether the last worker that the load wanted could not be had.
    """
    if ready:
        return ModelState.SERVING
    if not served:
        return ModelState.LOADING
    if losses and all(loss is Loss.NOT_BACK for loss in losses):
        return ModelState.CANNOT_LOAD
    if any(losses) or not may_rest:
        return ModelState.RESTARTING
    if failed:
        return ModelState.CANNOT_WAKE
    return ModelState.WAKING if losses else ModelState.AT_REST


def refuses(state: ModelState) -> bool:
    """Return whether requests are refused in a state that the collector publishes."""
    return TABLE[state].requests is RequestFate.REFUSED


def publish(words: memoryview, model: int, state: ModelState) -> None:
    """Publish the state of a model, whose words start there.

    At no instant is it ready and refuses requests, even if its writer dies between two stores.
    """
    if takes := not refuses(state):
        words[model + ModelWords.TAKES] = takes
    store_release(words, model + ModelWords.STATE, state)
    store_release(words, model + ModelWords.TAKES, takes)


def state_without_worker(
    words: memoryview, layout: Layout, spec: ModelSpec, before: ModelState
) -> ModelState:
    """Return the state of a model that no worker holds now, by what the supervisor has published.

    Args:
        words: the segment as a memoryview of format ``Q``.
        layout: layout of the segment.
        spec: the model's entry.
        before: the state until now.
    """
    return state_of(
        0,
        [_loss(words, layout.worker(number)) for number in spec.workers],
        served=before is not ModelState.LOADING,
        may_rest=spec.may_be_empty,
        failed=Scalings(words, layout, spec.account).failed,
    )


def _loss(words: memoryview, worker: int) -> Loss:
    if load_acquire(words, worker + WorkerWords.STATE) == WorkerState.READY:
        # The collector has yet to hear of it, or takes it for hung.
        return Loss.NONE
    failed_starts = words[worker + WorkerWords.ENDS] - 1
    if failed_starts < 0:
        return Loss.NONE
    return Loss.DIED if failed_starts < _STARTS else Loss.NOT_BACK


def retry_after_s(
    words: memoryview, layout: Layout, spec: ModelSpec, state: ModelState, now_ns: int
) -> int:
    """Return in how many seconds a refused request may come again, as far as the engine knows.

    Args:
        words: the segment as a memoryview of format ``Q``.
        layout: layout of the segment.
        spec: the model's entry.
        state: of the model.
        now_ns: the time on the monotonic clock.
    """
    instants = [words[layout.worker(number) + WorkerWords.AGAIN_NS] for number in spec.workers]
    if state is ModelState.CANNOT_WAKE:
        instants = [Scalings(words, layout, spec.account).again_ns]
    left_ns = min((instant - now_ns for instant in instants if instant > now_ns), default=0)
    return max(-(-left_ns // _S), 1)
