"""Watch of model files: detects that the file at a model's path is not the served one any more.

A look may wait for a disk or for another host, and the supervisor must not wait. So a thread looks,
and wakes the supervisor through a descriptor.
"""

import os
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Final

from ringbatch.engine.models.model_file import ModelFile
from ringbatch.shm.host.background import repeating_thread

LOOK_EVERY_S: Final = 2.0

Files = Mapping[int, ModelFile]


class ModelFileWatch:
    """Repeated look at model files, until it is closed.

    Args:
        files: the served files, by the reference of their entry.
        differing: the references that are known to differ.
        every_s: how often to look.
    """

    def __init__(
        self,
        files: Callable[[], Files],
        differing: Callable[[], Collection[int]],
        every_s: float = LOOK_EVERY_S,
    ) -> None:
        self._files = files
        self._differing = differing
        self._every_s = every_s
        self._found: frozenset[int] = frozenset()
        self._news = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._closing = threading.Event()
        self._thread = repeating_thread("the watch of model files", self._turn, self._closing.wait)

    def fileno(self) -> int:
        """Return a descriptor that is readable when the latest look has news."""
        return self._news

    def take(self) -> frozenset[int]:
        """Return the references that differ, by the last look."""
        os.eventfd_read(self._news)
        return self._found

    def close(self, limit_s: float = 0.0) -> None:
        """Stop looking; wait that long for a look under way."""
        self._closing.set()
        self._thread.join(limit_s)
        if not self._thread.is_alive():
            os.close(self._news)

    def _turn(self) -> bool:
        if self._closing.wait(self._every_s):
            return False
        found = frozenset(ref for ref, file in dict(self._files()).items() if file.differs())
        if found != frozenset(self._differing()):
            self._found = found
            os.eventfd_write(self._news, 1)
        return True
