"""Cache of message heads: a recalled head says what protobuf reads in the message."""

from collections.abc import Sequence
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.frontend.grpc.answer import id_field
from ringbatch.frontend.grpc.message_head_cache import MessageHeadCache
from ringbatch.frontend.grpc.messages import inference

Request = inference("ModelInferRequest")
NAME, VERSION, ID, PARAMETERS, INPUT, OUTPUT, RAW, UNKNOWN = (
    number << 3 | 2 for number in (1, 2, 3, 4, 5, 6, 7, 15)
)
TENSOR = bytes.fromhex("0a0178120446503332 1a020102")


def field(tag: int, data: bytes) -> bytes:
    assert len(data) < 1 << 14
    size = len(data)
    opening = bytes([size]) if size < 0x80 else bytes([size & 0x7F | 0x80, size >> 7])
    return bytes([tag]) + opening + data


def usual(data: bytes, identity: bytes = b"", *, name: bytes = b"m", version: bytes = b"") -> bytes:
    return b"".join(
        field(tag, content)
        for tag, content in ((NAME, name), (VERSION, version), (ID, identity), (INPUT, TENSOR))
        if content
    ) + field(RAW, data)


def meaning_of(request: Any) -> bytes:
    """Return all parts of a request but its id and its raw tensors."""
    rest = Request()
    rest.CopyFrom(request)
    rest.ClearField("id")
    rest.ClearField("raw_input_contents")
    text: bytes = rest.SerializeToString(deterministic=True)
    return text


def parsed(data: bytes) -> Any:
    try:
        return Request.FromString(data)
    except DecodeError:
        return None


def expect_no_difference(messages: Sequence[bytes]) -> int:
    """Compare recalled heads with protobuf's, and return how many were recalled."""
    heads: MessageHeadCache[bytes] = MessageHeadCache()
    count = 0
    for data in messages:
        recalled, request = heads.recall(data), parsed(data)
        if recalled is not None:
            count += 1
            assert request is not None, data
            assert (recalled.id, recalled.tensor) == (
                id_field(request.id),
                *request.raw_input_contents,
            )
            assert recalled.meaning == meaning_of(request)
        elif request is not None and len(request.raw_input_contents) == 1:
            (raw,) = request.raw_input_contents
            if raw:
                heads.learn(data, raw, meaning_of(request))
    return count


def expect_no_difference_before_tensors(asked: Sequence[tuple[bytes, int]]) -> int:
    """Compare recalled heads with protobuf's before anything of their tensors has come.

    Each head is given with the size of its tensor.
    """
    heads: MessageHeadCache[bytes] = MessageHeadCache()
    count = 0
    for head, tensor_bytes in asked:
        tensor = bytes(tensor_bytes)
        begun = head + field(RAW, tensor)[:-tensor_bytes]
        recalled, request = heads.recall(begun, tensor_bytes), parsed(head)
        if recalled is not None:
            count += 1
            assert request is not None, head
            assert recalled == (meaning_of(request), id_field(request.id), b"")
        elif request is not None:
            heads.learn(begun + tensor, tensor, meaning_of(request))
    return count


IDS = [b"", b"", b"a", b"b", b"\x1a", b"\x1a\x01b", b"x" * 127, b"x" * 128, "é".encode(), b"\xff"]
DATA = [bytes(8), b"\x3a\x06abcdef", bytes(127), bytes(128), bytes(300), b"abcd", b""]
ODD_FIELDS = [
    field(ID, b""),
    field(ID, b"z"),
    field(NAME, b"other"),
    field(RAW, bytes(8)),
    field(RAW, b""),
    field(UNKNOWN, bytes(8)),
    field(UNKNOWN, b"\x3a\x08" + bytes(8)),
    field(OUTPUT, field(NAME, b"y")),
    field(PARAMETERS, b"\x0a\x01p\x12\x02\x10\x05"),
    b"\x08\x01",
    b"\x3a",
    b"\x1a\x05",
]


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    name = draw(st.sampled_from([b"m", b"m", b"n", b"x" * 127, b"x" * 128, b""]))
    pieces = [field(NAME, name)]
    if draw(st.booleans()):
        pieces.append(field(VERSION, draw(st.sampled_from([b"1", b"2", b"", b"x" * 128]))))
    if identity := draw(st.sampled_from(IDS)):
        pieces.append(field(ID, identity))
    pieces += [field(INPUT, TENSOR), field(RAW, draw(st.sampled_from(DATA)))]
    if draw(st.integers(0, 2)) == 0:
        pieces.insert(draw(st.integers(0, len(pieces))), draw(st.sampled_from(ODD_FIELDS)))
    if draw(st.integers(0, 5)) == 0:
        pieces = draw(st.permutations(pieces))
    data = b"".join(pieces)
    return data[: draw(st.integers(0, len(data)))] if draw(st.integers(0, 9)) == 0 else data


@given(st.lists(messages(), min_size=1, max_size=12))
def test_recalled_messages_equal_parsed_ones(several: list[bytes]) -> None:
    expect_no_difference([*several, *several])


@given(st.lists(st.tuples(messages(), st.sampled_from([8, 9])), min_size=1, max_size=12))
def test_heads_recalled_before_a_tensor_came_equal_parsed_ones(
    several: list[tuple[bytes, int]],
) -> None:
    expect_no_difference_before_tensors([*several, *several])


@given(st.data())
def test_a_cut_in_a_known_message_is_noticed(data: st.DataObject) -> None:
    message = bytearray(usual(bytes(8), b"abc", version=b"1"))
    at = data.draw(st.integers(0, len(message) - 1))
    message[at] = data.draw(st.integers(0, 255))
    cut = bytes(message[:at])
    expect_no_difference([usual(bytes(8), b"abc", version=b"1"), bytes(message), cut])


def test_the_same_with_other_values_and_another_id_is_recalled() -> None:
    asked = [
        usual(bytes(8)),
        usual(b"\x3a\x06abcdef"),
        usual(bytes(8), b"a"),
        usual(bytes(range(8)), b"x" * 127),
    ]
    assert expect_no_difference(asked) == 3
    assert expect_no_difference([usual(bytes(8)), usual(bytes(9)), usual(bytes(9))]) == 1


def test_a_head_is_recalled_with_another_id_and_a_tensor_of_the_same_size() -> None:
    plain, named, other = (usual(b"", identity)[:-2] for identity in (b"", b"a", b"b" * 127))
    assert (
        expect_no_difference_before_tensors([(plain, 8), (named, 8), (other, 8), (other, 9)]) == 2
    )


ODD = {
    "an-id-behind": [usual(bytes(8), b"a") + b"", usual(b"", b"a")[:-2] + field(ID, b"a")],
    "the-id-counts-that-comes-last": [
        field(NAME, b"m") + first + field(INPUT, TENSOR) + field(ID, b"z") + field(RAW, bytes(8))
        for first in (field(ID, b"z"), field(ID, b"a"), b"", field(ID, b""))
    ],
    "an-empty-id-behind": [
        field(NAME, b"m") + first + field(INPUT, TENSOR) + field(ID, b"") + field(RAW, bytes(8))
        for first in (b"", field(ID, b"a"), field(ID, b"b"))
    ],
    "an-empty-id": [usual(bytes(8)), field(NAME, b"m") + field(ID, b"") + usual(bytes(8))[3:]],
    "the-tensor-is-not-at-the-end": [
        field(NAME, b"m") + field(RAW, b"same") + field(INPUT, TENSOR) + field(UNKNOWN, end)
        for end in (b"same", b"else")
    ],
    "a-similar-end-of-another": [
        field(NAME, b"m") + field(RAW, b"same") + field(UNKNOWN, field(RAW, end))
        for end in (b"same", b"else")
    ],
    "long-names": [
        field(NAME, b"x" * 127 + letter + b"x" * more) + usual(bytes(8))[3:]
        for letter in (b"x", b"\x1a")
        for more in (0, 1, 2, 40)
    ],
    # As if the length were 0x83, behind which the fields go on.
    "a-length-of-more-bytes-than-it-takes": [
        b"\x0a\x83\x00abc"
        + field(ID, b"z")
        + field(UNKNOWN, bytes(133 - 6 - 3 - 2))
        + field(INPUT, TENSOR)
        + field(RAW, bytes(8))
    ],
    "an-id-of-such-a-length": [
        usual(bytes(8)),
        field(NAME, b"m")
        + b"\x1a\xff\x00"
        + b"i" * 127
        + field(UNKNOWN, bytes(127 - 2))
        + usual(bytes(8))[3:],
    ],
    "an-id-that-is-no-text": [usual(bytes(8)), usual(bytes(8), b"\xff"), usual(bytes(8), b"\xc3")],
}


@pytest.mark.parametrize("case", ODD)
def test_similar_messages_are_distinguished(case: str) -> None:
    expect_no_difference(ODD[case] * 2)
    expect_no_difference_before_tensors([(data, 8) for data in ODD[case]] * 2)


def test_heads_are_remembered_but_not_for_ever_nor_long_ones() -> None:
    heads: MessageHeadCache[int] = MessageHeadCache()
    for number in range(1000):
        heads.learn(usual(bytes(8), name=b"%d" % number), bytes(8), number)
    known = [n for n in range(1000) if heads.recall(usual(bytes(8), name=b"%d" % n)) is not None]
    assert 0 < len(known) <= 256
    assert known[-1] == 999
    heads.clear()
    assert heads.recall(usual(bytes(8), name=b"999")) is None
    long = field(NAME, b"m") + field(PARAMETERS, b"\x0a\x01p\x12" + field(0x12, b"x" * 90)[1:])
    heads.learn(long + field(UNKNOWN, bytes(3000)) + usual(bytes(8))[3:], bytes(8), 1)
    assert heads.recall(long + field(UNKNOWN, bytes(3000)) + usual(bytes(8))[3:]) is None
    tensor = bytes(300)
    for number in range(1000):
        heads.learn(usual(tensor, name=b"%d" % number), tensor, number)
    begun = [usual(tensor, name=b"%d" % n)[:-300] for n in range(1000)]
    found = [n for n in range(1000) if heads.recall(begun[n], 300) is not None]
    assert 0 < len(found) <= 256
    assert heads.recall(begun[999], 299) is None
    heads.clear()
    assert heads.recall(begun[999], 300) is None
