"""API keys: where they stand in a request, and that a head is remembered only with one."""

import hashlib
import hmac

import pytest

from ringbatch.frontend.http.head_reader import HeadReader
from ringbatch.frontend.security.api_keys import ApiKeys
from ringbatch.shm.host.api_key_lines import KeyOptions

KEY, OTHER = "0123456789abcdef", "fedcba9876543210"


def keys(*texts: str) -> ApiKeys:
    return ApiKeys({hashlib.sha256(text.encode()).digest(): KeyOptions() for text in texts})


@pytest.mark.parametrize(
    ("authorization", "key"),
    [
        (f"Bearer {KEY}", None),
        (f"bearer  {KEY} ", None),
        (f"BEARER {OTHER}", None),
        (None, KEY),
        ("Basic dXNlcjpwYXNz", OTHER),
        (f"Bearer {KEY}", "another's"),
    ],
)
def test_a_key_is_found_in_either_header(authorization: str | None, key: str | None) -> None:
    assert keys(KEY, OTHER).allow(authorization, key)


@pytest.mark.parametrize(
    ("authorization", "key"),
    [
        (None, None),
        ("", ""),
        (KEY, None),
        ("Bearer", None),
        (f"Basic {KEY}", None),
        (f"Bearer{KEY}", None),
        (f"Bearer {KEY}x", None),
        (f"Bearer {KEY[:-1]}", None),
        (f"Bearer {KEY},{KEY}", None),
        (None, f"Bearer {KEY}"),
        (None, KEY.upper()),
        ("Bearer \udcff", "\udcff"),
    ],
)
def test_anything_else_is_no_key(authorization: str | None, key: str | None) -> None:
    assert not keys(KEY, OTHER).allow(authorization, key)


def test_every_known_key_is_compared_and_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    compare_digest = hmac.compare_digest

    def compare(a: bytes, b: bytes) -> bool:
        compared.append((a, b))
        return compare_digest(a, b)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    assert keys(KEY, OTHER).allow(None, KEY)
    digests = [hashlib.sha256(text.encode()).digest() for text in (KEY, OTHER)]
    assert compared == [(digests[0], known) for known in digests]


def head(*lines: str) -> bytes:
    first = ["POST /v1/models/m:predict HTTP/1.1", "Host: x", "Content-Length: 2"]
    return "\r\n".join([*first, *lines, "", ""]).encode()


def test_the_fast_lane_takes_heads_with_a_key_and_forgets_them_with_the_keys() -> None:
    known = keys(KEY)
    heads = HeadReader(100, keys=known)
    good = head(f"Authorization: Bearer {KEY}")
    for _ in range(2):
        assert heads.read(good) is not None
        assert heads.read(head(f"x-api-key: {KEY}")) is not None
        for bad in (
            head(),
            head(f"Authorization: Bearer {OTHER}"),
            head(f"Authorization: Bearer {KEY}", f"Authorization: Bearer {KEY}"),
            head(f"X-API-Key: {KEY}", "X-API-Key: x"),
        ):
            assert heads.read(bad) is None
    known.replace({hashlib.sha256(OTHER.encode()).digest(): KeyOptions()})
    heads.forget()
    assert heads.read(good) is None
    assert heads.read(head(f"Authorization: Bearer {OTHER}")) is not None
