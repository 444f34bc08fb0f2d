"""Programs that the kernel runs for a socket: classic BPF, as in linux/filter.h."""

import ctypes
import socket
from collections.abc import Sequence
from typing import Final, NamedTuple

LOAD_WORD: Final = 0x20
LOAD_BYTE: Final = 0x30
MODULO: Final = 0x94
ADD: Final = 0x04
JUMP_IF_SET: Final = 0x45
RETURN: Final = 0x06
"""Return the value of `Step.k`."""
RETURN_RESULT: Final = 0x16
"""Return the result of the steps before."""


class Step(NamedTuple):
    """Instruction of a classic BPF program.

    Attributes:
        code: the operation.
        k: its operand.
        if_true: of a jump, the number of steps to skip if the condition holds.
        if_false: the same if it does not hold.
    """

    code: int
    k: int = 0
    if_true: int = 0
    if_false: int = 0


def attach(to: socket.socket, option: int, steps: Sequence[Step]) -> None:
    """Have the kernel run a program.

    Args:
        to: the socket.
        option: of SOL_SOCKET, what it is run for.
        steps: the program.

    Raises:
        OSError: the kernel refuses.
    """
    filters = (_SockFilter * len(steps))(
        *(_SockFilter(code, if_true, if_false, k) for code, k, if_true, if_false in steps)
    )
    to.setsockopt(socket.SOL_SOCKET, option, bytes(_SockFprog(len(steps), filters)))


class _SockFilter(ctypes.Structure):
    """`struct sock_filter`."""

    _fields_ = (
        ("code", ctypes.c_uint16),
        ("jt", ctypes.c_uint8),
        ("jf", ctypes.c_uint8),
        ("k", ctypes.c_uint32),
    )


class _SockFprog(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_uint16), ("filter", ctypes.POINTER(_SockFilter)))
