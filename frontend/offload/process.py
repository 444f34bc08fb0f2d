"""Frontend's process for large bodies.

The first large body starts it. Its only connection leads to its frontend, and it ends when the
frontend does.
"""

import importlib
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Final

from ringbatch.frontend.offload.messages import Bytes, Closed, Job, Received, receive, send
from ringbatch.shm.errors import RequestError

LONGEST_S: Final = 120.0
"""Time without a byte from the process after which the frontend takes it for hung."""


class Broken(Exception):
    """Failure of the process, or a defect in its function; the text says which."""


class Process:
    """A frontend's process for large bodies. One thread calls it; any may close it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None
        self._closed = False

    def call(self, job: Job, value: Any, data: Sequence[Bytes]) -> Received:
        """Run a function in the process, and return its result.

        Raises:
            RequestError: the function raises it.
            Broken: the process or the function fails.
        """
        if self._connection is None:
            self._start()
        assert self._connection is not None
        try:
            send(self._connection, [job.__module__, job.__name__, value], data)
            (found, error, defect), parts = receive(self._connection)
        except (OSError, Closed) as gone:
            self._end()
            raise Broken(f"the process for large bodies has ended: {gone or 'killed'}") from None
        if error is not None:
            raise error_of(*error)
        if defect:
            raise Broken(defect)
        return found, parts

    def close(self) -> None:
        """End the process."""
        self._closed = True
        self._end()

    def _start(self) -> None:
        if self._closed:
            raise Broken("the frontend ends")
        own, other = socket.socketpair()
        own.settimeout(LONGEST_S)
        with other:
            number = other.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "ringbatch.frontend.offload.role", str(number)],
                stdin=subprocess.DEVNULL,
                pass_fds=(number,),
            )
        self._connection = own

    def _end(self) -> None:
        connection, self._connection = self._connection, None
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
        if connection is not None:
            connection.close()


def error_of(module: str, name: str, text: str) -> RequestError:
    """Make an error from its text, and the module and the name of its class."""
    error = getattr(importlib.import_module(module), name)(text)
    assert isinstance(error, RequestError), "of no other kind"
    return error
