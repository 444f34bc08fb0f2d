"""What the kernel says of a process's own connections, and how one is ended."""

import os
import socket

from ringbatch.frontend.grpc.holdings import connections


def test_a_process_finds_and_ends_the_connections_of_its_clients_alone() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_server(("127.0.0.1", 0)) as other,
        socket.create_connection(listener.getsockname()) as client,
        socket.create_connection(other.getsockname()) as stranger,
        listener.accept()[0] as served,
        other.accept()[0],
    ):
        client.sendall(bytes(1000))
        assert served.recv(1000, socket.MSG_WAITALL) == bytes(1000)
        before = set(os.listdir("/proc/self/fd"))
        (found,) = connections(listener.getsockname()[1])
        assert found.received_bytes == 1000
        assert found.silent_s >= 0
        found.end()
        assert client.recv(1) == b""
        stranger.setblocking(False)
        try:
            stranger.recv(1)
            raise AssertionError("it was to stay open")
        except BlockingIOError:
            pass
        assert set(os.listdir("/proc/self/fd")) == before


def test_a_descriptor_that_is_another_file_by_now_is_left_alone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        served = listener.accept()[0]
        (found,) = connections(listener.getsockname()[1])
        ours, theirs = socket.socketpair()
        os.dup2(ours.fileno(), served.fileno())
        found.end()
        theirs.send(b"x")
        assert ours.recv(1) == b"x"
        for each in (client, served, ours, theirs):
            each.close()
