"""Whether a model can be relied on, by what the segment says."""

from collections.abc import Iterable
from typing import Final

from ringbatch.shm.descriptors import BEAT_S, HeaderWords, ModelWords, WorkerState, WorkerWords
from ringbatch.shm.errors import shortage
from ringbatch.shm.layout import Layout
from ringbatch.shm.model_spec import FILE_DIFFERS, ModelSpec
from ringbatch.shm.scalings import Scalings

_STALLED_NS: Final = int(2 * BEAT_S * 1e9)
"""After so long a collector that moves has looked for something to do."""


def readiness(spec: ModelSpec) -> dict[str, object]:
    """What is said of a model that can predict, by V1 and V2."""
    ready = {"name": spec.name, "ready": True}
    return ready | {"model_file": FILE_DIFFERS} if spec.file_differs else ready


def obstacle_of(words: memoryview, layout: Layout, spec: ModelSpec, now_ns: int) -> str:
    """Why a request to a model might not be answered; empty where nothing is known. One that comes
    for a model which the load has left without a worker is answered once there is one.

    Args:
        words: the segment as a memoryview of format ``Q``.
        layout: of it.
        spec: the model's entry.
        now_ns: the time on the monotonic clock.
    """
    awaited = spec.may_be_empty and not Scalings(words, layout, spec.account).failed
    workers = map(layout.worker, spec.workers)
    return obstacle(words, layout.model(spec.index), now_ns, workers, awaited=awaited)


def obstacle(
    words: memoryview,
    model: int,
    now_ns: int,
    workers: Iterable[int] = (),
    *,
    awaited: bool = False,
) -> str:
    """Why a request to a model might not be answered; empty where nothing is known.

    Args:
        words: the segment as a memoryview of format ``Q``.
        model: where the model's words start.
        now_ns: the time on the monotonic clock.
        workers: where the words of its workers start.
        awaited: whether the next request has a worker started, where there is none.
    """
    workers = list(workers)
    if errno := words[HeaderWords.COLLECTOR_ERRNO]:
        return f"the collector has ended, and {shortage(errno)}"
    looked_ns = words[HeaderWords.COLLECTOR_NS]
    if not looked_ns:
        return "the collector has ended, and another one is not there yet"
    if now_ns - looked_ns > _STALLED_NS:
        return f"nobody has looked for requests for {(now_ns - looked_ns) / 1e9:.1f} s"
    deaths = words[model + ModelWords.DEATHS]
    if now_ns < words[model + ModelWords.UNSTEADY_NS]:
        return f"its worker processes come and go: {deaths} deaths in a row"
    if not words[model + ModelWords.READY]:
        errnos = (words[worker + WorkerWords.ERRNO] for worker in workers)
        reasons = dict.fromkeys(f", and {shortage(errno)}" for errno in errnos if errno)
        if reasons or not awaited:
            return "no worker holds it now" + "".join(reasons)
    stuck_ns = words[model + ModelWords.STUCK_NS]
    if stuck_ns and now_ns > stuck_ns:
        return "its workers have not finished a batch for too long"
    ready = [w for w in workers if words[w + WorkerWords.STATE] == WorkerState.READY]
    if ready and all(words[worker + WorkerWords.FAILING] for worker in ready):
        return "its workers fail every request"
    servers = [words[worker + WorkerWords.SERVERS_DOWN] for worker in ready]
    if servers and all(servers):
        return f"none of its {max(servers)} model servers answers"
    return ""
