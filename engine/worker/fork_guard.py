"""Detection of child processes that the model's code forked, so that none continues as the worker.

Such a child is the model's, which ends it with `os._exit`, as multiprocessing does. Where it comes
back from the model instead, it holds all that the worker holds, and would answer beside it.
"""

import logging
import os
from typing import NoReturn

logger = logging.getLogger("ringbatch.worker")


class ForkGuard:
    """Guard that ends a child process that the model forked, if it returns to the worker."""

    def __init__(self) -> None:
        self._left = False
        os.register_at_fork(after_in_child=self._leave)

    def check(self, error: BaseException | None = None) -> None:
        """End this process at once if it is a child.

        Args:
            error: the error that it returned with; an exit has its status.
        """
        if self._left:
            _end(error)

    def _leave(self) -> None:
        self._left = True


def _end(error: BaseException | None) -> NoReturn:
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        os._exit((error.code or 0) & 0xFF)
    logger.error(
        "a child that the model has forked came back from it to the worker, and is ended; "
        "it must end in the model's code, by os._exit",
        exc_info=error,
    )
    os._exit(1)
