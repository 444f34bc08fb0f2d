"""Control socket: the socket pair between a process and its supervisor, which carries messages.

The end of the stream also shows each side that the other is gone.
"""

import os
import socket
from typing import TypeVar

from ringbatch.engine.process.role_events import FromRole
from ringbatch.shm.host.messages import Vocabulary, encode

M = TypeVar("M")


class ControlSocket:
    """End of the socket pair between a process and its supervisor."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._inode = os.fstat(end.fileno()).st_ino
        self._buffer = b""

    @classmethod
    def from_fd(cls, fd: int) -> "ControlSocket":
        """Return the end that was inherited as this descriptor."""
        return cls(socket.socket(fileno=fd))

    def fileno(self) -> int:
        """Return the descriptor, for selectors."""
        return self._socket.fileno()

    @property
    def is_open(self) -> bool:
        """False if code of a model has closed the descriptor, which another file may have now."""
        try:
            return os.fstat(self._socket.fileno()).st_ino == self._inode
        except OSError:
            return False

    def send(self, message: FromRole) -> bool:
        """Send one message; return False if the other process is gone."""
        try:
            self._socket.sendall(encode(message))
        except OSError:
            return False
        return True

    def receive(self, expected: Vocabulary[M]) -> M | None:
        """Wait for the next message and return it; None if the other process has closed its end.

        Args:
            expected: the messages that may come next.

        Raises:
            MalformedMessage: another message came.
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
