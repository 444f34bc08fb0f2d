"""How a frontend for gRPC leaves its clients to the engine that serves in its stead.

grpcio's own stop cancels calls that are on their way. So for as long as clients are connected all
goes on: each connection is told once it has its age that no further call is for it, by a GOAWAY
that costs no call, and its client connects anew. For that the kernel is to begin no connection with
this process any more. All that listen on the port are one group, in the order in which they came,
and a program says which of them a connection is for.
"""

import asyncio
import ctypes
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from ringbatch.frontend.grpc.holdings import connections, own_socket

log = logging.getLogger("ringbatch.frontend")

_LOOK_EVERY_S: Final = 0.05
_SO_ATTACH_REUSEPORT_CBPF: Final = 51
_LOAD, _MODULO, _ADD, _RETURN = 0x20, 0x94, 0x04, 0x16
_RANDOM: Final = 0xFFFFF000 + 56
"""Where programs find a random number (SKF_AD_OFF + SKF_AD_RANDOM)."""
_TCP_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTEN, _SYN_RECV = b"0A", b"03"


async def leave(port: int, ours: int, limit_s: float) -> None:
    """Go on until no client is connected any more.

    Args:
        port: on which this process listens.
        ours: how many of the engine's processes do; they did so before those of any other engine.
        limit_s: how long this may take.
    """
    known = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            while True:
                # Whoever closes its socket leaves its place in the group to the last one.
                if (count := _states(port).count(_LISTEN)) != known:
                    known = count
                    _steer(port, ours, count)
                await asyncio.sleep(_LOOK_EVERY_S)
                if not connections(port) and _SYN_RECV not in _states(port):
                    return


def _states(port: int) -> list[bytes]:
    """Those of all sockets of this host that have the TCP port for their own."""
    return [
        row.split(None, 4)[3]
        for table in _TCP_TABLES
        if table.exists()
        for row in table.read_bytes().splitlines()[1:]
        if _port(row) == port
    ]


def _port(row: bytes) -> int:
    return int(row.split(None, 2)[1].rpartition(b":")[2], 16)


def _steer(port: int, ours: int, count: int) -> None:
    """Have the kernel begin connections with those alone that came after ours."""
    others = count - ours
    if others <= 0:
        return
    steps = (_Step * 4)(
        _Step(_LOAD, k=_RANDOM), _Step(_MODULO, k=others), _Step(_ADD, k=ours), _Step(_RETURN)
    )
    program = bytes(_Program(length=len(steps), steps=steps))
    for listener in _listeners(port):
        with listener:
            try:
                listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_REUSEPORT_CBPF, program)
            except OSError as error:
                log.warning(
                    "grpc frontend: clients may still come here and not to the engine that serves "
                    "in its stead: %s",
                    error.strerror,
                )


def _listeners(port: int) -> Iterator[socket.socket]:
    """Those of this process, by descriptors of one's own."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            own = own_socket(int(name))
            if own.getsockname()[1:2] == (port,) and own.getsockopt(
                socket.SOL_SOCKET, socket.SO_ACCEPTCONN
            ):
                yield own
            else:
                own.close()


class _Step(ctypes.Structure):
    """`struct sock_filter` of linux/filter.h."""

    _fields_ = (
        ("code", ctypes.c_uint16),
        ("jt", ctypes.c_uint8),
        ("jf", ctypes.c_uint8),
        ("k", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    """`struct sock_fprog` of linux/filter.h."""

    _fields_ = (("length", ctypes.c_uint16), ("steps", ctypes.POINTER(_Step)))
