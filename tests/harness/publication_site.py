"""Writer and reader of something that is published through a watched segment."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from interleave import Access, Actor, Scenario, Watch
from segment_fixture import local_segment, spec

from ringbatch.shm.engine_slots import BatchMark
from ringbatch.shm.layout import WORD
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import Reason

MARK = BatchMark(7, 1, Reason.IDLE, 1)
Fence = tuple[Any, str]
"""A module, and the name of a fence that it calls."""


class Publication(NamedTuple):
    """Publication: one process writes data that another reads.

    Attributes:
        scenario: both, as actors.
        shared: the words that both touch; the others are no steps.
        accesses: the acquires and releases that it needs.
        fences: fences that it needs.
    """

    scenario: Scenario
    shared: frozenset[int]
    accesses: tuple[Access, ...]
    fences: tuple[Fence, ...] = ()


class Site:
    """A segment whose words are watched, and what its reader found."""

    def __init__(self, watch: Watch) -> None:
        self.segment = made()
        self.segment.words = self.words = WordByWord.words = watch(self.segment.words)
        self.found: list[Any] = []


class WordByWord:
    """Stand-in for a structure that stores each of its words by itself."""

    words: memoryview

    def pack_into(self, _memory: object, offset: int, *values: int) -> None:
        for number, value in enumerate(values, offset // WORD):
            self.words[number] = value


def made() -> Segment:
    return local_segment(spec(), slots=2)


LAYOUT = made().layout
SLOT = LAYOUT.slot(0)


def publication(
    write: Callable[[Site], None],
    read: Callable[[Site], None],
    check: Callable[[Site], None],
    *,
    prepare: Callable[[Site], None] = lambda site: None,
) -> Scenario:
    """Return a scenario: a writer, a reader, and what must hold of what the reader found."""

    def scenario(watch: Watch) -> tuple[list[Actor], Callable[[], None]]:
        site = Site(watch)
        prepare(site)
        actors = [Actor("writer", partial(write, site)), Actor("reader", partial(read, site))]
        return actors, partial(check, site)

    return scenario


class Bytes:
    """The watched words as bytes, for what is stored and read as such; whole words at a time."""

    def __init__(self, site: Site) -> None:
        self._words = site.words

    def __setitem__(self, index: slice, value: bytes) -> None:
        for at in range(0, len(value), WORD):
            number = (index.start + at) // WORD
            self._words[number] = int.from_bytes(value[at : at + WORD], "little")

    def __getitem__(self, index: slice) -> bytes:
        numbers = range(index.start // WORD, index.stop // WORD)
        return b"".join(int(self._words[number]).to_bytes(WORD, "little") for number in numbers)
