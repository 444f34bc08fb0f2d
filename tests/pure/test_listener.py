"""The listening socket: where it can be had, and the words where it cannot."""

import errno
import os
import select
import socket
from contextlib import ExitStack
from typing import Any, cast

import pytest

from ringbatch.engine.supervisor import listener as listener_module
from ringbatch.engine.supervisor.listener import (
    address,
    half_open,
    hold,
    listen,
    listen_all,
    refuse_new_connections,
)
from ringbatch.frontend.grpc.server import listen as listen_for_grpc
from ringbatch.shm.errors import StartupError


def test_port_zero_is_any_free_port_and_the_url_says_which() -> None:
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        assert address(listener) == f"127.0.0.1:{port}"
        socket.create_connection(("127.0.0.1", port)).close()


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 on this host")
def test_an_ipv6_address_stands_in_brackets_in_the_url() -> None:
    try:
        listener = listen("::1", 0)
    except StartupError:
        pytest.skip("no IPv6 loopback on this host")
    with listener:
        assert address(listener) == f"[::1]:{listener.getsockname()[1]}"


def test_a_port_in_use_is_named_with_the_way_out() -> None:
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(
            StartupError, match=rf"cannot listen on 127\.0\.0\.1:{port}: the port is in use"
        ):
            listen("127.0.0.1", port)


@pytest.mark.parametrize(
    ("port", "words"),
    [
        (80, "ports below 1024 need a privilege here; choose another than 80 with --port"),
        (8080, "port 8080 needs a privilege here; choose another than 8080 with --port"),
    ],
)
def test_a_port_that_needs_a_privilege_is_named(
    monkeypatch: pytest.MonkeyPatch, port: int, words: str
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(StartupError) as caught:
        listen("::", port)
    assert str(caught.value) == f"cannot listen on [::]:{port}: {words}"


def test_several_sockets_share_a_port_that_is_in_use_for_everybody_else() -> None:
    listeners = listen_all("127.0.0.1", 0, 3)
    (port,) = {listener.getsockname()[1] for listener in listeners}
    for count in (1, 2):
        with pytest.raises(StartupError, match="the port is in use"):
            listen_all("127.0.0.1", port, count)
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(8)]
    for end in (*clients, *listeners):
        end.close()


def test_a_port_that_somebody_shares_with_others_is_in_use_all_the_same() -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(StartupError, match="the port is in use"):
            listen_all("127.0.0.1", other.getsockname()[1], 2)


def test_a_held_port_is_refused_to_others_and_shared_with_its_own_listeners() -> None:
    with hold("127.0.0.1", 0) as held:
        port = held.getsockname()[1]
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        for take in (hold, listen):
            with pytest.raises(StartupError, match="the port is in use"):
                take("127.0.0.1", port)
        with socket.socket() as frontend:
            frontend.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            frontend.bind(("127.0.0.1", port))
            frontend.listen()
            with socket.create_connection(("127.0.0.1", port)) as client:
                accepted, address = frontend.accept()
                with accepted:
                    assert address == client.getsockname()


def test_a_lingering_socket_of_a_grpc_frontend_keeps_nobody_from_its_port() -> None:
    with hold("127.0.0.1", 0) as held:
        port = held.getsockname()[1]
        with listen_for_grpc(f"127.0.0.1:{port}") as listener:
            client = socket.create_connection(("127.0.0.1", port))
            listener.setblocking(True)
            # It closes first, and so waits for the client, in the kernel alone.
            accepted, _ = listener.accept()
            accepted.close()
    with hold("127.0.0.1", port), client:
        assert client.recv(1) == b""


def test_a_port_in_use_cannot_be_held_and_the_flag_is_named() -> None:
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        words = rf"cannot listen on 127\.0\.0\.1:{port}: the port is in use; .* --grpc-port$"
        with pytest.raises(StartupError, match=words):
            hold("127.0.0.1", port)


def test_a_port_just_left_can_be_had_again_at_once() -> None:
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        accepted, _ = listener.accept()
        accepted.close()
        client.close()
    listen("127.0.0.1", port).close()


def test_an_address_of_another_machine_is_named() -> None:
    with pytest.raises(StartupError, match="no interface of this machine has that address"):
        listen("192.0.2.1", 0)


UNKNOWN_HOSTS = {
    "no-such-name": "no.such.host.invalid",
    "label-too-long": "a" * 64 + ".example",
    "empty-label": "a..example",
    "null": "local\0host",
}


@pytest.mark.parametrize("host", UNKNOWN_HOSTS.values(), ids=UNKNOWN_HOSTS.keys())
def test_an_unknown_host_is_named_with_its_setting(host: str) -> None:
    with pytest.raises(StartupError, match=r"\[server\] host: .* is no address of this machine"):
        listen(host, 0)


class Refusing:
    """A socket of a kernel that refuses options.

    Attributes:
        asked: the numbers of the options that were asked for.
    """

    def __init__(self, real: socket.socket, *refused: int) -> None:
        self._real = real
        self.family = real.family
        self._refused = refused
        self.asked: list[int] = []

    def setsockopt(self, level: int, option: int, value: Any) -> None:
        """See `socket.socket.setsockopt`."""
        self.asked.append(option)
        if option in self._refused:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        self._real.setsockopt(level, option, value)


BIND_TO_INTERFACE, ATTACH_FILTER = 62, 26


def filters_are_allowed() -> bool:
    """Some kernels want a privilege."""
    with listen("127.0.0.1", 0) as listener:
        return refuse_new_connections(cast(socket.socket, Refusing(listener, BIND_TO_INTERFACE)))


WAYS = {
    "listens nowhere": (),
    "drops first packets": pytest.param(
        (BIND_TO_INTERFACE,),
        marks=pytest.mark.skipif(not filters_are_allowed(), reason="no filters without privileges"),
    ),
}


@pytest.mark.parametrize("refused", WAYS.values(), ids=WAYS.keys())
def test_a_socket_that_refuses_new_connections_keeps_its_old_ones(
    refused: tuple[int, ...],
) -> None:
    with ExitStack() as stack:
        listener = stack.enter_context(listen("127.0.0.1", 0))
        address = listener.getsockname()
        queued = stack.enter_context(socket.create_connection(address))
        queued.sendall(b"before")
        # The server's kernel takes the next for connected when it has sent something.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 30)
        assert not half_open({address[1]})
        begun = stack.enter_context(socket.create_connection(address))
        assert half_open({address[1]})
        assert refuse_new_connections(cast(socket.socket, Refusing(listener, *refused)))
        late = stack.enter_context(socket.socket())
        late.setblocking(False)
        # On the loopback a connection is open before this returns.
        assert late.connect_ex(address) == errno.EINPROGRESS
        begun.sendall(b"begun")
        assert not half_open({address[1]})
        for text in (b"before", b"begun"):
            accepted = stack.enter_context(listener.accept()[0])
            assert accepted.recv(100) == text
        queued.sendall(b"after")
        begun.sendall(b"after")
        assert accepted.recv(100) == b"after"
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()
        listener.close()
        # Refused, at its second attempt at the latest, and never reset.
        select.select([], [late], [])
        assert late.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED


def test_a_kernel_that_refuses_everything_is_reported_without_an_error() -> None:
    with listen("127.0.0.1", 0) as listener:
        refusing = Refusing(listener, BIND_TO_INTERFACE, ATTACH_FILTER)
        assert not refuse_new_connections(cast(socket.socket, refusing))
        assert refusing.asked == [BIND_TO_INTERFACE, ATTACH_FILTER]


def test_clients_of_other_ports_and_protocols_are_distinguished() -> None:
    with ExitStack() as stack:
        listeners = [stack.enter_context(listen(host, 0)) for host in hosts()]
        for listener in listeners:
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 30)
            port = listener.getsockname()[1]
            assert not half_open({port})
            stack.enter_context(socket.create_connection(listener.getsockname()[:2]))
            assert half_open({port, 1})
            assert not half_open({1})


def test_clients_that_cannot_be_seen_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(ports: object) -> list[bytes]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(listener_module, "tcp_states", refused)
    assert not half_open({80})


def hosts() -> list[str]:
    """The loopback addresses of this machine."""
    try:
        listen("::1", 0).close()
    except StartupError:
        return ["127.0.0.1"]
    return ["127.0.0.1", "::1"]
