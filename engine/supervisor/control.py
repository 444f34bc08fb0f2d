"""Control socket of an engine: takes orders to change the served models."""

import errno
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from ringbatch.engine.supervisor.loop import Loop
from ringbatch.shm.host.control_socket import (
    MAX_LINE_BYTES,
    Order,
    Report,
    read_order,
    report_line,
    socket_path,
)

_MAX_CONNECTIONS: Final = 128
"""Each waits for its order to end. Fewer orders may wait; further ones are refused in words."""
_TOO_MANY: Final = Report("failed", ("too many orders wait already; try again later",))

Take = Callable[[Order, Callable[[Report], None]], None]
HandOver = Callable[[socket.socket], None]


class ControlServer:
    """The socket and its connections.

    It listens from the beginning. An order that comes before `take_orders` waits in the socket, as
    later ones wait for the orders before them.

    Args:
        segment_name: of the engine's segment; the socket has its path from it.
        loop: that waits for connections and orders.
    """

    def __init__(self, segment_name: str, loop: Loop) -> None:
        self._loop = loop
        self._connections: dict[socket.socket, bytes] = {}
        self._path = socket_path(segment_name)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._listener.bind(self._path)
        # No process can connect before it listens.
        os.chmod(self._path, 0o600)
        self._listener.listen()
        # Closed to accept a connection that would otherwise wait, and wake the loop, for ever.
        self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def take_orders(self, take: Take, hand_over: HandOver) -> None:
        """Take orders from now on.

        Args:
            take: called with each order, and with a function for its report.
            hand_over: called with the connection of an engine that takes over.
        """
        self._loop.watch(self._listener, partial(self._accept, take, hand_over), self.close)

    def close(self) -> None:
        """Take no more orders; do nothing if that is so already."""
        if self._spare < 0:
            return
        os.close(self._spare)
        self._spare = -1
        self._loop.forget(self._listener)
        self._listener.close()
        for connection in list(self._connections):
            self._drop(connection)
        with suppress(FileNotFoundError):
            os.unlink(self._path)

    def _accept(self, take: Take, hand_over: HandOver) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._refuse_connections()
            return  # or the caller has left
        connection.setblocking(False)
        if len(self._connections) >= _MAX_CONNECTIONS:
            with suppress(OSError):
                connection.send(report_line(_TOO_MANY))
            connection.close()
            return
        self._connections[connection] = b""
        self._loop.watch(
            connection,
            partial(self._receive, connection, take, hand_over),
            partial(self._drop, connection),
        )

    def _refuse_connections(self) -> None:
        """Close a connection for which there is no descriptor."""
        os.close(self._spare)
        with suppress(OSError):
            self._listener.accept()[0].close()
        self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _receive(self, connection: socket.socket, take: Take, hand_over: HandOver) -> None:
        try:
            data = connection.recv(MAX_LINE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        line = self._connections[connection] + data
        self._connections[connection] = line
        if data and b"\n" not in line and len(line) < MAX_LINE_BYTES:
            return
        if not data:
            self._drop(connection)
            return
        # Bytes behind the line are ignored; the reply notices the end of the connection.
        self._loop.forget(connection)
        order = read_order(line.partition(b"\n")[0])
        if order is None:
            self._answer(connection, Report("failed", ("that is no order",)))
        elif order.action == "handover":
            del self._connections[connection]
            hand_over(connection)
        else:
            take(order, partial(self._answer, connection))

    def _answer(self, connection: socket.socket, report: Report) -> None:
        if connection not in self._connections:
            return
        # It is the first data sent, so the kernel's buffer has room for all of it.
        with suppress(OSError):
            connection.send(report_line(report))
        self._drop(connection)

    def _drop(self, connection: socket.socket) -> None:
        del self._connections[connection]
        self._loop.forget(connection)
        connection.close()
