"""A server whose connections are looked at as bytes; a test file takes its fixtures by name."""

from collections.abc import Iterator

import pytest
from serve.client import assert_serves, predict_target
from serve.server import Server, Start

LIMIT = 1 << 16
TARGETS = {"fast": predict_target("echo"), "escaped": "/v1/models/echo%3Apredict"}
both_paths = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())


@pytest.fixture(scope="module")
def server(start_for_module: Start) -> Server:
    return start_for_module(
        {"matmul": {"path": "matmul.py"}, "echo": {"path": "moody.py"}},
        max_request_bytes=LIMIT,
        frontends=2,
    )


@pytest.fixture(autouse=True)
def still_serves(server: Server) -> Iterator[None]:
    """Check after each test that the server still serves."""
    yield
    assert_serves(server.port)
