"""Publications in rings and slots: items, requests, answers, parts and joined rows."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from interleave import Actor, Watch, copy_late
from publication_site import (
    LAYOUT,
    MARK,
    SLOT,
    Bytes,
    Publication,
    Site,
    publication,
)
from segment_fixture import FAR_NS

from ringbatch.engine.collector import takeover
from ringbatch.engine.ipc.messages import task_words
from ringbatch.shm.descriptors import (
    TASK_WORDS,
    RingWords,
    SlotWords,
)
from ringbatch.shm.engine_slots import EngineSlots
from ringbatch.shm.joined import JoinedRows
from ringbatch.shm.lane import Lane
from ringbatch.shm.layout import ALIGNMENT, WORD, aligned
from ringbatch.shm.parts import PartReader, PartWriter
from ringbatch.shm.ring import Consumer, Producer
from ringbatch.shm.slot import State, Status

# Rings


def ring() -> Publication:
    """Three words through a ring of two places, each of them copied by its consumer."""
    first, capacity = 0, 2

    class CopyingConsumer(Consumer):
        """Consumer that copies words without a look at them, as bytes are copied."""

        def peek_up_to(self, end: int) -> list[Any]:
            mask = self._capacity - 1
            numbers = range(self.position, end)
            return [copy_late(self._words, self._first + (n & mask)) for n in numbers]

    def scenario(watch: Watch) -> tuple[list[Actor], Callable[[], None]]:
        words = watch(memoryview(bytearray(WORD * (RingWords.ITEMS + capacity))).cast("Q"))
        producer, consumer = Producer(words, first, 2), CopyingConsumer(words, first, 2)
        offered: list[int] = []
        taken: list[Any] = []

        def produce() -> None:
            offered.extend(item for item in (11, 12, 13) if producer.offer([item]))

        def consume() -> None:
            for _ in range(2):
                taken.extend(consumer.take())

        def check() -> None:
            values = [copy.value for copy in taken]
            assert values == offered[: len(values)], "read before or after it stood there"

        return [Actor("producer", produce), Actor("consumer", consume)], check

    accesses = (
        ("store", RingWords.TAIL),
        ("load", RingWords.TAIL),
        ("store", RingWords.HEAD),
    )
    return Publication(scenario, frozenset(range(RingWords.ITEMS + capacity)), accesses)


# Slots


def publish(site: Site) -> None:
    """Publish request number 5, as a frontend that dies before it submits it."""
    frontend = Lane(site.segment, 0, lambda: None)
    slot = frontend.claim(WORD, WORD, 0)
    assert slot is not None
    frontend.publish(slot, 0, 5, 0, FAR_NS, WORD)


def find_published(site: Site) -> None:
    """Look through the slots, as a new collector does."""
    slots = EngineSlots(site.segment, LAYOUT.workers, lambda _lane: None)
    references = [ref for ref, state in slots.published() if state is State.PUBLISHED]
    site.found += [request and request.rows for request in map(slots.read, references)]


def is_request_5(site: Site) -> None:
    assert site.found in ([], [5]), "a request without its header"


def answer(site: Site) -> None:
    """Answer the request, as a worker that dies before it posts the answer."""
    slots = EngineSlots(site.segment, 0, lambda _lane: None)
    ref = 1 << 24
    site.found += [copy_late(site.words, LAYOUT.payload_byte // WORD)]
    site.words[RESULT] = 1005
    slots.answer(ref, Status.OK, 8, MARK, 1)


RESULT = LAYOUT.payload_byte // WORD + 1


def read_answer(site: Site) -> None:
    """Find it, as a new collector, and read it, as the frontend that the collector tells."""
    slots = EngineSlots(site.segment, LAYOUT.workers, lambda _lane: None)
    ref = 1 << 24
    if not slots.is_open(ref):
        site.found += [(site.words[RESULT], site.words[SLOT + SlotWords.RESULT_BYTES])]
        # The frontend has its answer, and writes the next request where this one was.
        site.words[LAYOUT.payload_byte // WORD] = 6


def is_answer_to_5(site: Site) -> None:
    request, *read = site.found if not isinstance(site.found[0], tuple) else site.found[::-1]
    assert request.value == 5, "a request that was written over"
    assert read in ([], [(1005, 8)]), "an answer before it stands there"


def ask(site: Site) -> None:
    publish(site)
    site.words[LAYOUT.payload_byte // WORD] = 5


# Parts of an answer


def write_parts(site: Site) -> None:
    """Write two parts into a ring that has room for one."""
    writer = PartWriter(
        cast(memoryview, Bytes(site)), site.words, SLOT, PART_RING * WORD, PART_BYTES
    )
    for number in (1, 2):
        part = number.to_bytes(WORD, "little")
        site.found.append(writer.write(part))


PART_RING = LAYOUT.payload_byte // WORD
PART_BYTES = ALIGNMENT + aligned(WORD)


def read_parts(site: Site) -> None:
    frontend = SimpleNamespace(
        first_word=SLOT,
        words=site.words,
        result_offset=[PART_RING * WORD],
        result_capacity=[PART_BYTES],
    )
    reader = PartReader(cast(Lane, frontend))
    for _ in range(2):
        if (part := reader.next(0)) is not None:
            start, size = part
            site.found.append(copy_late(site.words, start // WORD))
            reader.take(0, size)


def are_parts(site: Site) -> None:
    read = [found.value for found in site.found if not isinstance(found, bool)]
    written = sum(found for found in site.found if isinstance(found, bool))
    assert read == [1, 2][: len(read)], "a part that is not there yet, or any more"
    assert len(read) <= written


# Rows that a worker has joined


def join(site: Site) -> None:
    """Take a task out of the ring, as a worker of a model in steps."""
    ring = Consumer(site.words, LAYOUT.task_ring(0), TASK_WORDS)
    JoinedRows(site.segment).join(1 << 24, 0, MARK)
    ring.take()


def offer_task(site: Site) -> None:
    publish(site)
    tasks = Producer(site.words, LAYOUT.task_ring(0), TASK_WORDS)
    assert tasks.offer(task_words(MARK, [1 << 24], 0))


def find_held(site: Site) -> None:
    (tasks,) = takeover.held_by_all(site.segment)
    assert tasks is not None
    site.found += [(task.mark.batch, task.references) for task in tasks]


def is_held(site: Site) -> None:
    assert site.found == [(7, [1 << 24])], "a row that the worker holds is taken for lost"


SLOT_PUBLICATIONS: dict[str, Publication] = {
    "items of a ring": ring(),
    "a request found in its slot": Publication(
        publication(publish, find_published, is_request_5),
        frozenset({SLOT + SlotWords.CONTROL, SLOT + SlotWords.ROWS}),
        (("store", SLOT + SlotWords.CONTROL), ("load", SLOT + SlotWords.CONTROL)),
    ),
    "an answer found in its slot": Publication(
        publication(answer, read_answer, is_answer_to_5, prepare=ask),
        frozenset({SLOT + SlotWords.DONE, SLOT + SlotWords.RESULT_BYTES, RESULT, RESULT - 1}),
        (("store", SLOT + SlotWords.DONE), ("load", SLOT + SlotWords.DONE)),
    ),
    "parts of an answer": Publication(
        publication(write_parts, read_parts, are_parts),
        frozenset(
            {SLOT + SlotWords.PARTS_END, SLOT + SlotWords.PARTS_TAKEN}
            | {PART_RING, PART_RING + ALIGNMENT // WORD}
        ),
        (
            ("store", SLOT + SlotWords.PARTS_END),
            ("load", SLOT + SlotWords.PARTS_END),
            ("store", SLOT + SlotWords.PARTS_TAKEN),
        ),
    ),
    "a row that a worker joins": Publication(
        publication(join, find_held, is_held, prepare=offer_task),
        frozenset(
            {
                LAYOUT.task_ring(0) + RingWords.HEAD,
                SLOT + SlotWords.JOINED,
                SLOT + SlotWords.BATCH,
            }
        ),
        (
            ("store", LAYOUT.task_ring(0) + RingWords.HEAD),
            ("load", LAYOUT.task_ring(0) + RingWords.HEAD),
        ),
    ),
}
"""Publications there, and the orders that each needs."""
