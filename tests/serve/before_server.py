"""ringbatch before a model server; a test file takes its fixtures by name."""

from collections.abc import Iterator

import pytest
from model_server import ModelServer, running
from serve.client import Connection, Response
from serve.server import Server, Start


@pytest.fixture(scope="module")
def behind() -> Iterator[ModelServer]:
    with running() as server:
        yield server


@pytest.fixture(autouse=True)
def as_new(behind: ModelServer) -> Iterator[None]:
    behind.reset()
    yield
    behind.gate.set()


@pytest.fixture(scope="module")
def prompt(start_for_module: Start, behind: ModelServer) -> Server:
    """Sidecar that gives up early on a silent model server."""
    model = {"path": behind.url, "workers": 2, "isolate_errors": True}
    return start_for_module({"model": model}, sidecar=True)


def ask(server: Server, *requests: bytes) -> list[Response]:
    """Send requests one after the other over one connection, and return the responses."""
    with Connection(server.port) as connection:
        return [connection.ask(one) for one in requests]
