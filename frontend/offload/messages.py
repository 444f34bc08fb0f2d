"""Messages between a frontend and its process for large bodies: a JSON value, and bytes.

Only the kernel copies the bytes.
"""

import importlib
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import orjson

Bytes = bytes | bytearray | memoryview
Answer = tuple[Any, Sequence[Bytes]]
"""A JSON value, and the bytes that go with it."""
Received = tuple[Any, list[memoryview]]
"""A received message: the value, and read-only views of the bytes."""
Job = Callable[[Any, Sequence[memoryview]], Answer]
"""A module-level function, which both processes find by name."""

_COUNT: Final = struct.Struct("<I")
_SIZE: Final = struct.Struct("<Q")


def job_of(module: str, name: str) -> Job:
    """Return the function of a module by its name."""
    found: Job = getattr(importlib.import_module(module), name)
    return found


class Closed(Exception):
    """End of the connection: the other end has closed it."""


def send(connection: socket.socket, value: Any, data: Sequence[Bytes]) -> None:
    """Send a value and bytes."""
    pieces = [orjson.dumps(value), *data]
    sizes = b"".join(_SIZE.pack(len(piece)) for piece in pieces)
    connection.sendall(_COUNT.pack(len(pieces)) + sizes)
    for piece in pieces:
        connection.sendall(piece)


def receive(connection: socket.socket) -> Received:
    """Wait for a value and bytes.

    Raises:
        Closed: the other end has closed the connection.
    """
    (count,) = _COUNT.unpack(_received(connection, _COUNT.size))
    sizes = [size for (size,) in _SIZE.iter_unpack(_received(connection, count * _SIZE.size))]
    whole = _received(connection, sum(sizes)).toreadonly()
    pieces, start = [], 0
    for size in sizes:
        pieces.append(whole[start : start + size])
        start += size
    return orjson.loads(pieces[0]), pieces[1:]


def _received(connection: socket.socket, size: int) -> memoryview:
    # A bytearray would fill its memory with zeros first.
    data = np.empty(size, np.uint8).data
    have = 0
    while have < size:
        more = connection.recv_into(data[have:])
        if not more:
            raise Closed
        have += more
    return data
