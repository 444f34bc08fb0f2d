"""Readiness of a model, read from the segment: its state and the reason in words.

All who are asked whether a model is ready ask here. The rule is that of `ringbatch.shm.readiness`.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from ringbatch.shm.descriptors import BEAT_S, HeaderWords, ModelWords, WorkerState, WorkerWords
from ringbatch.shm.errors import ModelNotReady, shortage
from ringbatch.shm.layout import Layout
from ringbatch.shm.memory_order import acquire_fence, load_acquire
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.readiness import TABLE, ModelState, first, retry_after_s

_STALLED_NS: Final = int(2 * BEAT_S * 1e9)
"""Longest time between two looks for work of a collector that moves."""
_NO_WORKER: Final = "no worker holds it now"
_WORDS: Final = {
    ModelState.LOADING: "no worker holds it yet",
    ModelState.CANNOT_LOAD: f"{_NO_WORKER}, and a new one ends before it has loaded it",
    ModelState.CANNOT_WAKE: f"{_NO_WORKER}, and the last one that was to be started could not be",
    ModelState.RESTARTING: _NO_WORKER,
}
"""Reasons for people, for each published state in which a model is not ready."""


class ModelReadiness(NamedTuple):
    """A model at one instant.

    Attributes:
        state: of the model.
        why: why it is not ready; empty if it is.
    """

    state: ModelState
    why: str


def unready_reason(words: memoryview, layout: Layout, spec: ModelSpec, now_ns: int) -> str:
    """Return why a model is not ready; empty if it is. Arguments as of `readiness_of`."""
    return readiness_of(words, layout, spec, now_ns).why


def refusal(words: memoryview, layout: Layout, spec: ModelSpec, now_ns: int) -> ModelNotReady:
    """Return the error of a request that is refused; the arguments are those of `readiness_of`."""
    state = ModelState(words[layout.model(spec.index) + ModelWords.STATE])
    why = readiness_of(words, layout, spec, now_ns).why or _NO_WORKER
    return not_ready(spec, why, retry_after_s(words, layout, spec, state, now_ns))


def not_ready(spec: ModelSpec, why: str, again_s: int = 1) -> ModelNotReady:
    """Return the error that says that a model is not ready, and why."""
    return ModelNotReady(f'model "{spec.name}" is not ready: {why}', again_s)


def readiness_of(words: memoryview, layout: Layout, spec: ModelSpec, now_ns: int) -> ModelReadiness:
    """Return how a model is.

    Args:
        words: the segment as a memoryview of format ``Q``.
        layout: layout of the segment.
        spec: the model's entry.
        now_ns: the time on the monotonic clock.
    """
    return standing(words, layout.model(spec.index), now_ns, map(layout.worker, spec.workers))


def standing(
    words: memoryview, model: int, now_ns: int, workers: Iterable[int] = ()
) -> ModelReadiness:
    """Return how a model is.

    Args:
        words: the segment as a memoryview of format ``Q``.
        model: where the model's words start.
        now_ns: the time on the monotonic clock.
        workers: where the words of its workers start.
    """
    found = _holding(words, model, now_ns, list(workers))
    state = first(found)
    return ModelReadiness(state, "" if TABLE[state].ready else found[state])


def _holding(
    words: memoryview, model: int, now_ns: int, workers: list[int]
) -> dict[ModelState, str]:
    """Return the states that hold, and the reason of each that is not ready."""
    # A frontend may have found that TAKES is 0.
    acquire_fence()
    published = ModelState(words[model + ModelWords.STATE])
    found = {published: _WORDS.get(published, "") + _shortages(words, workers)}
    if words[HeaderWords.STOPPING]:
        found[ModelState.STOPPING] = "the server is stopping"
    if why := _without_collector(words, now_ns):
        found[ModelState.NO_COLLECTOR] = why
    if now_ns < words[model + ModelWords.UNSTEADY_NS]:
        deaths = words[model + ModelWords.DEATHS]
        found[ModelState.UNSTEADY] = f"its worker processes come and go: {deaths} deaths in a row"
    stuck_ns = words[model + ModelWords.STUCK_NS]
    if stuck_ns and now_ns > stuck_ns:
        found[ModelState.STUCK] = "its workers have not finished a batch for too long"
    ready = [w for w in workers if load_acquire(words, w + WorkerWords.STATE) == WorkerState.READY]
    if ready and all(words[worker + WorkerWords.FAILING] for worker in ready):
        found[ModelState.FAILING] = "its workers fail every request"
    servers = [words[worker + WorkerWords.SERVERS_DOWN] for worker in ready]
    if servers and all(servers):
        found[ModelState.NO_SERVER] = f"none of its {max(servers)} model servers answers"
    return found


def _shortages(words: memoryview, workers: list[int]) -> str:
    errnos = (words[worker + WorkerWords.ERRNO] for worker in workers)
    return "".join(dict.fromkeys(f", and {shortage(errno)}" for errno in errnos if errno))


def _without_collector(words: memoryview, now_ns: int) -> str:
    if errno := words[HeaderWords.COLLECTOR_ERRNO]:
        return f"the collector has ended, and {shortage(errno)}"
    looked_ns = words[HeaderWords.COLLECTOR_NS]
    if not looked_ns:
        return "the collector has ended, and another one is not there yet"
    if now_ns - looked_ns > _STALLED_NS:
        return f"nobody has looked for requests for {(now_ns - looked_ns) / 1e9:.1f} s"
    return ""
