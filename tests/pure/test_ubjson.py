"""Files of XGBoost are whole before XGBoost sees them."""

import struct
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.engine.runtimes.trees.ubjson import NotWhole, walk

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.binary(max_size=70),
    max_leaves=20,
)


def length(count: int) -> bytes:
    """Encode a length as XGBoost does."""
    return b"L" + struct.pack(">q", count)


def text(value: str) -> bytes:
    data = value.encode()
    return length(len(data)) + data


def written(value: Any, *, counted: bool) -> bytes:
    """A value as UBJSON, by the grammar; containers with a count or with an end."""
    match value:
        case None:
            return b"Z"
        case bool():
            return b"T" if value else b"F"
        case int():
            return b"i" + struct.pack(">b", value) if -128 <= value < 128 else length(value)
        case float():
            return b"D" + struct.pack(">d", value)
        case str():
            return b"S" + text(value)
        case bytes():
            return b"[$U#" + length(len(value)) + value
        case list():
            inner = b"".join(written(one, counted=counted) for one in value)
            return b"[#" + length(len(value)) + inner if counted else b"[" + inner + b"]"
    inner = b"".join(text(key) + written(one, counted=counted) for key, one in value.items())
    return b"{#" + length(len(value)) + inner if counted else b"{" + inner + b"}"


@given(value=values, counted=st.booleans(), data=st.data())
def test_a_value_is_whole_and_no_part_of_it_is(
    value: Any, counted: bool, data: st.DataObject
) -> None:
    content = written(value, counted=counted)
    walk(content)
    with pytest.raises(NotWhole):
        walk(content[: data.draw(st.integers(0, len(content) - 1))])
    with pytest.raises(NotWhole, match="it should end at byte"):
        walk(content + b"\0")


@given(st.binary())
def test_any_bytes_come_to_an_end(content: bytes) -> None:
    with suppress(NotWhole):
        walk(content)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it ends at byte 0, within a value"),
        (b"{" + text("a"), "it ends at byte 11, within a value"),
        (b"[$d#" + length(2**60), "it ends at byte 13, within a value"),
        (b"[#" + length(-1), "a length of -1, at byte 3"),
        (b"[$d]", "a type without a count, at byte 3"),
        (b"{x", "no length begins with 'x', at byte 1"),
        (b"?", "no value begins with '?', at byte 0"),
        (b"[" * 100, "no value begins with '[', at byte 64"),
    ],
)
def test_words_say_where_it_stops(content: bytes, words: str) -> None:
    with pytest.raises(NotWhole) as refused:
        walk(content)
    assert str(refused.value) == words
