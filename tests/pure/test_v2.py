"""The V2 codec: bodies of requests to slots, results in slots to bodies of responses."""

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from segment_fixture import pack, spec, unpack

from ringbatch.frontend.codec.outcome import NotSupported
from ringbatch.frontend.v1.protocol import V1Model
from ringbatch.frontend.v2.answer import InferAnswers, OneAnswer
from ringbatch.frontend.v2.protocol import InferResponse, Request, V2Model
from ringbatch.frontend.v2.requested_outputs import RequestedOutput, RequestedOutputs
from ringbatch.shm.errors import InvalidRequest, ModelFailed
from ringbatch.shm.tensor import DATATYPES, Tensor

BATCH_ID = "123e4567-e89b-42d3-a456-426614174000"
ONE_TWO = bytes.fromhex("0000803f00000040")
TWO_THREE = bytes.fromhex("0000004000004040")


def codec(
    inputs: Sequence[Tensor], outputs: Sequence[Tensor] = (), *, name: str = "m", cap: int = 32
) -> V2Model:
    """Of a model with these inputs; without outputs, the same."""
    return V2Model(spec(0, inputs, outputs or inputs, name=name, max_batch_size=cap))


X, Y = Tensor("x", "FP32", [2]), Tensor("y", "FP32", [2])
ADDONE = codec([X], [Y], name="addone")
ECHO = codec([Tensor("s", "BYTES", [])], name="echo")
HALF = codec([Tensor("h", "FP16", [2])], name="half")
MATRIX = codec([Tensor("x", "INT32", [2, 2])])
OPEN = codec([Tensor("x", "INT64", [-1, 2])])
PAIR = codec(
    [Tensor("a", "INT64", []), Tensor("b", "BYTES", [-1])],
    [Tensor("p", "INT64", []), Tensor("q", "BYTES", [-1])],
    cap=2,
)
FLAGS = codec([Tensor("f", "BOOL", [2])])


def payload(request: Request) -> bytes:
    (part,) = request.parts
    return bytes(part.payload)


def rendered(model: V2Model, request: Request, *results: bytes) -> InferResponse:
    parts = [
        (part.rows, memoryview(result)) for part, result in zip(request.parts, results, strict=True)
    ]
    return model.answers.render(parts, request.requested, BATCH_ID)


def binary_answer(text: bytes, data: bytes) -> tuple[bytes, dict[str, str]]:
    return text + data, {
        "content-type": "application/octet-stream",
        "inference-header-content-length": str(len(text)),
        "x-batch-id": BATCH_ID,
    }


def json_answer(text: bytes) -> tuple[bytes, dict[str, str]]:
    return text, {"content-type": "application/json", "x-batch-id": BATCH_ID}


T7 = b'{"id":"42","inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[[1.0,2.0]]}]}'
T8 = (
    b'{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","parameters":{"binary_data_size":8}}],'
    b'"parameters":{"binary_data_output":true}}'
)
T8_ANSWER = binary_answer(
    b'{"model_name":"addone","model_version":"1","outputs":[{"name":"y","datatype":"FP32",'
    b'"shape":[1,2],"parameters":{"binary_data_size":8}}]}',
    TWO_THREE,
)
T9 = (
    b'{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","parameters":{"binary_data_size":8}}],'
    b'"outputs":[{"name":"y","parameters":{"binary_data":false}}]}'
)
T11 = (
    b'{"inputs":[{"name":"s","shape":[3],"datatype":"BYTES","parameters":{"binary_data_size":16}}]}'
)
STRINGS = bytes.fromhex("0200000061620000000002000000c3a9")
T12 = (
    b'{"inputs":[{"name":"h","shape":[1,2],"datatype":"FP16","parameters":{"binary_data_size":4}}],'
    b'"parameters":{"binary_data_output":true}}'
)


# The vectors of the protocol


class Vector(NamedTuple):
    model: V2Model
    body: bytes
    json_bytes: int | None
    payload: bytes
    result: bytes
    answer: tuple[bytes, dict[str, str]]


T7_ANSWER = json_answer(
    b'{"id":"42","model_name":"addone","model_version":"1","outputs":[{"name":"y",'
    b'"datatype":"FP32","shape":[1,2],"data":[2.0,3.0]}]}'
)
VECTORS = {
    "json": Vector(ADDONE, T7, None, ONE_TWO, TWO_THREE, T7_ANSWER),
    "flat": Vector(
        ADDONE, T7.replace(b"[[1.0,2.0]]", b"[1,2]"), None, ONE_TWO, TWO_THREE, T7_ANSWER
    ),
    "json-of-known-length": Vector(ADDONE, T7, len(T7), ONE_TWO, TWO_THREE, T7_ANSWER),
    "binary": Vector(ADDONE, T8 + ONE_TWO, 134, ONE_TWO, TWO_THREE, T8_ANSWER),
    "binary-to-json": Vector(
        ADDONE,
        T9 + ONE_TWO,
        153,
        ONE_TWO,
        TWO_THREE,
        json_answer(
            b'{"model_name":"addone","model_version":"1","outputs":[{"name":"y",'
            b'"datatype":"FP32","shape":[1,2],"data":[2.0,3.0]}]}'
        ),
    ),
    "raw": Vector(ADDONE, ONE_TWO, 0, ONE_TWO, TWO_THREE, T8_ANSWER),
    "strings": Vector(
        ECHO,
        T11 + STRINGS,
        93,
        len(STRINGS).to_bytes(8, "little").ljust(64, b"\0") + STRINGS,
        len(STRINGS).to_bytes(8, "little").ljust(64, b"\0") + STRINGS,
        json_answer(
            '{"model_name":"echo","model_version":"1","outputs":[{"name":"s","datatype":"BYTES",'
            '"shape":[3],"data":["ab","","é"]}]}'.encode()
        ),
    ),
    "half": Vector(
        HALF,
        T12 + bytes.fromhex("003c00c0"),
        134,
        bytes.fromhex("003c00c0"),
        bytes.fromhex("003c00c0"),
        binary_answer(
            b'{"model_name":"half","model_version":"1","outputs":[{"name":"h","datatype":"FP16",'
            b'"shape":[1,2],"parameters":{"binary_data_size":4}}]}',
            bytes.fromhex("003c00c0"),
        ),
    ),
}


@pytest.mark.parametrize("kind", [bytes, bytearray])
@pytest.mark.parametrize("vector", VECTORS.values(), ids=VECTORS)
def test_a_vector_of_the_protocol_holds_byte_for_byte(
    vector: Vector, kind: type[bytes] | type[bytearray]
) -> None:
    for _ in range(2):  # a text seen before is not read again
        request = vector.model.requests.parse(kind(vector.body), vector.json_bytes)
        assert payload(request) == vector.payload
        body, headers = rendered(vector.model, request, vector.result)
        assert (body, dict(headers)) == vector.answer


def test_the_vectors_have_the_lengths_that_the_protocol_gives_them() -> None:
    assert [len(text) for text in (T7, T8, T9, T11, T12)] == [86, 134, 153, 93, 134]
    assert len(T7_ANSWER[0]) == 127
    assert T8_ANSWER[1]["inference-header-content-length"] == "136"


def test_fp32_is_written_as_the_double_it_is() -> None:
    request = ADDONE.requests.parse(T7, None)
    result = np.array([1.1, 1e20], "<f4").tobytes()
    assert (
        b'"data":[1.100000023841858,1.0000000200408773e+20]'
        in rendered(ADDONE, request, result).body
    )


# Round trips


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
    """Of any number of elements, with NaN among them, and with and without an id."""
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
    """One way for a list, another for an array: the text is the same."""
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


# What is read


@pytest.mark.parametrize(
    ("model", "data", "values"),
    [
        (MATRIX, "[1,2,3,4]", [1, 2, 3, 4]),
        (MATRIX, "[[1,2],[3,4]]", [1, 2, 3, 4]),
        (MATRIX, "[[[1,2],[3,4]]]", [1, 2, 3, 4]),
        (MATRIX, "[[[[1]],[[2]],[[3]],[[4]]]]", [1, 2, 3, 4]),
        (MATRIX, "[[1,2,3],[4]]", [1, 2, 3, 4]),
        (MATRIX, "[[],[1,2,3,4]]", [1, 2, 3, 4]),
        (MATRIX, "[-2147483648,2147483647,0,-0]", [-(1 << 31), (1 << 31) - 1, 0, 0]),
    ],
)
def test_data_may_be_nested_in_any_way(model: V2Model, data: str, values: list[int]) -> None:
    body = f'{{"inputs":[{{"name":"x","shape":[1,2,2],"datatype":"INT32","data":{data}}}]}}'
    assert payload(model.requests.parse(body.encode(), None)) == np.array(values, "<i4").tobytes()


def test_several_rows_of_a_vector_may_be_nested_or_flat() -> None:
    for data in ("[[1,2],[3,4]]", "[1,2,3,4]", "[[1,2,3],[4]]", "[[[1,2]],[[3,4]]]"):
        body = f'{{"inputs":[{{"name":"x","shape":[2,2],"datatype":"FP32","data":{data}}}]}}'
        assert (
            payload(ADDONE.requests.parse(body.encode(), None))
            == np.arange(1, 5, dtype="<f4").tobytes()
        )


def test_large_integers_stay_exact() -> None:
    numbers = [(1 << 63) - 1, -(1 << 63), (1 << 53) + 1, 0]
    body = f'{{"inputs":[{{"name":"x","shape":[1,2,2],"datatype":"INT64","data":{numbers}}}]}}'
    (array,) = unpack(
        [Tensor("x", "INT64", [-1, 2])], 1, payload(OPEN.requests.parse(body.encode(), None))
    )
    assert array.reshape(-1).tolist() == numbers


def test_any_byte_but_0_is_true() -> None:
    text = (
        b'{"inputs":[{"name":"f","shape":[1,2],"datatype":"BOOL",'
        b'"parameters":{"binary_data_size":2}}]}'
    )
    assert payload(FLAGS.requests.parse(text + b"\x02\x00", len(text))) == b"\x01\x00"
    request = FLAGS.requests.parse(text + b"\x00\x01", len(text))
    assert payload(request) == b"\x00\x01"
    assert b'"data":[false,true]' in rendered(FLAGS, request, b"\x00\x01").body


@pytest.mark.parametrize(
    ("tensor", "body", "shape"),
    [
        (Tensor("x", "FP32", [2]), bytes(8), (1, 2)),
        (Tensor("x", "FP32", []), bytes(4), (1,)),
        (Tensor("x", "INT16", [-1, 3]), bytes(12), (1, 2, 3)),
        (Tensor("x", "INT16", [-1]), b"", (1, 0)),
        (Tensor("x", "BYTES", [1]), b"any \xff thing", (1, 1)),
        (Tensor("x", "BYTES", []), b"", (1,)),
        (Tensor("x", "BYTES", [-1]), b"abc", (1, 1)),
    ],
)
def test_a_raw_body_is_one_instance(tensor: Tensor, body: bytes, shape: tuple[int, ...]) -> None:
    request = codec([tensor]).requests.parse(body, 0)
    (array,) = unpack([tensor], 1, payload(request))
    assert array.shape == shape
    if tensor.datatype.name == "BYTES":
        assert array.reshape(-1).tolist() == [body]
    else:
        assert array.tobytes() == body
    assert [output.binary for output in request.requested.outputs] == [True]


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


def test_a_request_without_instances_has_an_answer_at_once() -> None:
    body = b'{"inputs":[{"name":"x","shape":[0,2],"datatype":"FP32","data":[]}]}'
    request = ADDONE.requests.parse(body, None)
    assert request.parts == ()
    answer = ADDONE.answers.render((), request.requested, "")
    assert answer == (
        b'{"model_name":"addone","model_version":"1","outputs":[{"name":"y","datatype":"FP32",'
        b'"shape":[0,2],"data":[]}]}',
        (("content-type", "application/json"),),
    )


def test_an_empty_binary_output_has_no_header() -> None:
    model = codec([Tensor("x", "FP32", [-1])])
    text = (
        b'{"inputs":[{"name":"x","shape":[1,0],"datatype":"FP32",'
        b'"parameters":{"binary_data_size":0}}],"parameters":{"binary_data_output":true}}'
    )
    request = model.requests.parse(text, len(text))
    answer = rendered(model, request, payload(request))
    assert b'"shape":[1,0],"parameters":{"binary_data_size":0}' in answer.body
    assert dict(answer.headers) == json_answer(b"")[1]


@pytest.mark.parametrize(
    ("outputs", "parameters", "wanted"),
    [
        (None, {}, [(0, False), (1, False)]),
        ([], {}, [(0, False), (1, False)]),
        (None, {"binary_data_output": True}, [(0, True), (1, True)]),
        ([{"name": "q"}], {}, [(1, False)]),
        ([{"name": "q"}, {"name": "p"}], {"binary_data_output": True}, [(1, True), (0, True)]),
        (
            [{"name": "p", "parameters": {"binary_data": False}}, {"name": "q"}],
            {"binary_data_output": True},
            [(0, False), (1, True)],
        ),
        ([{"name": "p", "parameters": {"binary_data": True}}], {}, [(0, True)]),
        (
            [{"name": "p", "parameters": {"classification": 0}}],
            {"priority": 3, "sequence_id": 0, "sequence_start": False, "mine": 1.5},
            [(0, False)],
        ),
    ],
)
def test_outputs_are_as_they_are_asked_for(
    outputs: Any, parameters: Any, wanted: list[tuple[int, bool]]
) -> None:
    request = {"inputs": pair(), "outputs": outputs, "parameters": parameters, "other": None}
    requested = PAIR.requests.parse(json.dumps(request).encode(), None).requested
    assert [(output.output, output.binary) for output in requested.outputs] == wanted


def test_an_id_is_the_requests_own_whatever_came_before() -> None:
    model = codec([X], [Y])
    rest = T8[1:]
    twice = rest[:-1] + b',"id":"last"}'
    hidden = rest[:-1] + b',"i\\u0064":"last"}'
    for _ in range(2):
        for opening, tail, expected in (
            (b'{"id":"a",', rest, b'"id":"a",'),
            (b'{"id":"b",', rest, b'"id":"b",'),
            (b'{"id": "c c", ', rest, b'"id":"c c",'),
            (b'{"id":"",', rest, b'"id":"",'),
            (b'{"id":"\xc3\xa9",', rest, '"id":"é",'.encode()),
            (b'{"id":"\\"",', rest, b'"id":"\\"",'),
            (b"{", rest, b""),
            (b'{"id":"a",', twice, b'"id":"last",'),
            (b'{"id":"b",', twice, b'"id":"last",'),
            (b'{"id":"a",', hidden, b'"id":"last",'),
            (b'{"id":"b",', hidden, b'"id":"last",'),
        ):
            text = opening + tail
            assert model.requests.parse(text + ONE_TWO, len(text)).requested.id == expected
        for opening in (b'{"id":"a\n",', b'{"id":"\xff",', b'{"id":"a",,', b'{"id":5,'):
            text = opening + rest
            with pytest.raises(InvalidRequest):
                model.requests.parse(text + ONE_TWO, len(text))


def test_a_timeout_is_in_microseconds() -> None:
    request = {"inputs": pair(), "parameters": {"timeout": 1500}}
    assert PAIR.requests.parse(json.dumps(request).encode(), None).requested.timeout_ns == 1_500_000


def pair(**changes: Any) -> list[dict[str, Any]]:
    first = {"name": "a", "shape": [1], "datatype": "INT64", "data": [1]} | changes
    return [first, {"name": "b", "shape": [1, 1], "datatype": "BYTES", "data": ["x"]}]


# What is refused


def refusal(
    model: V2Model,
    body: bytes,
    json_bytes: int | None = None,
    kind: type[Exception] = InvalidRequest,
) -> str:
    with pytest.raises(kind) as refused:
        model.requests.parse(body, json_bytes)
    return str(refused.value)


def x(**changes: Any) -> bytes:
    """A request to `addone`, with some members of its input changed or, where None, left out."""
    entry = {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]} | changes
    return json.dumps({"inputs": [{k: v for k, v in entry.items() if v is not None}]}).encode()


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "the request is no JSON: it is empty"),
        (b"nope", "the request is no JSON"),
        (b"\xff", "byte 0 is not UTF-8"),
        (b"[1]", "the request is a list, not an object"),
        (b"7", "the request is 7, not an object"),
        (b'"x"', 'the request is "x", not an object'),
        (b"{}", "the request lacks `inputs`"),
        (b'{"inputs":{}}', "has an object as `inputs`"),
        (b'{"inputs":[]}', 'lacks input "x"; model "addone" takes "x"'),
        (b'{"inputs":[5]}', "inputs[0] is 5, not an object"),
        (x(name=None), "inputs[0] lacks its name"),
        (x(name=5), "inputs[0] has 5 as its name"),
        (x(name="z"), 'inputs[0] is "z", but model "addone" takes "x"'),
        (b'{"inputs":[%b,%b]}' % ((x()[12:-2],) * 2), 'input "x" stands in the request twice'),
        (x(datatype=None), 'input "x" has no datatype'),
        (x(datatype="FP64"), 'input "x" is FP64, but model "addone" takes FP32 of shape [-1, 2]'),
        (x(datatype="fp32"), 'has datatype "fp32", which there is not'),
        (x(datatype=5), "has datatype 5, which there is not"),
        (x(shape=None), 'input "x" has no shape'),
        (x(shape=2), "has 2 as its shape"),
        (x(shape=[1, 2.0]), "a shape is a list of whole numbers"),
        (x(shape=[True, 2]), "a shape is a list of whole numbers"),
        (x(shape=["1", 2]), 'has ["1", 2] as its shape; a shape is a list of whole numbers'),
        (x(shape=["1" * 5000] * 5000), '1"..., ...] as its shape; a shape is'),
        (x(shape=[]), 'has shape [], but model "addone" takes FP32 of shape [-1, 2]'),
        (x(shape=[2]), "has shape [2], but"),
        (x(shape=[1, 2, 1]), "has shape [1, 2, 1], but"),
        (x(shape=[1, 3], data=[1, 2, 3]), "has shape [1, 3], but"),
        (x(shape=[1, -2]), "has shape [1, -2], but"),
        (x(shape=[-1, 2]), "has shape [-1, 2], but"),
        (x(shape=[1 << 43, 2]), "has shape [8796093022208, 2], which is too large"),
        (x(shape=[1 << 63, 2]), "which is too large"),
        (x(data=None), "neither data nor a binary_data_size"),
        (x(data=5), "has 5; its values are a list"),
        (x(data="ab"), 'has "ab"; its values are a list'),
        (x(data={"a": 1}), "has an object; its values are a list"),
        (x(data=[1]), 'input "x" has 1 elements, but shape [1, 2] has 2'),
        (x(data=[1, 2, 3]), "has 3 elements, but shape [1, 2] has 2"),
        (x(data=[[1, 2], [3, 4]]), "has 4 elements, but shape [1, 2] has 2"),
        (x(shape=[2, 2], data=[[1, 2]]), "has 2 elements, but shape [2, 2] has 4"),
        (x(data=[[1], 2]), "has lists and single values side by side"),
        (x(data=[1, [2]]), "data[1] is a list, but"),
        (x(data=[1, "a"]), 'data[1] is "a", but input "x" of model "addone" takes FP32'),
        (x(data=[[1, "2"]]), 'data[1] is "2", but'),
        (x(data=[1, None]), "data[1] is null, but"),
        (x(data=[True, 2]), "data[0] is true, but"),
        (x(data=[1, {}]), "data[1] is an object, but"),
        (x(data=[1, 1e300]), "data[1] is 1e+300, but"),
        (x().replace(b"[1, 2]}", b"[1, NaN]}"), "NaN is no JSON number"),
        (x(parameters=[]), 'the parameters of input "x" are a list, not an object'),
        (x(parameters={"a": None}), 'parameter "a" of input "x" is null'),
        (x(parameters={"a": [1]}), 'parameter "a" of input "x" is a list'),
        (x(parameters={"binary_data_size": 8}), "has both data and a binary_data_size"),
        (x(data=None, parameters={"binary_data_size": 8}), "says that 8 bytes of binary data"),
        (x(data=None, parameters={"binary_data_size": -8}), "is -8, not a whole number"),
        (x(data=None, parameters={"binary_data_size": 8.0}), "is 8.0, not a whole number"),
        (x(data=None, parameters={"binary_data_size": "8"}), 'is "8", not a whole number'),
        (x(data=None, parameters={"binary_data_size": True}), "is true, not a whole number"),
        (x(data=None, parameters={"binary_data_size": 12}), "of shape [1, 2] takes 8"),
    ],
)
def test_a_request_that_is_none_is_refused_in_words(body: bytes, text: str) -> None:
    found = refusal(ADDONE, body)
    assert text in found
    assert len(found) < 1000


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ({"id": 5}, "the request's id is 5, not a string"),
        ({"parameters": 5}, "the parameters of the request are 5, not an object"),
        ({"parameters": {"a": {}}}, 'parameter "a" of the request is an object'),
        ({"parameters": {"triton_x": 1}}, 'parameter "triton_x" is reserved'),
        ({"parameters": {"headers": "x"}}, 'parameter "headers" is reserved'),
        ({"parameters": {"binary_data_output": 1}}, '"binary_data_output" is 1, not true or'),
        ({"parameters": {"sequence_id": 7}}, "no model here keeps sequences"),
        ({"parameters": {"sequence_start": 1}}, '"sequence_start" is 1, not true or false'),
        ({"parameters": {"priority": -1}}, '"priority" is -1, not a whole number'),
        ({"parameters": {"timeout": 1.5}}, '"timeout" is 1.5, not a whole number'),
        ({"parameters": {"timeout": True}}, '"timeout" is true, not a whole number'),
        ({"outputs": {}}, "`outputs` is an object, not a list"),
        ({"outputs": ["y"]}, 'outputs[0] is "y", not an object'),
        ({"outputs": [{}]}, "outputs[0] lacks its name"),
        ({"outputs": [{"name": 1}]}, "outputs[0] has 1 as its name"),
        ({"outputs": [{"name": "x"}]}, 'outputs[0] is "x", but model "addone" gives "y"'),
        ({"outputs": [{"name": "y"}] * 2}, 'output "y" is wanted twice'),
        ({"outputs": [{"name": "y", "parameters": 1}]}, 'parameters of output "y" are 1'),
        (
            {"outputs": [{"name": "y", "parameters": {"binary_data": "yes"}}]},
            '"binary_data" is "yes", not true or false',
        ),
    ],
)
def test_wrong_members_beside_the_inputs_are_refused_in_words(
    members: dict[str, Any], text: str
) -> None:
    body = json.dumps(json.loads(x()) | members).encode()
    assert text in refusal(ADDONE, body)


@pytest.mark.parametrize(
    ("entry", "members", "text"),
    [
        ({"parameters": {"shared_memory_region": "r"}}, {}, "is switched off here"),
        (
            {},
            {"outputs": [{"name": "y", "parameters": {"shared_memory_region": "r"}}]},
            "is switched off here",
        ),
    ],
)
def test_what_is_not_served_is_said_so(
    entry: dict[str, Any], members: dict[str, Any], text: str
) -> None:
    body = json.dumps(json.loads(x(**entry)) | members).encode()
    assert text in refusal(ADDONE, body, kind=NotSupported)


@pytest.mark.parametrize(
    ("body", "json_bytes", "text"),
    [
        (T8 + ONE_TWO[:-1], 134, "7 bytes follow the JSON text, but its inputs say 8"),
        (T8 + ONE_TWO + b"x", 134, "9 bytes follow the JSON text, but its inputs say 8"),
        (T8 + ONE_TWO, 143, "is 143, but the body has 142 bytes"),
        (T8 + ONE_TWO, None, "the request is no JSON"),
        (T8 + ONE_TWO, 133, "the request is no JSON"),
        (T8, None, "says that 8 bytes of binary data follow"),
        (T8.replace(b":8}", b":12}") + bytes(12), 135, "of shape [1, 2] takes 8"),
        (T8.replace(b"[1,2]", b"[1,3]") + bytes(12), 134, "has shape [1, 3], but"),
        (T8.replace(b"FP32", b"FP64") + bytes(16), 134, "is FP64, but"),
        (ONE_TWO + b"x", 0, "the body has 9 bytes, but"),
        (b"", 0, "the body has 0 bytes, but"),
    ],
)
def test_wrong_lengths_are_refused_in_words(body: bytes, json_bytes: int | None, text: str) -> None:
    for _ in range(2):
        assert text in refusal(ADDONE, body, json_bytes)


@pytest.mark.parametrize(
    ("data", "shape", "text"),
    [
        (STRINGS, [2], "it has 6 bytes more than its 2 elements take"),
        (STRINGS, [4], "its bytes end before element 3 of 4"),
        (STRINGS[:-6] + b"\3" + STRINGS[-5:], [3], "element 2 is said to be longer"),
        (b"\xff\xff\xff\xff" + STRINGS[4:], [3], "element 0 is said to be longer"),
        (STRINGS[:3] + bytes(13), [1], "it has 10 bytes more"),
        (bytes(16), [3], "it has 4 bytes more"),
    ],
)
def test_lengths_of_strings_that_lie_are_refused(data: bytes, shape: list[int], text: str) -> None:
    body = T11.replace(b"[3]", json.dumps(shape).encode()) + data
    assert text in refusal(ECHO, body, 93)


@pytest.mark.parametrize("value", [5, None, True, ["a"], {"b64": "YQ=="}])
def test_strings_are_nothing_but_strings(value: Any) -> None:
    body = {"inputs": [{"name": "s", "shape": [2], "datatype": "BYTES", "data": ["a", value]}]}
    assert "data[1] is" in refusal(ECHO, json.dumps(body).encode())


@pytest.mark.parametrize("value", [2, "true", None, 0, 1.0])
def test_booleans_are_nothing_but_booleans(value: Any) -> None:
    body = {"inputs": [{"name": "f", "shape": [1, 2], "datatype": "BOOL", "data": [True, value]}]}
    assert "data[1] is" in refusal(FLAGS, json.dumps(body).encode())


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("UINT8", [256, -1, 1.0, 1.5, "1", True]),
        ("INT8", [128, -129]),
        ("INT32", [1 << 31]),
        ("UINT64", [-1, 1 << 64]),
        ("INT64", [1 << 63, 1e3]),
        ("FP32", [1e39]),
    ],
)
def test_numbers_beyond_a_datatype_are_refused(name: str, values: list[Any]) -> None:
    model = codec([Tensor("x", name, [])])
    for value in values:
        entry = {"name": "x", "shape": [1], "datatype": name, "data": [value]}
        assert "data[0] is" in refusal(model, json.dumps({"inputs": [entry]}).encode())


def test_half_precision_is_no_json_in_either_direction() -> None:
    as_json = b'{"inputs":[{"name":"h","shape":[1,2],"datatype":"FP16","data":[1,-2]}]}'
    assert 'input "h" is FP16, which V2 does not carry as JSON' in refusal(HALF, as_json)
    text = T12.replace(b"true", b"false")
    assert 'output "h" is FP16' in refusal(HALF, text + bytes(4), len(text))
    listed_output = json.dumps(
        json.loads(T12) | {"parameters": {}, "outputs": [{"name": "h"}]}
    ).encode()
    assert 'output "h" is FP16' in refusal(HALF, listed_output + bytes(4), len(listed_output))


def test_inputs_that_differ_in_their_rows_are_refused() -> None:
    body = {"inputs": pair(shape=[2], data=[1, 2])}
    assert "the first sizes of the shapes differ: 2, 1" in refusal(PAIR, json.dumps(body).encode())


def test_a_missing_input_is_named() -> None:
    body = {"inputs": pair()[:1]}
    assert 'lacks input "b"; model "m" takes "a", "b"' in refusal(PAIR, json.dumps(body).encode())


def test_no_instances_are_refused_where_the_answer_would_have_no_shape() -> None:
    body = b'{"inputs":[{"name":"x","shape":[0,1,2],"datatype":"INT64","data":[]}]}'
    assert "no instances" in refusal(OPEN, body)


def test_instances_that_cost_nothing_are_no_way_to_ask_for_endless_work() -> None:
    body = b'{"inputs":[{"name":"x","shape":[%d,0,2],"datatype":"INT64","data":[]}]}'
    assert "instances without any element" in refusal(OPEN, body % (1 << 40))
    assert len(OPEN.requests.parse(body % 32, None).parts) == 1
    beside_a_zero = b'{"inputs":[{"name":"x","shape":[1,%d,2],"datatype":"INT64","data":[]}]}'
    assert "too large" in refusal(OPEN, beside_a_zero % (1 << 60))


@pytest.mark.parametrize(
    ("tensors", "body", "text"),
    [
        ([Tensor("x", "FP32", [-1, -1])], bytes(8), "gives no shape"),
        ([Tensor("x", "FP32", [-1, 2])], bytes(12), "takes a multiple of 8"),
        ([Tensor("x", "FP32", [-1, 0])], b"", "takes a multiple of 0"),
        ([Tensor("x", "BYTES", [2])], b"ab", "is one string"),
        ([X, Y], bytes(16), "which are 2"),
    ],
)
def test_a_raw_body_must_say_enough(tensors: list[Tensor], body: bytes, text: str) -> None:
    assert text in refusal(codec(tensors), body, 0)


def test_a_model_without_declared_inputs_says_where_to_go() -> None:
    assert "declares no inputs" in refusal(V2Model(spec()), T7)


@given(st.binary(max_size=60), st.none() | st.integers(0, 70))
def test_no_body_does_more_than_be_refused(body: bytes, json_bytes: int | None) -> None:
    for model in (ADDONE, ECHO, HALF, OPEN, PAIR, FLAGS):
        with suppress(InvalidRequest):
            model.requests.parse(body, json_bytes)


@given(st.data())
def test_no_change_of_a_member_does_more_than_be_refused(data: st.DataObject) -> None:
    request = json.loads(T8) | {"outputs": [{"name": "y", "parameters": {"binary_data": True}}]}
    odd = st.sampled_from(
        [None, True, 0, -1, 1.5, "", "x", [], {}, [1], ["x"], [None], {"a": 1}, [[1]], 1 << 70]
    )
    spots: list[tuple[Any, Any]] = []

    def visit(value: Any) -> None:
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            spots.append((value, key))
            if isinstance(value[key], dict | list):
                visit(value[key])

    visit(request)
    for _ in range(data.draw(st.integers(1, 3))):
        owner, key = data.draw(st.sampled_from(spots))
        owner[key] = data.draw(odd)
    text = json.dumps(request).encode()
    for body, json_bytes in ((text + ONE_TWO, len(text)), (text, None)):
        with suppress(InvalidRequest, NotSupported):
            parsed = ADDONE.requests.parse(body, json_bytes)
            assert sum(len(part.payload) for part in parsed.parts) in (0, 8)


# What cannot be written


def test_numbers_that_json_lacks_are_to_be_asked_for_as_bytes() -> None:
    for value in (np.nan, np.inf, -np.inf):
        result = np.array([1, value], "<f4").tobytes()
        with pytest.raises(InvalidRequest, match=r"NaN or Infinity.*ask for binary data"):
            rendered(ADDONE, ADDONE.requests.parse(T7, None), result)
        request = ADDONE.requests.parse(T8 + ONE_TWO, len(T8))
        assert rendered(ADDONE, request, result).body.endswith(result)


def test_strings_that_json_lacks_are_to_be_asked_for_as_bytes() -> None:
    frame, _ = pack([Tensor("s", "BYTES", [])], [np.array([b"\xff", b"", b""], object)])
    request = ECHO.requests.parse(T11 + STRINGS, 93)
    with pytest.raises(InvalidRequest, match=r"not UTF-8.*ask for binary data"):
        rendered(ECHO, request, frame)


@pytest.mark.parametrize("result", [b"", bytes(7), bytes(9), bytes(16)])
def test_a_result_of_another_size_is_the_models_failure(result: bytes) -> None:
    for request in (ADDONE.requests.parse(T7, None), ADDONE.requests.parse(T8 + ONE_TWO, len(T8))):
        with pytest.raises(ModelFailed, match="does not fit"):
            rendered(ADDONE, request, result)


def test_a_string_result_that_lies_is_the_models_failure() -> None:
    words = len(STRINGS).to_bytes(8, "little").ljust(64, b"\0")
    request = ECHO.requests.parse(T11 + STRINGS, 93)
    with pytest.raises(ModelFailed, match="lengths of the strings"):
        rendered(ECHO, request, words + b"\xff" + STRINGS[1:])


def test_parts_that_differ_in_their_open_dimensions_are_the_models_failure() -> None:
    model = codec([X], [Tensor("y", "FP32", [-1])], cap=1)
    body = b'{"inputs":[{"name":"x","shape":[2,2],"datatype":"FP32","data":[1,2,3,4]}]}'
    results = [
        pack([Tensor("y", "FP32", [-1])], [np.zeros((1, size), "<f4")])[0] for size in (1, 2)
    ]
    with pytest.raises(ModelFailed, match="differ in shape"):
        rendered(model, model.requests.parse(body, None), *results)
