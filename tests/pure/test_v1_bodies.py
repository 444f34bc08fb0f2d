"""Bodies that V1 refuses as a whole: bad JSON, bad numbers, bad members."""

import codecs
from typing import Final

import pytest
from v1_models import MATRIX, PAIR, SCALAR, UNTYPED, VECTOR, refusal

from ringbatch.frontend.codec.outcome import NO_INSTANCES, UNREADABLE
from ringbatch.frontend.codec.payload import Part
from ringbatch.frontend.v1.protocol import V1Model
from ringbatch.frontend.v1.request import Parsed

MARKED: Final = "it begins with a byte order mark (BOM, EF BB BF), which JSON must not have"
BY_MARK: Final = ", by its byte order mark, but JSON is UTF-8"
WIDE: Final = "it is UTF-16 or UTF-32, but JSON is UTF-8"


def single(rows: int, payload: bytes, key_bytes: int = 0, columns: bool = False) -> Parsed:
    return (Part(rows, payload, key_bytes),), columns


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
        (codecs.BOM_UTF8 + b'{"instances":[1]}', f"{UNREADABLE}{MARKED}"),
        ('{"instances":[1]}'.encode("utf-16"), f"{UNREADABLE}it is UTF-16{BY_MARK}"),
        ('{"instances":[1]}'.encode("utf-32"), f"{UNREADABLE}it is UTF-32{BY_MARK}"),
        ('{"instances":[1]}'.encode("utf-16-be"), f"{UNREADABLE}{WIDE}"),
        ('{"instances":[1]}'.encode("utf-32-le"), f"{UNREADABLE}{WIDE}"),
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
@pytest.mark.parametrize(
    ("text", "begin"),
    [
        ("body.json", '"body.json"'),
        (" instances=%5B%5B1%2C2%5D%5D", '"instances=%5B%5B1%2C"'),
        (
            '--d74496d66958873e\r\nContent-Disposition: form-data; name="file"',
            '"--d74496d66958873e',
        ),
        ("<html>", '"<html>"'),
        ("nil", '"nil"'),
    ],
)
def test_a_body_that_is_meant_as_something_else_is_shown(
    model: V1Model, text: str, begin: str
) -> None:
    assert f"; it begins with {begin}" in refusal(model, text)


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


def test_an_integer_beyond_pythons_conversion_is_refused() -> None:
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
    assert UNTYPED.requests.parse(text.encode()) == single(1, b"[[1,2]]")


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
