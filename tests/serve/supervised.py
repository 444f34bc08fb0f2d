"""Servers of a model that misbehaves, and need not become ready; a test file takes the fixture by
name."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from serve.client import Closed, Connection, fast, instances
from serve.server import Server, configured

from ringbatch.shm.shm_objects import remove_dead_engines


def serves(server: Server) -> bool:
    """Return whether the server answers a request."""
    try:
        with Connection(server.port) as connection:
            return connection.ask(fast("unruly", instances("answer"))).status == 200
    except (OSError, Closed):
        return False


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """`server(models, **how)` starts one that need not become ready.

    `program` and `environment` are the server's, everything else is a key of the configuration.
    """
    servers: list[Server] = []

    def begin(models: dict[str, dict[str, Any]], **how: Any) -> Server:
        keys = {key: how.pop(key) for key in how.keys() - {"program", "environment"}}
        arguments = configured(tmp_path, models, **keys)
        servers.append(Server(tmp_path, *arguments, **how))
        return servers[-1]

    yield begin
    for each in servers:
        each.kill()
    remove_dead_engines()
