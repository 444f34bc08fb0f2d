"""When the event loop of a frontend stays awake for answers, and when it sleeps."""

import pytest
from stage import Stage, predictions, untyped

from ringbatch.frontend.request.gateway import GIVE_WAY_NS

SPIN_NS = 200_000
SOON_NS = 20_000
LATE_NS = 5_000_000


def spinning() -> Stage:
    return Stage(untyped(), spin_ns=SPIN_NS)


def turn(stage: Stage, duration_ns: int = 0) -> None:
    """Let time pass, and the loop do what it has to do by then without sleeping."""
    stage.loop.now_ns += duration_ns
    stage.loop.turn()


def ask(stage: Stage, number: int, answer_ns: int) -> None:
    """One request, answered after so long; the doorbell rings for whoever sleeps."""
    stage.predict(number, [number])
    turn(stage)
    spent_ns = 0
    while stage.loop.soon and spent_ns < answer_ns:
        spent_ns += SOON_NS
        turn(stage, SOON_NS)
    stage.loop.now_ns += max(answer_ns - spent_ns, 0)
    stage.answer(stage.taken())
    if stage.loop.soon:
        turn(stage)
    else:
        stage.gateway.collect()
    assert predictions(stage, number) == [number]


def test_the_loop_stays_awake_until_the_answer_is_there() -> None:
    stage = spinning()
    stage.predict(0, [0])
    for _ in range(5):
        turn(stage, SOON_NS)
        assert stage.loop.soon
    stage.answer(stage.taken())
    turn(stage)
    assert predictions(stage, 0) == [0]
    assert stage.loop.soon == []


def test_without_leave_to_it_never_does() -> None:
    stage = Stage(untyped())
    stage.predict(0, [0])
    turn(stage)
    assert stage.loop.soon == []


def test_it_sleeps_once_the_limit_has_passed() -> None:
    stage = spinning()
    stage.predict(0, [0])
    turn(stage)
    turn(stage, SPIN_NS - 1)
    assert stage.loop.soon
    turn(stage, 1)
    assert stage.loop.soon == []
    stage.answer(stage.taken())
    stage.gateway.collect()
    assert predictions(stage, 0) == [0]


def test_every_answer_starts_the_limit_anew() -> None:
    stage = spinning()
    for number in range(2):
        stage.predict(number, [number])
    turn(stage)
    first, second = stage.taken()
    stage.answer([first])
    turn(stage, SPIN_NS - 1)
    turn(stage, SPIN_NS - 1)
    assert stage.loop.soon
    stage.answer([second])
    turn(stage)
    assert stage.loop.soon == []


def test_time_in_which_nothing_was_under_way_is_no_wait() -> None:
    stage = spinning()
    for number in range(3):
        stage.loop.now_ns += LATE_NS
        ask(stage, number, SOON_NS)
    stage.loop.now_ns += LATE_NS
    stage.predict(3, [3])
    turn(stage)
    assert stage.loop.soon


def test_a_request_that_follows_is_announced_in_the_same_turns() -> None:
    stage = spinning()
    stage.predict(0, [0])
    turn(stage, SOON_NS)
    stage.predict(1, [1])
    assert len(stage.loop.soon) == 1
    turn(stage, SOON_NS)
    assert len(stage.taken()) == 2


def test_others_get_the_core_after_a_while() -> None:
    stage = spinning()
    stage.predict(0, [0])
    turn(stage)
    turn(stage, GIVE_WAY_NS)
    assert stage.gave_way == 0
    turn(stage, 1)
    turn(stage, 1)
    assert stage.gave_way == 2


def test_after_a_long_wait_it_sleeps_at_once_until_answers_come_soon_again() -> None:
    stage = spinning()
    ask(stage, 0, LATE_NS)
    stage.predict(1, [1])
    turn(stage)
    assert stage.loop.soon == []
    stage.answer(stage.taken())
    stage.gateway.collect()
    for number in range(2, 12):
        ask(stage, number, SOON_NS)
    stage.predict(12, [12])
    turn(stage)
    assert stage.loop.soon


@pytest.mark.parametrize("answer_ns", [SPIN_NS + SOON_NS, LATE_NS])
def test_where_answers_take_longer_it_learns_not_to_wait_for_them(answer_ns: int) -> None:
    stage = spinning()
    for number in range(50):
        ask(stage, number, answer_ns)
    stage.predict(50, [50])
    turn(stage)
    assert stage.loop.soon == []


def test_closed_it_sleeps() -> None:
    stage = spinning()
    stage.predict(0, [0])
    turn(stage)
    stage.gateway.close()
    turn(stage)
    assert stage.loop.soon == []
