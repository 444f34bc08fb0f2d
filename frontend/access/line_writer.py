"""Line writer: a thread that writes lines, so that no caller waits.

A target that takes nothing, such as a pipe that nobody reads, holds up this thread alone. Then
lines gather, up to a bound, and what comes beyond is counted. Once the target takes lines again, a
line says how many are missing.

Lines gather for a moment in any case, and go out together: each time that the thread wakes or has
written, it takes the interpreter's lock from the event loop. One by one, the lines of 1 % of 80,000
requests/s cost a third of these.
"""

import logging
import select
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Final

from ringbatch.frontend.access.log_entry import Entry, line
from ringbatch.shm.host.background import repeating_thread
from ringbatch.shm.host.log_handler import Write
from ringbatch.shm.host.log_lines import LineFormatter

MOST_WAITING: Final = 4096
"""Lines."""
GATHER_S: Final = 0.05
_LOOK_EVERY_S: Final = 1.0
_CLOSE_S: Final = 1.0
"""Seconds that the end of the process waits for the last lines."""


class Writer:
    """Line writer with a thread and a bounded queue.

    Args:
        formatter: makes the lines.
        write: writes whole lines; raises OSError if that fails.
    """

    def __init__(self, formatter: LineFormatter, write: Write) -> None:
        self._formatter = formatter
        self._write = write
        self._waiting: deque[Entry] = deque()
        self._news = threading.Event()
        self._closing = threading.Event()
        # Counted by callers of `put`; the thread counts how many it has reported.
        self._lost = self._left_out = 0
        self._lost_reported = self._left_out_reported = 0
        self._failed = 0
        """Lines that the thread could not write."""
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin; after the last fork of the process."""
        self._thread = repeating_thread("the access log", self._turn, self._closing.wait)

    def put(self, entry: Entry) -> None:
        """Have an entry written; it is counted as lost if too many wait."""
        if len(self._waiting) >= MOST_WAITING:
            self._lost += 1
            return
        self._waiting.append(entry)
        if not self._news.is_set():
            self._news.set()

    def leave_out(self) -> None:
        """Count a request that is not logged, because of the rate limit of failures."""
        self._left_out += 1

    def close(self) -> None:
        """Write what waits, as far as the target takes it within a second."""
        self._closing.set()
        self._news.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_S)

    def _turn(self) -> bool:
        closing = self._closing.is_set()
        if not closing:
            self._news.wait(_LOOK_EVERY_S)
            self._closing.wait(GATHER_S)
            self._rest()
        self.write_waiting()
        return not closing

    def _rest(self) -> None:
        """Wait for news from now on, if nothing has come since the last time.

        While lines come, that would be one more turn at the lock for each gathering.
        """
        if not self._waiting:
            self._news.clear()
            # A caller that put an entry here just before that saw that there were news already.
            if self._waiting:
                self._news.set()

    def write_waiting(self) -> None:
        """Write what waits, and how many are missing."""
        while self._waiting:
            for piece in self._pieces():
                if not self._write_one(piece):
                    self._failed += piece.count(b"\n")
        lost = self._lost + self._failed - self._lost_reported
        if lost and self._warn("lines on requests that the log did not take: %d", lost):
            self._lost_reported += lost
        left_out = self._left_out - self._left_out_reported
        if left_out and self._warn("failed or slow requests too many to log each: %d", left_out):
            self._left_out_reported += left_out

    def _pieces(self) -> Iterator[bytes]:
        """Yield the waiting lines, as many at once as a pipe takes in one piece.

        So no other process's line comes between their parts. A longer line comes alone.
        """
        piece = b""
        while self._waiting:
            try:
                text = _encoded(line(self._waiting.popleft(), self._formatter))
            except BaseException:
                self._failed += 1 + piece.count(b"\n")
                raise
            if piece and len(piece) + len(text) > select.PIPE_BUF:
                yield piece
                piece = b""
            piece += text
        if piece:
            yield piece

    def _warn(self, text: str, count: int) -> bool:
        warning = self._formatter.line(time.time(), logging.WARNING, text % count, {})
        return self._write_one(_encoded(warning))

    def _write_one(self, piece: bytes) -> bool:
        try:
            self._write(piece)
        except OSError:
            return False
        return True


def _encoded(text: str) -> bytes:
    return text.encode(errors="backslashreplace") + b"\n"
