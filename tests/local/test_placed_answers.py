"""Answers of V1 from results where they lie are those that are made of a copy."""

from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from segment_fixture import spec

from ringbatch.frontend.v1.answer import NumberAnswers
from ringbatch.frontend.v1.placed_answers import PlacedAnswers
from ringbatch.shm.layout import ALIGNMENT
from ringbatch.shm.strided_view import StridedView
from ringbatch.shm.tensor import DATATYPES, Tensor

BATCH_ID = "123e4567-e89b-42d3-a456-426614174000"
PLACES = 64
NUMERIC = sorted(set(DATATYPES) - {"BOOL", "BF16", "BYTES"})


class Harness:
    """Memory with results in it, and both ways to write them."""

    def __init__(self, shape: list[int], datatype: str = "FP32") -> None:
        output = Tensor("y", datatype, shape)
        self.memory = memoryview(bytearray(PLACES * ALIGNMENT))
        self.answers = NumberAnswers(spec(0, [output], [output]))
        self.placed = PlacedAnswers(self.answers, StridedView(self.memory))

    def put(self, place: int, data: bytes) -> int:
        offset = place * ALIGNMENT
        self.memory[offset : offset + len(data)] = data
        return offset

    def usual(self, rows: int, data: bytes) -> bytes:
        return self.answers.render([(rows, memoryview(data))], False, BATCH_ID)


@given(
    st.sampled_from(NUMERIC),
    st.lists(st.integers(1, 4), max_size=3),
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, PLACES // 2)), min_size=1, max_size=5),
)
def test_values_at_any_place_are_written_as_a_copy_of_them_is(
    datatype: str, shape: list[int], results: list[tuple[int, int]]
) -> None:
    harness = Harness(shape, datatype)
    for number, (rows, place) in enumerate(results):
        values = np.arange(rows * prod(shape)) * 3 + number
        data = values.astype(DATATYPES[datatype].numpy).tobytes()
        offset = harness.put(place, data)
        written = harness.placed.write(rows, offset, len(data), BATCH_ID)
        assert written == harness.usual(rows, data)


def test_the_last_place_of_the_memory_is_one() -> None:
    harness = Harness([16])
    data = np.arange(16, dtype="<f4").tobytes()
    offset = harness.put(PLACES - 1, data)
    assert harness.placed.write(1, offset, 64, BATCH_ID) == harness.usual(1, data)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_values_that_json_cannot_express_go_the_usual_way(number: float) -> None:
    harness = Harness([2])
    offset = harness.put(1, np.array([1, number], "<f4").tobytes())
    assert harness.placed.write(1, offset, 8, BATCH_ID) is None


@pytest.mark.parametrize("size", [0, 4, 12, 16])
def test_a_result_of_another_size_goes_the_usual_way(size: int) -> None:
    assert Harness([2]).placed.write(1, 0, size, BATCH_ID) is None


def test_each_answer_has_the_id_of_its_batch() -> None:
    harness = Harness([])
    offset = harness.put(0, np.array([5], "<f4").tobytes())
    for batch_id in ("", "one", "two", "two", "one", ""):
        answer = f'{{"message":"","batchId":"{batch_id}","predictions":[5.0]}}'
        assert harness.placed.write(1, offset, 4, batch_id) == answer.encode()
