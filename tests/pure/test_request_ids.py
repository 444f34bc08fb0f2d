"""Ids of requests and traces: what is taken, and what is made instead."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.frontend.codec.request_ids import (
    MAX_ID,
    RequestIds,
    is_sampled,
    parent_id,
    sound_trace,
    taken,
    trace_id,
)

TRACE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize("found", [b"a", b"a-1_%&=\"'", b"x" * MAX_ID, b"~!"])
def test_visible_characters_are_an_id(found: bytes) -> None:
    assert taken(found) == found


@pytest.mark.parametrize(
    "found",
    [b"", b"x" * (MAX_ID + 1), b"a b", b"a\n", b"\na", b"a\x1b[2J", b"\xc3\xa9", b"a\x7f", b"a\0"],
)
def test_anything_else_is_none(found: bytes) -> None:
    assert taken(found) == b""


@given(st.binary(max_size=200))
def test_an_accepted_id_can_stand_in_a_header_and_in_a_line(found: bytes) -> None:
    own = taken(found)
    assert own in (b"", found)
    assert all(0x21 <= byte <= 0x7E for byte in own)


def test_ten_thousand_ids_that_are_made_differ_and_are_ids() -> None:
    ids = RequestIds(5), RequestIds(6)
    made = {own.make() for own in ids for _ in range(10_000)}
    assert len(made) == 20_000
    assert all(taken(own) == own for own in made)


@pytest.mark.parametrize("found", [TRACE, b"cc" + TRACE[2:], b"cc" + TRACE[2:] + b"-more"])
def test_a_sound_trace_is_passed_on_as_it_is(found: bytes) -> None:
    assert sound_trace(found) == found


@pytest.mark.parametrize(
    "found",
    [
        b"",
        b"ff" + TRACE[2:],
        TRACE.upper(),
        TRACE + b"-more",
        TRACE[:-1],
        TRACE + b"0",
        TRACE.replace(b"0af7651916cd43dd8448eb211c80319c", b"0" * 32),
        TRACE.replace(b"b7ad6b7169203331", b"0" * 16),
        TRACE.replace(b"-", b"_"),
        b"cc" + TRACE[2:] + b".more",
        TRACE + b"\r\nx: y",
    ],
)
def test_an_invalid_trace_is_as_if_it_were_not_there(found: bytes) -> None:
    assert sound_trace(found) == b""


@pytest.mark.parametrize("version", [b"00", b"cc"])
@pytest.mark.parametrize(
    ("flags", "expected"), [(b"00", False), (b"01", True), (b"02", False), (b"ff", True)]
)
def test_fields_of_a_trace(version: bytes, flags: bytes, expected: bool) -> None:
    trace = version + TRACE[2:-2] + flags
    assert is_sampled(trace) is expected
    assert trace_id(trace) == b"0af7651916cd43dd8448eb211c80319c"
    assert parent_id(trace) == b"b7ad6b7169203331"


def test_no_trace_has_no_parent() -> None:
    assert (trace_id(b""), parent_id(b"")) == (b"", b"")
