"""Checks of the user's application: its import, and whether it leaves our paths unguarded."""

import http.client
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Final

from ringbatch.engine.supervisor.child_process import ending
from ringbatch.shm.errors import StartupError, shortage
from ringbatch.shm.host.background import short_thread

logger = logging.getLogger("ringbatch.supervisor")

IMPORT_LIMIT_S: Final = 60.0
_IMPORTS: Final = "ringbatch.frontend.routes.loading"
_REFUSED: Final = 2
"""Exit status of the import's process after a message on standard error."""

_REFUSALS: Final = (http.client.UNAUTHORIZED, http.client.FORBIDDEN)


def warn_if_unguarded(ask: Callable[[], int | None]) -> None:
    """Warn if the application refuses strangers while ringbatch's own paths serve them.

    The check runs in a thread, because the application may be slow. If no thread can be started, it
    is left out.

    Args:
        ask: requests `/` as a stranger and returns the status of the answer.
    """

    def look() -> None:
        if ask() in _REFUSALS:
            logger.warning(
                "app refuses / to strangers, but does not guard /v1/models and /v2, which serve "
                'everybody: set [server] own_paths to "app" or "off", or api_keys_file'
            )

    if short_thread("the check of the application", look) is None:
        logger.warning("app: no thread can be had now to check whether it refuses / to strangers")


def expect_importable(target: str, environment: Mapping[str, str]) -> None:
    """Import the application as a frontend does, in a process that ends.

    Args:
        target: ``DIRECTORY/MODULE:NAME``.
        environment: of frontends, beyond this process's.

    Raises:
        StartupError: the import fails, with the reason; or no process can be started now.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", _IMPORTS, target],
            env=os.environ | dict(environment),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=IMPORT_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise StartupError(f"app {target}: to import it takes over {IMPORT_LIMIT_S:g} s") from None
    except OSError as error:
        reason = shortage(error.errno or 0, str(error))
        raise StartupError(f"app {target}: {reason}") from None
    found = done.stderr.decode(errors="replace").strip().splitlines()
    if done.returncode == _REFUSED and found:
        raise StartupError(found[-1])
    if done.returncode:
        raise StartupError(f"app {target}: the process that imported it {ending(done.returncode)}")
