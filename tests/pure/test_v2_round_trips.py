"""Round trips through the V2 codec."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from segment_fixture import pack, spec
from v2_models import PAIR, X, codec, rendered

from ringbatch.frontend.v1.protocol import V1Model
from ringbatch.frontend.v2.answer import InferAnswers, OneAnswer
from ringbatch.frontend.v2.protocol import V2Model
from ringbatch.frontend.v2.requested_outputs import RequestedOutput, RequestedOutputs
from ringbatch.shm.errors import InvalidRequest
from ringbatch.shm.tensor import DATATYPES, Tensor


class Model(NamedTuple):
    tensors: list[Tensor]
    arrays: list[NDArray[Any]]
    cap: int


def element(name: str) -> Any:
    if name == "BYTES":
        return st.text(st.characters(exclude_categories=["Cs"]), max_size=4).map(str.encode)
    dtype = np.dtype("<f4" if name == "BF16" else DATATYPES[name].numpy)
    if name.startswith(("FP", "BF")):
        return hnp.from_dtype(dtype, allow_nan=False, allow_infinity=False)
    return hnp.from_dtype(dtype)


@st.composite
def models(draw: st.DrawFn, names: Sequence[str] = tuple(DATATYPES)) -> Model:
    tensors, arrays = [], []
    rows = draw(st.integers(1, 5))
    for index in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from(names))
        shape = draw(st.lists(st.integers(0, 3), max_size=3))
        declared = [-1 if draw(st.booleans()) else size for size in shape]
        tensors.append(Tensor(f"t{index}", name, declared))
        dtype = {"BYTES": "O", "BF16": "<f4"}.get(name) or DATATYPES[name].numpy
        count = rows * int(np.prod(shape))
        values = draw(st.lists(element(name), min_size=count, max_size=count))
        array: NDArray[Any] = np.empty(count, dtype)
        array[:] = values
        if name == "BF16":  # what its upper half alone can say
            array = (array.view("<u4") >> 16 << 16).view("<f4")
        arrays.append(array.reshape(rows, *shape))
    # An instance without any element does not bound how many there are.
    cap = draw(st.integers(1, 6)) if any(array.size for array in arrays) else rows
    return Model(tensors, arrays, cap)


def raw(tensor: Tensor, array: NDArray[Any]) -> bytes:
    if not tensor.datatype.fixed:
        return b"".join(len(text).to_bytes(4, "little") + text for text in array.reshape(-1))
    if tensor.datatype.name == "BF16":
        return (array.view("<u4") >> 16).astype("<u2").tobytes()
    return array.tobytes()


def described(tensor: Tensor, array: NDArray[Any]) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "shape": list(array.shape),
        "datatype": tensor.datatype.name,
    }


def listed(array: NDArray[Any], *, flat: bool) -> Any:
    values = (array.reshape(-1) if flat else array).tolist()
    return json.loads(json.dumps(values, default=bytes.decode))


def request_of(model: Model, ways: Sequence[str], outputs: Any = None) -> tuple[bytes, int | None]:
    """A request with each tensor as ``flat`` or ``nested`` JSON or ``binary``."""
    entries, data = [], b""
    for tensor, array, way in zip(model.tensors, model.arrays, ways, strict=True):
        entry = described(tensor, array)
        if way == "binary" or tensor.datatype.name in ("FP16", "BF16"):
            data += raw(tensor, array)
            size = len(raw(tensor, array))
            entries.append(entry | {"parameters": {"binary_data_size": size}})
        else:
            entries.append(entry | {"data": listed(array, flat=way == "flat")})
    request = {"inputs": entries, "parameters": {"binary_data_output": True}}
    text = json.dumps(request if outputs is None else request | {"outputs": outputs}).encode()
    return text + data, len(text)


WAYS = st.lists(st.sampled_from(["flat", "nested", "binary"]), min_size=3, max_size=3)


@given(model=models(), ways=WAYS)
def test_tensors_become_the_frames_that_the_engine_reads(model: Model, ways: list[str]) -> None:
    chosen = codec(model.tensors, cap=model.cap)
    request = chosen.requests.parse(*request_of(model, ways[: len(model.tensors)]))
    start = 0
    for part in request.parts:
        rows = [array[start : start + part.rows] for array in model.arrays]
        frame, key_bytes = pack(model.tensors, rows)
        assert (bytes(part.payload), part.key_bytes) == (frame, key_bytes)
        assert part.rows <= model.cap
        start += part.rows
    assert start == len(model.arrays[0])


@given(model=models(), ways=WAYS)
def test_results_become_the_binary_tensors_they_were(model: Model, ways: list[str]) -> None:
    chosen = codec(model.tensors, cap=model.cap)
    request = chosen.requests.parse(*request_of(model, ways[: len(model.tensors)]))
    answer = rendered(chosen, request, *(bytes(part.payload) for part in request.parts))
    headers = dict(answer.headers)
    size = int(headers.get("inference-header-content-length", len(answer.body)))
    outputs = json.loads(answer.body[:size])["outputs"]
    at = size
    for tensor, array, output in zip(model.tensors, model.arrays, outputs, strict=True):
        end = at + output["parameters"]["binary_data_size"]
        assert answer.body[at:end] == raw(tensor, array)
        assert {key: output[key] for key in ("name", "shape", "datatype")} == described(
            tensor, array
        )
        at = end
    assert at == len(answer.body)
    assert ("inference-header-content-length" in headers) == (at > size)


@given(model=models(sorted(set(DATATYPES) - {"FP16", "BF16"})), ways=WAYS)
def test_results_become_the_json_they_were(model: Model, ways: list[str]) -> None:
    chosen = codec(model.tensors, cap=model.cap)
    wanted = [
        {"name": tensor.name, "parameters": {"binary_data": False}}
        for tensor in reversed(model.tensors)
    ]
    request = chosen.requests.parse(*request_of(model, ways[: len(model.tensors)], wanted))
    answer = rendered(chosen, request, *(bytes(part.payload) for part in request.parts))
    outputs = json.loads(answer.body)["outputs"]
    assert [output["name"] for output in outputs] == [want["name"] for want in wanted]
    for tensor, array, output in zip(model.tensors, model.arrays, reversed(outputs), strict=True):
        assert output["shape"] == list(array.shape)
        assert output["data"] == listed(array, flat=True)
        if tensor.datatype.name.startswith("FP"):
            assert all(isinstance(value, float) for value in output["data"])


ONE_OUTPUT = [name for name, datatype in DATATYPES.items() if datatype.fixed]


@given(st.data())
def test_an_answer_that_is_written_at_once_is_that_of_the_long_way(data: st.DataObject) -> None:
    """The answer has any number of elements, NaN among them, with and without an id."""
    name = data.draw(st.sampled_from(ONE_OUTPUT))
    shape = data.draw(st.lists(st.sampled_from([1, 2, 3, 16, 50]), max_size=2))
    cap = data.draw(st.sampled_from([0, 4]))
    model = spec(0, [X], [Tensor("y", name, shape)], max_batch_size=cap)
    fast, slow = OneAnswer(model), InferAnswers(model)
    for batch_id in ("a", "a", "b", "b"):
        rows = data.draw(st.integers(1, cap or 1))
        size = rows * int(np.prod(shape)) * DATATYPES[name].size
        some = data.draw(st.binary(min_size=1, max_size=32))
        parts = [(rows, memoryview((some * size)[:size]))]
        binary = data.draw(st.booleans()) or name in ("FP16", "BF16")
        classes = data.draw(st.sampled_from([0, 0, 0, 2])) if name not in ("FP16", "BF16") else 0
        requested = RequestedOutputs(
            data.draw(st.sampled_from([b"", b'"id":"a",'])),
            (RequestedOutput(0, binary, classes),),
            0,
        )
        answers: list[Any] = []
        for answering in (fast, slow):
            try:
                answers.append(answering.render(parts, requested, batch_id))
            except InvalidRequest as error:
                answers.append(str(error))
        assert answers[0] == answers[1]
        if binary and not classes:
            # Neighbours in a batch share headers where they can.
            body, headers = answers[0]
            length = dict(headers)["inference-header-content-length"]
            assert int(length) == len(body) - size


@pytest.mark.parametrize("name", sorted(set(ONE_OUTPUT) - {"FP16", "BF16", "BOOL"}))
def test_few_numbers_are_written_as_many_are(name: str) -> None:
    """Lists and arrays are written in different ways, with the same text."""
    numbers = np.frombuffer(np.random.default_rng(7).bytes(8 * 400), DATATYPES[name].numpy)
    numbers = numbers[np.isfinite(numbers)][:400]
    edges = np.array([0, 1, 100], numbers.dtype)
    if name.startswith("FP"):
        edges = np.array([-0.0, 0.1, 1e16, 1e-7, 123456789, 5e-324, 1e22, 3.4e38], numbers.dtype)
    every = np.concatenate([edges, numbers])

    def written(array: NDArray[Any]) -> bytes:
        model = codec([X], [Tensor("y", name, [array.size])])
        requested = RequestedOutputs(b"", (RequestedOutput(0, binary=False),), 0)
        body = model.answers.render([(1, memoryview(array.tobytes()))], requested, "").body
        return body[body.index(b'"data":[') + 8 : -4]

    assert written(every) == b",".join(written(every[at : at + 1]) for at in range(every.size))


@given(model=models(sorted(set(DATATYPES) - {"FP16", "BF16"})), ways=WAYS)
def test_v1_and_v2_put_the_same_bytes_into_a_slot(model: Model, ways: list[str]) -> None:
    as_spec = spec(0, model.tensors, model.tensors, max_batch_size=model.cap)
    columns = {
        tensor.name: listed(array, flat=False)
        for tensor, array in zip(model.tensors, model.arrays, strict=True)
    }
    v1, _ = V1Model(as_spec).requests.parse(json.dumps({"inputs": columns}).encode())
    v2 = V2Model(as_spec).requests.parse(*request_of(model, ways[: len(model.tensors)]))
    if all(array.size for array in model.arrays):  # nested lists lose the sizes behind a 0
        assert [(p.rows, bytes(p.payload), p.key_bytes) for p in v2.parts] == list(v1)


def test_more_instances_than_a_batch_holds_are_split_and_joined() -> None:
    tensors = [Tensor("a", "INT64", []), Tensor("b", "BYTES", [-1])]
    arrays = [np.arange(5), np.array([[b"x" * i, b"y"] for i in range(5)], object)]
    request = PAIR.requests.parse(*request_of(Model(tensors, arrays, 2), ["flat", "binary"]))
    assert [part.rows for part in request.parts] == [2, 2, 1]
    for index, part in enumerate(request.parts):
        rows = slice(2 * index, 2 * index + 2)
        assert bytes(part.payload) == pack(tensors, [array[rows] for array in arrays])[0]
    answer = rendered(PAIR, request, *(bytes(part.payload) for part in request.parts))
    assert answer.body.endswith(raw(tensors[0], arrays[0]) + raw(tensors[1], arrays[1]))
