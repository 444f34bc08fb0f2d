"""The supervisor's end of the socket pair to one of its processes, which never waits.

Whoever has the other end may be stopped, may read nothing, send half a line or send without end,
and a child of its own may hold on to it when it is dead. So nothing here waits, and nothing grows:
what is not read by the process stays in the kernel's buffer, and what cannot go there is not sent.
"""

import socket
from typing import Final

from ringbatch.engine.process.role_messages import ToRole
from ringbatch.shm.host.messages import MalformedMessage, encode

MAX_LINE_BYTES: Final = 1 << 20
"""Of what a process says."""
_PIECE_BYTES: Final = 1 << 16


class Unread(Exception):
    """The process does not read what it is told, and so much is under way already that no more
    fits."""


class Channel:
    """One end, as the supervisor has it.

    Args:
        end: of the socket pair; it belongs to this object from now on.
    """

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._socket = end
        self._unfinished = b""

    def fileno(self) -> int:
        """For selectors."""
        return self._socket.fileno()

    def send(self, message: ToRole) -> None:
        """Send a message; nothing happens where the process is gone.

        Raises:
            Unread: it cannot be sent, or not all of it; the process cannot be told anything more.
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
        """The lines that have come, without their ends, of one piece at most; None at the end.

        Raises:
            MalformedMessage: there is no end of a line in sight.
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

    def last_words(self) -> list[bytes]:
        """The lines of a process that is dead.

        A child of its own may have the other end still. It can send nothing from now on, so what
        there is to read is what the kernel's buffer has.
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
