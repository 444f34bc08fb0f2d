"""What the supervisor knows of its frontends before it starts any: ports, lanes, places."""

import socket
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from ringbatch.engine import frontends
from ringbatch.engine.frontends import Frontends
from ringbatch.engine.settings import ServerConfig
from ringbatch.shm.errors import StartupError


def made(**settings: Any) -> Frontends:
    server = ServerConfig(**{"port": 0, "frontends": 2} | settings)
    return Frontends(server, lambda: "/segment")


def test_without_a_port_there_is_no_grpc() -> None:
    with closing(made(grpc_frontends=3)) as found:
        assert ([place.title for place in found.places], found.lanes) == (["frontends"], 4)
        assert "gRPC" not in found.welcome("m")


def test_every_frontend_for_grpc_has_a_place_and_a_lane() -> None:
    with closing(made(grpc_port=0, grpc_frontends=3)) as found:
        titles = [place.title for place in found.places]
        assert titles == ["frontends", *(f"grpc frontend {number}" for number in range(3))]
        assert found.lanes == 4 + 3


def test_they_serve_once_all_hold_lanes_and_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[socket.socket] = []

    def answers_ready(listener: socket.socket) -> bool:
        asked.append(listener)
        return True

    monkeypatch.setattr(frontends, "answers_ready", answers_ready)
    with closing(made(grpc_port=0, grpc_frontends=2)) as found:
        assert not found.all_serve(4)
        for place in found.grpc:
            place.ready_ns = 1
        assert not found.all_serve(3)
        assert asked == []
        assert found.all_serve(4)


def test_both_ports_are_named_and_free_again_afterwards(
    free_port_factory: Callable[[], int],
) -> None:
    http, grpc = free_port_factory(), free_port_factory()
    for _ in range(2):
        with closing(made(port=http, grpc_port=grpc)) as found:
            assert found.welcome("a, b") == (
                f"ringbatch: serving a, b on http://127.0.0.1:{http}\n"
                f"ringbatch: serving gRPC on 127.0.0.1:{grpc}"
            )
            for port, count in ((http, 2), (grpc, 1)):
                with pytest.raises(StartupError, match="the port is in use"):
                    made(port=port, frontends=count)


def test_a_port_that_cannot_be_had_leaves_the_other_free(
    free_port_factory: Callable[[], int],
) -> None:
    http = free_port_factory()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(StartupError, match="choose another with --grpc-port"):
            made(port=http, grpc_port=taken.getsockname()[1])
        made(port=http).close()
