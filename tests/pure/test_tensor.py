"""Datatypes of the Open Inference Protocol, and the descriptions of tensors."""

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.shm.tensor import ANY, DATATYPES, Datatype, Tensor

KINDS = {
    "BOOL": (1, "bool"),
    "UINT8": (1, "uint8"),
    "UINT16": (2, "uint16"),
    "UINT32": (4, "uint32"),
    "UINT64": (8, "uint64"),
    "INT8": (1, "int8"),
    "INT16": (2, "int16"),
    "INT32": (4, "int32"),
    "INT64": (8, "int64"),
    "FP16": (2, "float16"),
    "FP32": (4, "float32"),
    "FP64": (8, "float64"),
    "BF16": (2, "void16"),
    "BYTES": (0, "object"),
}


def test_the_datatypes_are_those_of_the_protocol() -> None:
    assert set(DATATYPES) == set(KINDS)


@pytest.mark.parametrize(("name", "size", "numpy_name"), [(n, *k) for n, k in KINDS.items()])
def test_a_datatype_has_the_size_and_kind_of_its_numpy_dtype(
    name: str, size: int, numpy_name: str
) -> None:
    datatype, dtype = DATATYPES[name], np.dtype(DATATYPES[name].numpy)
    assert datatype.name == name
    assert datatype.size == size
    assert dtype.name == numpy_name
    assert datatype.fixed == (name != "BYTES")
    if datatype.fixed:
        assert dtype.itemsize == size


@pytest.mark.parametrize("datatype", [d for d in DATATYPES.values() if d.code])
def test_the_code_packs_a_number_as_numpy_reads_it(datatype: Datatype) -> None:
    packed = struct.pack(f"<{datatype.code}", 1)
    assert len(packed) == datatype.size
    assert np.frombuffer(packed, datatype.numpy)[0] == 1


def test_types_that_json_numbers_cannot_fill_have_no_code() -> None:
    assert {d.name for d in DATATYPES.values() if not d.code} == {"FP16", "BF16", "BYTES"}


@given(st.sampled_from(sorted(DATATYPES)), st.lists(st.integers(-1, 1 << 30), max_size=5))
def test_a_tensor_survives_its_json_form(datatype: str, shape: list[int]) -> None:
    tensor = Tensor("x", datatype, shape)
    assert Tensor(**tensor.to_json()) == tensor
    assert tensor.static == (ANY not in shape)


@pytest.mark.parametrize(
    ("datatype", "shape", "row_bytes"),
    [
        ("FP32", [16], 64),
        ("FP64", [2, 3], 48),
        ("INT8", [], 1),
        ("FP32", [0, 7], 0),
        ("FP32", [-1], None),
        ("UINT8", [3, -1, -1], None),
        ("BYTES", [2], None),
    ],
)
def test_row_bytes_are_those_of_one_instance_where_they_are_always_the_same(
    datatype: str, shape: list[int], row_bytes: int | None
) -> None:
    assert Tensor("x", datatype, shape).row_bytes == row_bytes


@pytest.mark.parametrize(
    ("name", "datatype", "shape", "message"),
    [
        ("", "FP32", [1], "name must be a non-empty string"),
        (7, "FP32", [1], "name must be a non-empty string, not 7"),
        ("x", "FLOAT", [1], "unknown datatype 'FLOAT', which is FP32 here; known are BOOL, "),
        ("x", "fp64", [1], "unknown datatype 'fp64', which is FP64 here; known are BOOL, "),
        ("x", np.int32, [1], "unknown datatype <class 'numpy.int32'>, which is INT32 here; known"),
        ("x", "FP33", [1], "unknown datatype 'FP33'; known are BOOL, "),
        ("x", ["FP32"], [1], r"unknown datatype \['FP32'\]; known are BOOL"),
        ("x", "FP32", 16, "the shape must be a list of sizes, not 16"),
        ("x", "FP32", "16", "the shape must be a list of sizes"),
        ("x", "FP32", [-2], "a size in the shape must be a whole number .* not -2"),
        ("x", "FP32", [1.0], r"not 1\.0"),
        ("x", "FP32", [True], "not True"),
        ("x", "FP32", [None], "not None"),
    ],
)
def test_an_invalid_tensor_is_refused_in_words(
    name: str, datatype: str, shape: list[int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Tensor(name, datatype, shape)


def test_a_tensor_does_not_follow_the_list_it_was_made_from() -> None:
    shape = [1, 2]
    tensor = Tensor("x", "FP32", shape)
    shape.append(3)
    assert tensor.shape == (1, 2)
    assert hash(tensor) == hash(Tensor("x", "FP32", (1, 2)))


def test_labels_travel_with_a_tensor() -> None:
    tensor = Tensor("y", "FP32", [2], ["a", "b"])
    assert Tensor(**tensor.to_json()) == tensor != Tensor("y", "FP32", [2])


@pytest.mark.parametrize(
    ("labels", "message"),
    [("ab", "must be a list of texts"), ([1, 2], "a list of texts"), (["a"], "1 labels for 2 el")],
)
def test_labels_that_are_none_are_refused(labels: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Tensor("y", "FP32", [2], labels)
