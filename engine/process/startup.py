"""What every process of the engine does first, whatever its role."""

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from typing import TypeVar

from setproctitle import setproctitle

from ringbatch.engine.process.control_socket import ControlSocket
from ringbatch.shm.host.background import essential_thread
from ringbatch.shm.host.messages import MalformedMessage, Vocabulary
from ringbatch.shm.host.process import leave_signals_to_supervisor, log_to_stderr

logger = logging.getLogger("ringbatch.process")

M = TypeVar("M")


def begin(title: str, log_level: str, control: ControlSocket) -> None:
    """Name the process, log to standard error, leave operators' signals to the supervisor, and let
    go of whatever is forked from it."""
    setproctitle(f"ringbatch: {title}")
    leave_signals_to_supervisor()
    log_to_stderr(title, log_level)
    _let_go_of_children(control)


def _let_go_of_children(control: ControlSocket) -> None:
    """Have SIGTERM end what a model forks, and the supervisor not take that for this process.

    The signal is held up meanwhile: before the child has the default for it, it would be lost.
    """
    held = threading.local()

    def before() -> None:
        held.mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])

    def after_in_parent() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, held.mask)

    def after_in_child() -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        control.close()
        signal.pthread_sigmask(signal.SIG_SETMASK, held.mask)

    os.register_at_fork(
        before=before, after_in_parent=after_in_parent, after_in_child=after_in_child
    )


def stop_on_sigterm(wake: Callable[[], object]) -> list[int]:
    """Have SIGTERM end this process's loop, whatever the loop is at.

    A Python handler alone would not do: it runs between two steps of the interpreter, so where the
    signal comes amid compiled code that goes to sleep next, that is after the sleep.

    Args:
        wake: rings what the loop sleeps at.

    Returns:
        The signals that have come; with the first one the loop is to end.
    """
    received: list[int] = []
    reading, writing = socket.socketpair()
    writing.setblocking(False)
    signal.set_wakeup_fd(writing.fileno())
    signal.signal(signal.SIGTERM, lambda number, _frame: received.append(number))

    def pass_on(_kept_open: socket.socket = writing) -> None:
        while reading.recv(1):
            wake()

    essential_thread("the signals' thread", pass_on)
    return received


def watch(
    control: ControlSocket,
    expected: Vocabulary[M],
    on_message: Callable[[M], None],
    on_end: Callable[[], None],
) -> None:
    """Read the supervisor's messages in a thread of their own.

    Args:
        control: on which they come.
        expected: those that may come.
        on_message: is given each.
        on_end: is called when the supervisor is gone, or is none: it sends what is not expected.
    """

    def read() -> None:
        try:
            while (message := control.receive(expected)) is not None:
                on_message(message)
        except MalformedMessage as malformed:
            logger.error("the supervisor %s", malformed)
        on_end()

    essential_thread("the thread for the supervisor's messages", read)
