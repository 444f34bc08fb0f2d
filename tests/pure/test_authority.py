"""Host and port as in a URL."""

import pytest

from ringbatch.shm.host.authority import authority


@pytest.mark.parametrize(
    ("host", "text"),
    [("127.0.0.1", "127.0.0.1:80"), ("name.example", "name.example:80"), ("::1", "[::1]:80")],
)
def test_an_ipv6_address_stands_in_brackets(host: str, text: str) -> None:
    assert authority(host, 80) == text
