"""Background threads of ringbatch's processes. None ends by an error that nobody sees.

A thread that its process cannot do without ends the process, whose supervisor starts another. One
that does the same thing again and again goes on with its next turn. The system may have no thread
for a moment: work that can wait is then tried again. `background_tasks.py` has the tasks of event
loops.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Final, NoReturn

from ringbatch.shm.errors import StartupError

logger = logging.getLogger("ringbatch.process")

AFTER_ERROR_S: Final = 1.0
"""The pause of a repeating thread after a turn that has failed."""


def essential_thread(name: str, work: Callable[[], None]) -> threading.Thread:
    """Start a thread; an error in it ends the process.

    Raises:
        StartupError: the system has no thread now.
    """
    return _started(_thread(name, lambda: _run_or_end(name, work)))


def repeating_thread(
    name: str, turn: Callable[[], bool], sleep: Callable[[float], object] = time.sleep
) -> threading.Thread:
    """Start a thread that calls `turn` until it returns False.

    An error is logged, once for as long as it stays the same, and the next turn comes after
    `AFTER_ERROR_S`.

    Args:
        name: for the log.
        turn: does the work once; returns whether to call it again.
        sleep: takes the pause after an error.

    Raises:
        StartupError: the system has no thread now.
    """
    return _started(_thread(name, lambda: _repeat(name, turn, sleep)))


def short_thread(name: str, work: Callable[[], None]) -> threading.Thread | None:
    """Start a thread for work that ends; return None if the system has no thread now.

    An error is logged.
    """
    thread = _thread(name, lambda: _run_once(name, work))
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread


def delayed(name: str, delay_s: float, work: Callable[[], None]) -> Callable[[], None]:
    """Do short work in a thread after a while; return a function that calls it off.

    If the system has no thread now, the work is left out.
    """
    called_off = threading.Event()

    def wait() -> None:
        if not called_off.wait(delay_s):
            work()

    short_thread(name, wait)
    return called_off.set


def _thread(name: str, work: Callable[[], None]) -> threading.Thread:
    return threading.Thread(target=work, name=name, daemon=True)


def _started(thread: threading.Thread) -> threading.Thread:
    try:
        thread.start()
    except RuntimeError as error:
        raise StartupError(
            f"no thread for {thread.name}: {error}; raise the limit of tasks (ulimit -u, TasksMax=)"
        ) from None
    return thread


def _run_or_end(name: str, work: Callable[[], None]) -> None:
    try:
        work()
    except BaseException as error:
        end_process(name, error)


def _run_once(name: str, work: Callable[[], None]) -> None:
    try:
        work()
    except Exception:
        logger.exception("%s failed", name)


def _repeat(name: str, turn: Callable[[], bool], sleep: Callable[[float], object]) -> None:
    complaint = ""
    while True:
        try:
            if not turn():
                return
            complaint = ""
        except Exception as error:
            words = f"{type(error).__name__}: {error}"
            if words != complaint:
                logger.exception("%s failed, and is tried again", name)
            complaint = words
            sleep(AFTER_ERROR_S)


def end_process(name: str, error: BaseException) -> NoReturn:
    """End this process at once, and log the error of its thread or task."""
    try:
        logger.critical("%s failed, which ends this process", name, exc_info=error)
    finally:
        os._exit(1)
