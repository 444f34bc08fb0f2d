"""Clients' shared memory in V2 requests: tensors in it, regions to register, names."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.frontend.codec.outcome import NotSupported
from ringbatch.frontend.codec.payload import Assembly, LazyBytes, framed, laid_out
from ringbatch.frontend.v2.shared_memory import (
    OFF,
    RegionSpan,
    Registration,
    expect_region_name,
    object_name,
    region_document,
    registration,
    span_of,
    start_of,
)
from ringbatch.shm.errors import InvalidRequest
from ringbatch.shm.frame import Frame
from ringbatch.shm.layout import MAX_BYTES
from ringbatch.shm.region import Region
from ringbatch.shm.tensor import Tensor

REGION, OFFSET, SIZE = (
    "shared_memory_region",
    "shared_memory_offset",
    "shared_memory_byte_size",
)
HUGE = (1 << 64) - 1
KEYS = "a0._-"


class On:
    """Memory that is there; nothing here uses it."""

    def expect_on(self) -> None:
        pass

    def source(self, span: RegionSpan) -> LazyBytes:
        raise AssertionError

    target: Any = source


def refused(function: Any, *given: Any) -> str:
    with pytest.raises(InvalidRequest) as caught:
        function(*given)
    return str(caught.value)


@pytest.mark.parametrize(
    ("parameters", "span"),
    [
        ({}, None),
        ({"binary_data": True}, None),
        ({REGION: "r", SIZE: 8}, RegionSpan("r", 0, 8)),
        ({REGION: "r", SIZE: 0}, RegionSpan("r", 0, 0)),
        ({REGION: "", OFFSET: 3, SIZE: MAX_BYTES}, RegionSpan("", 3, MAX_BYTES)),
    ],
)
def test_parameters_give_a_span(parameters: dict[str, Any], span: RegionSpan | None) -> None:
    assert span_of(parameters, "it", On()) == span


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({REGION: "r"}, f"it has no {SIZE}, which goes with {REGION}"),
        ({SIZE: 8}, f"it has no {REGION}"),
        ({OFFSET: 8}, f"it has no {REGION}"),
        ({"shared_memory_regoin": "r"}, f"it has no {REGION}"),
        ({REGION: 5, SIZE: 8}, f"the {REGION} of it is 5, not a string"),
        ({REGION: True, SIZE: 8}, f"the {REGION} of it is true, not a string"),
        ({REGION: "r", SIZE: "8"}, f'the {SIZE} of it is "8", not a whole number from 0'),
        ({REGION: "r", SIZE: True}, f"the {SIZE} of it is true"),
        ({REGION: "r", SIZE: 8.0}, f"the {SIZE} of it is 8.0"),
        ({REGION: "r", SIZE: -1}, f"the {SIZE} of it is -1"),
        ({REGION: "r", SIZE: HUGE}, f"the {SIZE} of it is {HUGE}"),
        ({REGION: "r", SIZE: 8, OFFSET: -1}, f"the {OFFSET} of it is -1"),
        ({REGION: "r", SIZE: 8, OFFSET: HUGE}, f"the {OFFSET} of it is {HUGE}"),
        ({REGION: "r", SIZE: 8, OFFSET: 1e300}, f"the {OFFSET} of it is 1e+300"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(parameters: dict[str, Any], text: str) -> None:
    assert text in refused(span_of, parameters, "it", On())


@pytest.mark.parametrize("name", [REGION, OFFSET, SIZE, "shared_memory_x"])
def test_where_it_is_off_the_rest_is_not_looked_at(name: str) -> None:
    with pytest.raises(NotSupported, match="switched off here"):
        span_of({name: []}, "it", OFF)
    assert span_of({"binary_data": True}, "it", OFF) is None


def region(offset: int, size: int) -> Region:
    return Region("r", "/k", offset, size, 0, 0)


@given(*[st.integers(0, 1 << 45)] * 2, st.integers(1, 1 << 45), st.integers(0, 1 << 45))
def test_a_place_is_within_its_region_or_refused(
    start: int, offset: int, size: int, wanted: int
) -> None:
    span = RegionSpan("r", offset, wanted)
    if offset <= size and wanted <= size - offset:
        at = start_of(span, region(start, size))
        assert start <= at
        assert at + wanted <= start + size
    else:
        text = refused(start_of, span, region(start, size))
        assert str(wanted) in text
        assert '"r"' in text


def body(**members: Any) -> bytes:
    return json.dumps(members).encode()


def test_a_registration_is_read() -> None:
    assert registration(body(key="/k", offset=4, byte_size=64)) == Registration("/k", 4, 64)
    assert registration(body(key="k", byte_size=1, more=[])) == Registration("k", 0, 1)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (b"nope", "the request is no JSON"),
        (b"", "the request is no JSON"),
        (b"[]", "the request is a list, not an object"),
        (b"{}", "lacks its key"),
        (body(byte_size=8), "lacks its key"),
        (body(key=5, byte_size=8), "has 5 as its key"),
        (body(key="/k"), "lacks its byte_size"),
        (body(key="/k", byte_size=0), "the byte_size is 0, not a whole number from 1"),
        (body(key="/k", byte_size=-1), "the byte_size is -1"),
        (body(key="/k", byte_size=HUGE), f"the byte_size is {HUGE}"),
        (body(key="/k", byte_size=1 << 70), "the byte_size is"),
        (body(key="/k", byte_size="8"), 'the byte_size is "8"'),
        (body(key="/k", byte_size=None), "the byte_size is null"),
        (body(key="/k", byte_size=True), "the byte_size is true"),
        (body(key="/k", byte_size=8, offset=-1), "the offset is -1, not a whole number from 0"),
        (body(key="/k", byte_size=8, offset=HUGE), f"the offset is {HUGE}"),
        (body(key="/k", byte_size=8, offset=1.5), "the offset is 1.5"),
    ],
)
def test_a_registration_that_makes_no_sense_is_refused(given: bytes, text: str) -> None:
    assert text in refused(registration, given)


@pytest.mark.parametrize("name", ["r", "a/b", "\n", "é" * 127, "n" * 255])
def test_names_that_a_region_may_have(name: str) -> None:
    expect_region_name(name)


@pytest.mark.parametrize("name", ["", "n" * 256, "é" * 128, "\ud800"])
def test_names_that_no_region_may_have(name: str) -> None:
    assert "not 1 to 255 bytes" in refused(expect_region_name, name)


@pytest.mark.parametrize(
    ("key", "prefixes"),
    [
        ("/app_x", ["/app_"]),
        ("app_x", ["/app_"]),
        ("/app_x", ["app_"]),
        ("app_x", ["other", "app_x"]),
        ("/ringbatch", ["r"]),
        ("/ringbatch_mine.1", ["/ringbatch"]),
        ("...", ["."]),
    ],
)
def test_a_key_with_an_allowed_beginning_is_a_name(key: str, prefixes: list[str]) -> None:
    assert object_name(key, prefixes) == key.removeprefix("/")


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/",
        "//app_x",
        "/app_/../x",
        "app_/x",
        "/app_x/",
        "/../dev/shm/app_x",
        "/app_\0x",
        "/app_ x",
        "/app_é",
        "/app_\n",
        "app_" + "x" * 197,
    ],
)
def test_a_key_that_is_no_plain_name_is_refused(key: str) -> None:
    assert "is no name of a shared memory object" in refused(object_name, key, ["app_", "/", "."])


@pytest.mark.parametrize(
    ("key", "prefixes"),
    [
        ("/other", ["/app_"]),
        ("/app", ["/app_"]),
        ("/xapp_", ["/app_"]),
        ("/app_x", []),
        ("/ringbatch.1.2.abc", ["/r"]),
        ("ringbatch.1.2.abc.l0", ["ringbatch."]),
        ("/sem.ringbatch.1.2.abc.c", ["/sem."]),
        ("sem.x", ["s"]),
        (".", ["."]),
        ("..", ["."]),
        ("/..", ["."]),
    ],
)
def test_a_forbidden_key_is_refused_without_naming_the_allowed_ones(
    key: str, prefixes: list[str]
) -> None:
    text = refused(object_name, key, prefixes)
    assert text == (
        f"the key {json.dumps(key)} is not one that clients of this server may use; see [server] "
        "shared_memory_prefixes"
    )


@given(st.text(alphabet=KEYS + "/\0é~", max_size=12), st.lists(st.text(alphabet=KEYS, min_size=1)))
def test_no_key_ever_gives_a_path_or_a_name_of_ours(key: str, prefixes: list[str]) -> None:
    try:
        name = object_name(key, [*prefixes, "ringbatch.", "sem.", "."])
    except InvalidRequest:
        return
    assert set(name) <= set(KEYS)
    assert name not in ("", ".", "..")
    assert not name.startswith(("ringbatch.", "sem."))


def test_a_region_is_shown_as_it_was_registered() -> None:
    shown = region_document(Region("r", "/k", 4, 64, 26, 99))
    assert shown == {"name": "r", "key": "/k", "offset": 4, "byte_size": 64}


class Far(LazyBytes):
    """Bytes that are copied when they are asked for."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def read_into(self, memory: memoryview) -> None:
        memory[:] = self._data


@given(st.lists(st.tuples(st.binary(max_size=9), st.booleans()), max_size=6))
def test_an_assembly_is_its_pieces_in_their_order(pieces: list[tuple[bytes, bool]]) -> None:
    whole = Assembly([Far(data) if far else data for data, far in pieces])
    expected = b"".join(data for data, _ in pieces)
    assert len(whole) == len(expected)
    assert bytes(whole) == expected == whole.read()


def test_tensors_that_are_read_late_lie_as_those_that_are_there() -> None:
    tensors = [Tensor("a", "FP32", [-1]), Tensor("s", "BYTES", []), Tensor("b", "INT8", [3])]
    data = [bytes(range(16)), b"\2\0\0\0ab\0\0\0\0", b"abcdef"]
    frame = Frame(tensors)
    there = framed(frame, 2, (2,), data)
    late = Assembly(laid_out(frame, 2, (2,), [Far(data[0]), data[1], Far(data[2])]))
    assert bytes(late) == there
    dirty = memoryview(bytearray(b"\xff" * len(late)))
    late.read_into(dirty)
    assert dirty == there
