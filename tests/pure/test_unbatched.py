"""Models without a batch dimension: requests, answers and documents."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from segment_fixture import pack, spec, unpack

from ringbatch.frontend.falcon.openapi import document
from ringbatch.frontend.v1.protocol import V1Model
from ringbatch.frontend.v2.documents import model_metadata
from ringbatch.frontend.v2.protocol import V2Model
from ringbatch.shm.errors import InvalidRequest
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.tensor import Tensor

BATCH_ID = "123e4567-e89b-42d3-a456-426614174000"


def unbatched(inputs: Sequence[Tensor], outputs: Sequence[Tensor] = ()) -> ModelSpec:
    """Return an unbatched model with these inputs; its outputs are the inputs unless given."""
    return spec(0, inputs, outputs or inputs, max_batch_size=0)


VECTOR = unbatched([Tensor("x", "FP32", [2])])
SCALAR = unbatched([Tensor("n", "INT64", [])])
TEXT = unbatched([Tensor("s", "BYTES", [])])
OPEN = unbatched([Tensor("a", "INT32", [-1, 2]), Tensor("b", "BYTES", [-1])])


def body(*entries: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"inputs": entries, **more}).encode()


def entry(name: str, datatype: str, shape: list[int], data: Any) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape, "data": data}


def test_a_run_takes_one_instance_and_the_metadata_say_no_batch() -> None:
    assert (VECTOR.cap, VECTOR.batched) == (1, False)
    assert model_metadata(OPEN, ["1"])["inputs"] == [
        {"name": "a", "datatype": "INT32", "shape": [-1, 2]},
        {"name": "b", "datatype": "BYTES", "shape": [-1]},
    ]
    (batched,) = model_metadata(spec(0, VECTOR.inputs, VECTOR.outputs), ["1"])["inputs"]
    assert batched["shape"] == [-1, 2]


GOOD = {
    "vector": (VECTOR, [entry("x", "FP32", [2], [1, 2])], [[[1.0, 2.0]]]),
    "scalar": (SCALAR, [entry("n", "INT64", [], [7])], [[7]]),
    "text": (TEXT, [entry("s", "BYTES", [], ["é"])], [["é".encode()]]),
    "open": (
        OPEN,
        [entry("a", "INT32", [2, 2], [[1, 2], [3, 4]]), entry("b", "BYTES", [1], ["t"])],
        [[[[1, 2], [3, 4]]], [[b"t"]]],
    ),
    "open-and-empty": (
        OPEN,
        [entry("a", "INT32", [0, 2], []), entry("b", "BYTES", [0], [])],
        [[[]], [[]]],
    ),
}


@pytest.mark.parametrize("case", GOOD)
def test_a_v2_request_is_one_instance_and_its_answer_has_its_shapes(case: str) -> None:
    model, entries, expected = GOOD[case]
    codec = V2Model(model)
    (part,), requested = codec.requests.parse(body(*entries), None)
    assert part.rows == 1
    assert [t.tolist() for t in unpack(model.inputs, 1, bytes(part.payload))] == expected
    answer = codec.answers.render([(1, memoryview(bytes(part.payload)))], requested, BATCH_ID)
    for output, given_entry in zip(json.loads(answer.body)["outputs"], entries, strict=True):
        assert output["shape"] == given_entry["shape"]
        flat = np.array(given_entry["data"]).reshape(-1).tolist()
        assert output["data"] == flat


def test_binary_and_raw_tensors_are_of_one_instance_too() -> None:
    codec = V2Model(VECTOR)
    data = np.array([1, 2], "<f4").tobytes()
    text = json.dumps(
        {
            "inputs": [
                {
                    "name": "x",
                    "datatype": "FP32",
                    "shape": [2],
                    "parameters": {"binary_data_size": 8},
                }
            ],
            "parameters": {"binary_data_output": True},
        }
    ).encode()
    for sent, json_bytes in ((text + data, len(text)), (data, 0)):
        (part,), requested = codec.requests.parse(sent, json_bytes)
        assert bytes(part.payload) == data
        answer = codec.answers.render([(1, memoryview(data))], requested, BATCH_ID)
        assert answer.body.endswith(b'"shape":[2],"parameters":{"binary_data_size":8}}]}' + data)
    (part,), _ = V2Model(TEXT).requests.parse("é".encode(), 0)
    assert unpack(TEXT.inputs, 1, bytes(part.payload))[0].tolist() == ["é".encode()]


BAD = {
    "a-batch-dimension": (VECTOR, entry("x", "FP32", [1, 2], [1, 2]), "has shape [1, 2], but"),
    "no-dimension": (VECTOR, entry("x", "FP32", [], [1]), "has shape [], but"),
    "another-size": (VECTOR, entry("x", "FP32", [3], [1, 2, 3]), "takes FP32 of shape [2]"),
    "one-for-a-scalar": (SCALAR, entry("n", "INT64", [1], [1]), "takes INT64 of shape []"),
    "too-few": (VECTOR, entry("x", "FP32", [2], [1]), "1 elements, but shape [2] has 2"),
    "too-few-bytes": (
        VECTOR,
        {"name": "x", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 4}},
        "FP32 of shape [2] takes 8",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_misfit_is_refused_in_the_clients_shapes(case: str) -> None:
    model, given_entry, words = BAD[case]
    with pytest.raises(InvalidRequest) as refused:
        V2Model(model).requests.parse(body(given_entry), None)
    assert words in str(refused.value)
    assert "the first is the batch's" not in str(refused.value)


@given(st.lists(st.lists(st.integers(-9, 9), min_size=2, max_size=2), min_size=1, max_size=5))
def test_the_instances_of_v1_run_each_alone_and_are_answered_in_order(
    values: list[list[int]],
) -> None:
    codec = V1Model(VECTOR)
    parts, columns = codec.requests.parse(json.dumps({"instances": values}).encode())
    assert [rows for rows, _, _ in parts] == [1] * len(values)
    results = [(1, memoryview(pack(VECTOR.outputs, [[value]])[0])) for value in values]
    answer = json.loads(codec.answers.render(results, columns, BATCH_ID))
    assert answer["predictions"] == values


def test_the_document_has_the_same_shapes() -> None:
    found = document([VECTOR], "1")
    request = found["components"]["schemas"]["m.V2Request"]["properties"]["inputs"]["items"]
    assert request["properties"]["shape"]["maxItems"] == 1
    content = found["paths"]["/v2/models/m/infer"]["post"]["requestBody"]["content"]
    (example,) = content["application/json"]["example"]["inputs"]
    assert (example["shape"], example["data"]) == ([2], [0.5, 0.5])
