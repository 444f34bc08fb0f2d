"""The socket by which serving processes pass messages to the control process.

All writers share one end (SOCK_SEQPACKET, unix(7)): the kernel keeps messages whole, and bounds how
much waits. The supervisor holds both ends, so messages outlive the process that reads them. A long
message is a file without a name (memfd_create(2)), whose descriptor is passed.
"""

import array
import os
import socket
from collections.abc import Iterator
from typing import Final

MOST_BYTES: Final = 1 << 15
"""Bytes of the longest message that is sent as it is."""
_MOST_IN_TURN: Final = 4
"""Messages that are taken before any is delivered."""
_FD: Final = array.array("i", [0]).itemsize


def send(writer: socket.socket, message: bytes) -> bool:
    """Pass a message on without waiting; return False if it is lost, because too many wait."""
    try:
        if len(message) <= MOST_BYTES:
            writer.send(message, socket.MSG_DONTWAIT)
            return True
        descriptor = os.memfd_create("ringbatch-payload", os.MFD_CLOEXEC)
        try:
            os.truncate(descriptor, len(message))
            written = 0
            while written < len(message):
                written += os.pwrite(descriptor, memoryview(message)[written:], written)
            passed = array.array("i", [descriptor]).tobytes()
            # socket.send_fds takes flags, and leaves them out.
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, passed)]
            writer.sendmsg([b"m"], ancillary, socket.MSG_DONTWAIT)
        finally:
            os.close(descriptor)
    except OSError:
        return False
    return True


def received(reader: socket.socket) -> Iterator[bytes]:
    """Yield the messages that wait, up to a few."""
    for _ in range(_MOST_IN_TURN):
        try:
            data, more, _flags, _ = reader.recvmsg(
                MOST_BYTES, socket.CMSG_LEN(_FD), socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return
        if not data:
            return
        passed = [content for _, kind, content in more if kind == socket.SCM_RIGHTS]
        yield _content(passed[0]) if passed else data


def _content(passed: bytes) -> bytes:
    (descriptor,) = array.array("i", passed[:_FD])
    with open(descriptor, "rb") as file:
        file.seek(0)
        return file.read()
