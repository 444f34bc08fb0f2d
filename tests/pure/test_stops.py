"""Stops, found however an answer is cut into pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.frontend.generation.stops import StopMatcher

LETTERS = st.text("ab", max_size=20)
STOPS = st.lists(st.text("ab", min_size=1, max_size=4), max_size=4)


def fed(stops: list[str], pieces: list[str]) -> tuple[str, bool]:
    matcher = StopMatcher(stops)
    text = "".join(map(matcher.feed, pieces))
    return text + matcher.rest(), matcher.matched


def first_stop(stops: list[str], text: str) -> int | None:
    """Return the start of the stop that is complete first, by trying each beginning of the text."""
    for end in range(len(text) + 1):
        starts = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if starts:
            return min(starts)
    return None


@given(STOPS, st.lists(LETTERS, max_size=6))
def test_pieces_make_no_difference(stops: list[str], pieces: list[str]) -> None:
    text = "".join(pieces)
    at = first_stop(stops, text)
    assert fed(stops, pieces) == (text[:at], at is not None)


@given(STOPS, LETTERS)
def test_nothing_is_sent_that_may_become_a_stop(stops: list[str], text: str) -> None:
    matcher = StopMatcher(stops)
    sent = ""
    for letter in text:
        sent += matcher.feed(letter)
        if matcher.matched:
            break
    at = first_stop(stops, text)
    assert sent == text[: len(sent)]
    assert at is None or len(sent) <= at


@pytest.mark.parametrize(
    ("stops", "pieces", "sent"),
    [
        ([], ["a", "b"], ["a", "b"]),
        (["."], ["a", ".b", "c"], ["a", "", ""]),
        (["END"], ["xE", "N", "x"], ["x", "", "ENx"]),
        (["END"], ["EE", "ND", "x"], ["E", "", ""]),
        (["bc", "abcd"], ["abcd"], ["a"]),
    ],
)
def test_text_is_held_back_no_longer_than_needed(
    stops: list[str], pieces: list[str], sent: list[str]
) -> None:
    matcher = StopMatcher(stops)
    assert [matcher.feed(piece) for piece in pieces] == sent
