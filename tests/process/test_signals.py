"""SIGHUP with and without a terminal, and with nohup; signals that come during a stop."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing

import pytest

from ringbatch.engine.supervisor.signals import Signals

PROGRAM = """
import fcntl, os, signal, sys, termios
terminal, *command = sys.argv[1:]
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may be run by nohup themselves
os.setsid()
if int(terminal):
    fcntl.ioctl(int(terminal), termios.TIOCSCTTY, 0)
os.execvp(command[0], command)
"""
"""Runs a command in a session of its own, with a terminal where one is given."""
CATCHING = """
from ringbatch.engine.supervisor.loop import Loop
from ringbatch.engine.supervisor.signals import Signals
signals, loop = Signals(), Loop()
signals.catch(loop)
print("caught", flush=True)
while not (reload := signals.take_reload()) and not signals.received:
    loop.turn(None)
print("reload" if reload else "end")
"""


class Catching:
    """A process that has caught the supervisor's signals.

    Args:
        terminal: that it has; 0 for none.
        words: command that runs the process.
    """

    def __init__(self, terminal: int, words: Sequence[str] = ()) -> None:
        python = (sys.executable, "-P", "-c")
        self.process = subprocess.Popen(
            [*python, PROGRAM, str(terminal), *words, *python, CATCHING],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=[terminal] if terminal else [],
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "caught\n"

    def decided(self) -> str:
        """Return the effect of the signal that the process gets."""
        output, _ = self.process.communicate(timeout=60)
        return str(output.strip())


@pytest.mark.parametrize(("words", "follows"), [([], "end"), (["nohup"], "reload")])
def test_the_end_of_its_terminal_is_the_end_unless_that_is_to_be_outlived(
    words: Sequence[str], follows: str
) -> None:
    ours, theirs = pty.openpty()
    with closing(os.fdopen(ours, "rb", 0)) as terminal, closing(os.fdopen(theirs, "rb", 0)) as tty:
        catching = Catching(tty.fileno(), words)
        tty.close()
        terminal.close()
        assert catching.decided() == follows


def test_without_a_terminal_it_asks_for_a_reload() -> None:
    catching = Catching(0)
    os.kill(catching.process.pid, 1)
    assert catching.decided() == "reload"


def test_a_signal_that_comes_during_the_stop_ends_at_once_and_says_so() -> None:
    signals = Signals()
    signals.received += [signal.SIGTERM, signal.SIGINT]
    assert (signals.ends_at_once, signals.status) == (False, 0)
    signals.begin_stop()
    assert (signals.ends_at_once, signals.status) == (False, 0)
    signals.received.append(signal.SIGINT)
    assert (signals.ends_at_once, signals.status) == (True, 130)


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGQUIT, 131), (signal.SIGINT, 130)]
)
def test_the_first_signal_of_a_stop_without_one_hurries_it(number: int, status: int) -> None:
    """An engine that another has replaced stops without a signal."""
    signals = Signals()
    signals.begin_stop()
    signals.received.append(number)
    assert (signals.ends_at_once, signals.status) == (True, status)
