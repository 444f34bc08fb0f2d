"""Invariants of answers in parts, see `ringbatch.shm.parts`."""

import json
from typing import Final

from simulation.asked import LARGE, Asked, padding
from simulation.engine import HOSTILE_LANE, Engine
from simulation.served import PARTS, parts_in, parts_of

from ringbatch.frontend.codec.outcome import Answer
from ringbatch.shm.descriptors import SlotWords
from ringbatch.shm.engine_slots import EngineSlots
from ringbatch.shm.slot import slot_of

END: Final[Answer] = (200, b"the end", ())
"""Reply behind the last part."""
CUT_OFF: Final = b"what has come is not all"
"""Part of the error text after a worker has died amid its parts."""
_UNTAKEN: Final = (b"has not taken the parts", b"internal error")
"""Parts of the error text after a ring was full for too long.

Without room for it, the text is that of any internal error.
"""


def rows_at_most(asked: Asked) -> int:
    """Return the most rows of a request that wants parts, or whose answer is large.

    A frontend claims for parts many times what it has learned that whole answers take. Where these
    are too large, an empty lane has no room for parts.
    """
    return asked.model.max_batch_size if asked.wants_parts else 1


def parts_wanted(asked: Asked) -> int:
    """Return how many parts each row of a request's answer has."""
    return parts_of(asked.number) if asked.model.places else PARTS


def padding_of(asked: Asked) -> str:
    """Return what each part of each row of an answer carries along.

    Where a batch is full of it, a part is larger than the ring, and the request is sent again.
    """
    whole = padding(asked.number)
    if not asked.wants_parts:
        return whole[: len(whole) // parts_wanted(asked)]
    is_full = asked.rows == asked.model.max_batch_size
    if asked.model.places:
        is_full = bool(asked.number // 10 % 2)
    return whole * (2 if is_full else 1)


def is_untaken(asked: Asked, body: bytes) -> bool:
    """Return whether a request ends since parts of it have found no room for long."""
    large = asked.kind == LARGE and asked.parts > 0
    return large and any(text in body for text in _UNTAKEN)


def ends_amid_parts(asked: Asked) -> set[int]:
    """Return with what a request may end because of another in its batch: only behind a part.

    It is never 400: words about one input are for the client that sent it.
    """
    return {500} if asked.parts else set()


def take_part(asked: Asked, answer: Answer) -> None:
    """Give a client a part of its answer, and check it.

    Raises:
        AssertionError: it is not the next, or not whole.
    """
    status, body, _ = answer
    assert asked.wants_parts, f"request {asked.number} wants no parts, and gets one"
    assert not asked.gone, f"request {asked.number} gets a part, and is cancelled"
    assert not asked.status, f"request {asked.number} gets a part behind its end"
    assert status == 200, f"request {asked.number} gets a part with status {status}"
    found = parts_in(asked.model, json.loads(body)["predictions"], padding_of(asked))
    number = asked.parts
    wanted = [[(asked.number, row, number)] for row in range(asked.rows)]
    assert found == wanted, f"request {asked.number} gets {found} for its part {number}"
    asked.parts += 1


def check_end(asked: Asked, answer: Answer) -> None:
    """Compare the end of a request to a model that yields with the parts that its client has.

    Raises:
        AssertionError: it is another than they allow.
    """
    status, body, _ = answer
    if CUT_OFF in body:
        assert asked.parts, f"request {asked.number} is cut off before its first part"
    if status != 200:
        return
    if asked.wants_parts:
        assert answer is END, f"request {asked.number} wants parts, and gets {body[:90]!r}"
        assert asked.parts == parts_wanted(asked), (
            f"request {asked.number} ends after {asked.parts} parts"
        )
        return
    last = parts_wanted(asked)
    first = last - 1 if asked.model.typed else 0
    found = parts_in(asked.model, json.loads(body)["predictions"], padding_of(asked))
    wanted = [[(asked.number, row, n) for n in range(first, last)] for row in range(asked.rows)]
    assert found == wanted, f"request {asked.number} gets {found} for all its parts"


def check_parts_are_taken(engine: Engine) -> None:
    """Check that, while all healthy processes sleep, no frontend leaves a finished part untaken.

    Parts may wait if their notice has found no room.

    Raises:
        AssertionError: one does.
    """
    words, layout = engine.raw, engine.segment.layout
    waiting = {
        ref: frontend
        for frontend in engine.frontends
        if frontend.lane is not None
        for ref, slot in frontend.lane._expected.items()
        if slot not in frontend.lane._cancelled
    }
    for number, runner in engine.parts_runners.items():
        notices = engine.slots[number]._notices.waiting.values()
        for ref, stream in runner._streams.items():
            if ref not in waiting or any(ref in own for own in notices):
                continue
            first = layout.slot(slot_of(ref))
            left = words[first + SlotWords.PARTS_END] - words[first + SlotWords.PARTS_TAKEN]
            assert not (stream.part_is_out and left), (
                f"frontend {waiting[ref].number} sleeps on parts"
            )


def check_answers_have_room(engine: Engine) -> None:
    """Assert that no worker that is done with a batch keeps an answer, as notices leave room."""
    for number, process in engine.workers.items():
        if process.asleep and process.bell is engine.worker_bells[number]:
            kept = {lane for lane in engine.slots[number]._answered if lane != HOSTILE_LANE}
            assert not kept, f"answers of worker {number} find no room"


def waits_for_room(slots: EngineSlots) -> bool:
    """Return whether answers or notices wait for the owner of a lane, not counting the hostile."""
    if not slots.delayed:
        return False
    return any(lane != HOSTILE_LANE for lane in (*slots._answered, *slots._notices.waiting))
