"""Socket pair that carries the payload log's messages."""

import socket
from collections.abc import Iterator

import pytest

Ends = tuple[socket.socket, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """Socket pair: the reading end and the writing end."""
    reader, writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with reader, writer:
        yield reader, writer
