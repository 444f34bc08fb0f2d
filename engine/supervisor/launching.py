"""Launching of processes: by the fork server, or by executing Python.

The fork server saves the time of the imports; see `ringbatch.engine.process.fork_server`. It is
optional: if it cannot run or is gone, processes are executed.
"""

import ctypes
import importlib.util
import logging
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Final, Protocol

from ringbatch.engine.process import fork_server
from ringbatch.engine.process.fork_server import MOST_DESCRIPTORS, Made, ProcessRequest, command

logger = logging.getLogger("ringbatch.supervisor")

OF_WORKERS: Final = ("ringbatch.engine.worker.role",)
"""Modules that the fork server imports for workers. They bring every runtime along: an upgrade may
have replaced a module on the disk by the time that a worker takes the place of a dead one."""
PRELOADED: Final = ("ringbatch.engine.collector.role", *OF_WORKERS)
"""Modules that the fork server imports. Frontends import far more, but are few."""
_PR_SET_CHILD_SUBREAPER: Final = 36
_PRELOADED_WITHIN_S: Final = 120.0
_ANSWERS_WITHIN_S: Final = 5.0


class Launched(Protocol):
    """A launched process."""

    @property
    def pid(self) -> int:
        """Process id."""

    def poll(self) -> int | None:
        """Return its return code, as `subprocess` does, and reap it if it has ended; else None."""


Launch = Callable[[ProcessRequest], Launched]
"""Makes a process that leads a process group and runs the `main` of a module.

It raises OSError if the kernel refuses it; nothing is left of the attempt.
"""


def execute(request: ProcessRequest) -> Launched:
    """Execute Python for a process, as a `Launch` does.

    It leads a session in any case. In the supervisor's own session it would have the terminal,
    which may stop background processes that write to it (``stty tostop``).
    """
    return subprocess.Popen(
        command(request.module, request.arguments),
        env=request.environment,
        cwd=request.folder,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=request.descriptors,
    )


class Forked:
    """Process that the fork server made, now a child of this process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> int | None:
        """Return its return code if it has ended, as `Launched` does."""
        with suppress(ChildProcessError):
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
        return None


class ForkServer:
    """Launcher by the fork server, and by `execute` once that is gone.

    Args:
        preloaded: the modules that it imports.

    Raises:
        SystemExit: in the fork server, and in each process that it makes, at its end. So create
            this object before anything that an exception would release.
    """

    def __init__(self, preloaded: Iterable[str] = PRELOADED) -> None:
        self._line: socket.socket | None = None
        self._pidfd = -1
        self._numpy = _origin_of("numpy")
        self._numpy_was = _version_of(self._numpy)
        # A lock that another thread holds would never be free again in a forked process.
        if not _is_alone() or not _adopts_orphans():
            return
        ours, theirs = socket.socketpair()
        supervisor = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            self._give_up(error, ours, theirs)
            return
        if not pid:
            ours.close()
            fork_server.run(theirs, supervisor, preloaded)
        try:
            self._pidfd = os.pidfd_open(pid)
        except OSError as error:
            # The fork server ends with the socket pair.
            self._give_up(error, ours, theirs)
            return
        theirs.close()
        ours.settimeout(_PRELOADED_WITHIN_S)
        self._line = ours

    def __call__(self, request: ProcessRequest) -> Launched:
        """Make a process, as a `Launch` does."""
        if self._line is not None and _version_of(self._numpy) != self._numpy_was:
            # Other packages that a model imports may be newer too, and need the new numpy.
            logger.info("numpy was replaced since the start; processes are executed from now on")
            self.close()
        if self._line is not None and len(request.descriptors) <= MOST_DESCRIPTORS:
            cpus = sorted(os.sched_getaffinity(0))
            made = self._ask(self._line, replace(request, cpus=cpus))
            if made is not None:
                if not made.pid:
                    raise OSError(made.errno, os.strerror(made.errno))
                return Forked(made.pid)
        return execute(request)

    def _ask(self, line: socket.socket, request: ProcessRequest) -> Made | None:
        """Return the fork server's answer to a request; None if it is gone.

        An unfinished process ends with the fork server.
        """
        try:
            made = fork_server.ask(line, request)
            line.settimeout(_ANSWERS_WITHIN_S)
        except TimeoutError:
            self._end()
            # A process that it has reported may go on; any other ends with it.
            made = fork_server.answer(line)
        if made is None:
            logger.warning("the fork server is gone; processes are executed from now on")
            self.close()
        return made

    def close(self) -> None:
        """End the fork server."""
        if self._line is not None:
            self._end()
            self._line.close()
            self._line = None

    def _give_up(self, error: OSError, *ends: socket.socket) -> None:
        logger.warning("no fork server: %s; processes are executed", error)
        for end in ends:
            end.close()

    def _end(self) -> None:
        if self._pidfd >= 0:
            # It may have ended, and been reaped as an orphan.
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED)
            os.close(self._pidfd)
            self._pidfd = -1


def reap_orphans(own: Iterable[int]) -> None:
    """Reap ended orphans that have become this process's children.

    Args:
        own: the process ids that other code here waits for.
    """
    known = set(own)
    with suppress(ChildProcessError):
        while True:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is None or found.si_pid in known:
                return
            os.waitpid(found.si_pid, 0)


def _is_alone() -> bool:
    """Return whether this process is known to have one thread."""
    with suppress(OSError):
        return len(os.listdir("/proc/self/task")) == 1
    return False


def _adopts_orphans() -> bool:
    """Become the parent of orphaned descendants; return False if the kernel refuses it."""
    refused: int = ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    return refused == 0


def _origin_of(package: str) -> str:
    """Return the first file of a package; empty if there is none."""
    found = importlib.util.find_spec(package)
    return "" if found is None or found.origin is None else found.origin


def _version_of(file: str) -> tuple[int, int] | None:
    """Return the identity of a file, which changes if it is replaced; None if there is no file."""
    with suppress(OSError):
        status = os.stat(file)
        return status.st_ino, status.st_mtime_ns
    return None
