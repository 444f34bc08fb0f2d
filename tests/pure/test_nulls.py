"""Nulls and booleans in JSON, for models of tables and for others."""

import json
import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ringbatch.frontend.codec.json_to_tensor import UNFIT, TensorReader
from ringbatch.frontend.v1.request import requests_of
from ringbatch.frontend.v2.protocol import requests_of as requests_of_v2
from ringbatch.shm.errors import InvalidRequest
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.tensor import Tensor

SPEC = ModelSpec(
    index=0,
    name="m",
    platform="xgboost",
    inputs=(Tensor("x", "FP32", [3]),),
    outputs=(Tensor("y", "FP32", []),),
    max_batch_size=4,
    max_latency_ns=1,
    timeout_ns=1,
    policy="eager",
    workers=(0,),
    nulls=True,
)


def payloads(spec: ModelSpec, *instances: Any) -> bytes:
    body = json.dumps({"instances": instances}).encode()
    return b"".join(bytes(part[1]) for part in requests_of(spec).parse(body)[0])


@pytest.mark.parametrize("size", [3, 9])
def test_a_missing_number_is_nan(size: int) -> None:
    spec = replace(SPEC, inputs=(Tensor("x", "FP32", [size]),))
    rows: list[list[Any]] = np.arange(2 * size, dtype=np.float32).reshape(2, size).tolist()
    rows[1][2] = None
    found = np.frombuffer(payloads(spec, *rows), "<f4").reshape(2, size)
    assert np.isnan(found[1, 2])
    assert np.isnan(found).sum() == 1


@pytest.mark.parametrize("bad", ["a", [1.0], {}, 1e300])
def test_a_misfit_beside_a_null_is_still_refused(bad: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"instances\[0\]"):
        payloads(SPEC, [None, bad, 1.0])


def test_a_missing_text_is_an_empty_one() -> None:
    texts = TensorReader(Tensor("x", "BYTES", []), "m", nulls=True)
    assert texts.pack(["a", None], 0) == struct.pack("<I1sI", 1, b"a", 0)


@pytest.mark.parametrize("datatype", ["INT64", "BOOL", "UINT8"])
def test_whole_numbers_and_booleans_are_never_missing(datatype: str) -> None:
    reader = TensorReader(Tensor("x", datatype, []), "m", nulls=True)
    with pytest.raises(UNFIT):
        reader.pack([None], 0)


def test_a_null_is_refused_by_models_that_know_no_missing_values() -> None:
    with pytest.raises(InvalidRequest, match="is null, but"):
        payloads(replace(SPEC, nulls=False), [1.0, None, 3.0])


@pytest.mark.parametrize(
    ("platform", "own", "sent"),
    [("lightgbm", "FP64", "FP32"), ("lightgbm", "FP64", "FP64"), ("sklearn", "FP32", "FP64")],
)
def test_a_number_of_any_datatype_may_miss(platform: str, own: str, sent: str) -> None:
    spec = replace(SPEC, platform=platform, inputs=(Tensor("x", own, [3]),))
    entry = {"name": "x", "datatype": sent, "shape": [1, 3], "data": [1.5, None, 3.0]}
    body = json.dumps({"inputs": [entry]}).encode()
    (part,) = requests_of_v2(spec).parse(body, None).parts
    np.testing.assert_array_equal(
        np.frombuffer(bytes(part.payload), spec.inputs[0].datatype.numpy), [1.5, np.nan, 3.0]
    )
    with pytest.raises(InvalidRequest, match="is null, but"):
        requests_of_v2(replace(spec, nulls=False)).parse(body, None)


def of_v2(spec: ModelSpec, entry: dict[str, Any], binary: bytes = b"") -> Any:
    head = json.dumps({"inputs": [{"name": "x", "shape": [1, 3]} | entry]}).encode()
    (part,) = requests_of_v2(spec).parse(head + binary, len(head) if binary else None).parts
    return np.frombuffer(bytes(part.payload), spec.inputs[0].datatype.numpy).tolist()


@pytest.mark.parametrize("own", ["FP32", "FP64"])
@pytest.mark.parametrize("platform", ["sklearn", "xgboost", "lightgbm", "catboost"])
def test_a_column_of_booleans_is_one_of_numbers(platform: str, own: str) -> None:
    spec = replace(SPEC, platform=platform, inputs=(Tensor("x", own, [3]),))
    wanted = [1.0, 0.0, 1.0]
    found = payloads(spec, [True, False, 1.0])
    assert np.frombuffer(found, spec.inputs[0].datatype.numpy).tolist() == wanted
    assert of_v2(spec, {"datatype": own, "data": [True, False, 1.0]}) == wanted
    assert of_v2(spec, {"datatype": "BOOL", "data": [True, False, True]}) == wanted
    size = {"binary_data_size": 3}
    sent = {"datatype": "BOOL", "parameters": size}
    assert of_v2(spec, sent, b"\x01\x00\x07") == wanted


def test_booleans_are_no_numbers_to_other_models_nor_whole_ones() -> None:
    for spec in (replace(SPEC, nulls=False), replace(SPEC, inputs=(Tensor("x", "INT64", [3]),))):
        with pytest.raises(InvalidRequest, match="is true, but"):
            payloads(spec, [True, 1, 0])
        with pytest.raises(InvalidRequest, match="is BOOL, but"):
            of_v2(spec, {"datatype": "BOOL", "data": [True, False, True]})
