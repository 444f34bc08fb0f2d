"""Lists of JSON values to what stands in slots, and back."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from segment_fixture import spec

from ringbatch.frontend.v1.json_values import ValueCodec
from ringbatch.shm.errors import InvalidRequest, ModelFailed

MINE = ValueCodec(spec(max_batch_size=3, timeout_ns=1))

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.lists(values | st.text(), min_size=1, max_size=10))
def test_decoded_values_equal_the_encoded_ones_in_parts_under_the_cap(instances: list[Any]) -> None:
    parts = MINE.parse(instances)
    assert all(1 <= part.rows <= 3 for part in parts)
    assert [len(json.loads(bytes(part.payload))) for part in parts] == [part.rows for part in parts]
    answer = MINE.render([(part.rows, bytearray(part.payload)) for part in parts])
    assert json.dumps(answer) == json.dumps(instances)


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ([], "no instances in the request"),
        ({"a": 1}, "the inputs are a dict, but model 'm' declares none"),
        ("abc", "the inputs are a str"),
        ([float("nan")], "cannot be written as JSON: it holds NaN or Infinity"),
        ([{1, 2}], "cannot be written as JSON: Object of type set"),
    ],
)
def test_an_invalid_list_of_values_is_refused_in_words(inputs: Any, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        MINE.parse(inputs)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"[1", "the answer is no JSON list"),
        (b"{}", "the answer is no JSON list"),
        (b"\xff", "the answer is no JSON list"),
        (b"[1e400]", "the answer is no JSON list: .*infinity"),
        (b"[NaN]", "the answer is no JSON list: it holds NaN"),
        (b"[1,2]", "size of prediction is not equal"),
    ],
)
def test_a_result_that_is_no_such_list_is_the_models_fault(text: bytes, words: str) -> None:
    with pytest.raises(ModelFailed, match=words):
        MINE.render([(1, bytearray(text))])
