"""The transition table of a slot, and the words that describe its state."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.shm import slot as slots
from ringbatch.shm.slot import (
    ACTORS,
    DROPPED,
    FLAG_BITS,
    GENERATION_MAX,
    SLOT_BITS,
    SLOT_MASK,
    TRANSITIONS,
    WANTED,
    Actor,
    Event,
    IllegalTransitionError,
    Reason,
    State,
    Status,
    advance,
    control_word,
    done_word,
    reference,
    state_of,
)

generations = st.integers(1, GENERATION_MAX)
statuses = st.sampled_from(Status)

LEGAL = {
    (State.FREE, Event.PUBLISH): State.PUBLISHED,
    (State.FREE, Event.CANCEL): State.FREE,
    (State.PUBLISHED, Event.CANCEL): State.CANCELLED,
    (State.PUBLISHED, Event.ANSWER): State.FREE,
    (State.CANCELLED, Event.CANCEL): State.CANCELLED,
    (State.CANCELLED, Event.ANSWER): State.FREE,
}


@pytest.mark.parametrize(("state", "event"), list(product(State, Event)))
def test_an_event_moves_the_slot_as_the_table_says_or_raises(state: State, event: Event) -> None:
    before = {state: dict(row) for state, row in TRANSITIONS.items()}
    if (state, event) in LEGAL:
        assert advance(state, event) is LEGAL[state, event]
    else:
        with pytest.raises(IllegalTransitionError, match=f"{event.value} in state {state.value}"):
            advance(state, event)
    assert before == TRANSITIONS


def test_every_state_can_be_left_for_free_and_reached_from_it() -> None:
    assert set(TRANSITIONS) == set(State)
    reached, todo = {State.FREE}, [State.FREE]
    while todo:
        for following in TRANSITIONS[todo.pop()].values():
            if following not in reached:
                reached.add(following)
                todo.append(following)
    assert reached == set(State)
    assert all(
        State.FREE in TRANSITIONS[state].values() for state in State if state is not State.FREE
    )


def test_every_event_has_one_actor() -> None:
    assert set(ACTORS) == set(Event)
    assert {event for event, actor in ACTORS.items() if actor is Actor.HOLDER} == {Event.ANSWER}


def test_the_states_of_the_docstring_are_those_of_the_table() -> None:
    document = slots.__doc__ or ""
    rows = document[document.index("CONTROL       ") :].splitlines()[2:5]
    assert [row.split("  ")[-1].strip() for row in rows] == ["PUBLISHED", "CANCELLED", "FREE"]
    assert [WANTED, DROPPED] == [1, 2]
    assert {state.name for state in State} == {"PUBLISHED", "CANCELLED", "FREE"}
    assert "WANTED" in rows[0]
    assert "DROPPED" in rows[1]


@given(generations, st.integers(1, 5), statuses)
def test_a_wanted_request_with_an_earlier_answer_is_published(
    generation: int, age: int, status: Status
) -> None:
    done = done_word(reference(max(0, generation - age), 0), status)
    assert state_of(control_word(generation, WANTED), done) is State.PUBLISHED


@given(generations, st.integers(1, 5), statuses)
def test_a_dropped_request_with_an_earlier_answer_is_cancelled(
    generation: int, age: int, status: Status
) -> None:
    done = done_word(reference(max(0, generation - age), 0), status)
    assert state_of(control_word(generation, DROPPED), done) is State.CANCELLED


@given(generations, st.sampled_from([WANTED, DROPPED]), statuses)
def test_a_request_with_its_own_answer_is_free(generation: int, flag: int, status: Status) -> None:
    assert (
        state_of(control_word(generation, flag), done_word(reference(generation, 0), status))
        is State.FREE
    )


def test_a_slot_of_fresh_memory_is_free() -> None:
    assert state_of(0, 0) is State.FREE


@given(st.lists(st.sampled_from(Event), max_size=30), statuses)
def test_the_words_follow_the_table_along_every_legal_history(
    events: list[Event], status: Status
) -> None:
    state, generation, control, done = State.FREE, 0, 0, 0
    for event in events:
        if event not in TRANSITIONS[state]:
            continue
        state = advance(state, event)
        if event is Event.PUBLISH:
            generation += 1
            control = control_word(generation, WANTED)
        elif event is Event.CANCEL:
            control = control_word(generation, DROPPED)
        else:
            done = done_word(reference(generation, 0), status)
        assert state_of(control, done) is state


@given(generations, st.integers(0, SLOT_MASK))
def test_a_reference_is_one_word_that_names_generation_and_slot(generation: int, slot: int) -> None:
    ref = reference(generation, slot)
    assert ref < 1 << 64
    assert (ref >> SLOT_BITS, ref & SLOT_MASK) == (generation, slot)


@given(generations, statuses)
def test_the_words_of_a_slot_hold_generation_and_flag(generation: int, status: Status) -> None:
    for word, flag in (
        (control_word(generation, DROPPED), DROPPED),
        (done_word(reference(generation, 0), status), status),
    ):
        assert word < 1 << 64
        assert (word >> FLAG_BITS, word & slots.FLAG_MASK) == (generation, flag)


def test_the_numbers_that_cross_between_processes_are_these() -> None:
    """They stand in shared memory: who changes one gives the layout another version."""
    assert {status.name: status.value for status in Status} == {
        "OK": 0,
        "INVALID": 1,
        "MODEL_FAILED": 2,
        "EXPIRED": 3,
        "CANCELLED": 4,
        "NO_WORKER": 5,
        "WORKER_DIED": 6,
        "RESULT_TOO_LARGE": 7,
        "CORRUPT": 8,
        "WRONG_COUNT": 9,
        "SERVER_ANSWERED": 10,
        "SERVER_BROKEN": 11,
        "SERVER_MISCOUNTED": 12,
        "SERVER_DOWN": 13,
        "OVERLOADED": 14,
        "LIMITED": 15,
        "CUT_OFF": 16,
    }
    assert {reason.name: reason.value for reason in Reason} == {
        "FULL": 0,
        "LATENCY": 1,
        "IDLE": 2,
        "DEADLINE": 3,
        "SHAPE": 4,
        "DRAIN": 5,
        "RETRY": 6,
    }
