"""Signals of the supervisor: those that ask it to stop, and SIGHUP, which has two meanings.

Without a terminal SIGHUP asks for a reload. After the loss of a terminal it asks the engine to
stop, unless its parent had SIGHUP ignored, as nohup does, to outlive the terminal. Other servers
take further signals as orders, such as SIGUSR1 to reopen logs. Here such a signal is logged and
ignored; without a handler it would end the engine.
"""

import errno
import logging
import os
import signal
import socket
from types import FrameType
from typing import Final

from ringbatch.engine.supervisor.loop import Loop
from ringbatch.shm.host.process import OPERATORS_SIGNALS, pass_over_operators_signals

logger = logging.getLogger("ringbatch.supervisor")

_BY_SIGNAL: Final = 128
"""Added to a signal's number, this is the exit status that shells give who was ended by it."""
_PASSED_OVER: Final = frozenset(OPERATORS_SIGNALS) - {signal.SIGHUP}


class Signals:
    """Received signals.

    Attributes:
        received: the numbers of those that ask to stop, in order.
    """

    def __init__(self) -> None:
        self.received: list[int] = []
        self._before_stop: int | None = None
        """Number of signals in `received` from before the stop; None until it begins."""
        self._hangups = 0
        outlives_terminal = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        self._had_terminal = has_terminal() and not outlives_terminal

    def catch(self, loop: Loop) -> None:
        """Handle signals from now on; each makes the loop turn."""
        reading, writing = socket.socketpair()
        for end in (reading, writing):
            end.setblocking(False)
        signal.set_wakeup_fd(writing.fileno())

        def remember(signum: int, _frame: FrameType | None) -> None:
            self.received.append(signum)

        def hang_up(_signum: int, _frame: FrameType | None) -> None:
            self._hangups += 1

        # This process may have inherited other handlers. The status of a child is known only if
        # SIGCHLD is not ignored.
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, remember)
        pass_over_operators_signals()
        signal.signal(signal.SIGHUP, hang_up)
        # The writing end is kept alive by this reference.
        self._wakeup = (reading, writing)
        loop.watch(reading, lambda: _log_passed_over(reading.recv(4096)))

    def begin_stop(self) -> None:
        """Take each further signal that asks to stop for an order to end at once.

        Later calls change nothing.
        """
        if self._before_stop is None:
            self._before_stop = len(self.received)

    @property
    def ends_at_once(self) -> bool:
        """True if a signal has come since the stop began."""
        return self._before_stop is not None and len(self.received) > self._before_stop

    @property
    def status(self) -> int:
        """Exit status after the stop: that of the signal that has cut it short, or 0."""
        return _BY_SIGNAL + self.received[-1] if self.ends_at_once else 0

    def take_reload(self) -> bool:
        """Return whether a signal since the last call asks for a reload."""
        if not self._hangups:
            return False
        self._hangups = 0
        if self._had_terminal and not has_terminal():
            self.received.append(signal.SIGHUP)
            return False
        return True


def _log_passed_over(numbers: bytes) -> None:
    """Log the received signals that have no effect.

    Args:
        numbers: as `signal.set_wakeup_fd` writes them, a byte each.
    """
    for number in sorted(_PASSED_OVER.intersection(numbers)):
        logger.warning(
            "%s does nothing here: SIGHUP reads the configuration again, SIGTERM stops",
            signal.Signals(number).name,
        )


def has_terminal() -> bool:
    """Return whether this process has a controlling terminal that still exists."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        # Without descriptors or memory it is unknown, and ending the engine would be worse.
        return error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
    os.close(terminal)
    return True
