"""Entry point: runs an engine in this process, beside other engines or in place of one."""

import faulthandler
import gc
import logging
import os
import resource
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Final

from setproctitle import setproctitle

from ringbatch.engine.config.dimensions import fitted
from ringbatch.engine.config.settings import Config
from ringbatch.engine.process import placement
from ringbatch.engine.supervisor.handover import OldEngine
from ringbatch.engine.supervisor.launching import ForkServer
from ringbatch.engine.supervisor.supervisor import Supervisor
from ringbatch.shm.engines import expect_free
from ringbatch.shm.errors import StartupError
from ringbatch.shm.host.descriptors import OTHERS
from ringbatch.shm.host.log_lines import FORM_VARIABLE
from ringbatch.shm.host.platform import require_supported_machine
from ringbatch.shm.host.process import log_to_stderr
from ringbatch.shm.shm_objects import free_bytes, remove_dead_engines

logger = logging.getLogger("ringbatch.supervisor")

_OWN_FILES: Final = "/proc/self/fd"


def run(
    config: Config,
    reread: Callable[[], Config] | None = None,
    replaces: Callable[[], OldEngine] | None = None,
) -> int:
    """Serve until a signal asks to stop, and return the exit status.

    Args:
        config: of the engine.
        reread: reads the configuration again, for SIGHUP and for orders to reload.
        replaces: finds the engine that this one replaces; None for none.

    Raises:
        StartupError: the engine cannot start, and leaves nothing behind; the text says why.
    """
    # The pages of what was made so far stay shared with the fork server.
    gc.freeze()
    require_supported_machine()
    _expect_working_directory()
    _expect_proc()
    _expect_open_files(config.server.max_connections)
    placement.wake_without_preempting()
    launch = ForkServer()
    setproctitle("ringbatch: supervisor")
    # The watchdog of systemd ends a hung engine with SIGABRT.
    faulthandler.enable()
    # For this process and all its children.
    os.environ[FORM_VARIABLE] = config.server.log_format
    log_to_stderr("supervisor", config.server.log_level)
    for name in remove_dead_engines():
        logger.info("removed /dev/shm/%s, left by an engine that is gone", name)
    if replaces is None:
        expect_free(config.server.name)
    room, again = free_bytes(), reread or (lambda: config)
    if (fit := fitted(config, room)) != config:
        if replaces is not None:
            raise StartupError(
                f"beside the engine that runs, /dev/shm has {room} bytes free, for requests of "
                f"{fit.server.max_request_bytes} bytes at most, so larger ones would be refused "
                "from then on; make /dev/shm larger, or set [server] max_request_bytes"
            )
        words = "max_request_bytes = %d and lane_bytes = %d, derived from %d bytes free in /dev/shm"
        logger.info(words, fit.server.max_request_bytes, fit.server.lane_bytes, room)
    with ExitStack() as undo:
        undo.enter_context(closing(launch))
        old_engine = None
        if replaces is not None:
            old_engine = undo.enter_context(closing(replaces()))
        supervisor = Supervisor(fit, lambda: fitted(again(), room), old_engine, launch)
        undo.enter_context(closing(supervisor.frontends))
        return supervisor.run()


def _expect_working_directory() -> None:
    """Check that the working directory exists; Gunicorn and models need it."""
    try:
        os.getcwd()
    except FileNotFoundError:
        raise StartupError(
            "the working directory is gone; start the engine in one that there is"
        ) from None


def _expect_proc() -> None:
    """Check that /proc is mounted; a chroot may lack it, and the error of an open would not say."""
    if not os.path.isdir(_OWN_FILES):
        raise StartupError(
            "there is no /proc, by which an engine opens its own files and watches its processes; "
            "mount it (mount -t proc proc /proc)"
        )


def _expect_open_files(connections: int) -> None:
    """Check that a frontend may open more files than it needs for itself.

    If only some of the connections have room, the frontend starts and warns.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard <= OTHERS:
        raise StartupError(
            f"a process may have at most {hard} open files (ulimit -Hn). A frontend needs {OTHERS} "
            f"for itself, so none is left for connections; allow {connections + OTHERS}, for "
            f"max_connections = {connections} (LimitNOFILE= in the unit, docker run --ulimit "
            "nofile=, /etc/security/limits.conf)"
        )
