"""Registry of clients' memory regions, for all frontends of an engine.

A registration comes to one frontend, and the requests that use it may come to any. So the records
stand in the segment. A frontend that has found one remembers its place and its stamp. One load then
says if it is still the same.

The stamp alone publishes and retires a record:

    register    the fields and the text, then a stamp that was never given before
    unregister  0 in the stamp's place
    look        the stamp, fields and text, and the stamp again: they belong together if it
                has not changed

So a writer that dies in between leaves a record that no reader sees, and the next one writes over
it. The fields are written only while the stamp is 0, and `ringbatch.shm.memory_order` keeps the
order above. Readers take no lock. Registrars share one lock of the open file, which the kernel
drops with its holder. No process waits for it here: a process that was stopped while it held the
lock must not stop the others.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ringbatch.shm.errors import Overloaded, RegionTaken
from ringbatch.shm.layout import MAX_REGIONS
from ringbatch.shm.memory_order import begin_change, is_unchanged, load_acquire, store_release
from ringbatch.shm.region import FIELDS, Region, decode, encode, text_words
from ringbatch.shm.region_words import RegionWords, RegistryWords
from ringbatch.shm.segment import Segment


class RegistryBusy(Exception):
    """Another process is registering at this moment; to be tried again."""


class Entry(NamedTuple):
    """A region that was found: its record's number, and the stamp that it had."""

    place: int
    stamp: int
    region: Region


class Registry:
    """The records of a segment, for a frontend.

    Args:
        words: the segment as a memoryview of format ``Q``.
        first: where the registry starts.
        lock: takes the lock of the registrars; False if another process has it.
        unlock: gives it back.
        capacity: how many records there are.
    """

    def __init__(
        self,
        words: memoryview,
        first: int,
        lock: Callable[[], bool],
        unlock: Callable[[], None],
        capacity: int = MAX_REGIONS,
    ) -> None:
        self._words = words
        self._last_stamp = first + RegistryWords.STAMP
        self._first = first + RegistryWords.SIZE
        self._lock = lock
        self._unlock = unlock
        self._capacity = capacity
        # A lock of the open file does not keep the threads of one process apart.
        self._own_threads = threading.Lock()

    @classmethod
    def attach(cls, segment: Segment) -> "Registry":
        """Return the registry of a segment."""
        first = segment.layout.registry_word
        return cls(segment.words, first, segment.lock_registry, segment.unlock_registry)

    def stamp(self, place: int) -> int:
        """Return the stamp of a record now, in one load; 0 while it is empty."""
        stamp: int = self._words[self._first + place * RegionWords.SIZE]
        return stamp

    def find(self, name: str) -> Entry | None:
        """Return the region of that name, if there is one."""
        return next((entry for entry in self._entries() if entry.region.name == name), None)

    def entries(self) -> list[Entry]:
        """Return all regions."""
        return list(self._entries())

    def add(self, region: Region) -> Entry:
        """Register a region; its name and key are within their limits.

        Raises:
            RegistryBusy: another registrar is at work.
            RegionTaken: there is a region of that name already.
            Overloaded: there is no room for another region.
        """
        with self._registrar():
            free = None
            for place in range(self._capacity):
                entry = self._read(place)
                if entry is None:
                    free = place if free is None else free
                elif entry.region.name == region.name:
                    raise RegionTaken(
                        f'shared memory region "{region.name}" is registered already; '
                        "unregister it first"
                    )
            if free is None:
                raise Overloaded(
                    f"{self._capacity} shared memory regions are registered, and there is no room "
                    "for more; unregister some first"
                )
            return Entry(free, self._write(free, region), region)

    def remove(self, name: str | None) -> None:
        """Unregister the region of that name, if there is one, or all regions if it is None.

        Raises:
            RegistryBusy: another registrar is at work.
        """
        with self._registrar():
            places = (e.place for e in self._entries() if e.region.name == name)
            for place in range(self._capacity) if name is None else places:
                self._words[self._first + place * RegionWords.SIZE] = 0

    def _entries(self) -> Iterator[Entry]:
        for place in range(self._capacity):
            entry = self._read(place)
            if entry is not None:
                yield entry

    def _read(self, place: int) -> Entry | None:
        words, first = self._words, self._first + place * RegionWords.SIZE
        stamp = load_acquire(words, first)
        if not stamp:
            return None
        fields = words[first + RegionWords.OFFSET : first + RegionWords.OFFSET + FIELDS].tolist()
        count = text_words(fields)
        text = words[first + RegionWords.TEXT : first + RegionWords.TEXT + count].tolist()
        # Under another stamp, or none, the words may be of two registrations.
        if not count or not is_unchanged(words, first, stamp):
            return None
        region = decode(fields, text)
        return None if region is None else Entry(place, stamp, region)

    def _write(self, place: int, region: Region) -> int:
        words, first = self._words, self._first + place * RegionWords.SIZE
        # What could not be read is no region, but may have a stamp.
        begin_change(words, first)
        for number, word in enumerate(encode(region), first + RegionWords.OFFSET):
            words[number] = word
        words[self._last_stamp] = stamp = words[self._last_stamp] + 1
        store_release(words, first, stamp)
        return int(stamp)

    @contextmanager
    def _registrar(self) -> Iterator[None]:
        if not self._own_threads.acquire(blocking=False):
            raise RegistryBusy
        try:
            if not self._lock():
                raise RegistryBusy
            try:
                yield
            finally:
                self._unlock()
        finally:
            self._own_threads.release()
