"""States of a slot, the two words that encode them, who may move it, and the words of an answer.

A slot is described by two words, each with one writer at a time. CONTROL is the frontend's: the
generation of its latest request and whether that still wants an answer. DONE belongs to the holder
of the request: the generation it answered last, and how. Generations only grow, so the two together
are the state:

    CONTROL                DONE                  state
    ---------------------  --------------------  ---------
    generation g, WANTED   generation below g    PUBLISHED
    generation g, DROPPED  generation below g    CANCELLED
    generation g           generation g          FREE

Only the holder of a request answers it: the collector while it waits, then the worker that got it.
The frontend submits a cancelled request once more, so that the collector looks at it. If it waits,
the collector answers it at once, and its slot is free within milliseconds. If a worker holds it,
the collector leaves it to that worker. The collector also answers requests that are cancelled when
it gets them: from a lane, from their slots after another collector's death, from a dead worker, or
from a chain's previous step.

There is no word for a claimed slot: until it is published, a claim is private to the frontend,
and a frontend that dies before it leaves a free slot behind. An answer whose generation is not
CONTROL's is late; it is dropped and counted.

A reference names one request of one slot in a single word: the generation in 39 bits, the slot's
number in the lower 24. The rings carry references. The highest bit, PART, is 0 in most of them. A
lane sets it if it has submitted another part of the same request before, or the same part, as with
a cancelled request. Such a reference is not counted again. A worker sets it in a completion ring if
a part of the answer is out (`ringbatch.shm.parts`), which is no answer: the slot stays PUBLISHED.
"""

from collections.abc import Sequence
from enum import Enum, IntEnum
from typing import Final, NamedTuple

WANTED: Final = 1
DROPPED: Final = 2

SLOT_BITS: Final = 24
SLOT_MASK: Final = (1 << SLOT_BITS) - 1
GENERATION_MAX: Final = (1 << 39) - 1
PART: Final = 1 << 63
FLAG_BITS: Final = 8
FLAG_MASK: Final = (1 << FLAG_BITS) - 1


class State(Enum):
    """States of a slot."""

    FREE = "free"
    PUBLISHED = "published"
    CANCELLED = "cancelled"


class Actor(Enum):
    """Roles that may move a slot."""

    FRONTEND = "frontend"
    HOLDER = "holder"


class Event(Enum):
    """A store to CONTROL or DONE, by its meaning."""

    PUBLISH = "publish"
    CANCEL = "cancel"
    ANSWER = "answer"


TRANSITIONS: Final[dict[State, dict[Event, State]]] = {
    # A frontend may cancel before it has seen that the answer is there already.
    State.FREE: {Event.PUBLISH: State.PUBLISHED, Event.CANCEL: State.FREE},
    State.PUBLISHED: {Event.CANCEL: State.CANCELLED, Event.ANSWER: State.FREE},
    # A lane's next owner cancels again what its dead owner had cancelled.
    State.CANCELLED: {Event.CANCEL: State.CANCELLED, Event.ANSWER: State.FREE},
}

ACTORS: Final[dict[Event, Actor]] = {
    Event.PUBLISH: Actor.FRONTEND,
    Event.CANCEL: Actor.FRONTEND,
    Event.ANSWER: Actor.HOLDER,
}


class Status(IntEnum):
    """Outcomes of a request; DONE has one beside the generation.

    Every outcome but `OK` may come with a text for the client in the result memory.
    """

    OK = 0
    INVALID = 1
    """The model itself refused the input."""
    MODEL_FAILED = 2
    """The model raised, or returned something that is not its signature."""
    EXPIRED = 3
    """The deadline passed before the request was run."""
    CANCELLED = 4
    """The frontend wanted no answer any more."""
    NO_WORKER = 5
    """No worker holds the model."""
    WORKER_DIED = 6
    """Two workers died with the request in their batch."""
    RESULT_TOO_LARGE = 7
    """The result memory is smaller than RESULT_BYTES; to be sent again with more of it."""
    CORRUPT = 8
    """The slot's own words make no sense; the frontend that wrote them is at fault."""
    WRONG_COUNT = 9
    """The model returned another number of predictions than it was given instances."""
    SERVER_ANSWERED = 10
    """The model server refused or failed; with the text of a `forward_envelope.Refusal`."""
    SERVER_BROKEN = 11
    """The server that runs the model gave no answer that could be read as one."""
    SERVER_MISCOUNTED = 12
    """The model answered with another number of predictions than it was given instances."""
    SERVER_DOWN = 13
    """Nothing listens at the address of that server."""
    OVERLOADED = 14
    """The answer would come too late; with a text of `ringbatch.shm.lateness`."""
    LIMITED = 15
    """A limit of its account is reached; with an `account_limits.refusal_text`."""
    CUT_OFF = 16
    """The worker died behind a part of the answer; without a text."""


class Reason(IntEnum):
    """Why a batch was closed."""

    FULL = 0
    LATENCY = 1
    IDLE = 2
    DEADLINE = 3
    SHAPE = 4
    DRAIN = 5
    RETRY = 6


class IllegalTransitionError(Exception):
    """An event that the slot's state does not allow: a defect in ringbatch."""


def advance(state: State, event: Event) -> State:
    """Return the state after `event`.

    Raises:
        IllegalTransitionError: the table has none; nothing has changed then.
    """
    try:
        return TRANSITIONS[state][event]
    except KeyError:
        raise IllegalTransitionError(f"{event.value} in state {state.value}") from None


def state_of(control: int, done: int) -> State:
    """Return the state that the two words describe."""
    if control >> FLAG_BITS == done >> FLAG_BITS:
        return State.FREE
    return State.CANCELLED if control & FLAG_MASK == DROPPED else State.PUBLISHED


def control_word(generation: int, flag: int) -> int:
    """Return CONTROL for a request that is `WANTED` or `DROPPED`."""
    return generation << FLAG_BITS | flag


def done_word(ref: int, status: Status) -> int:
    """Return DONE for an answer to the request that a reference names."""
    return ref >> SLOT_BITS << FLAG_BITS | status


def generation_in(word: int) -> int:
    """Return the generation in CONTROL or DONE."""
    return word >> FLAG_BITS


def reference(generation: int, slot: int) -> int:
    """Return the word that names one request."""
    return generation << SLOT_BITS | slot


def slot_of(ref: int) -> int:
    """Return the slot's number in a reference."""
    return ref & SLOT_MASK


def is_latest(ref: int, control: int) -> bool:
    """Return whether a reference names the latest request of its slot, by its CONTROL."""
    return control >> FLAG_BITS == ref >> SLOT_BITS


def is_wanted(ref: int, control: int) -> bool:
    """Return whether `ref` is the slot's latest request and still wants an answer."""
    return control >> FLAG_BITS == ref >> SLOT_BITS and control & FLAG_MASK != DROPPED


def is_open(ref: int, control: int, done: int) -> bool:
    """Return whether `ref` is the slot's latest request, wants an answer and has none."""
    return control >> FLAG_BITS == ref >> SLOT_BITS != done >> FLAG_BITS


def as_part(ref: int) -> int:
    """Return the reference with PART."""
    return ref | PART


def without_part(ref: int) -> int:
    """Return the reference without PART."""
    return ref & ~PART


def is_part(ref: int) -> bool:
    """Return whether a reference has PART."""
    return ref >= PART


# The same of several: one call for many costs nothing.


def slots_of(references: Sequence[int]) -> list[int]:
    """Return the `slot_of` of each reference."""
    return [ref & SLOT_MASK for ref in references]


def wanted_words(references: Sequence[int]) -> list[int]:
    """Return CONTROL of each slot while its reference's request is the latest, and wanted."""
    return [ref >> SLOT_BITS << FLAG_BITS | WANTED for ref in references]


def done_words(references: Sequence[int], status: Status) -> list[int]:
    """Return the `done_word` of each request."""
    flag = int(status)
    return [ref >> SLOT_BITS << FLAG_BITS | flag for ref in references]


class Answer(NamedTuple):
    """Words of an answer, written by the request's holder.

    Attributes:
        status: how the request ended.
        size: bytes of the result, or of the text if `status` is not OK; for
            RESULT_TOO_LARGE the bytes it would take.
        batch: the number of the batch, the same for all requests in it.
        batch_rows: instances in that batch.
        reason: the `Reason` it was closed for.
        dispatched_ns: when the collector gave the batch to a worker.
        began_ns: when the worker took it up.
        gathered_ns: when the model first started with it; 0 if it did not.
        ran_ns: when the model last returned; 0 likewise.
        attempts: how many times the batch was run, up to this answer, and the time of its copies,
            see `ringbatch.shm.attempts`.
        finished_ns: when the answer stood in the slot.
        overtaken_ns: from when on later requests of other accounts were dispatched before it; 0 if
            none were.
    """

    status: Status
    size: int
    batch: int
    batch_rows: int
    reason: int
    dispatched_ns: int
    began_ns: int
    gathered_ns: int
    ran_ns: int
    attempts: int
    finished_ns: int
    overtaken_ns: int = 0
