"""Looks at running slots: they pass every way through the table, and report anything else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from model.looks import Looks, complaint, reachable
from segment_fixture import local_segment, spec

from ringbatch.shm.descriptors import SlotWords
from ringbatch.shm.slot import (
    DROPPED,
    TRANSITIONS,
    WANTED,
    Event,
    State,
    Status,
    control_word,
    done_word,
    reference,
)


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans())))
def test_an_occasional_look_finds_no_fault_in_a_life_by_the_table(
    steps: list[tuple[int, bool]],
) -> None:
    state, generation, seen = State.FREE, 0, (0, 0)
    control, done = seen
    for choice, looked in steps:
        event, state = sorted(TRANSITIONS[state].items(), key=str)[choice % len(TRANSITIONS[state])]
        if event is Event.PUBLISH:
            generation += 1
            control = control_word(generation, WANTED)
        elif event is Event.CANCEL:
            control = control_word(generation, DROPPED)
        else:
            done = done_word(reference(generation, 0), Status(choice % len(Status)))
        if looked and generation:
            assert complaint(seen, (control, done)) is None
            seen = control, done


def done(generation: int, status: Status = Status.OK) -> int:
    return done_word(reference(generation, 0), status)


OPEN = control_word(2, WANTED), done(1)
CANCELLED = control_word(2, DROPPED), done(1)
ANSWERED = control_word(2, WANTED), done(2)


@pytest.mark.parametrize(
    ("before", "after", "complaint_text"),
    [
        (ANSWERED, (control_word(1, WANTED), ANSWERED[1]), "goes back"),
        (ANSWERED, OPEN, "goes back"),
        (
            OPEN,
            (control_word(4, WANTED), done(2)),
            "published over an open one",
        ),
        (OPEN, (OPEN[0], done(3)), "was not published"),
        (ANSWERED, (ANSWERED[0], done(2, Status.EXPIRED)), "an answer changes"),
        (OPEN, (OPEN[0], done(1, Status.EXPIRED)), "an answer changes"),
        (OPEN, (control_word(2, 7), OPEN[1]), "no such flag"),
        (CANCELLED, OPEN, "wanted again"),
    ],
)
def test_a_state_that_the_table_cannot_reach_is_reported(
    before: tuple[int, int], after: tuple[int, int], complaint_text: str
) -> None:
    assert complaint_text in (complaint(before, after) or "")


def test_looks_follow_every_slot_of_a_segment() -> None:
    segment = local_segment(spec())
    first = segment.layout.slot(1)
    control_at, done_at = first + SlotWords.CONTROL, first + SlotWords.DONE
    looks = Looks(segment)
    segment.words[control_at] = control_word(1, WANTED)
    assert list(looks.look()) == []
    assert list(looks.look()) == []
    segment.words[done_at] = done(1)
    assert list(looks.look()) == []
    assert looks.steps == 2
    segment.words[done_at] = done(1, Status.EXPIRED)
    assert list(looks.look()) == [
        "slot 1: an answer changes: CONTROL 0x101, DONE 0x100 then CONTROL 0x101, DONE 0x103"
    ]
    looks.close()


@pytest.mark.parametrize(
    ("state", "publishes", "states"),
    [
        (State.FREE, 0, {State.FREE}),
        (State.CANCELLED, 0, {State.CANCELLED, State.FREE}),
        (State.PUBLISHED, 0, set(State)),
        (State.FREE, 1, set(State)),
    ],
)
def test_reachable_states_are_those_of_the_table(
    state: State, publishes: int, states: set[State]
) -> None:
    assert reachable(state, publishes) == states
