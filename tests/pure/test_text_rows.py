"""Rows of tokens to parts and back, and texts out of what protocols read."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given as cases
from hypothesis import strategies as st
from numpy.typing import NDArray

from ringbatch.frontend.codec.bytes_tensor import joined
from ringbatch.frontend.codec.payload import Part, framed
from ringbatch.frontend.texts.rows import GivenTexts, Shape, given, reordered
from ringbatch.shm.errors import InvalidRequest
from ringbatch.shm.frame import Frame
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.texts import FILLER, IDS, QUERY, TEXT, Tokens

FRAME = Frame((IDS,))
EDGES = (4, 8, 16)


def spec(cap: int, budget: int, edges: tuple[int, ...] = EDGES) -> ModelSpec:
    return ModelSpec(
        0,
        "m",
        "text",
        (TEXT,),
        (),
        cap,
        0,
        1,
        "eager",
        (0,),
        max_batch_elements=budget,
        length_buckets=edges,
    )


def rows_of(lengths: Sequence[int]) -> list[NDArray[np.int32]]:
    """Rows that differ from each other, wherever they are of one length."""
    return [np.arange(n * 100, n * 100 + size, dtype=np.int32) for n, size in enumerate(lengths)]


def read(part: Part) -> list[list[int]]:
    """The rows of a part without what fills them."""
    assert part.key_bytes == FRAME.key_bytes
    (longest,), _ = FRAME.read_prefix(part.payload)
    placed = FRAME.place(part.rows, (longest,)).parts[0]
    array = np.frombuffer(part.payload, "<i4", part.rows * longest, placed.offset)
    found = array.reshape(part.rows, longest)
    assert (np.diff((found == FILLER).astype(int), axis=1) >= 0).all(), "only ends are filled"
    return [[token for token in row if token != FILLER] for row in found.tolist()]


def bucket(length: int, edges: Sequence[int]) -> int:
    return next((edge for edge in edges if edge >= length), 1 << 62)


LENGTHS = st.lists(st.integers(1, 20), min_size=1, max_size=60)


@cases(
    lengths=LENGTHS,
    cap=st.integers(1, 8),
    budget=st.integers(0, 64),
    edges=st.sampled_from([EDGES, (), (20,)]),
)
def test_every_row_is_in_one_part_of_its_bucket_within_cap_and_budget(
    lengths: list[int], cap: int, budget: int, edges: tuple[int, ...]
) -> None:
    shape, rows = Shape(spec(cap, budget, edges)), rows_of(lengths)
    parts, places = shape.by_length(rows)
    found = [row for part in parts for row in read(part)]
    assert sorted(places) == list(range(len(rows)))
    assert found == [rows[place].tolist() for place in places]
    assert [row for part in shape.in_order(rows) for row in read(part)] == [
        row.tolist() for row in rows
    ]
    for part in (*parts, *shape.in_order(rows)):
        sizes = [len(row) for row in read(part)]
        assert len({bucket(size, edges) for size in sizes}) == 1
        assert 1 <= part.rows <= cap
        goal = bucket(sizes[0], edges)
        width = max(sizes) if goal > 1000 else goal
        assert part.rows == 1 or not budget or part.rows * width <= budget


@cases(lengths=LENGTHS, cap=st.integers(1, 8))
def test_sorted_by_length_no_two_parts_could_be_one(lengths: list[int], cap: int) -> None:
    parts, _ = Shape(spec(cap, 0)).by_length(rows_of(lengths))
    for one, other in pairwise(parts):
        edges = {bucket(len(row), EDGES) for part in (one, other) for row in read(part)}
        assert len(edges) > 1 or one.rows == cap


@cases(st.permutations(range(7)), st.integers(1, 6))
def test_results_come_back_in_the_request_s_order(places: list[int], cut: int) -> None:
    results = np.array(places, "<i4").repeat(3).reshape(-1, 3)
    parts = [(len(part), memoryview(part.tobytes())) for part in (results[:cut], results[cut:])]
    rows, data = reordered(parts, places)
    assert rows == len(places)
    assert np.frombuffer(data, "<i4").reshape(-1, 3)[:, 1].tolist() == list(range(7))


def bytes_part(*columns: Sequence[bytes]) -> Part:
    frame = Frame((QUERY, TEXT)[-len(columns) :])
    payload = framed(frame, len(columns[0]), (), [joined(column) for column in columns])
    return Part(len(columns[0]), payload, 0)


def test_texts_are_those_of_all_parts_in_order() -> None:
    parts = [bytes_part(["süß".encode(), b""]), bytes_part([b"c"])]
    found = given(parts, Frame((TEXT,)))
    assert (found.texts, len(found), found.size) == (["süß", "", "c"], 3, 4 + 3 * 16)


def test_pairs_are_a_query_and_a_text_each() -> None:
    parts = [bytes_part([b"q", b"r"], [b"one", b"two"])]
    assert given(parts, Frame((QUERY, TEXT))).texts == [("q", "one"), ("r", "two")]


def test_given_texts_are_taken_as_they_are() -> None:
    own = GivenTexts(["a"])
    assert given([(1, own, 0)], Frame((TEXT,))) is own


def test_no_utf_8_is_named_by_its_place() -> None:
    parts = [bytes_part([b"a", b"b"]), bytes_part([b"c", b"d\xc3("])]
    with pytest.raises(InvalidRequest, match='"text" of instance 3 is no UTF-8: byte 1 is 0xc3'):
        given(parts, Frame((TEXT,)))


@pytest.mark.parametrize(
    ("edges", "expected"),
    [((), ()), ((16, 32, 64), (16, 24)), ((24, 48), (24,)), ((8,), (8, 24))],
)
def test_buckets_end_at_the_limit(edges: tuple[int, ...], expected: tuple[int, ...]) -> None:
    assert Tokens("", "", 24, True, False, 9).edges(edges) == expected


class Looked(list[int]):
    """Lengths of rows that count the looks at them."""

    looks = 0

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        self.looks += len(found) if isinstance(key, slice) else 1
        return found


@pytest.mark.parametrize("edges", [(), EDGES])
def test_lengths_are_looked_at_a_bounded_number_of_times(edges: tuple[int, ...]) -> None:
    lengths = Looked([1] * 1000)
    runs = list(Shape(spec(4, 8, edges))._runs(lengths))
    assert len(runs) == (250 if not edges else 500)
    assert lengths.looks <= 2 * len(lengths)
