"""Simulated process as its kernel has it: it acts while it runs, and ends on request."""

import signal
from collections.abc import Callable

from simulation.kernel import End, Kernel


class Process:
    """A process, which acts only as long as it runs.

    Attributes:
        pid: its process id.
        control: as of `Popen`.
        ended: whether it has.
        status: how, as of `subprocess`.
        waited_for: whether its parent knows.
        stopped: whether it is, by SIGSTOP.
        hangs: whether its own code does nothing more.
        doomed: whether it was killed, and ends as soon as the kernel can end it.
        lingers_s: time that the kernel takes to end it after a kill.
        parent_of: whether a child of its own has its control socket, and outlives it.
    """

    title = ""

    def __init__(self, kernel: Kernel, pid: int, control: End | None) -> None:
        self.kernel = kernel
        self.pid = pid
        self.control = control
        self.ended = self.waited_for = self.stopped = self.hangs = self.parent_of = False
        self.doomed = False
        self.status: int | None = None
        self.lingers_s = 0.0
        self._pending: list[Callable[[], object]] = []

    def __str__(self) -> str:
        return f"{self.title} [{self.pid}]"

    def after(self, delay_s: float, act: Callable[[], object]) -> None:
        """Do something so much later, if it still can."""
        self.kernel.after(delay_s, lambda: self._do(act))

    def _do(self, act: Callable[[], object]) -> None:
        if self.stopped:
            self._pending.append(act)
        elif not (self.ended or self.hangs):
            act()

    def end(self, status: int) -> None:
        """End with an exit status, or by a signal if it is negative."""
        if self.ended:
            return
        self.kernel.log(f"{self} ends: {status}")
        self.ended, self.status = True, status
        if self.control is not None and not self.parent_of:
            self.control.holders -= 1
        self.gone()

    def gone(self) -> None:
        """Carry out the consequences of its end for other processes."""

    def killed(self) -> None:
        """SIGKILL for it and for all of its session."""
        if self.parent_of and self.control is not None and self.ended:
            self.parent_of = False
            self.control.holders -= 1
        self.doomed = True
        if self.lingers_s:
            self.kernel.after(self.lingers_s, lambda: self.end(-signal.SIGKILL))
        else:
            self.end(-signal.SIGKILL)

    def signalled(self, number: int) -> None:
        """Receive a signal other than those that end a process."""
        if number == signal.SIGSTOP:
            self.stopped = True
        elif number == signal.SIGCONT:
            self.stopped = False
            pending, self._pending = self._pending, []
            for act in pending:
                self.after(0, act)
        elif self.stopped:
            self._pending.append(lambda: Process.signalled(self, number))
        elif number == signal.SIGTERM:
            self.asked_to_end()
        elif not self.lingers_s:
            self.end(-number)

    def asked_to_end(self) -> None:
        """Handle SIGTERM."""
        if not self.hangs:
            self.after(self.kernel.chance.uniform(0.0, 0.5), lambda: self.end(0))
