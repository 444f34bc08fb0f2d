"""What the V1 codec refuses, and in which words."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.frontend.codec.outcome import NO_INSTANCES, UNREADABLE
from ringbatch.frontend.codec.payload import Part
from ringbatch.frontend.v1.protocol import V1Model
from ringbatch.frontend.v1.request import Parsed, TypedRequests, VectorRequests, requests_of
from ringbatch.shm.errors import InvalidRequest
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.tensor import Tensor

FP32_RANGE = "FP32, numbers from -3.40282347e+38 to 3.40282347e+38"


def spec(
    inputs: Sequence[Tensor] = (), outputs: Sequence[Tensor] = (), max_batch_size: int = 32
) -> ModelSpec:
    return ModelSpec(
        index=0,
        name="m",
        platform="python",
        inputs=tuple(inputs),
        outputs=tuple(outputs) or tuple(inputs),
        max_batch_size=max_batch_size,
        max_latency_ns=0,
        timeout_ns=0,
        policy="eager",
        workers=(0,),
    )


def codec(*inputs: Tensor, max_batch_size: int = 32) -> V1Model:
    """Of a model with these inputs, and the same as outputs."""
    return V1Model(spec(inputs, max_batch_size=max_batch_size))


def refusal(model: V1Model, text: str | bytes) -> str:
    with pytest.raises(InvalidRequest) as refused:
        model.requests.parse(text.encode() if isinstance(text, str) else text)
    return str(refused.value)


def one(rows: int, payload: bytes, key_bytes: int = 0, columns: bool = False) -> Parsed:
    return (Part(rows, payload, key_bytes),), columns


VECTOR = codec(Tensor("x", "FP32", [2]))
MATRIX = codec(Tensor("x", "FP32", [2, 3]))
SCALAR = codec(Tensor("x", "INT64", []))
OPEN = codec(Tensor("x", "FP32", [-1, 2]))
PAIR = codec(Tensor("a", "INT64", []), Tensor("b", "INT64", []))
BYTES = codec(Tensor("s", "BYTES", []))
UNTYPED = V1Model(spec())


# Bad bodies


@pytest.mark.parametrize("model", [UNTYPED, SCALAR, VECTOR, PAIR])
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", f"{UNREADABLE}it is empty"),
        (" \r\n", f"{UNREADABLE}it is empty"),
        ("[1]", f"{UNREADABLE}it is a list, not an object"),
        ("null", f"{UNREADABLE}it is null, not an object"),
        (b'{"instances":["\xff"]}', f"{UNREADABLE}byte 15 is not UTF-8"),
        ('{"instances":{}}', f"{UNREADABLE}`instances` is an object, not a list"),
        ('{"instances":"abc"}', f'{UNREADABLE}`instances` is "abc", not a list'),
        ('{"inputs":7}', f"{UNREADABLE}`inputs` is 7, not a list"),
        ("{}", f"{NO_INSTANCES}: it has neither `instances` nor `inputs`"),
        ('{"Instances":[1]}', f"{NO_INSTANCES}: it has neither `instances` nor `inputs`"),
        ('{"instances":null}', f"{NO_INSTANCES}: `instances` is null"),
        ('{"inputs":[]}', NO_INSTANCES),
        (
            '{"instances":[1],"inputs":[1]}',
            "`instances` and `inputs` exclude each other: a request has one",
        ),
        (
            '{"instances":[[1,2]],"inputs":null}',
            "`instances` and `inputs` exclude each other: a request has one",
        ),
    ],
)
def test_a_body_without_usable_instances_is_refused(
    model: V1Model, text: str | bytes, complaint: str
) -> None:
    assert refusal(model, text) == complaint


@pytest.mark.parametrize("model", [UNTYPED, SCALAR, VECTOR])
@pytest.mark.parametrize(
    "text", ['{"instances":[1]', '{"instances":[1,]}', '{"instances":[1]} x', "{'instances':[1]}"]
)
def test_invalid_json_is_refused_with_its_position(model: V1Model, text: str) -> None:
    complaint = refusal(model, text)
    assert complaint.startswith(UNREADABLE)
    assert "line 1 column " in complaint


@pytest.mark.parametrize("model", [UNTYPED, SCALAR, VECTOR])
@pytest.mark.parametrize("name", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize("before", ["", "1,", '"é", '])
def test_numbers_that_are_none_are_named(model: V1Model, name: str, before: str) -> None:
    complaint = refusal(model, f'{{"instances":[[{before}{name}]]}}')
    assert complaint.startswith(UNREADABLE)
    assert f" {name}" in complaint
    assert "is no JSON number" in complaint


BEYOND = ["1e400", "-1e400", "1E+309", "2" * 250 + "e60", "9" * 400 + ".0", "0.1e310"]


@pytest.mark.parametrize("model", [UNTYPED, SCALAR, VECTOR])
@pytest.mark.parametrize("number", BEYOND)
@pytest.mark.parametrize("around", ["%s", "[%s]", '{"a":[0.5,{"b":%s}]}', '["e",%s]', "0],[%s"])
def test_a_number_too_large_for_one_is_not_taken_for_infinity(
    model: V1Model, number: str, around: str
) -> None:
    complaint = refusal(model, f'{{"instances":[[{around % number}]]}}')
    assert complaint.startswith(UNREADABLE)
    assert len(complaint) < 200
    if model is UNTYPED:
        words = f"it holds {number[:20]}, which is too large a number"
        assert complaint == UNREADABLE + words


def test_a_number_as_large_as_one_can_be_is_taken() -> None:
    for text in ("1.7976931348623157e308", "-1.7976931348623157E+308", "1e-400", "0e999"):
        (part,), _ = UNTYPED.requests.parse(f'{{"instances":[{text}]}}'.encode())
        assert bytes(part[1]) == f"[{text}]".encode()


@pytest.mark.parametrize("model", [UNTYPED, SCALAR, VECTOR])
@pytest.mark.parametrize("opening", ["[", '{"x":'])
def test_deep_nesting_is_refused(model: V1Model, opening: str) -> None:
    closing = "]" if opening == "[" else "}"
    text = '{"instances":[' + opening * 10_000 + "1" + closing * 10_000 + "]}"
    assert refusal(model, text).startswith(UNREADABLE)


def test_an_integer_beyond_what_python_converts_is_refused() -> None:
    text = '{"instances":[' + "1" * 5000 + "]}"
    assert refusal(UNTYPED, text) == f"{UNREADABLE}it holds an integer of too many digits"
    assert refusal(SCALAR, text).startswith(UNREADABLE)


def test_an_untyped_model_has_no_columns() -> None:
    complaint = "a model without declared inputs takes `instances`, a list"
    assert refusal(UNTYPED, '{"inputs":{"x":[1]}}') == complaint


@pytest.mark.parametrize(
    "text",
    [
        '{"signature_name":"serving_default","instances":[[1,2]]}',
        '{"instances":[[1,2]],"x":[true]}',
    ],
)
def test_other_members_are_ignored(text: str) -> None:
    assert VECTOR.requests.parse(text.encode()) == VECTOR.requests.parse(b'{"instances":[[1,2]]}')
    assert UNTYPED.requests.parse(text.encode()) == one(1, b"[[1,2]]")


@pytest.mark.parametrize("model", [UNTYPED, VECTOR])
def test_the_last_of_two_instances_members_counts(model: V1Model) -> None:
    assert model.requests.parse(
        b'{"instances":[[1,2]],"instances":[[3,4]]}'
    ) == model.requests.parse(b'{"instances":[[3,4]]}')


def test_a_bytearray_is_a_body() -> None:
    for model in (VECTOR, MATRIX, UNTYPED):
        text = (
            b'{"instances":[[1,2]]}'
            if model is not MATRIX
            else b'{"instances":[[[1,2,3],[4,5,6]]]}'
        )
        assert model.requests.parse(bytearray(text)) == model.requests.parse(text)


# Values that do not fit


@pytest.mark.parametrize(
    ("model", "instances", "complaint"),
    [
        (VECTOR, "[[1]]", 'instances[0] has shape [1], but input "x" of model "m" takes [2]'),
        (
            VECTOR,
            "[[1,2],[3,4],[5,6],[7,8,9]]",
            'instances[3] has shape [3], but input "x" of model "m" takes [2]',
        ),
        (VECTOR, "[[]]", 'instances[0] has shape [0], but input "x" of model "m" takes [2]'),
        (
            VECTOR,
            "[[[1,2]]]",
            'instances[0] has shape [1, 2], but input "x" of model "m" takes [2]',
        ),
        (VECTOR, "[1,2]", 'instances[0] is 1, but input "x" of model "m" takes [2]'),
        (VECTOR, "[null]", 'instances[0] is null, but input "x" of model "m" takes [2]'),
        (VECTOR, '["ab"]', 'instances[0] is "ab", but input "x" of model "m" takes [2]'),
        (
            VECTOR,
            "[[1,2],[3,[4]]]",
            "instances[1] is ragged, with lists and single values side by side, "
            'but input "x" of model "m" takes [2]',
        ),
        (
            VECTOR,
            '[[1,"2"]]',
            f'instances[0][1] is "2", but input "x" of model "m" takes {FP32_RANGE}',
        ),
        (
            VECTOR,
            "[[1,2],[null,2]]",
            f'instances[1][0] is null, but input "x" of model "m" takes {FP32_RANGE}',
        ),
        (
            VECTOR,
            "[[true,2]]",
            f'instances[0][0] is true, but input "x" of model "m" takes {FP32_RANGE}',
        ),
        (
            VECTOR,
            "[[1,2],[1,false]]",
            f'instances[1][1] is false, but input "x" of model "m" takes {FP32_RANGE}',
        ),
        (
            VECTOR,
            '[[1,{"a":1}]]',
            f'instances[0][1] is an object, but input "x" of model "m" takes {FP32_RANGE}',
        ),
        (
            VECTOR,
            "[[1,-1e39]]",
            f'instances[0][1] is -1e+39, but input "x" of model "m" takes {FP32_RANGE}',
        ),
        (
            MATRIX,
            "[[[1,2,3],[4,5]]]",
            "instances[0] is ragged, with lists of 2 and of 3 values side by side, "
            'but input "x" of model "m" takes [2, 3]',
        ),
        (
            MATRIX,
            "[[[1,2,3],[4,5,6]],[[1,2],[3,4]]]",
            'instances[1] has shape [2, 2], but input "x" of model "m" takes [2, 3]',
        ),
        (
            MATRIX,
            "[[1,2,3,4,5,6]]",
            'instances[0] has shape [6], but input "x" of model "m" takes [2, 3]',
        ),
        (
            MATRIX,
            '[[[1,2,3],[4,5,6]],[[1,2,3],[4,"x",6]]]',
            f'instances[1][1][1] is "x", but input "x" of model "m" takes {FP32_RANGE}',
        ),
        (
            MATRIX,
            '[["abc","def"]]',
            'instances[0] has shape [2], but input "x" of model "m" takes [2, 3]',
        ),
        (
            codec(Tensor("x", "FP32", [2, 0])),
            '["ab"]',
            'instances[0] is "ab", but input "x" of model "m" takes [2, 0]',
        ),
        (
            codec(Tensor("x", "FP32", [0])),
            '[""]',
            'instances[0] is "", but input "x" of model "m" takes [0]',
        ),
        (
            OPEN,
            "[[[1,2]],[[1,2],[3,4]]]",
            "instances[1] has shape [2, 2] and instances[0] [1, 2], but the instances of one "
            'request must agree in their shape for input "x" of model "m"',
        ),
        (
            OPEN,
            "[[[1,2,3]]]",
            'instances[0] has shape [1, 3], but input "x" of model "m" takes [-1, 2]',
        ),
        (
            SCALAR,
            "[[1]]",
            'instances[0] has shape [1], but input "x" of model "m" takes one value: INT64, '
            "whole numbers from -9223372036854775808 to 9223372036854775807",
        ),
        (
            SCALAR,
            "[1,2.0]",
            'instances[1] is 2.0, but input "x" of model "m" takes INT64, '
            "whole numbers from -9223372036854775808 to 9223372036854775807",
        ),
        (
            SCALAR,
            "[9223372036854775808]",
            'instances[0] is 9223372036854775808, but input "x" of model "m" takes INT64, '
            "whole numbers from -9223372036854775808 to 9223372036854775807",
        ),
        (
            codec(Tensor("x", "UINT8", [1])),
            "[[256]]",
            'instances[0][0] is 256, but input "x" of model "m" takes UINT8, '
            "whole numbers from 0 to 255",
        ),
        (
            codec(Tensor("x", "UINT64", [1])),
            "[[18446744073709551616]]",
            'instances[0][0] is 1.8446744073709552e+19, but input "x" of model "m" takes UINT64, '
            "whole numbers from 0 to 18446744073709551615",
        ),
        (
            codec(Tensor("x", "FP16", [1])),
            "[[65520]]",
            'instances[0][0] is 65520, but input "x" of model "m" takes FP16, '
            "numbers from -65504 to 65504",
        ),
        (
            codec(Tensor("x", "BOOL", [2])),
            "[[true,1]]",
            'instances[0][1] is 1, but input "x" of model "m" takes BOOL, true or false',
        ),
        (
            codec(Tensor("x", "BOOL", [])),
            '["true"]',
            'instances[0] is "true", but input "x" of model "m" takes BOOL, true or false',
        ),
        (
            BYTES,
            "[5]",
            'instances[0] is 5, but input "s" of model "m" takes BYTES, strings or {"b64": "..."}',
        ),
        (
            BYTES,
            '["a",{"b64":"%%"}]',
            'instances[1] is {"b64": "%%"}, which is no base64, but input "s" of model "m" takes '
            'BYTES, strings or {"b64": "..."}',
        ),
        (
            BYTES,
            '[{"b64":"\\u00e9"}]',
            'instances[0] is {"b64": "é"}, which is no base64, but input "s" of model "m" takes '
            'BYTES, strings or {"b64": "..."}',
        ),
        (
            codec(Tensor("s", "BYTES", [2])),
            '[["a",{"b64":5}]]',
            'instances[0][1] is an object, but input "s" of model "m" takes BYTES, '
            'strings or {"b64": "..."}',
        ),
        (
            codec(Tensor("s", "BYTES", [2])),
            '["ab"]',
            'instances[0] is "ab", but input "s" of model "m" takes [2]',
        ),
        (
            codec(Tensor("x", "BF16", [1])),
            "[[1]]",
            'input "x" of model "m" is BF16, which JSON cannot carry',
        ),
        (VECTOR, '[{"y":[1,2]}]', 'instances[0] lacks "x"; model "m" takes "x"'),
        (
            VECTOR,
            '[[1,2],{"x":[1]}]',
            'instances[1]["x"] has shape [1], but input "x" of model "m" takes [2]',
        ),
        (
            VECTOR,
            '[{"x":[1,2]},[1]]',
            'instances[1] has shape [1], but input "x" of model "m" takes [2]',
        ),
        (
            PAIR,
            '[{"a":1,"b":2},{"a":1}]',
            'instances[1] lacks "b"; model "m" takes "a", "b"',
        ),
        (
            PAIR,
            '[{"a":1,"b":2,"c":3}]',
            'instances[0] has "c", but model "m" takes "a", "b"',
        ),
        (
            PAIR,
            "[[1,2]]",
            'instances[0] is a list, but model "m" takes "a", "b": '
            "an instance is an object with a value for each",
        ),
        (
            PAIR,
            '[{"a":1,"b":"2"}]',
            'instances[0]["b"] is "2", but input "b" of model "m" takes INT64, '
            "whole numbers from -9223372036854775808 to 9223372036854775807",
        ),
    ],
)
def test_an_instance_that_does_not_fit_is_named(
    model: V1Model, instances: str, complaint: str
) -> None:
    assert refusal(model, f'{{"instances":{instances}}}') == complaint
    alias = complaint.replace("instances[", "inputs[")
    assert refusal(model, f'{{"inputs":{instances}}}') == alias


@pytest.mark.parametrize(
    ("model", "columns", "complaint"),
    [
        (PAIR, "{}", NO_INSTANCES),
        (PAIR, '{"a":[],"b":[]}', NO_INSTANCES),
        (
            PAIR,
            '[{"name":"a","shape":[1],"datatype":"FP32","data":[1]}]',
            'inputs[0] lacks "a"; model "m" takes "a", "b"; tensors with a name and a shape are '
            "for V2, at /v2/models/NAME/infer",
        ),
        (PAIR, '{"a":[1]}', '`inputs` lacks "b"; model "m" takes "a", "b"'),
        (
            PAIR,
            '{"a":[1],"b":[1],"c":[1]}',
            '`inputs` has "c", but model "m" takes "a", "b"',
        ),
        (
            PAIR,
            '{"a":[1,2],"b":[1]}',
            "the columns in `inputs` differ in length: 2, 1",
        ),
        (
            PAIR,
            '{"a":[1],"b":5}',
            'inputs["b"] is 5, but a column is a list with one value an instance',
        ),
        (
            VECTOR,
            '{"x":[[1,2],[3]]}',
            'inputs["x"][1] has shape [1], but input "x" of model "m" takes [2]',
        ),
        (
            VECTOR,
            '{"x":[[1,2],[3,null]]}',
            f'inputs["x"][1][1] is null, but input "x" of model "m" takes {FP32_RANGE}',
        ),
    ],
)
def test_a_column_that_does_not_fit_is_named(model: V1Model, columns: str, complaint: str) -> None:
    assert refusal(model, f'{{"inputs":{columns}}}') == complaint


LONG = "x" * 100_000


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (VECTOR, f'{{"instances":["{LONG}"]}}'),
        (VECTOR, f'{{"instances":[[1,"{LONG}"]]}}'),
        (VECTOR, f'{{"instances":[{{"{LONG}":1,"x":[1,2]}}]}}'),
        (VECTOR, f'{{"instances":"{LONG}"}}'),
        (VECTOR, f'"{LONG}"'),
        (VECTOR, '{"instances":[' + "[" * 900 + "]" * 900 + "]}"),
        (PAIR, f'{{"inputs":{{"a":[1],"b":"{LONG}"}}}}'),
        (UNTYPED, f'{{"instances":"{LONG}"}}'),
        (UNTYPED, f'"{LONG}"'),
        (UNTYPED, f'{{"instances":[1] {LONG}'),
    ],
)
def test_no_text_echoes_much_of_what_the_client_sent(model: V1Model, text: str) -> None:
    assert len(refusal(model, text)) < 250


@given(st.integers(0, 63), st.integers(0, 99), st.sampled_from(["null", '"1"', "true", "1e+39"]))
def test_the_first_bad_value_among_many_is_named(row: int, at: int, bad: str) -> None:
    values = [["1"] * 100 for _ in range(64)]
    values[row][at] = bad
    values[63][99] = "null" if (row, at) != (63, 99) else bad
    text = ",".join(f"[{','.join(each)}]" for each in values)
    complaint = refusal(codec(Tensor("x", "FP32", [100])), f'{{"instances":[{text}]}}')
    assert complaint.startswith(f"instances[{row}][{at}] is {bad}, ")


# Whatever comes


def outcome(parse: Callable[[bytes], Parsed], text: bytes) -> Parsed | str:
    try:
        return parse(text)
    except InvalidRequest as refused:
        return str(refused)


NUMBERS = st.integers(-3, 3) | st.sampled_from([2**63, 1e39, 1.5, True, False, None, "a", "ab"])
ENTRIES = st.recursive(
    NUMBERS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xy"), inner),
    max_leaves=6,
)
VECTORS = st.lists(st.lists(NUMBERS | st.integers(-3, 3), min_size=2, max_size=2), max_size=4)
REQUESTS = ENTRIES | st.dictionaries(
    st.sampled_from(["instances", "inputs", "other"]), ENTRIES | VECTORS, max_size=2
)


@given(REQUESTS, st.sampled_from(["FP16", "FP32", "INT8", "UINT64"]), st.sampled_from([1, 2]))
def test_the_short_way_for_vectors_gives_what_the_long_way_gives(
    request: Any, datatype: str, size: int
) -> None:
    model = spec([Tensor("x", datatype, [size])], max_batch_size=3)
    text = json.dumps(request).encode()
    short, long = VectorRequests(model, 8).parse, TypedRequests(model, 8).parse
    assert type(requests_of(model)) is VectorRequests
    assert outcome(short, text) == outcome(long, text)


@given(
    st.sampled_from([VECTOR, MATRIX, SCALAR, OPEN, PAIR, BYTES, UNTYPED]),
    REQUESTS,
    st.binary(max_size=3),
    st.integers(0, 100),
    st.integers(0, 3),
)
def test_any_bytes_are_parsed_or_refused(
    model: V1Model, request: Any, noise: bytes, at: int, cut: int
) -> None:
    text = json.dumps(request).encode()
    assert outcome(model.requests.parse, text[:at] + noise + text[at + cut :])
    assert outcome(model.requests.parse, noise)
