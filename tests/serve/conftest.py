"""Servers for the tests of this folder."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serve.server import Server, Start, configured

from ringbatch.shm.shm_objects import remove_dead_engines


def starter(folder: Path) -> Iterator[Start]:
    """Yield a function that starts servers, and end them afterwards."""
    servers: list[Server] = []

    def start(
        models: dict[str, dict[str, Any]],
        *,
        privileged: bool = True,
        errors: int | None = None,
        **keys: Any,
    ) -> Server:
        own = folder / f"server{len(servers)}"
        own.mkdir()
        arguments = configured(own, models, **keys)
        servers.append(Server(own, *arguments, privileged=privileged, errors=errors))
        return servers[-1].wait_ready()

    yield start
    for server in servers:
        server.kill()
    remove_dead_engines()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """`start(models, **server)`: a server of this test's own that serves."""
    yield from starter(tmp_path)


@pytest.fixture(scope="module")
def start_for_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Function that starts servers for a whole module; see `start`."""
    yield from starter(tmp_path_factory.mktemp("serve"))
