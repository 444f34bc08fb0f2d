"""Event loop of a frontend: it stays awake for answers that are near, and sleeps otherwise."""

import pytest
from frontend_harness import FrontendHarness, predictions, untyped

SPIN_NS = 200_000
SOON_NS = 20_000
LATE_NS = 5_000_000


def spinning() -> FrontendHarness:
    return FrontendHarness(untyped(), spin_ns=SPIN_NS)


def turn(harness: FrontendHarness, duration_ns: int = 0) -> None:
    """Let time pass, and run the loop for that time without sleeping."""
    harness.loop.now_ns += duration_ns
    harness.loop.turn()


def ask(harness: FrontendHarness, number: int, answer_ns: int) -> None:
    """Send a request and answer it after so long; the doorbell rings if the loop sleeps."""
    harness.predict(number, [number])
    turn(harness)
    spent_ns = 0
    while harness.loop.soon and spent_ns < answer_ns:
        spent_ns += SOON_NS
        turn(harness, SOON_NS)
    harness.loop.now_ns += max(answer_ns - spent_ns, 0)
    harness.answer(harness.taken())
    if harness.loop.soon:
        turn(harness)
    else:
        harness.gateway.collect()
    assert predictions(harness, number) == [number]


def test_the_loop_stays_awake_until_the_answer_is_there() -> None:
    harness = spinning()
    harness.predict(0, [0])
    for _ in range(5):
        turn(harness, SOON_NS)
        assert harness.loop.soon
    harness.answer(harness.taken())
    turn(harness)
    assert predictions(harness, 0) == [0]
    assert harness.loop.soon == []


def test_without_leave_to_it_never_does() -> None:
    harness = FrontendHarness(untyped())
    harness.predict(0, [0])
    turn(harness)
    assert harness.loop.soon == []


def test_it_sleeps_once_the_limit_has_passed() -> None:
    harness = spinning()
    harness.predict(0, [0])
    turn(harness)
    turn(harness, SPIN_NS - 1)
    assert harness.loop.soon
    turn(harness, 1)
    assert harness.loop.soon == []
    harness.answer(harness.taken())
    harness.gateway.collect()
    assert predictions(harness, 0) == [0]


def test_every_answer_starts_the_limit_anew() -> None:
    harness = spinning()
    for number in range(2):
        harness.predict(number, [number])
    turn(harness)
    first, second = harness.taken()
    harness.answer([first])
    turn(harness, SPIN_NS - 1)
    turn(harness, SPIN_NS - 1)
    assert harness.loop.soon
    harness.answer([second])
    turn(harness)
    assert harness.loop.soon == []


def test_time_in_which_nothing_was_under_way_is_no_wait() -> None:
    harness = spinning()
    for number in range(3):
        harness.loop.now_ns += LATE_NS
        ask(harness, number, SOON_NS)
    harness.loop.now_ns += LATE_NS
    harness.predict(3, [3])
    turn(harness)
    assert harness.loop.soon


def test_a_request_that_follows_is_submitted_in_the_same_turns() -> None:
    harness = spinning()
    harness.predict(0, [0])
    turn(harness, SOON_NS)
    harness.predict(1, [1])
    assert len(harness.loop.soon) == 1
    turn(harness, SOON_NS)
    assert len(harness.taken()) == 2


def test_after_a_long_wait_it_sleeps_at_once_until_answers_come_soon_again() -> None:
    harness = spinning()
    ask(harness, 0, LATE_NS)
    harness.predict(1, [1])
    turn(harness)
    assert harness.loop.soon == []
    harness.answer(harness.taken())
    harness.gateway.collect()
    for number in range(2, 12):
        ask(harness, number, SOON_NS)
    harness.predict(12, [12])
    turn(harness)
    assert harness.loop.soon


@pytest.mark.parametrize("answer_ns", [SPIN_NS + SOON_NS, LATE_NS])
def test_where_answers_take_longer_it_learns_not_to_wait_for_them(answer_ns: int) -> None:
    harness = spinning()
    for number in range(50):
        ask(harness, number, answer_ns)
    harness.predict(50, [50])
    turn(harness)
    assert harness.loop.soon == []


def test_closed_it_sleeps() -> None:
    harness = spinning()
    harness.predict(0, [0])
    turn(harness)
    harness.gateway.close()
    turn(harness)
    assert harness.loop.soon == []
