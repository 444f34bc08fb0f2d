"""A region as the words of its record, and words that are none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.shm.layout import MAX_BYTES
from ringbatch.shm.region import (
    FIELDS,
    MAX_KEY_BYTES,
    MAX_NAME_BYTES,
    Region,
    decode,
    encode,
    text_words,
)
from ringbatch.shm.region_words import RegionWords

REGION = Region("in", "/app_x", 4096, 64, 26, 1 << 63)
WORDS = st.integers(0, (1 << 64) - 1)


def texts(limit: int) -> st.SearchStrategy[str]:
    return st.text(min_size=1, max_size=limit // 4).filter(str.strip)


regions = st.builds(
    Region,
    name=texts(MAX_NAME_BYTES),
    key=texts(MAX_KEY_BYTES),
    offset=st.integers(0, MAX_BYTES),
    size=st.integers(1, MAX_BYTES),
    device=WORDS,
    inode=WORDS,
)


def read(words: list[int]) -> Region | None:
    fields, text = words[:FIELDS], words[FIELDS:]
    count = text_words(fields)
    return decode(fields, text[:count]) if count else None


@given(regions)
def test_a_region_is_read_as_it_was_written(region: Region) -> None:
    assert read(encode(region)) == region


@given(regions)
def test_a_record_has_room_for_any_region_and_text_is_as_long_as_it_says(region: Region) -> None:
    words = encode(region)
    assert len(words) == FIELDS + text_words(words[:FIELDS])
    assert RegionWords.OFFSET + len(words) <= RegionWords.SIZE


def test_the_longest_name_and_key_fit() -> None:
    longest = REGION._replace(name="n" * MAX_NAME_BYTES, key="k" * MAX_KEY_BYTES)
    assert read(encode(longest)) == longest
    assert RegionWords.OFFSET + len(encode(longest)) <= RegionWords.SIZE


def test_the_words_are_those_of_the_layout() -> None:
    assert encode(REGION) == [
        4096,
        64,
        26,
        1 << 63,
        2,
        6,
        int.from_bytes(b"in/app_x", "little"),
    ]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (0, MAX_BYTES + 1),
        (1, 0),
        (1, MAX_BYTES + 1),
        (4, 0),
        (4, MAX_NAME_BYTES + 1),
        (5, 0),
        (5, MAX_KEY_BYTES + 1),
        (5, (1 << 64) - 1),
    ],
)
def test_fields_beyond_their_limits_make_no_region(field: int, value: int) -> None:
    words = encode(REGION)
    words[field] = value
    assert text_words(words[:FIELDS]) == 0


def test_text_that_is_no_utf8_makes_no_region() -> None:
    words = encode(REGION)
    words[FIELDS] = int.from_bytes(b"\xff\xfe/app_x", "little")
    assert read(words) is None


@given(st.lists(WORDS, min_size=FIELDS, max_size=FIELDS), st.lists(WORDS, min_size=64, max_size=64))
def test_any_words_are_a_region_within_the_limits_or_none(
    fields: list[int], text: list[int]
) -> None:
    found = read(fields + text)
    assert found is None or (0 < found.size <= MAX_BYTES and found.offset <= MAX_BYTES)
