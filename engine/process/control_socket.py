"""What joins each process to its supervisor: lines of JSON on a socket pair.

Its end is also how each learns that the other is gone.
"""

import json
import socket
from typing import Any


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

    def send(self, **fields: Any) -> bool:
        """Send one message; False where the other process is gone."""
        try:
            self._socket.sendall(json.dumps(fields).encode() + b"\n")
        except OSError:
            return False
        return True

    def receive(self) -> list[dict[str, Any]] | None:
        """The next messages, at least one, waiting for them; None at the other process's end."""
        while b"\n" not in self._buffer:
            try:
                data = self._socket.recv(65536)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._buffer += data
        *lines, self._buffer = self._buffer.split(b"\n")
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        """Close this end."""
        self._socket.close()
