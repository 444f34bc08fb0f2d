"""The supervisor's end of the socket on which an engine is told to change what it serves."""

import os
import selectors
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from ringbatch.shm.control import (
    MAX_LINE_BYTES,
    Order,
    Report,
    order_line,
    read_order,
    read_report,
    report_line,
    socket_path,
)
from ringbatch.shm.errors import StartupError

_MAX_CONNECTIONS: Final = 64
_SEND_LIMIT_S: Final = 1.0
"""How long whoever asked may take to read the answer."""

Take = Callable[[Order, Callable[[Report], None]], None]


class ControlServer:
    """The socket and its connections.

    Args:
        segment_name: of the engine's segment, beside which it lies.
        selector: where it says what it waits for; the data of its keys are functions to call.
        take: is given each order, and what to call with its report.
    """

    def __init__(self, segment_name: str, selector: selectors.BaseSelector, take: Take) -> None:
        self._selector = selector
        self._take = take
        self._connections: dict[socket.socket, bytes] = {}
        self._path = socket_path(segment_name)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._listener.bind(self._path)
        # Nobody can connect before it listens.
        os.chmod(self._path, 0o600)
        self._listener.listen()
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def close(self) -> None:
        """Take no more orders."""
        self._selector.unregister(self._listener)
        self._listener.close()
        for connection in list(self._connections):
            self._drop(connection)
        with suppress(FileNotFoundError):
            os.unlink(self._path)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # whoever came has left
            return
        if len(self._connections) >= _MAX_CONNECTIONS:
            connection.close()
            return
        connection.setblocking(False)
        self._connections[connection] = b""
        self._selector.register(
            connection, selectors.EVENT_READ, partial(self._receive, connection)
        )

    def _receive(self, connection: socket.socket) -> None:
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
        # What comes after the line is nothing; the end of the connection is seen at the answer.
        self._selector.unregister(connection)
        order = read_order(line.partition(b"\n")[0])
        if order is None:
            self._answer(connection, Report("failed", ("that is no order",)))
        else:
            self._take(order, partial(self._answer, connection))

    def _answer(self, connection: socket.socket, report: Report) -> None:
        if connection not in self._connections:
            return
        connection.settimeout(_SEND_LIMIT_S)
        with suppress(OSError):
            connection.sendall(report_line(report))
        self._drop(connection)

    def _drop(self, connection: socket.socket) -> None:
        del self._connections[connection]
        if connection in self._selector.get_map():
            self._selector.unregister(connection)
        connection.close()


def ask(segment_name: str, order: Order) -> Report:
    """Give an engine an order, and wait until it is carried out.

    Raises:
        StartupError: no engine takes it, or it ended meanwhile.
    """
    line = b""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(socket_path(segment_name))
            connection.sendall(order_line(order))
            while not line.endswith(b"\n") and (data := connection.recv(MAX_LINE_BYTES)):
                line += data
        except OSError as error:
            raise StartupError(f"the engine takes no orders: {error.strerror}") from None
    report = read_report(line)
    if report is None:
        raise StartupError("the engine ended before it was done")
    return report
