"""Refusals of the V1 codec, and their texts."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from v1_models import MATRIX, PAIR, SCALAR, UNTYPED, VECTOR, codec, refusal, spec

from ringbatch.frontend.codec.outcome import NO_INSTANCES
from ringbatch.frontend.v1.protocol import V1Model
from ringbatch.frontend.v1.request import Parsed, TypedRequests, VectorRequests, requests_of
from ringbatch.shm.errors import InvalidRequest
from ringbatch.shm.tensor import Tensor

FP32_RANGE = "FP32, numbers from -3.40282347e+38 to 3.40282347e+38"
OPEN = codec(Tensor("x", "FP32", [-1, 2]))
BYTES = codec(Tensor("s", "BYTES", []))


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
            'instances[0][0] is 18446744073709551616, but input "x" of model "m" takes UINT64, '
            "whole numbers from 0 to 18446744073709551615",
        ),
        (
            codec(Tensor("x", "INT64", [2])),
            "[[-9223372036854775808, -9223372036854775809]]",
            'instances[0][1] is -9223372036854775809, but input "x" of model "m" takes INT64, '
            "whole numbers from -9223372036854775808 to 9223372036854775807",
        ),
        (
            codec(Tensor("x", "INT64", [])),
            "[1e20]",
            'instances[0] is 1e+20, but input "x" of model "m" takes INT64, '
            "whole numbers from -9223372036854775808 to 9223372036854775807",
        ),
        (
            codec(Tensor("x", "FP32", [])),
            "[1000000000000000000000000000000000000000]",
            'instances[0] is 1000000000000000000000000000000000000000, but input "x" of model "m" '
            "takes FP32, numbers from -3.40282347e+38 to 3.40282347e+38",
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
            codec(Tensor("x", "INT64", [1])),
            '[[{"b64":"AAE="}]]',
            'instances[0][0] is {"b64": "AAE="}, but input "x" of model "m" takes INT64, '
            "whole numbers from -9223372036854775808 to 9223372036854775807",
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
def test_no_text_echoes_much_of_the_clients_body(model: V1Model, text: str) -> None:
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
def test_the_short_way_for_vectors_gives_the_result_of_the_long_way(
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
