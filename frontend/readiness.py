"""Why a model cannot be relied on, by what the collector says in the segment."""

from typing import Final

from ringbatch.shm.layout import (
    COLLECTOR_NS,
    MODEL_DEATHS,
    MODEL_READY,
    MODEL_STUCK_NS,
    MODEL_UNSTEADY_NS,
    WORD,
)

_STALLED_NS: Final = 5_000_000_000
"""While it has requests, the collector looks for something to do once a second."""


def obstacle(words: memoryview, offset: int, now_ns: int, *, waiting: bool) -> str:
    """Why a request to a model might not be answered; empty where nothing is known.

    Args:
        words: the segment as a memoryview of format ``Q``.
        offset: where the model's words start, in bytes.
        now_ns: the time on the monotonic clock.
        waiting: whether the collector has requests of the one who asks.
    """
    looked_ns = words[COLLECTOR_NS // WORD]
    if waiting and looked_ns and now_ns - looked_ns > _STALLED_NS:
        return f"nobody has looked for requests for {(now_ns - looked_ns) / 1e9:.0f} s"
    deaths = words[(offset + MODEL_DEATHS) // WORD]
    if now_ns < words[(offset + MODEL_UNSTEADY_NS) // WORD]:
        return f"its worker processes come and go: {deaths} deaths in a row"
    if not words[(offset + MODEL_READY) // WORD]:
        return "no worker holds it now"
    stuck_ns = words[(offset + MODEL_STUCK_NS) // WORD]
    if stuck_ns and now_ns > stuck_ns:
        return "its workers have not finished a batch for too long"
    return ""
