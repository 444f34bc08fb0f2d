"""Bodies under Content-Encoding: what is understood, within which limit, and what is preferred."""

import gzip
import random
import zlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.frontend.http.content_coding import (
    CODINGS,
    PLAIN,
    Acceptance,
    CodingNotSupported,
    Expander,
    acceptance,
    coding_of,
    encoded,
)
from ringbatch.shm.errors import InvalidRequest, RequestTooLarge

LIMIT = 1000
TEXT = b'{"instances": [[1, 2, 3], [4, 5, 6]]}'
GZIP, DEFLATE = gzip.compress(TEXT), zlib.compress(TEXT)


def feed(expander: Expander, piece: bytes) -> int:
    """Expand a piece; in how many steps."""
    return 1 + sum(1 for _ in expander.steps(piece))


def expanded(coding: str, *pieces: bytes, limit: int = LIMIT) -> bytes:
    expander = Expander(coding, limit)
    for piece in pieces:
        feed(expander, piece)
    return bytes(expander.finish())


@pytest.mark.parametrize(
    ("header", "coding"),
    [
        ("gzip", "gzip"),
        ("GZip", "gzip"),
        ("x-gzip", "gzip"),
        ("deflate", "deflate"),
        ("identity", None),
        ("", None),
        (" , identity", None),
        ("identity, gzip", "gzip"),
    ],
)
def test_the_coding_of_a_body_is_named_by_its_header(header: str, coding: str | None) -> None:
    assert coding_of(header) == coding


@pytest.mark.parametrize("header", ["br", "gzip, gzip", "deflate, gzip", "gzip;q=1", "é" * 100])
def test_another_coding_is_refused_in_words(header: str) -> None:
    with pytest.raises(CodingNotSupported, match=r"Content-Encoding .* send the body as gzip"):
        coding_of(header)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", PLAIN),
        ("identity", PLAIN),
        ("br, zstd", PLAIN),
        ("*", PLAIN),
        ("*;q=0", PLAIN),
        ("gzip", ("gzip", True)),
        ("deflate", ("deflate", True)),
        ("gzip, deflate", ("gzip", True)),
        ("deflate, gzip", ("deflate", True)),
        ("br, X-GZIP ; Q=0.5", ("gzip", True)),
        ("deflate;q=0.5, gzip", ("gzip", True)),
        ("gzip;q=0.1, deflate;q=0.2", ("deflate", True)),
        ("gzip;q=0, deflate", ("deflate", True)),
        ("gzip;q=0", PLAIN),
        ("gzip;q=0.000", PLAIN),
        ("identity, gzip", PLAIN),
        ("gzip, identity", ("gzip", True)),
        ("identity;q=0.5, gzip", ("gzip", True)),
        ("identity;q=0.5, gzip;q=0.4", PLAIN),
        ("gzip, identity;q=0", ("gzip", False)),
        ("gzip;q=0.1, *;q=0", ("gzip", False)),
        ("*, identity;q=0", ("gzip", False)),
        ("*, gzip;q=0, identity;q=0", ("deflate", False)),
        ("identity;q=0", PLAIN),
        ("gzip;q=2", PLAIN),
        ("gzip;q=0.1234", PLAIN),
        ("gzip;level=9", PLAIN),
        ("gzip;q=nan, deflate", ("deflate", True)),
        ("gzip;q=0.1;q=1, deflate;q=0.5", ("deflate", True)),
        (",,;q=1,", PLAIN),
    ],
)
def test_accepted_codings_of_a_client(header: str, expected: tuple[str | None, bool]) -> None:
    assert acceptance(header) == expected


@given(st.text(max_size=60))
def test_no_header_makes_trouble(header: str) -> None:
    found = acceptance(header)
    assert isinstance(found, Acceptance)
    assert found.coding in (None, *CODINGS)


@given(
    st.binary(max_size=LIMIT),
    st.sampled_from(CODINGS),
    st.lists(st.integers(0, LIMIT + 50), max_size=5),
)
def test_an_encoded_body_is_expanded_in_any_pieces(
    body: bytes, coding: str, cuts: list[int]
) -> None:
    data = encoded(body, coding)
    ends = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    assert expanded(coding, *(data[a:b] for a, b in pairwise(ends))) == body


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("step", [1 << 9, 1 << 30])
def test_a_long_body_is_expanded_in_several_steps(coding: str, step: int) -> None:
    body = (TEXT + bytes(70_000)) * 50
    data = encoded(body, coding)
    pieces = (data[at : at + step] for at in range(0, len(data), step))
    assert expanded(coding, *pieces, limit=len(body)) == body


def test_encoded_bodies_are_understood_by_other_decoders() -> None:
    assert gzip.decompress(encoded(TEXT, "gzip")) == TEXT
    assert zlib.decompress(encoded(TEXT, "deflate")) == TEXT


def test_the_members_of_a_gzip_body_are_one_body() -> None:
    members = gzip.compress(TEXT[:5]) + gzip.compress(b"") + gzip.compress(TEXT[5:])
    assert expanded("gzip", members) == TEXT
    assert expanded("gzip", *(members[i : i + 1] for i in range(len(members)))) == TEXT


BROKEN = {
    "empty": ("gzip", b"", "is empty"),
    "no-gzip": ("gzip", TEXT, "the body is no gzip stream"),
    "no-deflate": ("deflate", TEXT, "the body is no deflate stream"),
    "raw-deflate": ("deflate", zlib.compress(TEXT, wbits=-15), "the body is no deflate stream"),
    "the-other-container": ("gzip", DEFLATE, "the body is no gzip stream"),
    "cut-by-one": ("gzip", GZIP[:-1], "ends in the middle of its gzip stream"),
    "cut-deflate": ("deflate", DEFLATE[:-1], "ends in the middle of its deflate stream"),
    "cut-in-the-head": ("gzip", GZIP[:4], "ends in the middle"),
    "wrong-checksum": ("gzip", GZIP[:-8] + bytes(8), "the body is no gzip stream"),
    "wrong-checksum-deflate": ("deflate", DEFLATE[:-4] + bytes(4), "the body is no deflate stream"),
    "more-behind-gzip": ("gzip", GZIP + b"x", "ends in the middle"),
    "zeros-behind-gzip": (
        "gzip",
        GZIP + bytes(20),
        "bytes follow the end of the gzip stream in the body, and are no further one",
    ),
    "more-behind-deflate": ("deflate", DEFLATE + b"x", "bytes follow the end of the deflate"),
    "second-member-cut": ("gzip", GZIP + GZIP[:-1], "ends in the middle"),
    "members-without-end": ("gzip", gzip.compress(b"") * 1001, "more than 1000 gzip members"),
}


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("step", [1, 1 << 20], ids=["bytewise", "at-once"])
def test_an_incomplete_body_is_refused_in_words(case: str, step: int) -> None:
    coding, data, words = BROKEN[case]
    with pytest.raises(InvalidRequest) as refused:
        expanded(coding, *(data[i : i + step] for i in range(0, len(data), step)))
    assert words in str(refused.value)


@given(st.sampled_from(CODINGS), st.binary(min_size=1, max_size=40), st.integers(1, 40))
def test_bytes_behind_the_end_are_refused(coding: str, more: bytes, at: int) -> None:
    data = encoded(TEXT, coding) + more
    with pytest.raises(InvalidRequest):
        expanded(coding, data[:at], data[at:])


@pytest.mark.parametrize("coding", CODINGS)
def test_a_body_of_the_limit_is_taken_and_one_of_a_byte_more_is_not(coding: str) -> None:
    assert len(expanded(coding, encoded(bytes(LIMIT), coding))) == LIMIT
    with pytest.raises(RequestTooLarge, match=f"more than {LIMIT} bytes once it is expanded"):
        expanded(coding, encoded(bytes(LIMIT + 1), coding))


@pytest.mark.parametrize("coding", CODINGS)
def test_a_bomb_costs_no_more_than_the_limit(coding: str) -> None:
    """A megabyte for each kilobyte that is sent: it is left where the limit is."""
    expander = Expander(coding, LIMIT)
    bomb = encoded(bytes(64 << 20), coding)
    with pytest.raises(RequestTooLarge):
        feed(expander, bomb)
    assert len(expander._body) == LIMIT + 1


def test_a_bomb_of_members_ends_at_the_limit_too() -> None:
    with pytest.raises(RequestTooLarge):
        expanded("gzip", gzip.compress(bytes(LIMIT // 2)) * 3)


def test_a_small_piece_that_means_much_is_expanded_in_steps() -> None:
    expander = Expander("gzip", 1 << 24)
    assert feed(expander, gzip.compress(bytes(1 << 24))) >= 16
    assert len(expander.finish()) == 1 << 24


def test_a_large_piece_that_means_little_is_expanded_in_steps_too() -> None:
    expander = Expander("deflate", LIMIT)
    blocks = b"\0\0\0\xff\xff" * (1 << 18)
    assert feed(expander, b"\x78\x01" + blocks + b"\3\0\0\0\0\1") >= len(blocks) >> 16
    assert expander.finish() == b""


def test_of_a_long_piece_no_member_copies_all_that_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[int] = []
    step = Expander._step

    def counted(expander: Expander, data: bytes) -> bytes:
        taken.append(len(data))
        return step(expander, data)

    monkeypatch.setattr(Expander, "_step", counted)
    text = random.Random(0).randbytes(1 << 20)
    expanded("gzip", gzip.compress(b"") * 900 + gzip.compress(text), limit=1 << 20)
    assert max(taken) <= 1 << 16
