"""The V1 codec: bodies of requests to slots, results in slots to bodies of responses."""

import json
from base64 import b64encode
from math import prod
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from v1_models import PAIR, SCALAR, UNTYPED, VECTOR, codec, refusal, spec

from ringbatch.frontend.codec.outcome import UNREADABLE
from ringbatch.frontend.codec.payload import Part
from ringbatch.frontend.v1.protocol import V1Model
from ringbatch.frontend.v1.request import Parsed
from ringbatch.shm.errors import ModelFailed
from ringbatch.shm.frame import Frame
from ringbatch.shm.tensor import DATATYPES, Tensor

BATCH_ID = "123e4567-e89b-42d3-a456-426614174000"
NUMERIC = sorted(set(DATATYPES) - {"BF16", "BYTES"})


def rendered(
    model: V1Model, *parts: tuple[int, bytes | memoryview], columns: bool = False
) -> bytes:
    return model.answers.render(
        [(rows, memoryview(result)) for rows, result in parts], columns, BATCH_ID
    )


def body(answer: str, key: str = "predictions") -> bytes:
    return f'{{"message":"","batchId":"{BATCH_ID}","{key}":{answer}}}'.encode()


def single(rows: int, payload: bytes, key_bytes: int = 0, columns: bool = False) -> Parsed:
    return (Part(rows, payload, key_bytes),), columns


OPEN = codec(Tensor("x", "FP32", [-1, 2]))
BYTES = codec(Tensor("s", "BYTES", []))


# The vectors of the protocol


def test_values_of_an_untyped_model_pass_as_written() -> None:
    parsed = UNTYPED.requests.parse(b'{"instances":[1,2.5,9007199254740993]}')
    assert parsed == single(3, b"[1,2.5,9007199254740993]")
    answer = rendered(UNTYPED, (3, b"[2,5.0,18014398509481986]"))
    assert answer == body("[2,5.0,18014398509481986]")


@pytest.mark.parametrize("model", [UNTYPED, SCALAR])
def test_an_inputs_list_means_instances(model: V1Model) -> None:
    assert model.requests.parse(b'{"inputs":[3]}') == model.requests.parse(b'{"instances":[3]}')


def test_columns_are_answered_as_outputs() -> None:
    tensors = np.array([1, 2]).tobytes().ljust(64, b"\0") + np.array([10, 20]).tobytes()
    parsed = PAIR.requests.parse(b'{"inputs":{"a":[1,2],"b":[10,20]}}')
    assert parsed == single(2, tensors, columns=True)
    result = np.array([11, 22]).tobytes()
    assert rendered(SCALAR, (2, result), columns=True) == body("[11,22]", "outputs")


@pytest.mark.parametrize("model", [UNTYPED, SCALAR, VECTOR, PAIR])
def test_an_empty_list_has_no_instances(model: V1Model) -> None:
    assert refusal(model, '{"instances":[]}') == "no instances in the request"


@pytest.mark.parametrize("model", [UNTYPED, SCALAR, VECTOR, PAIR])
@pytest.mark.parametrize("text", ['{"instances":5}', "nope"])
def test_a_body_that_kserve_cannot_unmarshal_is_marked_as_unreadable(
    model: V1Model, text: str
) -> None:
    assert refusal(model, text).startswith(UNREADABLE)


# Round trips


class Model(NamedTuple):
    tensors: list[Tensor]
    arrays: list[NDArray[Any]]
    cap: int

    @property
    def rows(self) -> int:
        return len(self.arrays[0])

    @property
    def codec(self) -> V1Model:
        return codec(*self.tensors, max_batch_size=self.cap)

    def framed(self, start: int, end: int) -> bytes:
        """The rows from start to end, put into a frame with numpy."""
        frame = Frame(self.tensors)
        sizes = tuple(
            size
            for tensor, array in zip(self.tensors, self.arrays, strict=True)
            for wanted, size in zip(tensor.shape, array.shape[1:], strict=True)
            if wanted == -1
        )
        placement = frame.place(end - start, sizes)
        memory = np.zeros(placement.size, np.uint8)
        memory[: 8 * len(sizes)] = np.array(sizes, "<u8").view(np.uint8)
        for part, array in zip(placement.parts, self.arrays, strict=True):
            flat = np.frombuffer(array[start:end].tobytes(), np.uint8)
            memory[part.offset : part.offset + part.size] = flat
        return memory.tobytes()


@st.composite
def models(draw: st.DrawFn, max_inputs: int = 3) -> Model:
    rows = draw(st.integers(1, 7))
    tensors, arrays = [], []
    for index in range(draw(st.integers(1, max_inputs))):
        datatype = DATATYPES[draw(st.sampled_from(NUMERIC))]
        shape = tuple(draw(st.lists(st.integers(0, 3) | st.integers(7, 10), max_size=3)))
        assume(prod(shape) <= 300)
        numbers = hnp.from_dtype(np.dtype(datatype.numpy), allow_nan=False, allow_infinity=False)
        arrays.append(draw(hnp.arrays(datatype.numpy, (rows, *shape), elements=numbers)))
        known = [0 if 0 in shape[:depth] else size for depth, size in enumerate(shape)]
        opened = [draw(st.booleans()) and size == known[d] for d, size in enumerate(shape)]
        declared = [-1 if is_open else size for size, is_open in zip(shape, opened, strict=True)]
        tensors.append(Tensor(f"t{index}", datatype.name, declared))
    return Model(tensors, arrays, draw(st.integers(1, 9)))


def as_bare_rows(model: Model) -> Any:
    return {"instances": model.arrays[0].tolist()}


def as_named_rows(model: Model) -> Any:
    names = [tensor.name for tensor in model.tensors]
    rows = zip(*(array.tolist() for array in model.arrays), strict=True)
    return {"instances": [dict(zip(names, row, strict=True)) for row in rows]}


def as_columns(model: Model) -> Any:
    pairs = zip(model.tensors, model.arrays, strict=True)
    return {"inputs": {tensor.name: array.tolist() for tensor, array in pairs}}


def read(model: V1Model, text: bytes) -> tuple[list[Part], bool]:
    """Return the parts of a parsed body, fields by name, and whether the body is in columns."""
    parts, columns = model.requests.parse(text)
    return [Part(*part) for part in parts], columns


def check_parts(model: Model, request: Any) -> tuple[list[Part], bool]:
    parts, columns = read(model.codec, json.dumps(request).encode())
    assert [part.rows for part in parts[:-1]] == [model.cap] * (len(parts) - 1)
    assert sum(part.rows for part in parts) == model.rows
    start = 0
    for part in parts:
        assert part.payload == model.framed(start, start + part.rows)
        assert part.key_bytes == Frame(model.tensors).key_bytes
        start += part.rows
    return parts, columns


def check_echo(model: Model, parts: list[Part], columns: bool) -> Any:
    """Return the JSON for the request's own tensors, given back as its answer."""
    for rows, payload, key_bytes in parts:
        assert model.codec.result_bytes(rows) == (None if key_bytes else len(payload))
    results = [(rows, payload) for rows, payload, _ in parts]
    answer = json.loads(rendered(model.codec, *results, columns=columns))
    assert list(answer) == ["message", "batchId", "outputs" if columns else "predictions"]
    assert answer["message"] == ""
    assert answer["batchId"] == BATCH_ID
    return answer["outputs" if columns else "predictions"]


def same(tensor: Tensor, array: NDArray[Any], answered: Any) -> bool:
    again = np.array(answered, tensor.datatype.numpy)
    if not array.size:
        return bool(answered == array.tolist())
    return again.tobytes() == array.tobytes()


@given(models(max_inputs=1))
def test_rows_of_one_input_make_a_round_trip(model: Model) -> None:
    for request in (as_bare_rows(model), as_named_rows(model)):
        parts, columns = check_parts(model, request)
        assert not columns
        assert same(model.tensors[0], model.arrays[0], check_echo(model, parts, columns))


@given(models())
def test_rows_of_several_inputs_make_a_round_trip(model: Model) -> None:
    assume(len(model.tensors) > 1)
    rows = check_echo(model, *check_parts(model, as_named_rows(model)))
    for tensor, array in zip(model.tensors, model.arrays, strict=True):
        assert same(tensor, array, [row[tensor.name] for row in rows])


@given(models())
def test_columns_make_a_round_trip(model: Model) -> None:
    parts, columns = check_parts(model, as_columns(model))
    assert columns
    outputs = check_echo(model, parts, columns)
    if len(model.tensors) == 1:
        outputs = {model.tensors[0].name: outputs}
    assert list(outputs) == [tensor.name for tensor in model.tensors]
    for tensor, array in zip(model.tensors, model.arrays, strict=True):
        assert same(tensor, array, outputs[tensor.name])


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 7, 8])
def test_a_request_beyond_the_cap_is_cut_in_order(rows: int) -> None:
    array = np.arange(2 * rows, dtype="<f4").reshape(rows, 2)
    model = Model([Tensor("x", "FP32", [2])], [array], cap=4)
    for request in (as_bare_rows(model), as_named_rows(model), as_columns(model)):
        parts, columns = check_parts(model, request)
        assert len(parts) == -(-rows // 4)
        assert check_echo(model, parts, columns) == array.tolist()


ELEMENTS = st.text(st.characters(exclude_categories=["Cs"])) | st.binary()


def in_json(element: str | bytes) -> Any:
    return element if isinstance(element, str) else {"b64": b64encode(element).decode()}


def stored(element: str | bytes) -> bytes:
    data = element.encode() if isinstance(element, str) else element
    return len(data).to_bytes(4, "little") + data


def answered_as(element: str | bytes) -> Any:
    data = element.encode() if isinstance(element, str) else element
    try:
        return data.decode()
    except UnicodeDecodeError:
        return in_json(data)


@given(st.lists(st.lists(ELEMENTS, min_size=2, max_size=2), min_size=1, max_size=4))
def test_bytes_make_a_round_trip(rows: list[list[str | bytes]]) -> None:
    model = codec(Tensor("s", "BYTES", [2]))
    request = {"instances": [[in_json(element) for element in row] for row in rows]}
    (part,), _ = read(model, json.dumps(request).encode())
    tensor = b"".join(stored(element) for row in rows for element in row)
    frame = len(tensor).to_bytes(8, "little").ljust(64, b"\0") + tensor
    assert (part.rows, part.payload, part.key_bytes) == (len(rows), frame, 0)
    answer = json.loads(rendered(model, (part.rows, part.payload)))["predictions"]
    assert answer == [[answered_as(element) for element in row] for row in rows]
    assert model.result_bytes(1) is None


@given(st.lists(ELEMENTS, min_size=1, max_size=4))
def test_scalar_bytes_are_strings_or_objects(elements: list[str | bytes]) -> None:
    bare = json.dumps({"instances": [in_json(element) for element in elements]})
    named = json.dumps({"instances": [{"s": in_json(element)} for element in elements]})
    assert BYTES.requests.parse(bare.encode()) == BYTES.requests.parse(named.encode())


def test_an_output_named_bytes_is_always_base64() -> None:
    model = codec(Tensor("png_bytes", "BYTES", []))
    (part,), _ = read(model, b'{"instances":["hi"]}')
    assert rendered(model, (1, part.payload)) == body('[{"b64":"aGk="}]')


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(
    st.lists(JSON_VALUES, min_size=1, max_size=9),
    st.integers(1, 4),
    st.sampled_from([None, 1, "\t"]),
    st.booleans(),
)
def test_any_json_passes_through_an_untyped_model(
    instances: list[Any], cap: int, indent: int | str | None, ascii_only: bool
) -> None:
    text = json.dumps({"a": "b", "instances": instances}, indent=indent, ensure_ascii=ascii_only)
    model = V1Model(spec(max_batch_size=cap))
    parts, columns = read(model, text.encode())
    assert not columns
    assert [part.rows for part in parts[:-1]] == [cap] * (len(parts) - 1)
    chunks = [json.loads(bytes(part.payload)) for part in parts]
    assert [len(chunk) for chunk in chunks] == [part.rows for part in parts]
    assert [value for chunk in chunks for value in chunk] == instances
    assert all(bytes(part.payload).decode()[1:-1] in text for part in parts)
    answer = json.loads(rendered(model, *((part.rows, part.payload) for part in parts)))
    assert answer["predictions"] == instances
    assert model.result_bytes(1) is None


@pytest.mark.parametrize(
    "spelling",
    ["6.0", "6", "1E+2", "-0.0", "123456789012345678901", '{"b":1,"a":2,"b":3}', '"\\ud800"'],
)
def test_an_untyped_value_keeps_its_spelling_both_ways(spelling: str) -> None:
    model = V1Model(spec(max_batch_size=2))
    values = [spelling, "1", spelling]
    parts, _ = read(model, f'{{"instances":[{",".join(values)}]}}'.encode())
    assert [bytes(part.payload).decode() for part in parts] == [f"[{spelling},1]", f"[{spelling}]"]
    answer = rendered(model, *((part.rows, part.payload) for part in parts))
    assert answer == body(f"[{','.join(values)}]")


# Numbers


def test_whole_numbers_are_exact_up_to_64_bits() -> None:
    for datatype, value in (("INT64", -(2**63)), ("INT64", 2**53 + 1), ("UINT64", 2**64 - 1)):
        model = codec(Tensor("x", datatype, []))
        (part,), _ = read(model, f'{{"instances":[{value}]}}'.encode())
        assert rendered(model, (1, part.payload)) == body(f"[{value}]")


@pytest.mark.parametrize("datatype", ["FP16", "FP32", "FP64"])
def test_floating_point_inputs_take_whole_numbers(datatype: str) -> None:
    model = codec(Tensor("x", datatype, [3]))
    assert model.requests.parse(b'{"instances":[[1,-2,3]]}') == model.requests.parse(
        b'{"instances":[[1.0,-2e0,3]]}'
    )


def test_a_float_is_written_in_its_shortest_form() -> None:
    assert rendered(VECTOR, (1, np.array([1.1, 3], "<f4").tobytes())) == body("[[1.1,3.0]]")


def test_bf16_outputs_are_written_as_numbers() -> None:
    model = V1Model(spec([Tensor("x", "FP32", [1])], [Tensor("y", "BF16", [2])]))
    assert rendered(model, (1, bytes.fromhex("493f80bf"))) == body("[[0.78515625,-1.0]]")


def test_any_byte_but_zero_is_true() -> None:
    model = codec(Tensor("x", "BOOL", [3]))
    assert rendered(model, (1, b"\0\1\2")) == body("[[false,true,true]]")


# Results that are none


NAN = np.array([1, np.nan], "<f4").tobytes()
CANNOT_CARRY = "the answer holds NaN or Infinity, which JSON cannot carry; V2 carries them in"
DOES_NOT_FIT = "the answer does not fit the model's outputs"


def prefixed(*words: int) -> bytes:
    return np.array(words, "<u8").tobytes().ljust(64, b"\0")


@pytest.mark.parametrize(
    ("model", "parts", "complaint"),
    [
        (VECTOR, [(1, NAN)], CANNOT_CARRY),
        (VECTOR, [(1, bytes(8)), (1, NAN)], CANNOT_CARRY),
        (VECTOR, [(1, np.array([1, -np.inf], "<f4").tobytes())], CANNOT_CARRY),
        (OPEN, [(1, prefixed(1) + NAN)], CANNOT_CARRY),
        (codec(Tensor("y", "FP16", [])), [(1, b"\x00\x7c")], CANNOT_CARRY),
        (
            codec(Tensor("y", "FP64", []), Tensor("z", "BOOL", [])),
            [(1, b"\xff" * 65)],
            CANNOT_CARRY,
        ),
        (
            codec(Tensor("y", "FP64", [64]), Tensor("z", "BOOL", [])),
            [(1, b"\xff" * 513)],
            CANNOT_CARRY,
        ),
        (VECTOR, [(1, bytes(7))], DOES_NOT_FIT),
        (VECTOR, [(1, bytes(9))], DOES_NOT_FIT),
        (VECTOR, [(2, bytes(8))], DOES_NOT_FIT),
        (VECTOR, [(1, bytes(8)), (1, b"")], DOES_NOT_FIT),
        (OPEN, [(1, b"")], DOES_NOT_FIT),
        (OPEN, [(1, prefixed(2) + bytes(8))], DOES_NOT_FIT),
        (OPEN, [(1, prefixed(2**63) + bytes(8))], 'tensor "x" of shape'),
        (codec(Tensor("x", "FP32", [-1, -1])), [(1, prefixed(2**40, 0))], DOES_NOT_FIT),
        (BYTES, [(1, prefixed(3) + b"\0\0\0")], "the lengths of the strings in the answer"),
        (BYTES, [(1, prefixed(5) + b"\2\0\0\0a")], "the lengths of the strings in the answer"),
        (BYTES, [(1, prefixed(6) + b"\1\0\0\0ab")], "the answer holds more bytes than its strings"),
        (UNTYPED, [(1, b"")], "the answer is no JSON list: expected a list"),
        (UNTYPED, [(1, b"nope")], "the answer is no JSON list: expected a list"),
        (UNTYPED, [(1, b"5")], "the answer is no JSON list"),
        (UNTYPED, [(1, b'"a"')], "the answer is no JSON list"),
        (UNTYPED, [(1, b'{"a":1}')], "the answer is no JSON list"),
        (UNTYPED, [(1, b"[1")], "the answer is no JSON list: Expecting ',' delimiter"),
        (UNTYPED, [(1, b"[1] [2]")], "the answer is no JSON list: unexpected content"),
        (UNTYPED, [(1, b'["\xff"]')], "the answer is not UTF-8"),
        (
            UNTYPED,
            [(1, b"[NaN]")],
            "the answer is no JSON list: it holds NaN, which is no JSON number",
        ),
        (UNTYPED, [(1, b"[1,2]")], "size of prediction is not equal to the size of instances"),
        (UNTYPED, [(1, b"[1]"), (2, b"[1]")], "size of prediction is not equal"),
    ],
)
def test_a_result_that_is_none_is_the_models_failure(
    model: V1Model, parts: list[tuple[int, bytes]], complaint: str
) -> None:
    with pytest.raises(ModelFailed) as failed:
        rendered(model, *parts)
    assert str(failed.value).replace("'x'", '"x"').startswith(complaint)


def test_blanks_around_the_parts_of_a_result_do_no_harm() -> None:
    answer = rendered(UNTYPED, (2, b" [1, 2 ]\n"), (1, b"\t[ 3]"))
    assert json.loads(answer)["predictions"] == [1, 2, 3]


def test_a_result_of_more_digits_than_orjson_reads_passes() -> None:
    digits = "9" * 400
    assert rendered(UNTYPED, (1, f"[{digits}]".encode())) == body(f"[{digits}]")


def test_static_outputs_have_a_size_known_beforehand() -> None:
    model = V1Model(
        spec([Tensor("x", "FP32", [2])], [Tensor("a", "FP32", [3]), Tensor("b", "BOOL", [])])
    )
    assert model.result_bytes(4) == 64 + 4
    assert OPEN.result_bytes(4) is None


def test_open_sizes_are_the_key() -> None:
    (part,), _ = read(OPEN, b'{"instances":[[[1,2],[3,4],[5,6]]]}')
    assert part.key_bytes == 8
    assert part.payload == prefixed(3) + np.arange(1, 7, dtype="<f4").tobytes()


def test_parts_with_other_open_sizes_stand_in_one_answer() -> None:
    parts = [(1, prefixed(1) + bytes(8)), (1, prefixed(0))]
    assert rendered(OPEN, *parts) == body("[[[0.0,0.0]],[]]")
