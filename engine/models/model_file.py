"""Model file as it was when its version was opened, even if its path is overwritten later.

All workers of a version serve one content, also those that take the place of a dead one. So the
supervisor keeps what a version's first workers were started with, and hands it to every worker:

    up to COPIED_BYTES   a copy in memory, see memfd_create(2)
    above that           the open file, which outlives being replaced at its path (rename(2)), but
                         not being written over

Modules and data that a model reads beside its file are not kept. Nor is a directory: a worker that
is started once something in it is another refuses to serve, as it would give other answers.
"""

import os
import stat
import weakref
from pathlib import Path
from typing import Final, NamedTuple

from ringbatch.shm.errors import StartupError

COPIED_BYTES: Final = 16 << 20
"""Largest file in bytes of which a copy is kept in memory."""
_CHUNK_BYTES: Final = 1 << 20
_PARTS: Final = (
    *(".json", ".onnx", "_data", ".data", ".xml", ".bin", ".pt2", ".model"),
    *(".py", ".jinja", ".safetensors"),
)
"""Endings of the files of a model that is a directory."""

Stamp = tuple[int, ...]
"""Device, inode, bytes and time of the last write of a file, or of each in a directory; empty if
there is none."""


class ModelFile:
    """File that one version of a model was started with.

    Attributes:
        path: at which it was found.

    Args:
        path: the model file, or the address of a server; the workers refuse an unreadable file, in
            words.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = path
        self._stamp: Stamp = ()
        self._copied = False
        self._fd = -1
        try:
            fd = _open(path)
        except OSError:
            return
        try:
            if os.path.isdir(path):
                self._stamp = _stamp_at(path)
                return
            self._stamp = _stamp(os.fstat(fd))
            self._copied = os.fstat(fd).st_size <= COPIED_BYTES
            self._fd = _copy(fd, os.path.basename(path)) if self._copied else os.dup(fd)
        except OSError:
            self._stamp = ()
        finally:
            os.close(fd)
        if self._fd >= 0:
            weakref.finalize(self, os.close, self._fd)

    @property
    def fds(self) -> tuple[int, ...]:
        """Descriptors that a worker must inherit to read it; none if there was no file."""
        return (self._fd,) if self._fd >= 0 else ()

    def kept(self) -> "HeldFile":
        """Return the part of it that a worker needs."""
        return HeldFile(self._fd, self._stamp, self._copied)

    def differs(self) -> bool:
        """Return whether the path has another content by now, or none; it may wait for the disk."""
        try:
            if _stamp_at(self.path) == self._stamp:
                return False
            return not self._copied or self._is_another_content()
        except OSError:
            return bool(self._stamp)

    def _is_another_content(self) -> bool:
        fd = _open(self.path)
        try:
            size = os.fstat(self._fd).st_size
            return os.fstat(fd).st_size != size or _read(fd, size) != _read(self._fd, size)
        finally:
            os.close(fd)


class HeldFile(NamedTuple):
    """Content of a model file as a worker holds it: by a descriptor.

    Attributes:
        fd: inherited; -1 if there was no file.
        stamp: of the file, when it was opened.
        copied: whether the descriptor is that of a copy.
    """

    fd: int
    stamp: Stamp
    copied: bool

    def keep_from_children(self) -> None:
        """Have no child of this process inherit it."""
        if self.fd >= 0:
            os.set_inheritable(self.fd, False)

    def content(self, path: Path | str) -> Path | None:
        """Return the path at which the content can be read now; None if it still lies at its own.

        Raises:
            StartupError: it can be read nowhere.
        """
        try:
            found: Stamp = _stamp_at(path)
        except OSError:
            found = ()
        if found == self.stamp or not self.stamp:
            return None
        if self.fd < 0:
            raise StartupError(
                f"{path}: a file in it is another by now than when it was loaded; ringbatch reload "
                "takes what is there now"
            )
        if not self.copied and _stamp(os.fstat(self.fd))[2:] != self.stamp[2:]:
            raise StartupError(
                f"{path}: was written over while its content was served, so nobody has that any "
                "more; ringbatch reload takes what is there now. Replace a file instead (write "
                "another one and rename it), and the old one is served until the reload"
            )
        return Path(f"/proc/self/fd/{self.fd}")


def _stamp(found: os.stat_result) -> Stamp:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _stamp_at(path: Path | str) -> Stamp:
    """Return the stamp of a file, or of the model's files in a directory.

    Raises:
        OSError: there is nothing.
    """
    found = os.stat(path)
    if not stat.S_ISDIR(found.st_mode):
        return _stamp(found)
    stamps: list[int] = [found.st_dev, found.st_ino]
    for folder in (path, *sorted(entry.path for entry in os.scandir(path) if entry.is_dir())):
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            if entry.name.endswith(_PARTS):
                stamps += _stamp(entry.stat())
    return tuple(stamps)


def _open(path: Path | str) -> int:
    """Open a file for reading, without waiting: nobody may ever write into a pipe at the path."""
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)


def _copy(fd: int, name: str) -> int:
    """Return the descriptor of a copy in memory."""
    # The kernel takes 249 bytes, which may be fewer letters.
    copy = os.memfd_create(os.fsdecode(os.fsencode(name)[:200]), os.MFD_CLOEXEC)
    try:
        while os.sendfile(copy, fd, None, _CHUNK_BYTES):
            pass
    except OSError:
        os.close(copy)
        raise
    return copy


def _read(fd: int, size: int) -> bytes:
    return os.pread(fd, size, 0)
