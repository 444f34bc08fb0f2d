"""The listening socket: where it can be had, and the words where it cannot."""

import errno
import select
import socket
from contextlib import ExitStack

import pytest

from ringbatch.engine.listener import address, close_to_newcomers, hold, listen, listen_all
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


def test_a_held_port_is_refused_to_others_and_shared_with_those_who_know() -> None:
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


def test_closed_to_newcomers_it_keeps_the_connections_it_has() -> None:
    with ExitStack() as stack:
        listener = stack.enter_context(listen("127.0.0.1", 0))
        address = listener.getsockname()
        queued = stack.enter_context(socket.create_connection(address))
        queued.sendall(b"before")
        close_to_newcomers(listener)
        late = stack.enter_context(socket.socket())
        late.setblocking(False)
        # On the loopback a connection is open or refused before this returns.
        assert late.connect_ex(address) == errno.EINPROGRESS
        accepted = stack.enter_context(listener.accept()[0])
        assert accepted.recv(100) == b"before"
        queued.sendall(b"after")
        assert accepted.recv(100) == b"after"
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()
        listener.close()
        # Refused at its second attempt, never reset.
        select.select([], [late], [])
        assert late.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED
