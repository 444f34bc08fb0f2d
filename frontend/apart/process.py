"""A frontend's process for large bodies. It is started when the first of them comes. Its only
connection is that to its frontend, and it ends when that does."""

import importlib
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Final

from ringbatch.frontend.apart.messages import Bytes, Closed, Job, Received, receive, send
from ringbatch.shm.errors import RequestError

LONGEST_S: Final = 120.0
"""Without a byte from it, and it is taken for hung."""


class Broken(Exception):
    """The process is gone, or its function has a defect; says which."""


class Process:
    """See the module. One thread calls it; any may close it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None
        self._closed = False

    def call(self, job: Job, value: Any, data: Sequence[Bytes]) -> Received:
        """What a function returns there.

        Raises:
            RequestError: the function does.
            Broken: the process does not work.
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
        """Have it end."""
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
                [sys.executable, "-P", "-m", "ringbatch.frontend.apart.role", str(number)],
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
    """An error from where its class is, and its text."""
    error = getattr(importlib.import_module(module), name)(text)
    assert isinstance(error, RequestError), "of no other kind"
    return error
