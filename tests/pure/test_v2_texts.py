"""Cache of V2 requests: each request is read as by a codec that has seen none.

It is also refused in the same words.
"""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from segment_fixture import spec

from ringbatch.frontend.v2.protocol import V2Model
from ringbatch.frontend.v2.request_text_cache import RequestTextCache, around_values
from ringbatch.shm.errors import RequestError
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.tensor import Tensor

MODELS = {
    "vector": spec(0, [Tensor("x", "FP32", [2])], [Tensor("y", "FP32", [2])], max_batch_size=2),
    "scalar": spec(0, [Tensor("x", "UINT8", [])], [Tensor("y", "FP16", [])], max_batch_size=2),
    "matrix": spec(0, [Tensor("x", "INT64", [1, 2])], [Tensor("y", "BOOL", [])]),
    "flags": spec(0, [Tensor("x", "BOOL", [2])], [Tensor("y", "FP32", [2])]),
    "two": spec(
        0,
        [Tensor("x", "FP32", [2]), Tensor("z", "FP32", [2])],
        [Tensor("y", "FP32", [2]), Tensor("w", "FP32", [])],
    ),
}
Body = tuple[bytes, int | None]


def outcome(codec: V2Model, body: Body) -> Any:
    try:
        parts, requested = codec.requests.parse(*body)
    except RequestError as error:
        return type(error), str(error)
    return [(part.rows, bytes(part.payload), part.key_bytes) for part in parts], requested


def expect_no_difference(model: ModelSpec, bodies: Sequence[Body]) -> None:
    codec = V2Model(model)
    for body in (*bodies, *bodies):
        assert outcome(codec, body) == outcome(V2Model(model), body), body


NAMES = ["x"] * 6 + ["y", "z", "id"]
IDS = [
    '"a"',
    '"b c"',
    '"long-%s"' % ("i" * 40),
    '""',
    '"é"',
    '"\\""',
    '"\\u0041"',
    "null",
    "7",
    '"',
]
LISTS = ["[1,2]", "[3, 4]", "[[1,2]]", "[[1,2],[3,4]]", "[1,2,3,4]", "[[1,2],[3]]", "[1]", "[]"]
VALUES = [*LISTS * 3, "[true,1]", "[1.5,2e1]", "[1e400,1]", "[null,1]", '["}",1]', "[1,2", "5"]
SHAPES = ["[1,2]", "[2,2]", "[1,1,2]", "[1]", "[2]", "[0,2]", "[1.0,2]", "[true,2]", "[3,2]"]
SIZES = ["8", "16", "1", "2", "0", "-8", "true", '"8"']


def spaced(draw: st.DrawFn, members: list[str]) -> str:
    """An object; mostly as usual encoders write it."""
    comma, colon = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,", " :")]))
    return "{" + comma.join(member.replace("::", colon) for member in members) + "}"


def shuffled(draw: st.DrawFn, members: list[str]) -> list[str]:
    return draw(st.permutations(members)) if draw(st.integers(0, 3)) == 0 else members


def chosen(draw: st.DrawFn, usual: Sequence[str], least: int = 0) -> str:
    """Draw one of the usual texts, mostly the first."""
    return usual[0] if draw(st.integers(least, 3)) else draw(st.sampled_from(usual))


@st.composite
def entries(draw: st.DrawFn, name: str, binary: bool) -> str:
    members = [
        f'"name"::"{name if draw(st.integers(0, 9)) else "q"}"',
        f'"shape"::{chosen(draw, SHAPES)}',
        f'"datatype"::"{draw(st.sampled_from(["FP32", "FP32", "UINT8", "INT64", "BOOL"]))}"',
    ]
    if binary:
        members.append(f'"parameters"::{{"binary_data_size":{chosen(draw, SIZES)}}}')
    else:
        members.append(f'"data"::{draw(st.sampled_from(VALUES))}')
    if not draw(st.integers(0, 5)):
        extra = ['"data"::[9,9]', '"id"::"c"', '"d\\u0061ta"::[8,8]', '"x\\"data"::[7,7]']
        members.insert(draw(st.integers(0, 4)), draw(st.sampled_from(extra)))
    return spaced(draw, shuffled(draw, members))


@st.composite
def bodies(draw: st.DrawFn) -> Body:
    binary = draw(st.booleans())
    names = ["x"] if draw(st.integers(0, 3)) else ["x", "z"]
    inputs = ",".join(draw(entries(name, binary)) for name in names)
    members = [f'"inputs"::[{inputs}]']
    if draw(st.booleans()):
        members.insert(0, f'"id"::{draw(st.sampled_from(IDS))}')
    if not draw(st.integers(0, 3)):
        extra = [
            '"outputs"::[{"name":"y"}]',
            '"parameters"::{"binary_data_output":true}',
            '"parameters"::{"timeout":5}',
            '"parameters"::{"id":"a"}',
            '"id"::"last"',
            '"i\\u0064"::"last"',
            '"data"::[1,2]',
            '"x\\"id"::"a"',
        ]
        members.append(draw(st.sampled_from(extra)))
    text = spaced(draw, shuffled(draw, members)).encode()
    if not binary:
        return text, draw(st.sampled_from([None, None, None, len(text)]))
    data = bytes(draw(st.sampled_from([8, 8, 8, 16, 2, 0])))
    return text + data, len(text)


@given(model=st.sampled_from(sorted(MODELS)), several=st.lists(bodies(), min_size=1, max_size=6))
def test_a_request_is_read_as_if_none_had_come_before(model: str, several: list[Body]) -> None:
    expect_no_difference(MODELS[model], several)


def taken(values: str = "[1,2]", *, data: str = "", shape: str = "[1,2]", tail: str = "") -> str:
    """A request to `vector`, with more members before its data and at its end."""
    entry = f'"name":"x","shape":{shape},"datatype":"FP32",{data}"data":{values}'
    return f'{{"inputs":[{{{entry}}}]{tail}}}'


def before(opening: str, text: str) -> str:
    """The text with more members at its start."""
    return f"{{{opening}{text[1:]}"


ID_VALUES = ("null", '"a"', '"b"', '"z"')
ODD: dict[str, list[str]] = {
    "values": [taken(values) for values in ["[1,2]", *VALUES]],
    "rows": [taken(shape=shape) for shape in ("[1,2]", "[2,2]", "[1.0,2]", "[true,2]")],
    "more-than-a-batch": [taken("[1,2,3,4,5,6]", shape="[3,2]")] * 2,
    "data-is-not-the-last-member": [
        taken().replace('"shape":[1,2],', "").replace('"data":[1,2]', '"data":[1,2],"shape":[1,2]'),
        taken().replace('"shape":[1,2],', ""),
    ],
    "data-elsewhere": [
        before(f'"m":{{"data":{values}}},', taken().replace('"data"', '"data" '))
        for values in ("[1,2]", "[3,4]", "[")
    ],
    "data-twice": [taken(data=f'"data":{values},') for values in ("[1,2]", "[3,4]")],
    "a-name-that-ends-so": [
        taken(f'[1,2],"x\\"data":{values}').replace('"data":[1', '"data" :[1')
        for values in ("[5,6]", "[7,8]", "[7")
    ],
    "an-id-elsewhere": [taken(), *(taken(data=f'"id":{identity},') for identity in ID_VALUES)],
    "an-id-that-does-not-count": [
        before(f'"id":{identity},"i\\u0064":"z",', taken()) for identity in reversed(ID_VALUES)
    ],
    "an-id-behind": [taken(), *(taken(tail=f',"id":{identity}') for identity in ID_VALUES)],
    "gaps": [taken(), taken(""), taken("null")],
    "a-half": [taken(), taken()[: taken().index("[1,2]}")], taken()[: taken().index("}")]],
}


@pytest.mark.parametrize("case", ODD)
@pytest.mark.parametrize("with_length", [False, True])
def test_similar_texts_are_distinguished(case: str, with_length: bool) -> None:
    texts = [text.encode() for text in ODD[case]]
    expect_no_difference(
        MODELS["vector"], [(text, len(text) if with_length else None) for text in texts]
    )


def binary(opening: str = "", *, data: str = "", tail: str = "") -> str:
    """The JSON text of such a request before 8 bytes of binary data."""
    parameters = '"parameters":{"binary_data_size":8}'
    text = taken(data=data, tail=tail).replace('"data":[1,2]', parameters)
    return before(opening, text)


ODD_BINARY: dict[str, list[str]] = {
    "ids": [binary(f'"id":{identity},') for identity in [*IDS, '"a\n"', '"a"x']],
    "an-id-elsewhere": [binary(), *(binary(data=f'"id":{identity},') for identity in ID_VALUES)],
    "an-id-behind": [binary(), *(binary(tail=f',"id":{identity}') for identity in ID_VALUES)],
    "an-id-in-parameters": [
        binary(tail=f',"parameters":{{"id":{identity}}}') for identity in ID_VALUES
    ],
    "two-ids": [binary(f'"id":{identity},', tail=',"id":"z"') for identity in ID_VALUES],
    "one-of-two-is-spaced": [
        binary(f'"id":{identity},', tail=',"id" :"z"') for identity in reversed(ID_VALUES)
    ],
    "a-name-that-ends-so": [
        binary(f'"x\\"id":{identity},', tail=',"id" :"z"') for identity in reversed(ID_VALUES)
    ],
}


@pytest.mark.parametrize("case", ODD_BINARY)
def test_similar_texts_before_binary_data_are_distinguished(case: str) -> None:
    texts = [text.encode() for text in ODD_BINARY[case]]
    for model in ("vector", "two"):
        expect_no_difference(
            MODELS[model], [(text + bytes(size), len(text)) for text in texts for size in (8, 7)]
        )


def test_more_than_a_batch_before_binary_data_is_split_again() -> None:
    text = binary().replace("[1,2]", "[3,2]").replace(":8}", ":24}").encode()
    expect_no_difference(MODELS["vector"], [(text + bytes(24), len(text))])


def test_only_the_values_of_a_text_seen_before_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for JSON with and without an id, and for binary data."""
    codec = V2Model(MODELS["vector"])
    identity = '"id":"a",'
    usual = [text.encode() for text in (taken(), before(identity, taken()), binary(identity))]
    usual.append(json.dumps(json.loads(usual[0])).encode())

    def bodies_of(texts: Sequence[bytes]) -> list[Body]:
        return [
            (text + bytes(8), len(text)) if b"binary" in text else (text, None) for text in texts
        ]

    changed = [text.replace(b'"a"', b'"b"').replace(b"[1,2]}", b"[0,0]}") for text in usual]
    expected = [outcome(V2Model(MODELS["vector"]), body) for body in bodies_of(changed)]
    for body in bodies_of(usual):
        codec.requests.parse(*body)
    monkeypatch.setattr("ringbatch.frontend.v2.request.decoded", None)
    assert [outcome(codec, body) for body in bodies_of(changed)] == expected
    assert [requested.id for _, requested in expected] == [b"", b'"id":"b",', b'"id":"b",', b""]


def test_texts_are_remembered_but_not_for_ever_nor_long_ones() -> None:
    texts: RequestTextCache[int] = RequestTextCache()
    for number in range(1000):
        texts.learn(b'{"a":%d}' % number, number, b"")
    known = [
        number for number in range(1000) if texts.recall(b'{"a":%d}' % number) == (number, b"")
    ]
    assert 0 < len(known) <= 256
    assert known[-1] == 999
    long = b'{"a":"%b"}' % (b"x" * 3000)
    texts.learn(long, 1, b"")
    assert texts.recall(long) is None


def test_a_text_without_values_has_a_gap_all_the_same() -> None:
    assert around_values(b'{"data":[1]}') == (b'{"data":}', b"[1]")
    assert around_values(bytearray(b'{"data":[1]}')) == (b'{"data":}', b"[1]")
    assert around_values(b"{}") == (b'{}"data":}', b"")
