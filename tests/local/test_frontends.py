"""Frontends as the supervisor knows them before any starts: ports, lanes, processes."""

import re
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme

from ringbatch.engine.config.settings import ServerConfig
from ringbatch.engine.process.memory_limits import FRONTEND_HEAP
from ringbatch.engine.supervisor import frontends, listening_sockets
from ringbatch.engine.supervisor.frontends import Frontends
from ringbatch.shm.errors import StartupError


def made(**settings: Any) -> Frontends:
    server = ServerConfig(**{"port": 0, "frontends": 2} | settings)
    found = Frontends(server)
    found.segment_name = "/segment"
    return found


def test_without_a_port_there_is_no_grpc() -> None:
    with closing(made(grpc_frontends=3)) as found:
        assert [managed.title for managed in found.processes] == ["frontends"]
        assert "gRPC" not in found.welcome("m")


def test_every_frontend_for_grpc_has_a_place_and_a_lane() -> None:
    with closing(made(grpc_port=0, grpc_frontends=3)) as found:
        titles = [managed.title for managed in found.processes]
        assert titles == ["frontends", *(f"grpc frontend {number}" for number in range(3))]


def test_frontends_keep_the_memory_that_a_large_request_has_freed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: dict[str, Mapping[str, str]] = {}

    def child(
        title: str, _module: str, _words: object, environment: Any, *_: Any, **_more: Any
    ) -> None:
        started[title] = environment

    monkeypatch.setattr(frontends, "Child", child)
    with closing(made(grpc_port=0)) as found:
        for managed in found.processes:
            managed.start(False)
    assert started.keys() == {"frontends", "grpc frontend 0"}
    for environment in started.values():
        assert environment.items() >= FRONTEND_HEAP.items()


def test_they_serve_once_all_hold_lanes_and_listen(
    monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., object]
) -> None:
    asked: list[socket.socket] = []

    def answers_ready(listener: socket.socket, *, tls: bool) -> bool:
        assert not tls
        asked.append(listener)
        return True

    monkeypatch.setattr(frontends, "answers_ready", answers_ready)
    with closing(made(grpc_port=0, grpc_frontends=2)) as found:
        assert not found.all_serve(4)
        for managed in found.grpc:
            managed.ready_ns = 1
        assert not found.all_serve(3)
        assert asked == []
        wait_until(lambda: found.all_serve(4), "they serve")


def test_a_frontend_that_does_not_answer_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., object]
) -> None:
    silent = threading.Event()
    asked: list[socket.socket] = []

    def answers_ready(listener: socket.socket, *, tls: bool) -> bool:
        assert not tls
        asked.append(listener)
        return silent.wait()

    monkeypatch.setattr(frontends, "answers_ready", answers_ready)
    with closing(made()) as found:
        for _ in range(3):
            assert not found.all_serve(4)
        silent.set()
        wait_until(lambda: found.all_serve(4), "they serve")
    assert len(asked) == 1, "one question at a time"


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


def test_the_control_address_has_a_place_and_no_lane(free_port_factory: Callable[[], int]) -> None:
    port = free_port_factory()
    with closing(made(control_port=port)) as found:
        assert [managed.title for managed in found.processes] == ["frontends", "control"]
        url = f"http://127.0.0.1:{port}"
        assert found.welcome("m").endswith(f"serving metrics on {url}/metrics, a page on {url}/")
        with pytest.raises(StartupError, match="choose another with --control-port"):
            made(control_port=port)
    with pytest.raises(StartupError, match=r"\[server\] control_host: 'nowhere.invalid'"):
        made(control_port=0, control_host="nowhere.invalid")


def test_a_certificate_that_has_expired_is_warned_of_and_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    past = datetime.now(UTC) - timedelta(days=1)
    issued = trustme.CA().issue_cert("localhost", not_after=past)
    certificate, key = tmp_path / "c.pem", tmp_path / "k.pem"
    certificate.write_bytes(issued.cert_chain_pems[0].bytes())
    key.write_bytes(issued.private_key_pem.bytes())
    key.chmod(0o600)
    with closing(made(tls_certificate=certificate, tls_key=key)) as found:
        assert "https://" in found.welcome("m")
    assert "has expired" in caplog.text


def test_credentials_that_cannot_be_used_end_the_start_before_a_port_is_taken(
    tmp_path: Path, free_port_factory: Callable[[], int]
) -> None:
    port, keys = free_port_factory(), tmp_path / "keys"
    keys.write_text("short")
    keys.chmod(0o600)
    with pytest.raises(StartupError, match="line 1 is no API key"):
        made(port=port, api_keys_file=keys)
    made(port=port).close()


def test_closed_to_new_connections_every_port_for_http_refuses_them() -> None:
    with closing(made(control_port=0)) as found:
        found.refuse_new_connections()
        ports = [int(port) for port in re.findall(r"http://127\.0\.0\.1:(\d+)", found.welcome("m"))]
        assert len(set(ports)) == 2
        for port in ports:
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port))
        assert not found.has_half_open_connections()


def test_where_new_connections_cannot_be_refused_the_stop_goes_on_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listening_sockets, "refuse_new_connections", lambda listener: False)
    with closing(made()) as found:
        found.refuse_new_connections()
        found.has_half_open_connections()
    (record,) = caplog.records
    assert "this kernel refuses" in record.message


def test_traces_without_their_package_are_refused_with_the_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frontends, "_OTEL_PACKAGES", ("opentelemetry_that_nobody_has.proto",))
    with pytest.raises(StartupError) as refused:
        made(control_port=0, trace_endpoint="http://127.0.0.1:4318")
    assert str(refused.value) == (
        "[server] trace_endpoint: traces need the package opentelemetry_that_nobody_has.proto, "
        "which is not installed; pip install 'ringbatch[otel]', or in a clone '.[otel]'"
    )
