"""Background tasks of processes with an event loop. None ends by an error that nobody sees.

They are apart from `background.py`, because the import of asyncio takes 20 ms of the start of a
process that has threads and no event loop.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TypeVar

from ringbatch.shm.host.background import end_process

logger = logging.getLogger("ringbatch.process")

T = TypeVar("T")


def essential_task(name: str, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
    """Start a task of the running loop; an error in it ends the process."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    task.add_done_callback(_end_if_failed)
    return task


def short_task(name: str, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
    """Start a task of the running loop for work that ends; an error in it is logged."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    task.add_done_callback(_log_if_failed)
    return task


def in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """Do work in a thread of the running loop's, or at once if the system has no thread now."""
    loop = asyncio.get_running_loop()
    try:
        return loop.run_in_executor(None, work)
    except RuntimeError:
        done: asyncio.Future[T] = loop.create_future()
        done.set_result(work())
        return done


def _log_if_failed(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("%s failed", task.get_name(), exc_info=error)


def _end_if_failed(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        end_process(task.get_name(), error)
