"""Requests to a pool of model servers, and a clock that the test moves."""

import time

import pytest

from ringbatch.engine.models.model import ServerFailed
from ringbatch.engine.runtimes.upstreams.connection import Answer
from ringbatch.engine.runtimes.upstreams.names import Names
from ringbatch.engine.runtimes.upstreams.pool import Pool

FAR_NS = 20_000_000_000
"""Deadline beyond any test, unless something hangs."""


class Clock:
    """The monotonic clock, put forward at will."""

    def __init__(self) -> None:
        self.ahead_ns = 0

    def __call__(self) -> int:
        return time.monotonic_ns() + self.ahead_ns


def post(pool: Pool, left_ns: int = FAR_NS) -> Answer:
    return pool.post(b"/p", b"", b"body", time.monotonic_ns() + left_ns)


def failure(pool: Pool, left_ns: int = FAR_NS) -> ServerFailed:
    with pytest.raises(ServerFailed) as caught:
        post(pool, left_ns)
    return caught.value


def hosts(names: Names) -> list[tuple[str, ...]]:
    return [endpoint.hosts for endpoint in names.endpoints]
