"""Queue of models to scale: by need, several at once, and none starves."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.engine.supervisor.scaling import Decision
from ringbatch.engine.supervisor.scaling_queue import QueuedDecision, in_turn
from ringbatch.shm.scalings import Cause

MOST_ROUNDS = 3
"""Most rounds that a start takes."""
MODELS = 6


def up(reference: int, since_ns: int, starts: int = 1) -> QueuedDecision:
    return QueuedDecision(reference, Decision(starts, Cause.REQUEST), starts, since_ns)


def down(reference: int, since_ns: int) -> QueuedDecision:
    return QueuedDecision(reference, Decision(0, Cause.UNUSED), 0, since_ns)


@pytest.mark.parametrize(
    ("wishes", "starting", "chosen"),
    [
        ([up(0, 3), up(1, 1), up(2, 2)], 0, [1, 2]),
        ([up(0, 3), up(1, 1), up(2, 2)], 1, [1]),
        ([up(0, 3), up(1, 1), up(2, 2)], 2, []),
        ([down(0, 1), up(1, 5)], 0, [1, 0]),
        ([down(0, 2), down(1, 1), up(2, 5)], 1, [2, 1]),
        ([down(0, 3), down(1, 1), down(2, 2)], 0, [1, 2]),
        ([down(0, 3), down(1, 1), down(2, 2)], 2, [1]),
        # One that wants much waits until nothing else is started, and those behind it wait too.
        ([up(0, 2), up(1, 1, starts=3)], 1, []),
        ([up(0, 2), up(1, 1, starts=3)], 0, [1]),
        ([up(0, 2), up(1, 1, starts=3), down(2, 4)], 1, [2]),
        ([], 0, []),
    ],
)
def test_two_places_go_to_the_models_that_need_them_most(
    wishes: list[QueuedDecision], starting: int, chosen: list[int]
) -> None:
    assert [wish.reference for wish in in_turn(wishes, starting, 2)] == chosen


class Round(NamedTuple):
    """Wish of a model, once it has got the one before.

    Attributes:
        starts: workers; 0 where it is to be let go.
        takes: rounds that it takes to start them.
        pause: rounds before it wants it.
    """

    starts: int
    takes: int
    pause: int


class Model:
    """Model that has one wish after the other."""

    def __init__(self, reference: int, rounds: list[Round]) -> None:
        self.reference = reference
        self.since: int | None = None
        self.until = 0
        self._rounds = rounds
        self._count = 0

    @property
    def round(self) -> Round:
        return self._rounds[self._count % len(self._rounds)]

    @property
    def wish(self) -> QueuedDecision | None:
        if self.since is None:
            return None
        starts = self.round.starts
        return (
            up(self.reference, self.since, starts) if starts else down(self.reference, self.since)
        )

    def pass_round(self, now: int) -> None:
        if self.since is None and now >= self.until + self.round.pause:
            self.since = now

    def begin(self, now: int) -> None:
        self.until = now + (self.round.takes if self.round.starts else 0)
        self.since, self._count = None, self._count + 1

    def starting(self, now: int) -> int:
        started = self._rounds[(self._count - 1) % len(self._rounds)]
        return started.starts if now < self.until else 0


ROUNDS = st.builds(Round, st.integers(0, 5), st.integers(1, MOST_ROUNDS), st.integers(0, 2))


@given(
    st.lists(st.lists(ROUNDS, min_size=1, max_size=3), min_size=2, max_size=MODELS),
    st.integers(1, 4),
)
def test_nobody_starves_and_no_place_stays_free(rounds: list[list[Round]], places: int) -> None:
    models = [Model(reference, own) for reference, own in enumerate(rounds)]
    for now in range(4 * MODELS * MOST_ROUNDS):
        for model in models:
            model.pass_round(now)
        wishes = [wish for model in models if (wish := model.wish) is not None]
        starting = sum(model.starting(now) for model in models)
        chosen = in_turn(wishes, starting, places)
        left = sorted(filter(lambda w: w not in chosen, wishes), key=lambda w: w.since_ns)
        starts = [wish.starts for wish in chosen if wish.starts]
        begun = sum(starts)
        assert len(chosen) == len({*chosen}) <= len(wishes)
        assert not starts or starting + begun <= places or (starting, len(starts)) == (0, 1)
        if ups := [wish for wish in left if wish.starts]:
            assert starting + begun + min(ups[0].starts, places) > places
            assert all(w.since_ns <= ups[0].since_ns for w in chosen if w.starts)
        assert len(chosen) - len(starts) <= max(places - starting - begun, 1)
        for wish in chosen:
            models[wish.reference].begin(now)
        for wish in left:
            ahead = len(models) * (MOST_ROUNDS if wish.starts else 1)
            assert now - wish.since_ns < ahead, f"{wish} waits, and {len(models)} models want it"
