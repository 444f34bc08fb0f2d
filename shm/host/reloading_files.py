"""Files that are read again when they change, without a signal."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from ringbatch.shm.errors import StartupError

T = TypeVar("T")
_Stamp = tuple[int, ...] | None


class ReloadingFiles(Generic[T]):
    """Files that are read again when they have changed.

    Args:
        paths: of the files.
        read: reads them all; raises `StartupError` if something is wrong with them.
        complain: called with what is wrong, once for as long as it stays the same.
        first: the value before the first look; by default the files are read at once.

    Attributes:
        value: the value of their last sound contents.

    Raises:
        StartupError: `read` does.
    """

    def __init__(
        self,
        paths: tuple[Path, ...],
        read: Callable[[], T],
        complain: Callable[[str], object],
        first: T | None = None,
    ) -> None:
        self._paths = paths
        self._read = read
        self._tell = complain
        self._complaint = ""
        # Before the files are read: a write during the read is noticed at the next look.
        self._seen = self._stamps() if first is None else ()
        self.value = read() if first is None else first

    def look(self) -> bool:
        """Read them if any has changed since they were last well; whether they are so again."""
        stamps = self._stamps()
        if stamps == self._seen:
            return False
        try:
            self.value = self._read()
        except StartupError as error:
            # Their stamps stay old until they are sound: a fault may pass without a further change.
            self._complain(str(error))
            return False
        self._seen = stamps
        self._complaint = ""
        return True

    def _complain(self, text: str) -> None:
        if text != self._complaint:
            self._tell(text)
        self._complaint = text

    def _stamps(self) -> tuple[_Stamp, ...]:
        return tuple(map(_stamp, self._paths))


def _stamp(path: Path) -> _Stamp:
    """Return a stamp that changes if the file is replaced."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size
