"""Origins whose pages may read answers: their headers, by origin, and the heads they come with."""

import pytest

from ringbatch.engine.config.addresses import are_origins
from ringbatch.frontend.http.head_reader import HeadReader
from ringbatch.frontend.security.cors import SharedWith

PAGE, OTHER = "https://app.example.com", "https://evil.example.com"
ALLOW = "access-control-allow-origin"


@pytest.mark.parametrize(
    ("origins", "origin", "allowed", "named"),
    [
        ((PAGE,), PAGE, PAGE, True),
        ((PAGE,), OTHER, None, False),
        ((PAGE,), PAGE.upper(), None, False),
        ((PAGE,), f"{PAGE}:8443", None, False),
        ((PAGE,), f"{PAGE}.evil.example.com", None, False),
        ((PAGE,), "null", None, False),
        ((PAGE,), "*", None, False),
        ((PAGE,), "", None, False),
        ((PAGE,), None, None, False),
        ((PAGE, OTHER), OTHER, OTHER, True),
        (("*",), OTHER, "*", False),
        (("*",), "null", "*", False),
        (("*",), "*", "*", False),
        (("*",), None, None, False),
        ((), PAGE, None, False),
    ],
)
def test_an_answer_is_shared_with_the_origins_of_the_setting(
    origins: tuple[str, ...], origin: str | None, allowed: str | None, named: bool
) -> None:
    shared_with = SharedWith(origins)
    headers = dict(shared_with.headers(origin))
    assert headers.get(ALLOW) == allowed
    assert bool(headers) == (allowed is not None)
    assert ("vary" in headers) == (allowed not in (None, "*"))
    assert shared_with.names(origin) == named
    assert bool(shared_with) == bool(origins)
    lines = shared_with.lines((origin or "").encode()).decode()
    assert lines == "".join(f"\r\n{name}: {value}" for name, value in headers.items())
    preflight = dict(shared_with.preflight(origin, "POST", "x-api-key"))
    assert bool(preflight) == (allowed is not None)
    assert preflight.get("access-control-allow-headers") == ("x-api-key" if preflight else None)


def test_a_request_that_is_no_preflight_is_not_answered_as_one() -> None:
    assert SharedWith((PAGE,)).preflight(PAGE, None, None) == ()
    answer = dict(SharedWith((PAGE,)).preflight(PAGE, "PUT", None))
    assert answer["access-control-allow-methods"] == "GET, HEAD, POST"
    assert "access-control-allow-headers" not in answer


@pytest.mark.parametrize(
    "value",
    [
        [],
        ["*"],
        [PAGE, "http://localhost:3000", "http://10.0.0.1:81", "http://[::1]:3000"],
        ["chrome-extension://abcdefgh", "http://127.0.0.1:443", "https://localhost:80"],
    ],
)
def test_origins_are_written_as_browsers_write_them(value: list[str]) -> None:
    assert are_origins(value)


@pytest.mark.parametrize(
    "value",
    [
        PAGE,
        "*",
        ["*", PAGE],
        [f"{PAGE}/"],
        ["https://App.example.com"],
        ["app.example.com"],
        ["https://*.example.com"],
        ["http://localhost:80"],
        ["https://localhost:443"],
        ["null"],
        [f"{PAGE}\n"],
        [f"{PAGE} {OTHER}"],
        [1],
    ],
)
def test_no_browser_sends_an_origin_like_these(value: object) -> None:
    assert not are_origins(value)


def head(*lines: str) -> bytes:
    first = ["POST /v1/models/m:predict HTTP/1.1", "Host: x", "Content-Length: 2"]
    return "\r\n".join([*first, *lines, "", ""]).encode()


def test_the_fast_lane_takes_requests_of_pages_and_remembers_their_origins() -> None:
    heads = HeadReader(100, cors_origins=(PAGE,))
    lines = SharedWith((PAGE,)).lines(PAGE.encode())
    for _ in range(2):
        for text, cors in (
            (head(f"Origin: {PAGE}"), lines),
            (head(f"origin: {PAGE}"), lines),
            (head(), b""),
            (head(f"Origin: {OTHER}"), b""),
            (head(f"Origin: {PAGE}", f"Origin: {PAGE}"), b""),
        ):
            found = heads.read(text)
            assert found is not None
            assert (found.cors, found.asks) == (cors, bool(cors))


def test_without_the_setting_an_origin_changes_nothing() -> None:
    found = HeadReader(100).read(head(f"Origin: {PAGE}"))
    assert found is not None
    assert (found.cors, found.asks) == (b"", False)
