"""What clients have this process hold of requests that never become whole, and whose connections
end for it.

grpcio makes room for the whole of a request as soon as its first bytes name its length, tells
nobody of it until it is whole, and has no limit on all of them together. So the process looks at
the memory that it has in use, and at its connections with the kernel's eyes: who is silent while
others need the room has stalled. Ending a connection frees what grpcio holds for it.
"""

import asyncio
import ctypes
import logging
import math
import os
import resource
import socket
import struct
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

log = logging.getLogger("ringbatch.frontend")

_LOOK_EVERY_S: Final = 0.25
_HURRIED_S: Final = 0.05
"""The same where half of the budget is spent; in so much time, a gigabyte a second is not much."""
_REQUESTS: Final = 8
_LEAST_BYTES: Final = 1 << 26
_AT_WORST: Final = 2
"""So many times the budget nobody is spared, silent or not."""
_SILENT_S: Final = 1.0
"""Who sends nothing for so long has stalled, where the budget is spent."""
_SCANS: Final = 8
"""In the time that a connection may be silent, they are looked at so often."""
_INFO: Final = struct.Struct("52xI72xQ")
"""Of the kernel's tcp_info: milliseconds since data came, and the bytes that came in all."""
_ESTABLISHED: Final = 1


class Connection(NamedTuple):
    """One client's.

    Attributes:
        end: ends it.
        silent_s: for how long nothing has come.
        received_bytes: what came in all.
    """

    end: Callable[[], None]
    silent_s: float
    received_bytes: int


class Budget(NamedTuple):
    """The memory for what clients have sent and what is not whole.

    Attributes:
        limit_bytes: all of it.
        small_bytes: so much is held by anybody who cares to, for any time.
        patience_s: how long a connection may be silent while more than that is held.
    """

    limit_bytes: int
    small_bytes: int
    patience_s: float

    @classmethod
    def of(cls, max_request_bytes: int, patience_s: float) -> "Budget":
        """One into which several of the largest requests fit."""
        limit_bytes = max(_LEAST_BYTES, _REQUESTS * max_request_bytes)
        return cls(limit_bytes, limit_bytes // 16, patience_s)

    def silence_s(self, held_bytes: int) -> float | None:
        """How long a connection may be silent where so much is held; None for ever."""
        if held_bytes > _AT_WORST * self.limit_bytes:
            return 0.0
        if held_bytes > self.limit_bytes:
            return min(_SILENT_S, self.patience_s)
        return self.patience_s if held_bytes > self.small_bytes else None

    def to_end(self, held_bytes: int, connections: Iterable[Connection]) -> list[Connection]:
        """Whose connections to end: of those silent for too long, those that have sent the most, as
        many as may have sent all that is too much. Who still sends comes last."""
        silence_s = self.silence_s(held_bytes)
        if silence_s is None:
            return []
        over_bytes = held_bytes - (
            self.limit_bytes if held_bytes > self.limit_bytes else self.small_bytes
        )
        chosen = []
        for connection in sorted(connections, key=_suspicion, reverse=True):
            if connection.silent_s >= silence_s and over_bytes > 0:
                chosen.append(connection)
                over_bytes -= connection.received_bytes
        return chosen


def _suspicion(connection: Connection) -> tuple[bool, int]:
    return connection.silent_s >= _SILENT_S, connection.received_bytes


class Holdings:
    """Those of this process.

    Args:
        budget: for all of them.
        port: the connections of which are the clients'.
    """

    def __init__(self, budget: Budget, port: int) -> None:
        self._budget = budget
        self._port = port
        self._own_bytes = _in_use()
        self._scanned_s = -math.inf
        self._to_return = False
        """Whether there is memory of ended connections that malloc keeps."""

    async def watch(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            spent = self.look(time.monotonic()) > self._budget.limit_bytes // 2
            await asyncio.sleep(_HURRIED_S if spent else _LOOK_EVERY_S)

    def look(self, now_s: float) -> int:
        """End the connections that have to go; the bytes that clients had held before."""
        held_bytes = _in_use() - self._own_bytes
        if self._to_return and held_bytes <= self._budget.limit_bytes:
            _LIBC.malloc_trim(0)
            self._to_return = False
        silence_s = self._budget.silence_s(held_bytes)
        if silence_s is None or now_s - self._scanned_s < silence_s / _SCANS:
            return held_bytes
        self._scanned_s = now_s
        chosen = self._budget.to_end(held_bytes, connections(self._port))
        for connection in chosen:
            connection.end()
        if chosen:
            self._to_return = _MALLOC_INFO is not None
            log.warning(
                "grpc frontend: ended %d connections: clients had %d MiB held here and sent "
                "nothing for %.0f s and more",
                len(chosen),
                held_bytes >> 20,
                min(connection.silent_s for connection in chosen),
            )
        return held_bytes


def connections(port: int) -> list[Connection]:
    """Those of this process to a port of its own."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            with own_socket(int(name)) as own:
                if own.type != socket.SOCK_STREAM or own.getsockname()[1:2] != (port,):
                    continue
                info = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size)
                if info[0] != _ESTABLISHED:
                    continue
                silent_ms, received_bytes = _INFO.unpack(info)
                end = partial(_end, int(name), os.fstat(own.fileno()).st_ino)
            found.append(Connection(end, silent_ms / 1000, received_bytes))
    return found


def own_socket(fd: int) -> socket.socket:
    """A socket by a descriptor of one's own, which stays what it is whatever others close."""
    own = os.dup(fd)
    try:
        return socket.socket(fileno=own)
    except OSError:
        os.close(own)
        raise


def _end(fd: int, inode: int) -> None:
    with suppress(OSError), own_socket(fd) as own:
        # Another file may have that number by now.
        if os.fstat(own.fileno()).st_ino == inode:
            own.shutdown(socket.SHUT_RDWR)


class _MallocInfo(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


_LIBC: Final = ctypes.CDLL(None)


def _malloc_info() -> Callable[[], _MallocInfo] | None:
    function = getattr(_LIBC, "mallinfo2", None)
    if function is not None:
        function.restype = _MallocInfo
    return function


_MALLOC_INFO: Final = _malloc_info()


def _in_use() -> int:
    """Bytes of memory that this process has in use."""
    if _MALLOC_INFO is not None:
        info = _MALLOC_INFO()
        return int(info.uordblks + info.hblkhd)
    # Another libc than glibc says no more than what has been touched.
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
