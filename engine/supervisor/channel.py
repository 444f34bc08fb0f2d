"""Non-blocking end of a control socket, in the supervisor.

The other process may be stopped, may read nothing, may send half a line or without end. A child of
it may hold on to its end after its death. So no call here waits, and no buffer grows: a message
that the process does not read stays in the kernel's buffer, and one that does not fit there is not
sent.
"""

import socket
from typing import Final

from ringbatch.engine.process.role_commands import ToRole
from ringbatch.shm.host.messages import MalformedMessage, encode

MAX_LINE_BYTES: Final = 1 << 20
"""Longest line from a process."""
_PIECE_BYTES: Final = 1 << 16


class Unread(Exception):
    """The process does not read its messages, and the kernel's buffer is full."""


class Channel:
    """The supervisor's end of a control socket.

    Args:
        end: of the socket pair; it belongs to this object from now on.
    """

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._socket = end
        self._unfinished = b""

    def fileno(self) -> int:
        """Return the descriptor, for selectors."""
        return self._socket.fileno()

    def send(self, message: ToRole) -> None:
        """Send a message; do nothing if the process is gone.

        Raises:
            Unread: not all of the message could be sent; no further message can be.
        """
        line = encode(message)
        try:
            sent = self._socket.send(line)
        except BlockingIOError:
            sent = 0
        except OSError:
            return
        if sent < len(line):
            raise Unread

    def receive(self) -> list[bytes] | None:
        """Return the lines that have come, of one piece at most, without their ends; None at EOF.

        Raises:
            MalformedMessage: a line is too long.
        """
        try:
            data = self._socket.recv(_PIECE_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            return None
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        if len(self._unfinished) > MAX_LINE_BYTES:
            raise MalformedMessage(f"says more than {MAX_LINE_BYTES} bytes in one line")
        return lines

    def unread_lines(self) -> list[bytes]:
        """Return the last lines of a dead process.

        A child of it may still have the other end, but can send nothing from now on. So the lines
        are those in the kernel's buffer.
        """
        try:
            self._socket.shutdown(socket.SHUT_RD)
        except OSError:
            return []
        lines = []
        while (more := self.receive()) is not None:
            lines += more
        return lines

    def close(self) -> None:
        """Close this end."""
        self._socket.close()
