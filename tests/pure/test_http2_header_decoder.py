"""Our decoder of HPACK beside the package hpack: the same fields and the same table, or a fault in
both. Ours alone refuses numbers of many bytes, and a third size of the table in one block."""

import re
from collections.abc import Sequence
from contextlib import suppress

import pytest
from hpack import Decoder, Encoder, HPACKError
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.frontend.http2.frames import COMPRESSION_ERROR, ConnectionFault
from ringbatch.frontend.http2.header_decoder import MOST_LIST_BYTES, HeaderDecoder
from ringbatch.frontend.http2.header_rules import Fields, size_of

NAMES = [b":path", b"content-type", b"traceparent", b"x", b"", b"cookie", b"n" * 130]
VALUES = [
    b"",
    b"/",
    b"00-" + b"ab" * 16,
    b"\0\xff",
    b"v" * 127,
    b"w" * 128,
    b"z" * 5000,
    "é".encode(),
]
SIZES = [0, 30, 31, 32, 100, 4095, 4096]


def entries(decoder: HeaderDecoder) -> Fields:
    """The dynamic table, the newest first, as an index into it finds it."""
    found = []
    for index in range(62, 1000):
        try:
            found += HeaderDecoder.decode(decoder, number(0x80, 7, index))
        except ConnectionFault:
            break
    return found


def number(first: int, bits: int, value: int) -> bytes:
    most = (1 << bits) - 1
    if value < most:
        return bytes([first | value])
    value -= most
    found = bytearray([first | most])
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def text(value: bytes) -> bytes:
    return number(0, 7, len(value)) + value


@st.composite
def fields(draw: st.DrawFn) -> bytes:
    """A field in any representation, with an index that is often there."""
    kind, bits = draw(st.sampled_from([(0x80, 7), (0x40, 6), (0x00, 4), (0x10, 4)]))
    index = draw(st.sampled_from([0, 1, 2, 15, 61, 62, 63, 64, 70, 200]))
    if kind == 0x80:
        return number(kind, bits, index)
    name = b"" if index else text(draw(st.sampled_from(NAMES)))
    return number(kind, bits, index) + name + text(draw(st.sampled_from(VALUES)))


@st.composite
def blocks(draw: st.DrawFn) -> bytes:
    chosen = st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES))
    plain = st.lists(chosen, max_size=5)
    by_hand = b"".join(draw(st.lists(fields(), max_size=6)))
    resizes = b"".join(
        number(0x20, 5, size) for size in draw(st.lists(st.sampled_from(SIZES), max_size=2))
    )
    huffman = Encoder()
    huffman.header_table_size = 0
    block = resizes + by_hand + huffman.encode(draw(plain), huffman=True)[1:]
    if draw(st.integers(0, 5)) == 0:
        at = draw(st.integers(0, len(block)))
        block = block[:at] + draw(st.binary(max_size=3)) + block[at + draw(st.integers(0, 3)) :]
    return block


def is_ours_alone(block: bytes) -> bool:
    """Return whether a block has a number of many bytes, or begins with three table sizes."""
    return (
        re.search(rb"[\x80-\xff]{5}", block) is not None
        or re.match(rb"(?:\x3f[\x80-\xff]*[\0-\x7f]|[\x20-\x3e]){3}", block) is not None
    )


def both(several: Sequence[bytes]) -> int:
    """Give both the same blocks, up to the first with a fault; how many had none."""
    ours, theirs = HeaderDecoder(), Decoder(MOST_LIST_BYTES)
    for count, block in enumerate(several):
        try:
            expected = [
                (bytes(name), bytes(value)) for name, value in theirs.decode(block, raw=True)
            ]
        except HPACKError:
            with pytest.raises(ConnectionFault) as caught:
                ours.decode(block)
            assert caught.value.code == COMPRESSION_ERROR
            assert "memory at" not in caught.value.text
            return count
        before, changes = entries(ours), ours.changes
        found = None
        with suppress(ConnectionFault):
            found = ours.decode(block)
        if found is None:
            assert is_ours_alone(block)
            return count
        assert found == expected
        assert ours.list_bytes == size_of(found)
        table = [(bytes(name), bytes(value)) for name, value in theirs.header_table.dynamic_entries]
        assert entries(ours) == table
        assert ours.changes > changes or before == table
    return len(several)


@given(st.lists(blocks(), min_size=1, max_size=8))
def test_every_block_is_read_as_the_package_reads_it(several: list[bytes]) -> None:
    both(several)


@given(
    st.lists(st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES[:-2]))), max_size=6)
)
def test_an_encoders_headers_are_read(several: list[Fields]) -> None:
    encoder, decoder = Encoder(), HeaderDecoder()
    written = [encoder.encode(wanted) for wanted in several]
    assert [decoder.decode(block) for block in written] == several
    assert both(written) == len(several)


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=3))
def test_any_blocks_are_read_alike(several: list[bytes]) -> None:
    both(several)


FAULTS = {
    "no-index": b"\x80",
    "an-index-beyond-the-table": b"\xbe",
    "a-name-beyond-the-table": b"\x7f\x00\x01a",
    "a-name-that-does-not-end": b"\0\x05ab",
    "a-value-that-does-not-end": b"\0\x01a\x05b",
    "no-value": b"\0\x01a",
    "a-number-that-does-not-end": b"\xff\xff",
    "a-number-that-is-too-long": b"\xff\xff\xff\xff\xff\xff\xff\x01",
    "a-table-too-large": b"\x3f\xe2\x1f",
    "a-size-behind-a-field": b"\x82\x20",
    "a-third-size": b"\x20\x20\x20\x82",
    "Huffman's-end": b"\0\x01a\x84\xff\xff\xff\xff",
    "Huffman's-padding": b"\0\x01a\x82\x1f\x00",
}


@pytest.mark.parametrize("block", FAULTS.values(), ids=FAULTS)
def test_an_invalid_block_is_a_fault(block: bytes) -> None:
    with pytest.raises(ConnectionFault) as caught:
        HeaderDecoder().decode(block)
    assert caught.value.code == COMPRESSION_ERROR


def test_an_entry_larger_than_the_table_empties_it() -> None:
    assert (
        both([b"\x40" + text(b"a") + text(b"b"), b"\x40" + text(b"a") + text(b"z" * 5000), b"\xbe"])
        == 2
    )


def test_a_few_bytes_are_no_megabytes() -> None:
    entry = b"\x40" + text(b"a") + text(b"x" * 4000)
    assert both([entry, b"\xbe" * 34]) == 1
