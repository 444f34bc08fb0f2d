"""A server with models of texts, and requests to it; a test file takes its fixtures by name."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serve.client import Connection, Response, request
from serve.server import Server, Start
from text_models import write_directory


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("texts")


@pytest.fixture(scope="module")
def server(start_for_module: Start, folder: Path) -> Server:
    embedder = {"path": str(write_directory(folder / "embedder"))}
    return start_for_module(
        {
            "embedder": embedder,
            "strict": embedder | {"truncate": False},
            "held": embedder | {"policy": "fixed", "max_batch_size": 4, "max_latency_ms": 60_000},
            "ranker": {"path": str(write_directory(folder / "ranker", labels=1))},
            "moods": {"path": str(write_directory(folder / "moods", labels=3))},
        },
        grpc_port=0,
    )


@pytest.fixture
def connection(server: Server) -> Iterator[Connection]:
    with Connection(server.port) as connection:
        yield connection


def post(connection: Connection, path: str, body: Any) -> Response:
    return connection.ask(request(path, json.dumps(body).encode()))


def embedded(connection: Connection, **members: Any) -> Response:
    return post(connection, "/v1/embeddings", {"model": "embedder", **members})
