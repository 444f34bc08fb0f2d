"""A process that generates load, as the process that started it sees it."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence

from ringbatch.bench.load.role import read_frames, write_frames


class GeneratorDied(RuntimeError):
    """A generator ended while it was needed."""


class Child:
    """A process that waits for orders.

    Args:
        role: the module that it runs.
    """

    def __init__(self, role: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", role],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C is for the command, which then ends them.
            process_group=0,
        )

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._process.pid

    def send(self, frames: Sequence[bytes]) -> None:
        """Give an order.

        Raises:
            GeneratorDied: it has.
        """
        assert self._process.stdin is not None
        try:
            write_frames(self._process.stdin, frames)
        except BrokenPipeError:
            raise GeneratorDied("a process that generates load has ended") from None

    def receive(self) -> list[bytes]:
        """Return the child's next message.

        Raises:
            GeneratorDied: it has ended.
        """
        assert self._process.stdout is not None
        frames = read_frames(self._process.stdout)
        if not frames:
            status = self._process.wait()
            raise GeneratorDied(f"a process that generates load has ended with status {status}")
        return frames

    def end(self) -> None:
        """Kill the child if it still runs."""
        if self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            # A frame that was not taken may still lie in it.
            try:
                pipe.close()
            except BrokenPipeError:
                continue
