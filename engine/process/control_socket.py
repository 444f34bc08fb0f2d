"""What joins each process to its supervisor: a socket pair, on which messages cross.

Its end is also how each learns that the other is gone.
"""

import socket
from typing import TypeVar

from ringbatch.engine.process.role_messages import FromRole
from ringbatch.shm.host.messages import Vocabulary, encode

M = TypeVar("M")


class ControlSocket:
    """One end of the socket pair between a process and its supervisor."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._buffer = b""

    @classmethod
    def from_fd(cls, fd: int) -> "ControlSocket":
        """The end that was inherited under that number."""
        return cls(socket.socket(fileno=fd))

    def fileno(self) -> int:
        """For selectors."""
        return self._socket.fileno()

    def send(self, message: FromRole) -> bool:
        """Send one message; False where the other process is gone."""
        try:
            self._socket.sendall(encode(message))
        except OSError:
            return False
        return True

    def receive(self, expected: Vocabulary[M]) -> M | None:
        """The next message, waiting for it; None at the other process's end.

        Args:
            expected: what may come next.

        Raises:
            MalformedMessage: something else came.
        """
        while b"\n" not in self._buffer:
            try:
                data = self._socket.recv(65536)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return expected.decode(line)

    def close(self) -> None:
        """Close this end."""
        self._socket.close()
