"""Tensors written as text."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.engine.config.declared_tensors import declared, is_declaration
from ringbatch.shm.tensor import DATATYPES, Tensor


@given(
    st.from_regex(r"[^\s]{1,20}", fullmatch=True),
    st.sampled_from(list(DATATYPES)),
    st.lists(st.integers(-1, 10_000), max_size=4),
)
def test_a_tensor_is_read_back_from_its_text(name: str, datatype: str, shape: list[int]) -> None:
    text = f"{name} {datatype} {shape}"
    assert is_declaration(text)
    assert declared(text) == Tensor(name, datatype, shape)


@pytest.mark.parametrize("text", ["x FP32[3,2]", "  x  FP32 [ 3 , 2 ]  ", "x FP32 [3, 2]"])
def test_blanks_do_not_matter(text: str) -> None:
    assert declared(text) == Tensor("x", "FP32", [3, 2])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "'' is not of the form"),
        ("x", "'x' is not of the form"),
        ("x FP32", "'x FP32' is not of the form"),
        ("x FP32 3", "is not of the form"),
        ("x FP32 [3", "is not of the form"),
        ("x FP32 [3,,2]", "is not of the form"),
        ("x FP32 [a]", "is not of the form"),
        ("x FP32 [1.5]", "is not of the form"),
        ("x FP33 [1]", "unknown datatype 'FP33'"),
        ("x FP32 [-2]", "a whole number from 0, or -1 for any size, not -2"),
    ],
)
def test_any_other_text_is_refused_in_words(text: str, words: str) -> None:
    assert not is_declaration(text)
    with pytest.raises(ValueError, match=re.escape(words)):
        declared(text)


@pytest.mark.parametrize("value", [None, 3, ["x FP32 [3]"], {"name": "x"}])
def test_a_value_that_is_no_text_is_no_declaration(value: object) -> None:
    assert not is_declaration(value)
