"""The word of a batch's runs and of its copies: neither half changes the other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.engine.config.batched import LARGEST_BATCH
from ringbatch.shm.attempts import MOST_COPY_NS, RUN_BITS, RUN_MASK, copy_ns_in, runs_in, with_copy

RUNS = st.integers(0, RUN_MASK)
TIMES_NS = st.integers(0, MOST_COPY_NS)
S = 1_000_000_000


@given(RUNS)
def test_a_number_of_runs_is_a_word_without_copies(runs: int) -> None:
    assert (runs_in(runs), copy_ns_in(runs)) == (runs, 0)


@given(RUNS, TIMES_NS)
def test_a_decoded_word_has_the_encoded_counts(runs: int, copy_ns: int) -> None:
    word = with_copy(runs, copy_ns)
    assert (runs_in(word), copy_ns_in(word)) == (runs, copy_ns)
    assert 0 <= word < 1 << 64


@given(st.integers(0, 1000), st.lists(st.integers(-S, MOST_COPY_NS // 3), max_size=6))
def test_times_of_several_runs_are_added_up_to_the_most(runs: int, copies_ns: list[int]) -> None:
    word = runs
    for copy_ns in copies_ns:
        word = with_copy(word, copy_ns) + 1
    assert runs_in(word) == runs + len(copies_ns)
    whole_ns = sum(max(copy_ns, 0) for copy_ns in copies_ns)
    assert copy_ns_in(word) == min(whole_ns, MOST_COPY_NS)


@pytest.mark.parametrize("copy_ns", [MOST_COPY_NS, MOST_COPY_NS + 1, 1 << 64, 1 << 200])
def test_a_time_beyond_the_most_is_the_most(copy_ns: int) -> None:
    word = with_copy(with_copy(3, copy_ns), copy_ns)
    assert (runs_in(word), copy_ns_in(word)) == (3, MOST_COPY_NS)
    assert word < 1 << 64


@given(st.integers(0, (1 << 64) - 1))
def test_any_word_has_two_halves(word: int) -> None:
    assert copy_ns_in(word) << RUN_BITS | runs_in(word) == word


def test_there_is_room_for_the_runs_of_the_largest_batch_and_for_minutes() -> None:
    # Each request alone, all halves before, and eight probes of each.
    assert RUN_MASK > 10 * LARGEST_BATCH
    assert MOST_COPY_NS > 18 * 60 * S
