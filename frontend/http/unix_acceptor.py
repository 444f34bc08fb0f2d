"""Acceptor of connections on a Unix socket, whose one queue several processes share.

A server of asyncio accepts all that wait, so whichever process wakes first would serve all. This
one accepts one connection for each wake-up, and leaves the next one to the others.
"""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Final

from ringbatch.shm.host.background_tasks import short_task

_PAUSE_S: Final = 1.0
"""Seconds without a free descriptor, before it tries again."""


class UnixAcceptor:
    """Acceptor of one process on a shared Unix socket, from now until `close`.

    Args:
        listener: listens, and does not block.
        serve: serves a connection.
    """

    def __init__(
        self, listener: socket.socket, serve: Callable[[socket.socket], Coroutine[None, None, None]]
    ) -> None:
        self._listener = listener
        self._serve = serve
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._paused: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._watch()

    def close(self) -> None:
        """Accept no more; may be called again."""
        if self._is_closed:
            # The listener may be closed since then, and then has no descriptor.
            return
        self._is_closed = True
        self._loop.remove_reader(self._listener)
        if self._paused is not None:
            self._paused.cancel()

    async def wait_closed(self) -> None:
        """Return once all accepted connections are served by protocols of their own."""
        await asyncio.gather(*self._tasks)

    def _watch(self) -> None:
        self._paused = None
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            # Another process has taken it.
            return
        except OSError:
            # The connection stays in the queue, and would wake this process again at once.
            self._loop.remove_reader(self._listener)
            self._paused = self._loop.call_later(_PAUSE_S, self._watch)
            return
        connection.setblocking(False)
        task = short_task("a connection on a Unix socket", self._serve(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
