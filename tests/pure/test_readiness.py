"""The rule of readiness, row by row: which state a model is in, and what that means."""

from itertools import product
from typing import Final, NamedTuple, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from segment_fixture import ALWAYS

from ringbatch.shm.descriptors import HeaderWords, ModelWords, WorkerState, WorkerWords
from ringbatch.shm.layout import WORD
from ringbatch.shm.model_readiness import standing
from ringbatch.shm.readiness import (
    TABLE,
    Loss,
    ModelState,
    RequestFate,
    StateMeaning,
    first,
    publish,
    refuses,
    state_of,
)

RUN, WAIT, REFUSED = RequestFate.RUN, RequestFate.WAIT, RequestFate.REFUSED
NONE, DIED, NOT_BACK = Loss
NOW: Final = 1_000_000_000
MODEL: Final = HeaderWords.SIZE
WORKER: Final = MODEL + ModelWords.SIZE


class Workers(NamedTuple):
    """Workers of a model, as the engine knows them."""

    ready: int = 0
    losses: tuple[Loss, ...] = ()
    served: bool = True
    may_rest: bool = False
    failed: bool = False

    @property
    def state(self) -> ModelState:
        ready, losses, served, may_rest, failed = self
        return state_of(ready, losses, served=served, may_rest=may_rest, failed=failed)


BY_WORKERS: Final = {
    "never loaded": (Workers(served=False, losses=(NONE,)), ModelState.LOADING, False, REFUSED),
    "never loaded, by load": (
        Workers(served=False, losses=(NONE,), may_rest=True),
        ModelState.LOADING,
        False,
        REFUSED,
    ),
    "one serves": (Workers(ready=1, losses=(NONE,)), ModelState.SERVING, True, RUN),
    "one serves, one is dead": (
        Workers(ready=1, losses=(NONE, NOT_BACK)),
        ModelState.SERVING,
        True,
        RUN,
    ),
    "scaled to zero": (Workers(may_rest=True), ModelState.AT_REST, True, WAIT),
    "waking": (Workers(may_rest=True, losses=(NONE,)), ModelState.WAKING, True, WAIT),
    "cannot wake": (
        Workers(may_rest=True, failed=True),
        ModelState.CANNOT_WAKE,
        False,
        REFUSED,
    ),
    "tries again to wake": (
        Workers(may_rest=True, losses=(NONE,), failed=True),
        ModelState.CANNOT_WAKE,
        False,
        REFUSED,
    ),
    "dead, restarting": (Workers(losses=(DIED,)), ModelState.RESTARTING, False, WAIT),
    "dead, restarting, by load": (
        Workers(losses=(DIED,), may_rest=True),
        ModelState.RESTARTING,
        False,
        WAIT,
    ),
    "taken for hung": (Workers(losses=(NONE,)), ModelState.RESTARTING, False, WAIT),
    "one is not back, one may be": (
        Workers(losses=(NOT_BACK, DIED)),
        ModelState.RESTARTING,
        False,
        WAIT,
    ),
    "successors cannot load": (
        Workers(losses=(NOT_BACK, NOT_BACK)),
        ModelState.CANNOT_LOAD,
        False,
        REFUSED,
    ),
    "successors cannot load, by load": (
        Workers(losses=(NOT_BACK,), may_rest=True),
        ModelState.CANNOT_LOAD,
        False,
        REFUSED,
    ),
}


@pytest.mark.parametrize(
    ("workers", "state", "ready", "requests"), BY_WORKERS.values(), ids=BY_WORKERS
)
def test_the_state_follows_from_the_workers(
    workers: Workers, state: ModelState, ready: bool, requests: RequestFate
) -> None:
    assert workers.state is state
    assert TABLE[state] == StateMeaning(ready, requests)


def segment(state: ModelState = ModelState.SERVING) -> memoryview:
    """The words of an engine that serves one model with one worker."""
    words = memoryview(bytearray(WORD * (WORKER + WorkerWords.SIZE))).cast("Q")
    words[HeaderWords.COLLECTOR_NS] = ALWAYS
    words[WORKER + WorkerWords.STATE] = WorkerState.READY
    publish(words, MODEL, state)
    return words


ADDED: Final = {
    ModelState.STOPPING: (HeaderWords.STOPPING, 1, "the server is stopping"),
    ModelState.NO_COLLECTOR: (HeaderWords.COLLECTOR_NS, 0, "the collector has ended"),
    ModelState.UNSTEADY: (MODEL + ModelWords.UNSTEADY_NS, NOW + 1, "come and go"),
    ModelState.STUCK: (MODEL + ModelWords.STUCK_NS, NOW - 1, "not finished a batch"),
    ModelState.FAILING: (WORKER + WorkerWords.FAILING, 8, "fail every request"),
    ModelState.NO_SERVER: (WORKER + WorkerWords.SERVERS_DOWN, 2, "none of its 2 model servers"),
}
PUBLISHED: Final = tuple(state for state in ModelState if TABLE[state].requests is not None)


@pytest.mark.parametrize("state", ADDED)
def test_a_state_that_readers_add_is_not_ready_and_changes_nothing_for_requests(
    state: ModelState,
) -> None:
    word, value, words_of = ADDED[state]
    words = segment()
    assert standing(words, MODEL, NOW, [WORKER]) == (ModelState.SERVING, "")
    words[word] = value
    found = standing(words, MODEL, NOW, [WORKER])
    assert found.state is state
    assert words_of in found.why
    assert TABLE[state] == StateMeaning(ready=False)
    assert words[MODEL + ModelWords.TAKES] == 1


@pytest.mark.parametrize("state", PUBLISHED)
def test_the_published_state_is_that_of_readers_and_frontends(state: ModelState) -> None:
    words = segment(state)
    found = standing(words, MODEL, NOW, [WORKER])
    assert found.state is state
    assert (found.why == "") == TABLE[state].ready
    assert bool(words[MODEL + ModelWords.TAKES]) == (not refuses(state))


class Stored(dict[int, int]):
    """Words of one model, and all that they have been."""

    def __init__(self) -> None:
        super().__init__({ModelWords.STATE: 0, ModelWords.TAKES: 0})
        self.seen: list[tuple[ModelState, int]] = []

    def __setitem__(self, word: int, value: int) -> None:
        super().__setitem__(word, value)
        self.seen.append((ModelState(self[ModelWords.STATE]), self[ModelWords.TAKES]))


@pytest.mark.parametrize(("before", "after"), [*product(PUBLISHED, PUBLISHED)])
def test_no_instant_is_ready_and_refuses_even_if_the_writer_dies_there(
    before: ModelState, after: ModelState
) -> None:
    words = Stored()
    publish(cast(memoryview, words), 0, before)
    publish(cast(memoryview, words), 0, after)
    assert words.seen[-1] == (after, not refuses(after))
    assert all(takes for state, takes in words.seen if TABLE[state].ready)


def test_every_state_has_a_row_and_one_way_to_come_about() -> None:
    assert {*PUBLISHED, *ADDED} == {*ModelState} == {*TABLE}
    assert {state for _, state, _, _ in BY_WORKERS.values()} == {*PUBLISHED}
    assert not {*PUBLISHED} & {*ADDED}


def test_a_ready_state_refuses_nothing() -> None:
    assert not [state for state, row in TABLE.items() if row.ready and refuses(state)]


def test_of_several_states_the_first_of_the_table_counts() -> None:
    order = [*TABLE]
    for a, b in product(order, order):
        assert first([a, b]) is min(a, b, key=order.index)
    # Ready states are the last in the order, so a chain is ready if all its steps are.
    readies = [TABLE[state].ready for state in order]
    assert readies == sorted(readies)


workers = st.builds(
    Workers,
    st.integers(0, 2),
    st.lists(st.sampled_from(Loss), max_size=3).map(tuple),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)


@given(workers)
def test_the_state_keeps_its_meaning_for_any_workers(given_: Workers) -> None:
    row = TABLE[given_.state]
    if given_.ready:
        assert row == StateMeaning(ready=True, requests=RUN)
        return
    assert row.requests is not RUN, "nobody runs them"
    if row.ready:
        # Without a worker, only a model at rest is ready: the autoscaler let its workers go.
        assert given_.served
        assert given_.may_rest
        assert not given_.failed
        assert not any(given_.losses)
    if row.requests is WAIT:
        comes_back = any(loss is not NOT_BACK for loss in given_.losses)
        assert given_.served
        assert comes_back or not given_.losses, "nobody is to be expected"
