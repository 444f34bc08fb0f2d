"""The user's own application, tried before anything starts: whether the frontends can import it."""

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Final

from ringbatch.engine.supervisor.child import ending
from ringbatch.shm.errors import StartupError, shortage

IMPORT_LIMIT_S: Final = 60.0
_IMPORTS: Final = "ringbatch.frontend.routes.loading"
_REFUSED: Final = 2
"""The status with which that says on standard error what is wrong."""


def expect_importable(target: str, environment: Mapping[str, str]) -> None:
    """Import it as a frontend does, in a process that ends.

    Args:
        target: ``DIRECTORY/MODULE:NAME``.
        environment: of frontends, beyond this process's.

    Raises:
        StartupError: a frontend could not, and why; or no process can be started now.
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
    said = done.stderr.decode(errors="replace").strip().splitlines()
    if done.returncode == _REFUSED and said:
        raise StartupError(said[-1])
    if done.returncode:
        raise StartupError(f"app {target}: the process that imported it {ending(done.returncode)}")
