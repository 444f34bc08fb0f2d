"""Shaping of batches by padding and cutting: tables, and rules for all cases."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.engine.ipc.shaping import (
    Budget,
    Dimensions,
    Lengths,
    Unfit,
    elements,
    padded_rows,
    worthwhile_rows,
)
from ringbatch.shm.tensor import ANY, Tensor

IDS = Tensor("ids", "INT64", [-1])
MASK = Tensor("mask", "INT64", [-1])
IMAGE = Tensor("image", "FP32", [3, -1, -1])
POOLED = Tensor("pooled", "FP32", [8])
TOKENS = Tensor("tokens", "FP32", [-1, 8])
MAP = Tensor("map", "FP32", [1, -1, -1])

ascending = st.lists(st.integers(1, 60), min_size=1, max_size=6, unique=True).map(sorted)


@pytest.mark.parametrize(
    ("rows", "sizes", "padded"),
    [
        (5, (), 5),
        (1, (2, 4), 2),
        (2, (2, 4), 2),
        (3, (2, 4), 4),
        (5, (2, 4), 5),  # nothing is that large: it is run as it is
    ],
)
def test_rows_are_padded_to_the_least_size_that_takes_them(
    rows: int, sizes: tuple[int, ...], padded: int
) -> None:
    assert padded_rows(rows, sizes) == padded


SIZES, COSTS = (1, 4, 16), (10, 20, 80)


@pytest.mark.parametrize(
    ("rows", "taken"),
    [
        (1, 1),
        (2, 2),  # 10 a row padded or not; nothing is won by waiting
        (3, 3),
        (4, 4),
        (5, 4),  # 5 a row, against 16 in a batch of 16
        (15, 4),  # 80 / 15 are still more than 5
        (16, 16),
    ],
)
def test_the_size_below_is_taken_where_a_row_costs_less_there(rows: int, taken: int) -> None:
    assert worthwhile_rows(rows, SIZES, COSTS) == taken


def test_without_measured_times_everything_is_taken() -> None:
    assert worthwhile_rows(5, SIZES, ()) == 5


def test_nothing_is_left_behind_if_a_batch_costs_the_same_at_any_size() -> None:
    assert all(worthwhile_rows(rows, SIZES, (7, 7, 7)) == rows for rows in range(1, 17))


@given(ascending, st.data())
def test_the_taken_rows_never_cost_more_each_than_all_would(
    sizes: list[int], data: st.DataObject
) -> None:
    rows = data.draw(st.integers(1, sizes[-1]))
    costs = data.draw(
        st.lists(st.integers(1, 10**6), min_size=len(sizes), max_size=len(sizes)).map(sorted)
    )
    cost = dict(zip(sizes, costs, strict=True))
    taken = worthwhile_rows(rows, sizes, costs)
    assert taken == rows or taken in sizes
    assert 1 <= taken <= rows
    assert cost[padded_rows(taken, sizes)] * rows <= cost[padded_rows(rows, sizes)] * taken


@pytest.mark.parametrize(
    ("dimensions", "goal"),
    [
        ((1,), (32,)),
        ((32,), (32,)),
        ((33,), (64,)),
        ((65,), (ANY,)),
        ((0,), (32,)),
    ],
)
def test_a_length_is_padded_to_its_bucket(dimensions: Dimensions, goal: Dimensions) -> None:
    assert Lengths([IDS], [POOLED], (32, 64)).goal(dimensions) == goal


def test_without_buckets_everybody_shares_a_batch() -> None:
    lengths = Lengths([IDS], [POOLED])
    assert lengths.goal((1,)) == lengths.goal((1000,)) == (ANY,)
    assert lengths.met((ANY,), [(3,), (9,), (1,)]) == (9,)


def test_one_dimension_beyond_the_last_bucket_opens_all() -> None:
    """Else a request of few bytes, such as one of no height and endless width, would be padded to
    something that no memory holds."""
    lengths = Lengths([IMAGE], [POOLED], (32, 64))
    assert lengths.goal((0, 10**12)) == (ANY, ANY)
    assert lengths.goal((10, 40)) == (32, 64)


def test_the_least_padding_is_known_for_one_request() -> None:
    lengths = Lengths([IDS, MASK], [POOLED], (32,))
    assert lengths.least((5, 7)) == (32, 32)
    assert lengths.least((5, 70)) == (5, 70)
    assert lengths.met((32, 32), [(5, 7), (8, 9)]) == (32, 32)


def test_an_output_is_as_long_as_the_first_input_with_an_open_dimension_there() -> None:
    lengths = Lengths([IDS, MASK], [POOLED, TOKENS])
    assert lengths.sizes(0, (5, 5)) == []
    assert lengths.sizes(1, (5, 5)) == [(1, 5)]
    image = Lengths([IDS, IMAGE], [MAP])
    assert image.sizes(0, (7, 20, 30)) == [(2, 20), (3, 30)]


def test_a_request_with_an_ambiguous_cut_is_not_padded() -> None:
    lengths = Lengths([IDS, MASK], [TOKENS], (32,))
    assert lengths.goal((5, 5)) == (32, 32)
    assert lengths.goal((5, 6)) == (5, 6)
    assert Lengths([IDS, MASK], [POOLED], (32,)).goal((5, 6)) == (32, 32), "nothing is to be cut"


@pytest.mark.parametrize(
    ("inputs", "outputs", "words"),
    [
        ([POOLED], [POOLED], "no input has a dimension of any size"),
        ([IDS], [Tensor("y", "FP32", [8, -1])], r"output 'y' has .* at place 2, and no input"),
    ],
)
def test_a_signature_that_cannot_be_padded_is_refused(
    inputs: list[Tensor], outputs: list[Tensor], words: str
) -> None:
    with pytest.raises(Unfit, match=words):
        Lengths(inputs, outputs)


lengths_of = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 200)), min_size=1, max_size=8)


@given(ascending, lengths_of, st.booleans())
def test_requests_that_share_a_batch_fit_into_it_and_are_cut_to_their_own(
    edges: list[int], requests: list[Dimensions], cut: bool
) -> None:
    lengths = Lengths([IDS, MASK], [TOKENS if cut else POOLED], edges)
    goal = lengths.goal(requests[0])
    together = [own for own in requests if lengths.goal(own) == goal]
    padded = lengths.met(goal, together)
    for own in together:
        assert all(size <= most for size, most in zip(own, padded, strict=True))
        for axis, size in lengths.sizes(0, own):
            assert (axis, size) == (1, own[0])
            if padded != own:
                assert own[0] == own[1], "else nobody could say what is padding"
    if ANY not in goal and max(goal) <= edges[-1] and cut is False:
        # No request is padded beyond its own bucket.
        smaller = [0, *edges]
        assert all(
            smaller[smaller.index(most) - 1] < size or most == edges[0]
            for own in together
            for size, most in zip(own, padded, strict=True)
        )


@pytest.mark.parametrize(
    ("shapes", "dimensions", "count"),
    [([(3, 4)], (), 12), ([(-1,), (-1, 2)], (5, 7), 14), ([()], (), 1), ([(-1,)], (0,), 0)],
)
def test_the_largest_input_is_counted(
    shapes: list[tuple[int, ...]], dimensions: Dimensions, count: int
) -> None:
    assert elements(shapes, dimensions) == count


def tokens(dimensions: Dimensions) -> int:
    return elements([(-1,)], dimensions)


@pytest.mark.parametrize(
    ("most", "sizes", "requests", "count"),
    [
        (100, (), [(1, 50), (1, 50), (1, 1)], 2),
        (100, (), [(1, 10), (1, 10), (1, 50)], 2),  # three rows of 50
        (100, (), [(2, 50), (1, 1)], 1),
        (100, (), [(1, 500), (1, 1)], 1),  # one always runs
        (100, (), [(1, 0)] * 5, 5),
        (100, (4,), [(1, 25), (1, 25)], 2),
        (100, (4,), [(1, 25), (1, 26)], 1),  # four rows of 26, padding included
        (100, (), [], 0),
    ],
)
def test_a_batch_holds_as_many_elements_as_it_may(
    most: int, sizes: tuple[int, ...], requests: list[tuple[int, int]], count: int
) -> None:
    budget = Budget(most, sizes, tokens)
    assert budget.fitting((rows, (length,)) for rows, length in requests) == count


@pytest.mark.parametrize(
    ("sizes", "rows", "length", "share"),
    [
        ((), 1, 0, 0.0),
        ((), 1, 25, 0.25),
        ((), 3, 25, 0.75),
        ((4,), 3, 25, 1.0),  # run as four
        ((), 1, 500, 1.0),
    ],
)
def test_the_part_that_a_request_takes_of_a_batch(
    sizes: tuple[int, ...], rows: int, length: int, share: float
) -> None:
    assert Budget(100, sizes, tokens).share(rows, (length,)) == share


@given(
    st.integers(1, 500),
    st.one_of(st.just([]), ascending),
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 99)), min_size=1, max_size=20),
)
def test_a_batch_exceeds_its_elements_only_where_a_single_request_does(
    most: int, sizes: Sequence[int], requests: list[tuple[int, int]]
) -> None:
    count = Budget(most, sizes, tokens).fitting((rows, (length,)) for rows, length in requests)

    def taken(number: int) -> int:
        rows = sum(rows for rows, _ in requests[:number])
        return padded_rows(rows, sizes) * max(length for _, length in requests[:number])

    assert 1 <= count <= len(requests)
    assert count == 1 or taken(count) <= most
    assert count == len(requests) or taken(count + 1) > most
