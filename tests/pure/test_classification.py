"""The classification extension: which classes are best, and how they stand in an answer."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from segment_fixture import pack, spec

from ringbatch.frontend.codec.bytes_tensor import elements
from ringbatch.frontend.codec.classification import classes_of
from ringbatch.frontend.v2.protocol import InferResponse, V2Model
from ringbatch.shm.errors import InvalidRequest
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.tensor import Tensor

X = Tensor("x", "FP32", [1])


@pytest.mark.parametrize(
    ("values", "count", "expected"),
    [
        ([[0.5, 3.3, -1]], 2, ["3.300000:1", "0.500000:0"]),
        ([[1, 1, 1]], 2, ["1.000000:0", "1.000000:1"]),
        ([[1, 2], [4, 3]], 1, ["2.000000:1", "4.000000:0"]),
        ([[1, 2]], 9, ["2.000000:1", "1.000000:0"]),
        ([[np.nan, -np.inf, np.inf, 0]], 3, ["inf:2", "0.000000:3", "nan:0"]),
        ([[]], 3, []),
    ],
)
def test_the_largest_comes_first(
    values: list[list[float]], count: int, expected: list[str]
) -> None:
    assert [text.decode() for text in classes_of(np.array(values, "<f8"), count)] == expected


def test_whole_numbers_are_written_as_such() -> None:
    largest = np.array([[1, (1 << 64) - 1]], "<u8")
    assert classes_of(largest, 2) == [b"18446744073709551615:1", b"1:0"]
    assert classes_of(np.array([[-128, 127]], "i1"), 1) == [b"127:1"]


@given(
    hnp.arrays(st.sampled_from(["<i4", "<f4", "u1"]), hnp.array_shapes(min_dims=2, max_dims=2)),
    st.integers(1, 8),
)
def test_it_is_a_stable_sort_from_above(values: NDArray[Any], count: int) -> None:
    values = np.nan_to_num(values)
    expected = [
        index
        for row in values.tolist()
        for index, _ in sorted(enumerate(row), key=lambda pair: -pair[1])[:count]
    ]
    found = [int(text.partition(b":")[2]) for text in classes_of(values, count)]
    assert found == expected


def answered(
    model: ModelSpec, values: Any, parameters: dict[str, Any], parts: int = 1
) -> tuple[InferResponse, dict[str, Any]]:
    """The answer to one request for the model's one output, and that output in its text."""
    (output,) = model.outputs
    codec = V2Model(model)
    rows = len(values) if model.batched else 1
    shape = [rows, 1] if model.batched else [1]
    entry = {"name": "x", "shape": shape, "datatype": "FP32", "data": [0] * rows}
    wanted = [{"name": output.name, "parameters": parameters}]
    _, requested = codec.requests.parse(
        json.dumps({"inputs": [entry], "outputs": wanted}).encode(), None
    )
    step = rows // parts
    results = [values[at : at + step] for at in range(0, rows, step)]
    if not model.batched:
        results = [[values]]
    answer = codec.answers.render(
        [(len(part), memoryview(pack([output], [part])[0])) for part in results], requested, "b"
    )
    headers = dict(answer.headers)
    text = answer.body[: int(headers.get("inference-header-content-length", len(answer.body)))]
    return answer, json.loads(text)["outputs"][0]


FLOATS = spec(0, [X], [Tensor("y", "FP32", [2, 2])])
OPEN = spec(0, [X], [Tensor("y", "INT32", [-1])])
ALONE = spec(0, [X], [Tensor("y", "FP64", [3])], max_batch_size=0)
VALUES = [[[1, 4], [3, 2]], [[9, 8], [7, 6.5]]]


@pytest.mark.parametrize("parts", [1, 2])
def test_an_output_becomes_its_best_classes(parts: int) -> None:
    _, output = answered(FLOATS, VALUES, {"classification": 2}, parts)
    assert output == {
        "name": "y",
        "datatype": "BYTES",
        "shape": [2, 2],
        "data": ["4.000000:1", "3.000000:2", "9.000000:0", "8.000000:1"],
    }


def test_they_are_sent_as_bytes_too() -> None:
    answer, output = answered(FLOATS, VALUES, {"classification": 1, "binary_data": True})
    size = output["parameters"]["binary_data_size"]
    data = answer.body[-size:]
    found = [data[a:b] for a, b in elements(data, 0, size, 2)]
    assert (output["datatype"], output["shape"]) == ("BYTES", [2, 1])
    assert found == [b"4.000000:1", b"9.000000:0"]


def test_an_instance_may_have_fewer_classes_than_are_wanted() -> None:
    _, output = answered(OPEN, [[5, 7]], {"classification": 10})
    assert (output["shape"], output["data"]) == ([1, 2], ["7:1", "5:0"])


def test_a_model_without_a_batch_dimension_has_one_list_of_classes() -> None:
    _, output = answered(ALONE, [1, 3, 2], {"classification": 2})
    assert (output["shape"], output["data"]) == ([2], ["3.000000:1", "2.000000:2"])


LABELS = ["ant", "bee: striped", "cat"]


def test_elements_have_the_labels_that_the_model_gives_them() -> None:
    named = spec(0, [X], [Tensor("y", "FP32", [3], LABELS)])
    _, output = answered(named, [[1, 3, 2], [9, 0, 0]], {"classification": 2})
    assert output["data"] == [
        "3.000000:1:bee: striped",
        "2.000000:2:cat",
        "9.000000:0:ant",
        "0.000000:1:bee: striped",
    ]
    some = spec(0, [X], [Tensor("y", "INT32", [-1], LABELS)])
    _, output = answered(some, [[1, 2, 3, 4]], {"classification": 2})
    assert output["data"] == ["4:3", "3:2:cat"]


def test_0_wants_the_output_itself() -> None:
    _, output = answered(OPEN, [[5, 7]], {"classification": 0})
    assert (output["datatype"], output["data"]) == ("INT32", [5, 7])


@pytest.mark.parametrize("count", [-1, 1.5, True, "3", 1 << 31])
def test_a_count_that_is_none_is_refused(count: Any) -> None:
    with pytest.raises(InvalidRequest, match='parameter "classification" is '):
        answered(OPEN, [[1]], {"classification": count})


@pytest.mark.parametrize("datatype", ["BYTES", "BOOL", "FP16", "BF16"])
def test_a_datatype_without_classes_is_refused(datatype: str) -> None:
    model = spec(0, [X], [Tensor("y", datatype, [2])])
    with pytest.raises(InvalidRequest, match=f"is {datatype}, which has no classes"):
        answered(model, [[1, 1]], {"classification": 1, "binary_data": True})
