"""Memory that clients share with this process: their objects opened, read and written.

The regions that are registered stand in the segment (ringbatch.shm.region_registry), so a
registration that came to one frontend holds for all. Each opens the object itself when a request
first names the region, and keeps it open until `sweep` finds that the region is registered no
longer.

Objects are read and written through their descriptors and never mapped. A client can make its
object shorter at any time, and to touch a mapping beyond the end of its object kills the process
(SIGBUS). A read or write that comes too late is an error of that request instead, at the price of
one system call for each tensor. Triton maps them.

What is opened is a plain file of one name, directly in /dev/shm: no symbolic link is followed, no
pipe waited for. It must still have that name when it is used. So all frontends agree on what a
region is, whenever each of them opened it, and no object is kept alive that its client has removed.
"""

import asyncio
import errno
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from ringbatch.frontend.codec.limit_messages import body_too_large
from ringbatch.frontend.codec.payload import Bytes, LazyBytes
from ringbatch.frontend.v2.shared_memory import (
    NoMemory,
    RegionSpan,
    checked,
    expect_region_name,
    object_name,
    start_of,
)
from ringbatch.shm.errors import InvalidRequest, MemoryNotFound, Overloaded
from ringbatch.shm.region import Region
from ringbatch.shm.region_registry import Entry, Registry, RegistryBusy
from ringbatch.shm.shm_objects import DIRECTORY

_FLAGS: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_SHORT_OF: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_TRIES: Final = 1000
_PAUSE_S: Final = 0.005


class SharedMemory(NamedTuple):
    """Limits of clients' shared memory.

    Attributes:
        prefixes: of the names of objects; none switches all of it off.
        max_bytes: larger inputs are refused.
    """

    prefixes: tuple[str, ...]
    max_bytes: int


NOTHING_SHARED: Final = SharedMemory((), 0)


class Regions:
    """Clients' memory, for one thread of a frontend; a `ClientMemory`.

    Args:
        registry: of the segment.
        shared: what clients may share.
        directory: where their objects are.
    """

    def __init__(
        self, registry: Registry, shared: SharedMemory, directory: Path = DIRECTORY
    ) -> None:
        self._registry = registry
        self._prefixes, self._max_bytes = shared
        self._directory = directory
        self._open: dict[str, _Object] = {}

    @property
    def on(self) -> bool:
        """True if any client may share memory."""
        return bool(self._prefixes)

    def expect_on(self) -> None:
        """Raise `NotSupported` if `on` is false."""
        if not self._prefixes:
            NoMemory().expect_on()

    def register(self, name: str, key: str, offset: int, size: int) -> None:
        """Register a stretch of an object as a region; for all frontends.

        Args:
            name: what requests will call it.
            key: the object's name, with or without a slash in front.
            offset: in bytes.
            size: in bytes.

        Raises:
            NotSupported: this is switched off.
            InvalidRequest: what is given makes no sense, is not allowed, or is not within the
                object.
            MemoryNotFound: there is no such object that this process may use.
            RegionTaken, Overloaded: as `Registry.add`.
            RegistryBusy: to be tried again, see `patiently`.
        """
        self.expect_on()
        expect_region_name(name)
        key, offset, size = checked(key, offset, size)
        fd = self._open_object(key)
        try:
            found = os.fstat(fd)
            if offset + size > found.st_size:
                raise InvalidRequest(
                    f"{size} bytes from offset {offset} are not within the shared memory object "
                    f'"{key}"'
                )
            region = Region(name, key, offset, size, found.st_dev, found.st_ino)
            entry = self._registry.add(region)
        except BaseException:
            os.close(fd)
            raise
        self._open[name] = _Object(fd, entry)

    def unregister(self, name: str | None) -> None:
        """Unregister a region, if there is one of that name, or all of them if it is None.

        Requests that are on their way and use it are not disturbed.

        Raises:
            NotSupported: this is switched off.
            RegistryBusy: to be tried again, see `patiently`.
        """
        self.expect_on()
        self._registry.remove(name)
        self.sweep()

    def status(self, name: str | None) -> list[Region]:
        """Return the region of that name, or all of them if it is None.

        Raises:
            NotSupported: this is switched off.
            MemoryNotFound: there is no region of that name.
        """
        self.expect_on()
        if name is None:
            return [entry.region for entry in self._registry.entries()]
        return [self._found(name).region]

    def source(self, span: RegionSpan) -> LazyBytes:
        """As in `ClientMemory`."""
        if span.size > self._max_bytes:
            found = f"an input in shared memory has {span.size} bytes"
            raise body_too_large(found, self._max_bytes)
        return self._bytes_at(span)

    def target(self, span: RegionSpan) -> "RegionBytes":
        """As in `ClientMemory`."""
        return self._bytes_at(span)

    def sweep(self) -> None:
        """Let go of the objects of regions that are registered no longer."""
        stale = [name for name, known in self._open.items() if not self._holds(known.entry)]
        for name in stale:
            del self._open[name]

    def close(self) -> None:
        """Let go of all objects."""
        self._open.clear()

    def _bytes_at(self, span: RegionSpan) -> "RegionBytes":
        self.expect_on()
        known = self._open.get(span.region)
        if known is None or not self._holds(known.entry):
            known = self._opened(span.region)
        return RegionBytes(known, start_of(span, known.entry.region), span.size)

    def _holds(self, entry: Entry) -> bool:
        return self._registry.stamp(entry.place) == entry.stamp

    def _found(self, name: str) -> Entry:
        entry = self._registry.find(name)
        if entry is None:
            raise MemoryNotFound(f'no shared memory region "{name[:128]}" is registered')
        return entry

    def _opened(self, name: str) -> "_Object":
        entry = self._found(name)
        # The key is checked again: it comes from memory that other processes write, too.
        opened = _Object(self._open_object(entry.region.key), entry)
        opened.expect_sound(0)
        self._open[name] = opened
        return opened

    def _open_object(self, key: str) -> int:
        path = self._directory / object_name(key, self._prefixes)
        try:
            fd = os.open(path, _FLAGS)
        except OSError as error:
            if error.errno in _SHORT_OF:
                raise Overloaded("this server has too much open to open another object") from None
            raise _no_object(key) from None
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            os.close(fd)
            raise _no_object(key)
        return fd


def _no_object(key: str) -> MemoryNotFound:
    # One text for all reasons, so that no client learns which other objects exist.
    return MemoryNotFound(f'there is no shared memory object "{key}" that this server could open')


class _Object:
    """An open object; it is closed when the last one that uses it is gone."""

    __slots__ = ("entry", "fd")

    def __init__(self, fd: int, entry: Entry) -> None:
        self.fd = fd
        self.entry = entry

    def __del__(self) -> None:
        os.close(self.fd)

    def expect_sound(self, end: int) -> None:
        """Refuse an object that is another than was registered, or ends before `end`.

        Raises:
            InvalidRequest
        """
        found, region = os.fstat(self.fd), self.entry.region
        same = (found.st_dev, found.st_ino) == (region.device, region.inode)
        if not same or found.st_nlink != 1 or found.st_size < end:
            raise self.gone("is no longer what was registered")

    def gone(self, why: str) -> InvalidRequest:
        """Return the error of a request that came too late."""
        return InvalidRequest(
            f'the object of shared memory region "{self.entry.region.name}" {why}; '
            "register the region again"
        )


class RegionBytes(LazyBytes):
    """Some bytes of a region; a `Target`.

    Attributes:
        size: number of bytes.
    """

    __slots__ = ("_object", "_start", "size")

    def __init__(self, opened: _Object, start: int, size: int) -> None:
        self._object = opened
        self._start = start
        self.size = size

    def __len__(self) -> int:
        return self.size

    def read_into(self, memory: memoryview) -> None:
        """As in `LazyBytes`."""
        opened, start, done = self._object, self._start, 0
        opened.expect_sound(start + self.size)
        while done < self.size:
            try:
                count = os.preadv(opened.fd, [memory[done:]], start + done)
            except OSError as error:
                raise opened.gone(f"cannot be read: {error.strerror}") from None
            if not count:
                raise opened.gone("ended while it was read")
            done += count

    def write(self, pieces: Sequence[Bytes]) -> None:
        """As in `Target`."""
        opened, at = self._object, self._start
        # Written to nevertheless, a shorter object would grow.
        opened.expect_sound(at + sum(map(len, pieces)))
        for piece in pieces:
            view = memoryview(piece)
            while view:
                try:
                    count = os.pwrite(opened.fd, view, at)
                except OSError as error:
                    raise opened.gone(f"cannot be written: {error.strerror}") from None
                view, at = view[count:], at + count


async def patiently(attempt: Callable[[], None]) -> None:
    """Make an attempt to change the registry again while another process changes it.

    Raises:
        Overloaded: the other process does not come to an end.
    """
    for _ in range(_TRIES):
        try:
            attempt()
        except RegistryBusy:
            await asyncio.sleep(_PAUSE_S)
        else:
            return
    raise Overloaded("another shared memory region is being registered; try again")
