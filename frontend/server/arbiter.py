"""Gunicorn's arbiter over the frontends, started by the supervisor and not by hand."""

import gc
import logging
import os
import signal
import time
from collections.abc import Sequence
from itertools import count
from math import ceil
from typing import Any, Final

from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.errors import HaltServer
from gunicorn.glogging import Logger
from setproctitle import setproctitle

from ringbatch.frontend.http.server import STOP_SIGNALS
from ringbatch.frontend.server.gunicorn_worker import ROLE, FrontendOptions, FrontendWorker
from ringbatch.frontend.server.start_delay import MOST_S, StartDelay
from ringbatch.shm.errors import shortage
from ringbatch.shm.host.after_fork import renew
from ringbatch.shm.host.process import die_with_parent, log_to_stderr
from ringbatch.shm.restarts import Restarts, Role, end_reason
from ringbatch.shm.segment import Segment
from ringbatch.shm.shm_objects import DIRECTORY

PASSED_OVER: Final = (
    "that signal does nothing here: the supervisor takes SIGHUP, which reads the configuration"
    " again, and SIGTERM, which stops"
)


class Log(Logger):  # type: ignore[misc]
    """Gunicorn's log, and through it uvicorn's, in the form of all others."""

    def setup(self, cfg: Any) -> None:
        """Set up the log; called by Gunicorn."""
        super().setup(cfg)
        # The root logger's level holds, as for every library.
        self.error_log.setLevel(logging.NOTSET)
        self.error_log.addFilter(_is_not_the_address)
        # A list of its own: to this one Gunicorn adds a handler when it reloads.
        self.error_log.handlers = list(logging.getLogger().handlers)


def _is_not_the_address(record: logging.LogRecord) -> bool:
    """Return False for the line in which Gunicorn says that it listens for plain HTTP.

    The frontends may speak TLS, and the supervisor logs the right addresses.
    """
    return not str(record.msg).startswith("Listening at")


class CountingArbiter(Arbiter):  # type: ignore[misc]
    """Gunicorn's arbiter, which counts the frontends that end before it does.

    Frontends that end as soon as they start are replaced after a delay.

    Args:
        app: Gunicorn's application.
        segment: of the engine, attached.
    """

    def __init__(self, app: BaseApplication, segment: Segment) -> None:
        self.segment = segment
        self._restarts = Restarts.of_arbiter(segment)
        self._ends = False
        self._start_delay = StartDelay()
        self._next_start_s = 0.0
        super().__init__(app)

    def spawn_workers(self) -> None:
        """Start missing frontends as Gunicorn does, which looks once a second, after the delay.

        Raises:
            HaltServer: none can be started, and none is there.
        """
        now_s = time.monotonic()
        if now_s < self._next_start_s:
            return
        try:
            super().spawn_workers()
        except OSError as error:
            reason = shortage(error.errno or 0, str(error))
            self.log.error("a frontend is missing: %s", reason)
            if not self.WORKERS:
                raise HaltServer(reason, self.WORKER_BOOT_ERROR) from None
            self._next_start_s = now_s + MOST_S

    def reap_workers(self) -> None:
        """Reap ended workers as Gunicorn does, which keeps to itself how they ended."""
        for pid, worker in self.WORKERS.items():
            worker.killed = is_killed(pid)
        try:
            super().reap_workers()
        except HaltServer:
            # Another has failed to start while all are stopped because one had.
            if not self._ends:
                raise

    def stop(self, graceful: bool = True) -> None:
        """Stop as Gunicorn does, and replace no worker that ends now."""
        self._ends = True
        super().stop(graceful)

    def _pass_over(self) -> None:
        """Ignore signals that would start a second arbiter, or change the number of frontends.

        The engine would not know of the one, and has no lanes for the other.
        """
        self.log.warning(PASSED_OVER)

    handle_usr1 = handle_usr2 = handle_ttin = handle_ttou = _pass_over

    def count_end(self, worker: Any) -> None:
        """Count the end of a frontend."""
        if not self._ends:
            # One that ended after the look that says whether it was killed counts as crashed.
            reason = end_reason(hung=worker.aborted, killed=worker.killed)
            self._restarts.add(Role.FRONTEND, reason)
            now_s = time.monotonic()
            delay_s = self._start_delay.after(now_s - worker.started_s, killed=worker.killed)
            self._next_start_s = max(self._next_start_s, now_s + delay_s)


def is_killed(pid: int) -> bool:
    """Return whether a child has ended by SIGKILL; it can be waited for as before."""
    try:
        found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return found is not None and (found.si_code, found.si_status) == (
        os.CLD_KILLED,
        signal.SIGKILL,
    )


class Frontends(BaseApplication):  # type: ignore[misc]
    """The frontends of one engine.

    Args:
        options: for each of them.
        listen_fds: bound sockets; frontend i accepts from socket i, modulo their number, and
            from those beyond, if there are more of them.
        frontends: how many there are.
    """

    def __init__(self, options: FrontendOptions, listen_fds: Sequence[int], frontends: int) -> None:
        self._options = options
        self._settings = _settings(options, listen_fds, frontends)
        super().__init__()

    def load_config(self) -> None:
        """Load the configuration, without any file or environment; called by Gunicorn."""
        for name, value in self._settings.items():
            # Older releases have fewer features to switch off.
            if name in self.cfg.settings:
                self.cfg.set(name, value)

    def load(self) -> FrontendOptions:
        """Return the argument of `FrontendWorker` for its application; called by Gunicorn."""
        return self._options

    def run(self) -> None:
        """Run until SIGTERM; raise StartupError if the engine is gone. Called by Gunicorn."""
        CountingArbiter(self, Segment.attach(self._options.segment)).run()


def _settings(
    options: FrontendOptions, listen_fds: Sequence[int], frontends: int
) -> dict[str, Any]:
    return {
        "bind": [f"fd://{fd}" for fd in listen_fds],
        "workers": frontends,
        "worker_class": FrontendWorker,
        "proc_name": "ringbatch",
        "logger_class": Log,
        "accesslog": None,
        "keepalive": ceil(options.idle_timeout_s),
        # A second for the frontend to end by itself, and to log the requests that it cuts off.
        "graceful_timeout": ceil(options.drain_s) + 1,
        "control_socket_disable": True,
        # For files without a name, whose times are heartbeats. /tmp may be a disk, or read-only.
        "worker_tmp_dir": str(DIRECTORY),
        "pre_fork": _before_fork,
        "post_fork": _after_fork,
        "child_exit": CountingArbiter.count_end,
    }


def _before_fork(arbiter: Any, worker: Any) -> None:
    setproctitle("ringbatch: frontends")
    # The garbage collector would write to every page that a frontend shares with this process, and
    # so have it copied: at its first look, and as the frontend ends.
    gc.freeze()
    # With a queue of its own, a frontend gets its share of the connections. From a common one
    # the first that wakes takes all there are, and one of two frontends is left with none.
    taken = {other.frontend_index for other in arbiter.WORKERS.values()}
    worker.started_s = time.monotonic()
    worker.frontend_index = next(index for index in count() if index not in taken)
    listeners, frontends = arbiter.LISTENERS, arbiter.cfg.workers
    # Another engine's may be more than there are frontends here, and each has its connections.
    # With a Unix socket alone there are none.
    worker.sockets = listeners and listeners[worker.frontend_index % len(listeners) :: frontends]


def _after_fork(arbiter: Any, worker: Any) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    setproctitle("ringbatch: frontend")
    die_with_parent(arbiter.pid)
    renew()
    # A frontend attaches for itself.
    arbiter.segment.detach()
    # A socket listens, and takes connections that nobody accepts, until its last holder closes it.
    for listener in arbiter.LISTENERS:
        if listener not in worker.sockets:
            listener.close()


def run(
    options: FrontendOptions,
    *,
    listen_fds: Sequence[int],
    frontends: int,
    log_level: str,
    parent_pid: int | None = None,
) -> None:
    """Serve until SIGTERM.

    Args:
        options: for every frontend.
        listen_fds: bound sockets; if there are as many as frontends, bound to one address with
            SO_REUSEPORT, the kernel spreads the connections.
        frontends: number of frontends.
        log_level: the level of ringbatch's own loggers.
        parent_pid: whose death ends this process too.

    Raises:
        StartupError: the parent is gone already.
    """
    log_to_stderr(ROLE, log_level)
    die_with_parent(os.getppid() if parent_pid is None else parent_pid)
    setproctitle("ringbatch: frontends")
    Frontends(options, listen_fds, frontends).run()
