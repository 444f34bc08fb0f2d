"""Log handler that writes from a thread of its own, so that no caller waits for long.

A target that takes nothing, such as a pipe that nobody reads or a journal that stands still, holds
up this thread alone. Lines gather then, up to a bound, and what comes beyond is counted. Once the
target takes lines again, a line says how many are missing. While it does take them, a caller waits
until its line is written: so the last words of a process that ends at once are there.
"""

import errno
import logging
import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, NamedTuple

MOST_WAITING: Final = 1024
"""Lines."""
PATIENCE_S: Final = 0.2
"""Seconds that the first line waits if the target does not take it; the lines after it do not
wait."""
_CLOSE_S: Final = 1.0
"""Seconds that the end of the process waits for the last lines."""

Write = Callable[[bytes], None]


class _Line(NamedTuple):
    """Entry of the queue of log lines.

    Attributes:
        text: whole; empty if only `done` is wanted.
        done: a lock that is held until the entry is written.
    """

    text: bytes
    done: threading.Lock


class LogHandler(logging.Handler):
    """Log handler with a writer thread. A forked child gets a thread of its own and an empty queue.

    Args:
        formatter: makes the lines.
        write: writes whole lines, or raises OSError.
    """

    def __init__(self, formatter: logging.Formatter, write: Write) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self._write = write
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._waiting: SimpleQueue[_Line] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._stuck = False
        """True if a line has waited in vain, and others still wait."""
        # Lines that were not written, and how many of these the thread has reported.
        self._lost = self._failed = self._reported = 0

    def emit(self, record: logging.LogRecord) -> None:
        """As `logging` asks for it."""
        try:
            text = self._line(record)
        except Exception:
            text = self._line(_warning("a line of the log cannot be made", exc_info=True))
        if self._waiting.qsize() >= MOST_WAITING:
            self._lost += 1
            return
        written = self._put(text)
        if written is not None and not self._stuck:
            self._stuck = not written.acquire(timeout=PATIENCE_S)

    def flush(self) -> None:
        """Wait until what waits is written, for a second at most."""
        if self._thread is not None and (written := self._put(b"")) is not None:
            written.acquire(timeout=_CLOSE_S)

    def _line(self, record: logging.LogRecord) -> bytes:
        return self.format(record).encode(errors="backslashreplace") + b"\n"

    def _put(self, text: bytes) -> "threading.Lock | None":
        """Have a line written; what says when, or None if it is written already."""
        if self._thread is None and not self._start():
            self._failed += not self._write_one(text)
            return None
        done = threading.Lock()
        done.acquire()
        self._waiting.put(_Line(text, done))
        return done

    def _start(self) -> bool:
        # Those of the process are for its main thread.
        held = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            thread = threading.Thread(
                target=self._run, name="log", args=(self._waiting,), daemon=True
            )
            thread.start()
        except Exception:
            # There may be none left, the interpreter ends, or a model has replaced parts of Python.
            return False
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
        self._thread = thread
        return True

    def _run(self, waiting: SimpleQueue[_Line]) -> None:
        while True:
            try:
                self._write_next(waiting)
            except Exception:
                # As when memory is short. The next line may be written.
                self._failed += 1

    def _write_next(self, waiting: "SimpleQueue[_Line]") -> None:
        line = waiting.get()
        try:
            if line.text:
                self._failed += not self._write_one(line.text)
        finally:
            line.done.release()
        if waiting.empty():
            self._stuck = False
            self._report_missing()

    def _report_missing(self) -> None:
        if missing := self._lost + self._failed - self._reported:
            words = f"lines that the log did not take: {missing}"
            if self._write_one(self._line(_warning(words))):
                self._reported += missing

    def _write_one(self, text: bytes) -> bool:
        try:
            self._write(text)
        except OSError:
            return False
        return True


def _warning(message: str, *, exc_info: bool = False) -> logging.LogRecord:
    found = sys.exc_info() if exc_info else None
    return logging.LogRecord("ringbatch", logging.WARNING, "", 0, message, None, found)


def writing_to(descriptor: int, instead: int | None = None) -> Write:
    """Return a function that writes to a descriptor, blocking or not.

    Args:
        descriptor: this.
        instead: another one to write to if a model has closed the first.
    """

    def write(line: bytes) -> None:
        nonlocal descriptor, instead
        left = memoryview(line)
        while left:
            try:
                left = left[os.write(descriptor, left) :]
            except BlockingIOError:
                ready = select.poll()
                ready.register(descriptor, select.POLLOUT)
                ready.poll()
            except OSError as error:
                if error.errno != errno.EBADF or instead is None:
                    raise
                descriptor, instead = instead, None

    return write
