"""First steps of every process of the engine, in any role."""

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
    """Name the process, and set up its log, signals and forks.

    It logs to standard error, leaves operators' signals to the supervisor, and lets go of children
    that it forks.
    """
    setproctitle(f"ringbatch: {title}")
    leave_signals_to_supervisor()
    log_to_stderr(title, log_level)
    _let_go_of_children(control)


def _let_go_of_children(control: ControlSocket) -> None:
    """Have SIGTERM end processes that a model forks, and keep their end apart from this process's.

    The signal is blocked during a fork: before the child has the default handler, it would be lost.
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
    """Have SIGTERM end this process's loop, whatever the loop is doing.

    A Python handler alone is not enough, as it runs between two steps of the interpreter. If the
    signal comes in compiled code that is about to sleep, the handler runs only after the sleep.

    Args:
        wake: wakes the loop from its sleep.

    Returns:
        The signals that have come; the first one ends the loop.
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
        control: the socket.
        expected: the messages that may come.
        on_message: called with each.
        on_end: called when the supervisor is gone, or has sent an unexpected message.
    """

    def read() -> None:
        try:
            while (message := control.receive(expected)) is not None:
                on_message(message)
        except MalformedMessage as malformed:
            logger.error("the supervisor %s", malformed)
        on_end()

    essential_thread("the thread for the supervisor's messages", read)
