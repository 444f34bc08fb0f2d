"""Answers alone and in company: which batches are tried, and how far answers are apart."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.engine.worker.parity import ComparedBatch, batches, compared, difference


@given(
    groups=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    sizes=st.sets(st.integers(1, 9), min_size=1),
    allowed=st.booleans(),
    long=st.booleans(),
)
def test_every_sample_is_in_a_batch_of_every_size_with_those_of_its_group(
    groups: list[int], sizes: set[int], allowed: bool, long: bool
) -> None:
    numbers = iter(range(100))
    members = [[next(numbers) for _ in range(count)] for count in groups]
    ascending = sorted(sizes)
    found = list(batches(members, ascending, ascending if allowed else (), long=long))
    for group in members:
        for size in (size for size in ascending if size > 1):
            own = [b for b in found if b.words == f"in a batch of {size}" and b.members[0] in group]
            assert {n for batch in own for n in batch.members} == set(group)
            assert all(len(batch.members) == size for batch in own)
        beside = [batch.members for batch in found if batch.neighbours]
        if long and ascending[-1] > 1:
            assert {n for (n,) in beside} >= set(group)
        else:
            assert not beside
    for batch in found:
        assert any(set(batch.members) <= set(group) for group in members)
    padded = [batch for batch in found if "padded" in batch.words]
    assert bool(padded) == (allowed and any(s > 1 and s - 1 not in sizes for s in sizes))


ROWS = [np.array([float(n), -1.0]) for n in range(6)]


def tried(answer: Any, tolerance: float = 1e-4) -> list[Any]:
    def run(batch: ComparedBatch) -> list[list[Any]]:
        rows = np.stack([ROWS[number] for number in batch.members])
        return [[row] for row in answer(rows)]

    made = batches([range(6)], [1, 2, 4], (), long=False)
    return compared(6, ["y"], made, run, tolerance)


def test_a_model_that_looks_at_each_row_alone_has_no_difference() -> None:
    (found,) = tried(lambda rows: rows * 2)
    assert (found.absolute, found.excess) == (0, 0)
    assert found.words == "output y: no difference"


def test_a_model_that_normalises_its_batch_is_found_with_the_sample_and_the_batch() -> None:
    (found,) = tried(lambda rows: rows - rows.mean(axis=0))
    assert found.absolute > 1
    assert found.excess > 1e4
    assert found.where in ("in a batch of 2", "in a batch of 4")
    assert found.words.startswith("output y: largest difference ")
    assert f"sample {found.sample} in a batch of" in found.words


def test_a_model_that_looks_at_its_place_in_the_batch_is_found() -> None:
    (found,) = tried(lambda rows: rows + np.arange(len(rows))[:, None] * 1e-3)
    assert found.excess == pytest.approx(3e-3 / 1e-4)


def F(values: Any) -> Any:  # noqa: N802
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("alone", "together", "expected"),
    [
        (F([1, 2]), F([1, 2]), (0, 0, 0)),
        (F([0.5]), F([0.75]), (0.25, 0.5, 2.5)),
        (F([50]), F([55]), (5, 0.1, 1)),
        (F([np.nan, np.inf]), F([np.nan, np.inf]), (0, 0, 0)),
        (F([1]), F([np.nan]), (np.inf, np.inf, np.inf)),
        (F([np.inf]), F([1]), (np.inf, np.inf, np.inf)),
        (F([1, 2]), F([1]), (0, 0, np.inf)),
        (F([]), F([]), (0, 0, 0)),
        (F(3), F(3), (0, 0, 0)),
        (np.array([7, 8]), np.array([7, 8]), (0, 0, 0)),
        (np.array([7, 8]), np.array([7, 10]), (2, 0.25, np.inf)),
        (np.array([True]), np.array([False]), (0, 0, np.inf)),
        (np.array([b"a"], object), np.array([b"a"], object), (0, 0, 0)),
        (np.array([b"a"], object), np.array([b"b"], object), (0, 0, np.inf)),
        ({"a": [1, 0.5]}, {"a": [1, 0.75]}, (0.25, 0.5, 2.5)),
        ({"a": 1}, {"b": 1}, (0, 0, np.inf)),
        ([1], [2], (0, 0, np.inf)),
        ([1], [1, 1], (0, 0, np.inf)),
        (1, 1.5, (0.5, 0.5, 5)),
        (True, 1, (0, 0, np.inf)),
        ("x", "x", (0, 0, 0)),
        (None, None, (0, 0, 0)),
        ([], [], (0, 0, 0)),
    ],
)
def test_how_far_two_answers_are_apart(alone: Any, together: Any, expected: Any) -> None:
    assert difference(alone, together, 0.1) == pytest.approx(expected)
