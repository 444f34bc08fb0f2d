"""Memory cap: the largest batch that fits, learned from runs that ran out of memory.

A run that runs out of memory is halved. If it was the size and no single request, later batches
are run in parts from the start. Memory that another process took may come back: after many runs at
the cap a larger one is tried, and each time that fails it is tried more seldom.
"""

import gc
import sys
from collections.abc import Sequence
from typing import Final, TypeVar

from ringbatch.engine.models.model import error_text

FIRST_PATIENCE: Final = 100
"""Full runs before a larger one is tried for the first time."""
_MOST_PATIENCE: Final = 1 << 20
_MOST_ROWS: Final = 1 << 13
_LIBRARIES: Final = frozenset({"cupy", "jaxlib", "onnxruntime", "torch"})
_WORDS: Final = (
    "out of memory",
    "out_of_memory",
    "alloc_failed",
    "bad_alloc",
    "bad allocation",
    "can't allocate memory",
    "failed to allocate memory",
)

T = TypeVar("T")


def ran_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception says that memory is used up, the host's or a device's.

    Libraries raise exceptions of many types for it. Texts count only of types that a model
    does not raise itself with a client's words in them.
    """
    if isinstance(error, MemoryError):
        return True
    library = type(error).__module__.partition(".")[0] in _LIBRARIES
    if not library and type(error) is not RuntimeError:
        return False
    text = error_text(error).lower()
    return any(words in text for words in _WORDS)


def give_back() -> None:
    """Let go of what a run that failed has left behind."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


class MemoryCap:
    """The most rows that one run may take.

    Attributes:
        rows: None while nothing is known.
    """

    def __init__(self) -> None:
        self.rows: int | None = None
        self._patience = FIRST_PATIENCE
        self._full_runs = 0
        self._trying = False

    def allows(self, rows: int) -> bool:
        """Return whether so many rows may be run at once."""
        return self.rows is None or rows <= self.rows

    def parts(self, requests: Sequence[T], rows: Sequence[int]) -> list[list[T]]:
        """Return requests in runs that are allowed, or of a single one.

        Args:
            requests: of a batch.
            rows: rows of each request.
        """
        if self.rows is None:
            return [list(requests)] if requests else []
        parts: list[list[T]] = []
        total = 0
        for request, own in zip(requests, rows, strict=True):
            total += own
            if not parts or not self.allows(total):
                parts.append([])
                total = own
            parts[-1].append(request)
        return parts

    def ran_out(self, rows: int) -> None:
        """Record that a run of so many, at least 2, was too large, and its parts were not."""
        if self._trying:
            self._patience = min(2 * self._patience, _MOST_PATIENCE)
        self._trying = False
        self._full_runs = 0
        self.rows = max(min(rows, self.rows or rows) // 2, 1)

    def fitted(self, rows: int) -> bool:
        """Record that a run of so many fitted; return whether the cap has changed."""
        if self.rows is None or 2 * rows <= self.rows:
            return False
        self._full_runs += 1
        if self._full_runs < self._patience:
            return False
        self._full_runs = 0
        self._trying = True
        self.rows = 2 * self.rows if 2 * self.rows < _MOST_ROWS else None
        return True
