"""Memory claimed for answers, compared with plain lists of earlier ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.frontend.codec.result_sizes import (
    FIRST_RESULT_BYTES,
    MIN_RESULT_BYTES,
    ResultSizes,
    SizeHistory,
    again,
)

sizes = st.one_of(st.integers(0, 200), st.integers(0, 1 << 34), st.sampled_from([0, 1, 1 << 20]))


def sizes_of(*answers: int) -> SizeHistory:
    made = SizeHistory()
    for answer in answers:
        made.add(answer)
    return made


def unsized(*answers: int, request_bytes: int = 100) -> ResultSizes:
    rooms = ResultSizes(lambda _rows: None)
    for answer in answers:
        rooms.learn(request_bytes, answer)
    return rooms


@given(st.lists(sizes, min_size=2, max_size=120))
def test_of_few_answers_all_but_the_largest_have_room(answers: list[int]) -> None:
    made = sizes_of(*answers)
    *others, _ = sorted(answers)
    assert others[-1] <= made.likely <= max(others[-1] + (others[-1] >> 3), 1)


@given(st.lists(sizes, min_size=1, max_size=120))
def test_half_of_the_answers_have_the_usual_room(answers: list[int]) -> None:
    made = sizes_of(*answers, *answers[-1:] * 64)
    assert made.usual <= made.likely
    assert sum(answer <= made.usual for answer in [*answers, *answers[-1:] * 64]) >= 32


@given(st.lists(sizes, min_size=300, max_size=700), st.randoms(use_true_random=False))
def test_nearly_all_of_many_answers_have_room(answers: list[int], random: object) -> None:
    """Over the whole of a run of answers that come in no order; what is being learned counts."""
    answers = answers * 3
    random.shuffle(answers)  # type: ignore[attr-defined]
    made = SizeHistory()
    missed = 0
    for answer in answers:
        missed += answer > made.likely
        made.add(answer)
    assert missed <= len(answers) // 16 + 12


@pytest.mark.parametrize("before", [0, 1, 100, 1000])
def test_one_large_answer_among_small_ones_changes_nothing(before: int) -> None:
    made = sizes_of(*[100] * before, 10_000_000)
    assert made.likely <= 104
    made.add(100)
    for _ in range(2000):
        made.add(100)
        assert made.likely == 104


@pytest.mark.parametrize("before", [0, 10, 1000, 100_000])
def test_a_model_that_answers_more_from_now_on_is_soon_believed(before: int) -> None:
    made = sizes_of(*[100] * before)
    missed = 0
    while made.likely < 1_000_000:
        made.add(1_000_000)
        missed += 1
    assert missed <= 6


@pytest.mark.parametrize("before", [2, 10, 1000, 100_000])
def test_a_model_that_answers_less_from_now_on_is_believed_in_the_end(before: int) -> None:
    made = sizes_of(*[10_000_000] * before)
    small = 0
    while made.likely > 1024:
        made.add(1000)
        small += 1
    assert small <= 1500


def test_answers_of_nearly_one_size_claim_the_same() -> None:
    claims = {unsized(*range(90_000, size)).result_bytes(1, 100) for size in range(90_010, 90_100)}
    assert len(claims) == 1


@pytest.mark.parametrize(
    ("answers", "request_bytes", "likely", "usual"),
    [
        ([], 100, FIRST_RESULT_BYTES + 100, FIRST_RESULT_BYTES + 100),
        ([10], 100, FIRST_RESULT_BYTES + 100, FIRST_RESULT_BYTES),
        ([1 << 20], 100, FIRST_RESULT_BYTES + 100, FIRST_RESULT_BYTES),
        ([1 << 20] * 2, 100, 1 << 20, 1 << 20),
        ([1 << 20] * 9 + [10] * 30, 100, 1 << 20, FIRST_RESULT_BYTES),
        ([1 << 20] * 9, 1023, 1 << 20, 1 << 20),
        ([1 << 20] * 9, 1024, FIRST_RESULT_BYTES + 1024, FIRST_RESULT_BYTES + 1024),
    ],
)
def test_claims_for_an_answer_of_unknown_size(
    answers: list[int], request_bytes: int, likely: int, usual: int
) -> None:
    rooms = unsized(*answers)
    assert not rooms.sized
    assert rooms.result_bytes(1, request_bytes) == likely
    assert rooms.usual_bytes(1, request_bytes) == usual
    assert rooms.least_bytes(1, request_bytes) == FIRST_RESULT_BYTES


def test_claims_for_an_answer_of_known_size() -> None:
    rooms = ResultSizes(lambda rows: 40 * rows)
    assert rooms.sized
    for rows, room in ((1, MIN_RESULT_BYTES), (100, 4000)):
        for claim in (rooms.result_bytes, rooms.usual_bytes, rooms.least_bytes):
            assert claim(rows, 1 << 20) == room


@given(st.integers(0, 1 << 40))
def test_an_answer_that_is_sent_again_has_a_little_more_than_it_needs(size: int) -> None:
    assert size <= again(size) <= size + (size >> 4)
