"""Worker pool: the workers of an engine, and which of them may end.

A number is given to another worker once two things are certain: its former process has ended, and
the collector expects nothing of that worker any more. The collector says so, or never knew of it.
"""

import signal
import time
from collections.abc import Collection
from typing import Final

from ringbatch.engine.process.role_commands import Dismiss
from ringbatch.engine.supervisor.managed_process import ManagedProcess

_KILL_AFTER_NS: Final = 5_000_000_000
"""Time for a worker to end by itself."""


class WorkerPool:
    """Managed processes of one engine's workers.

    Attributes:
        workers: by number.
    """

    def __init__(self) -> None:
        self.workers: dict[int, ManagedProcess] = {}

    @property
    def ready(self) -> tuple[int, int]:
        """Number of lasting workers that are ready, and number of lasting workers."""
        lasting = [managed for managed in self.workers.values() if managed.lasting]
        return sum(bool(managed.ready_ns and managed.child) for managed in lasting), len(lasting)

    def add(self, number: int, managed: ManagedProcess) -> None:
        """Add a worker that is started while the engine serves.

        Until its change is made, it is not restarted if it dies.
        """
        managed.lasting = managed.tie.known = False
        self.workers[number] = managed

    def end(self, managed: ManagedProcess) -> None:
        """End a worker that nothing is expected of; its process's end frees its number."""
        managed.let_go()
        managed.tie.released = True
        if managed.child is None:
            self.remove(managed)
        else:
            if managed.ready_ns:
                managed.child.send(Dismiss())
            managed.child.kill(signal.SIGTERM)
            managed.kill_ns = time.monotonic_ns() + _KILL_AFTER_NS

    def remove(self, managed: ManagedProcess) -> None:
        """Remove a worker whose process has ended, and free its number."""
        assert managed.worker is not None, "a pool has workers alone"
        del self.workers[managed.worker]

    def release(self, number: int, entered: Collection[int]) -> None:
        """Let a worker go, as the collector expects nothing of it any more.

        Args:
            number: of the worker; an earlier collector may have meant an earlier worker of that
                number.
            entered: the numbers of the workers in the table.
        """
        managed = self.workers.get(number)
        if managed is not None and managed.tie.known and number not in entered:
            self.end(managed)

    def release_unheard_of(self, entered: Collection[int]) -> None:
        """Release the leaving workers of an earlier collector, after a failover.

        The new collector may never have heard of them.

        Args:
            entered: as for `release`.
        """
        for number, managed in list(self.workers.items()):
            gone = managed.child is None and managed.tie.unreclaimed is None
            if gone and not managed.lasting and number not in entered:
                self.end(managed)
