"""The server under the demo: a process group that is started, listened to, and stopped.

It also tells what a server left in /dev/shm, so that the demo can say that it left nothing.
"""

import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Final

from ringbatch.engine.config.settings import ServerConfig
from ringbatch.shm.host.background import repeating_thread
from ringbatch.shm.shm_objects import DIRECTORY, PREFIX

NAME: Final = f"demo-{os.getpid()}"
"""Name of the demo's engine, different from those of other engines and other demos."""
_SERVE: Final = (sys.executable, "-P", "-m", "ringbatch.engine", "serve")
SERVE: Final = (*_SERVE, "--engine-name", NAME, "--port", "0")
READY: Final = re.compile(r"ringbatch: serving digits on http://127\.0\.0\.1:(\d+)\s*")

STOP_MARGIN_S: Final = 5.0
"""Seconds of a stop beyond the drain limit, to end the processes themselves."""
KEPT_LINES: Final = 40


class DemoFailed(Exception):
    """Something was wrong; the text says what, one line for each problem."""


class Server:
    """The server as a process group of its own; what it says is kept for the error report.

    Of its own, so that Ctrl-C in the terminal reaches the demo alone, which then stops it.
    """

    def __init__(self, process: "subprocess.Popen[str]", output: IO[str]) -> None:
        self._process = process
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._port: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        # A pipe that nobody reads fills up, and then the server stands still in a print.
        self._output = output
        self._reader: threading.Thread | None = None

    @property
    def pid(self) -> int:
        """The supervisor, which is also the number of the group."""
        return self._process.pid

    def start_reading(self) -> None:
        """Read the server's output in a thread until it ends.

        Raises:
            StartupError: the system has no thread now.
        """
        self._reader = repeating_thread("the reader of the server's output", self._read)

    def _read(self) -> bool:
        for line in self._output:
            if ready := READY.fullmatch(line):
                self._port.put(int(ready[1]))
            else:
                self._lines.append(line.rstrip())
        self._output.close()
        self._port.put(None)
        return False

    def wait_ready(self, limit_s: float) -> int:
        """Return the port, as soon as the server says that it serves.

        Raises:
            DemoFailed: it ended, or did not say so in time.
        """
        try:
            port = self._port.get(timeout=limit_s)
        except queue.Empty:
            raise self._failure(f"the server was not ready within {limit_s:g} s") from None
        if port is None:
            exit_status = self._process.wait()
            raise self._failure(f"the server ended with status {exit_status} before it was ready")
        return port

    def stop(self) -> list[str]:
        """Send SIGTERM and wait; return the problems of the end, in words.

        Raises:
            DemoFailed: the server did not end within its drain limit.
        """
        limit_s = ServerConfig().drain_s + STOP_MARGIN_S
        self._process.terminate()
        try:
            exit_status = self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise self._failure(f"the server did not stop within {limit_s:g} s") from None
        if self._reader is not None:
            self._reader.join(STOP_MARGIN_S)
        return [f"the server stopped with status {exit_status}, not 0"] if exit_status else []

    def end(self) -> None:
        """Stop the server if it still runs: with SIGTERM, and by force if that fails."""
        if self._process.poll() is None:
            try:
                with suppress(DemoFailed):
                    self.stop()
            finally:
                if self._process.poll() is None:
                    with suppress(ProcessLookupError):
                        os.killpg(self.pid, signal.SIGKILL)
                    self._process.wait()

    def last_words(self) -> list[str]:
        """Return the last lines that it wrote, with a heading; nothing if it wrote none."""
        return ["the server wrote:", *(f"  {line}" for line in self._lines)] if self._lines else []

    def _failure(self, reason: str) -> DemoFailed:
        return DemoFailed("\n".join([reason, *self.last_words()]))


@contextmanager
def served(command: Sequence[str] = SERVE) -> Iterator[Server]:
    """Start the server on a free port, and stop it at the end in any case."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        process_group=0,
        text=True,
        errors="replace",
    )
    assert process.stdout is not None
    server = Server(process, process.stdout)
    try:
        server.start_reading()
        yield server
    finally:
        server.end()


def left_behind(pid: int) -> list[str]:
    """Return the names in /dev/shm that an ended server left there."""
    own = re.compile(rf"(sem\.)?{PREFIX}\.[^.]+\.{pid}\..*")
    return sorted(entry.name for entry in DIRECTORY.iterdir() if own.fullmatch(entry.name))
