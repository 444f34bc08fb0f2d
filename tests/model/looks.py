"""Looks at the slots of a real run, each held against the table of the slot's life.

Nobody sees every store of processes that run side by side. But whoever looks again and again sees
some of the states between, and from each to the next there must be a way by steps that the table,
and with it the model, allows. No answer may be taken back or given twice, no slot may be taken
again before it was answered.
"""

from collections.abc import Iterable, Iterator
from functools import cache

import numpy as np
from numpy.typing import NDArray

from ringbatch.shm.descriptors import SlotWords
from ringbatch.shm.layout import WORD
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import (
    DROPPED,
    FLAG_BITS,
    FLAG_MASK,
    TRANSITIONS,
    WANTED,
    Event,
    State,
    state_of,
)

Words = tuple[int, int]
"""CONTROL and DONE of a slot at one instant."""
_UNUSED: Words = (0, 0)


def complaint(before: Words, after: Words) -> str | None:
    """Return the objection of the table to a slot's words, given its words of an earlier look."""
    (control, done), (earlier_control, earlier_done) = after, before
    generation, answered = control >> FLAG_BITS, done >> FLAG_BITS
    published = generation - (earlier_control >> FLAG_BITS)
    if published < 0 or answered < earlier_done >> FLAG_BITS:
        return "a generation goes back"
    if not answered <= generation <= answered + 1:
        return "a generation is answered that was not published, or published over an open one"
    if answered == earlier_done >> FLAG_BITS and done != earlier_done:
        return "an answer changes"
    if control & FLAG_MASK not in (WANTED, DROPPED) and after != _UNUSED:
        return "CONTROL has no such flag"
    if not published and earlier_control & FLAG_MASK == DROPPED != control & FLAG_MASK:
        return "what was cancelled is wanted again"
    if state_of(control, done) not in reachable(state_of(*before), min(published, 2)):
        return "no steps of the table lead there"
    return None


@cache
def reachable(state: State, publishes: int) -> frozenset[State]:
    """Return the states that a slot can reach by so many PUBLISH events and any others."""
    found = {state}
    for _ in range(publishes):
        found = {
            steps[Event.PUBLISH]
            for steps in (TRANSITIONS[one] for one in _without_publish(found))
            if Event.PUBLISH in steps
        }
    return frozenset(_without_publish(found))


def _without_publish(states: Iterable[State]) -> set[State]:
    found, todo = set(), list(states)
    while todo:
        state = todo.pop()
        found.add(state)
        steps = TRANSITIONS[state].items()
        todo += [to for event, to in steps if event is not Event.PUBLISH and to not in found]
    return found


class Looks:
    """Looks at all slots of a segment, as often as one likes.

    Attributes:
        steps: number of changes of slots seen between two looks.

    Args:
        segment: of a running engine.
    """

    def __init__(self, segment: Segment) -> None:
        layout = segment.layout
        count = layout.lanes * layout.slots
        slots: NDArray[np.uint64] = np.ndarray(
            (count, SlotWords.SIZE), np.uint64, segment.memory, layout.slots_word * WORD
        )
        self._controls, self._dones = slots[:, SlotWords.CONTROL], slots[:, SlotWords.DONE]
        self._seen_controls, self._seen_dones = np.zeros((2, count), np.uint64)
        self.steps = 0

    def look(self) -> Iterator[str]:
        """Yield the objections of the table, slot by slot."""
        dones, controls = self._dones.copy(), self._controls.copy()
        # Where DONE is the same before and after, CONTROL is of the same instant.
        steady = dones == self._dones
        seen_controls, seen_dones = self._seen_controls, self._seen_dones
        changed = steady & ((controls != seen_controls) | (dones != seen_dones))
        for slot in np.flatnonzero(changed).tolist():
            before = int(seen_controls[slot]), int(seen_dones[slot])
            after = int(controls[slot]), int(dones[slot])
            self.steps += 1
            if text := complaint(before, after):
                shown = " then ".join(f"CONTROL {c:#x}, DONE {d:#x}" for c, d in (before, after))
                yield f"slot {slot}: {text}: {shown}"
            seen_controls[slot], seen_dones[slot] = after

    def close(self) -> None:
        """Look no more, so that the segment may be detached."""
        del self._controls, self._dones
