"""Timeout header of requests, on the fast lane and elsewhere, and its effects."""

import pytest

from ringbatch.frontend.codec.part_limits import limits_in
from ringbatch.frontend.codec.request_timeout import shortest_ns, timeout_ns_of
from ringbatch.frontend.http.head_reader import HeadReader
from ringbatch.shm.errors import InvalidRequest

LONGEST_NS = 10**18
GOOD = {
    "2": 2_000_000_000,
    "0.25": 250_000_000,
    "0.000000001": 1,
    "007": 7_000_000_000,
    # As programs print numbers.
    repr(0.1 + 0.2): 300_000_000,
    repr(5e-5): 50_000,
    "1E+3": 1_000_000_000_000,
    "1e-300": 1,
    # Longer than any model's.
    "1" * 10: LONGEST_NS,
    repr(1e20): LONGEST_NS,
    "1e999": LONGEST_NS,
    "9" * 5000: LONGEST_NS,
}
BAD = ["", "0", "0.0", "0e9", "1e-999", "-1", "+1", "1e", "1e3.5", "inf", "nan", "1 s", "1."]
BAD += [".5", "1,5", "0x1", "1_0", "\u0661"]


def head(*timeouts: str) -> bytes:
    lines = [f"X-Request-Timeout: {text}" for text in timeouts]
    lines = ["POST /v1/models/m:predict HTTP/1.1", "Host: x", "Content-Length: 2", *lines]
    return "\r\n".join([*lines, "", ""]).encode()


@pytest.mark.parametrize(("text", "timeout_ns"), GOOD.items())
def test_seconds_are_read(text: str, timeout_ns: int) -> None:
    assert timeout_ns_of(text) == timeout_ns
    found = HeadReader(100).read(head(text))
    assert found is not None
    assert found.timeout_ns == timeout_ns


def test_a_request_without_a_timeout_has_no_limit_of_its_own() -> None:
    assert timeout_ns_of(None) == 0
    found = HeadReader(100).read(head())
    assert found is not None
    assert found.timeout_ns == 0


@pytest.mark.parametrize("text", BAD)
def test_an_invalid_time_is_refused_in_words_and_left_by_the_fast_lane(text: str) -> None:
    with pytest.raises(InvalidRequest, match="not a number of seconds above 0"):
        timeout_ns_of(text)
    assert HeadReader(100).read(head(text)) is None


LIMITS = {"X-First-Part-Timeout": (1, 0), "X-Part-Gap-Timeout": (0, 1)}
"""Headers of the limits of parts, with the limits that they set, in seconds."""


def limited(*lines: str) -> bytes:
    lines = ("POST /v1/models/m:predict HTTP/1.1", "Host: x", "Content-Length: 2", *lines)
    return "\r\n".join([*lines, "", ""]).encode()


@pytest.mark.parametrize(("header", "limits_s"), LIMITS.items())
def test_limits_of_parts_are_read_the_same_way(header: str, limits_s: tuple[int, int]) -> None:
    first, gap = (1_000_000_000 * limit_s for limit_s in limits_s)
    sent = {header.lower(): "1"}
    assert limits_in(sent.get) == (first, gap)
    reader = HeadReader(100)
    # Parsed, and then out of the memory of lines.
    for _ in range(2):
        found = reader.read(limited(f"{header}: 1"))
        assert found is not None
        assert (found.part_limits, found.timeout_ns) == ((first, gap), 0)
    found = reader.read(limited())
    assert found is not None
    assert found.part_limits == (0, 0)


@pytest.mark.parametrize("header", LIMITS)
def test_limits_that_are_none_are_refused_in_words_and_left_by_the_fast_lane(header: str) -> None:
    with pytest.raises(InvalidRequest, match=f'{header} is "soon", not a number of seconds'):
        limits_in({header.lower(): "soon"}.get)
    assert HeadReader(100).read(limited(f"{header}: soon")) is None
    assert HeadReader(100).read(limited(f"{header}: 1", f"{header}: 1")) is None


def test_two_of_them_are_left_by_the_fast_lane() -> None:
    assert HeadReader(100).read(head("1", "1")) is None


@pytest.mark.parametrize(
    ("limit", "first", "second", "shortest"),
    [(9, 0, 0, 9), (9, 5, 0, 5), (9, 0, 5, 5), (9, 7, 5, 5), (9, 5, 7, 5), (9, 10, 11, 9)],
)
def test_the_shortest_counts(limit: int, first: int, second: int, shortest: int) -> None:
    assert shortest_ns(limit, first, second) == shortest
