"""A file of JSON Lines that is begun anew once it is long, and if another program renames it.

Several engines may write to one file, as during a handover: each batch of lines is one append, and
a lock on the file decides who renames it.
"""

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from ringbatch.frontend.payloads.events import Event, as_line
from ringbatch.frontend.payloads.messages import contents

_MODE = 0o640


class FileSink:
    """Sink that appends to a file of JSON Lines, and rotates it.

    Args:
        path: of the file that is written; older ones have ``.1``, ``.2`` and so on behind it.
        most_bytes: of a file, before the next one is begun.
        files: that are kept besides.
    """

    def __init__(self, path: Path, most_bytes: int, files: int) -> None:
        self._path = path
        self._most_bytes = most_bytes
        self._files = files
        self._descriptor = -1

    def open(self) -> None:
        """Open the file, if it is not; raises OSError."""
        self._open(0)

    def deliver(self, blocks: Sequence[bytes]) -> str:
        """Append whole lines in one file; return a remark, which is empty.

        Raises:
            OSError: they are not written.
        """
        data = memoryview(b"".join(blocks))
        self._open(len(data))
        begun_bytes = os.fstat(self._descriptor).st_size
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except OSError:
                # No half of a line may stay, as of a full disk.
                with suppress(OSError):
                    os.ftruncate(self._descriptor, begun_bytes)
                raise
        return ""

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def entries(self, message: bytes) -> Iterator[tuple[bytes, int, int]]:
        """Yield the lines of a message in blocks that fit into a file; see `Sink`."""
        found = (as_line(one) if isinstance(one, Event) else one for one in contents(message))
        for block in self._blocks(b"".join(found)):
            yield block, len(block), block.count(b"\n")

    def _blocks(self, lines: bytes) -> Iterator[bytes]:
        """Yield lines in blocks that fit into a file; a longer line is a block of its own."""
        start = 0
        while len(lines) - start > self._most_bytes:
            end = lines.rfind(b"\n", start, start + self._most_bytes) + 1
            end = end or lines.index(b"\n", start) + 1
            yield lines[start:end]
            start = end
        if start < len(lines):
            yield lines[start:]

    def _open(self, more_bytes: int) -> None:
        """Have the file at the path open, with room for so many bytes."""
        while True:
            if not self._is_at_path():
                self.close()
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
                self._descriptor = os.open(self._path, flags, _MODE)
            size = os.fstat(self._descriptor).st_size
            if not size or size + more_bytes <= self._most_bytes:
                return
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            try:
                # Another engine may have renamed it while this one waited for the lock.
                if self._is_at_path():
                    self._rename()
            finally:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def _is_at_path(self) -> bool:
        if self._descriptor < 0:
            return False
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return False
        ours = os.fstat(self._descriptor)
        return (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino)

    def _rename(self) -> None:
        if not self._files:
            self._path.unlink()
            return
        for number in range(self._files, 0, -1):
            newer = self._older(number - 1)
            with suppress(FileNotFoundError):
                newer.rename(self._older(number))

    def _older(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}") if number else self._path
