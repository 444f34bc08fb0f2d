"""Sends traces from a thread of its own, so that whoever has one never waits.

A trace is the spans of one request, or that of one batch. Where they are not taken as quickly as
they come, they gather up to a bound, and what comes beyond is dropped and counted.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from ringbatch.frontend.tracing.sending import NotTakenError
from ringbatch.frontend.tracing.spans import Span
from ringbatch.shm.host.background import repeating_thread

logger = logging.getLogger("ringbatch.control")

MOST_WAITING: Final = 4096
"""Traces."""
MOST_AT_ONCE: Final = 256
"""Traces in one message."""
AGAIN_AFTER_S: Final = (0.0, 0.5, 1.0)
"""What could not be sent is sent again after these; a connection that was kept may be stale."""
COMPLAIN_EVERY_S: Final = 60
CLOSE_S: Final = 1.0
"""How long the end of the process waits for the last traces."""
_SEND_EVERY_S: Final = 1.0
"""Unless there is a whole message before: each wakes a thread and a collector."""

Trace = Sequence[Span]


class Exporter:
    """See the module.

    Attributes:
        exported: traces that were taken.
        full: that were dropped because too many waited.
        failed: that were dropped because they could not be sent, or were refused.

    Args:
        encode: makes a message.
        send: as `Sender.send`.
        endpoint: for people.
        clock: monotonic nanoseconds.
    """

    def __init__(
        self,
        encode: Callable[[Sequence[Span]], bytes],
        send: Callable[[bytes], str],
        endpoint: str,
        clock: Callable[[], int],
    ) -> None:
        self.exported = self.full = self.failed = 0
        self._encode = encode
        self._send = send
        self._endpoint = endpoint
        self._clock = clock
        self._waiting: deque[Trace] = deque()
        self._news = threading.Event()
        self._closing = threading.Event()
        self._complained_ns: int | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin."""
        self._thread = repeating_thread("the export of traces", self._turn, self._closing.wait)

    def put(self, trace: Trace) -> None:
        """Have a trace sent."""
        if len(self._waiting) >= MOST_WAITING:
            self.full += 1
            return
        self._waiting.append(trace)
        if len(self._waiting) >= MOST_AT_ONCE:
            self._news.set()

    def close(self) -> None:
        """Send what waits, as far as it is taken within a second."""
        self._closing.set()
        self._news.set()
        if self._thread is not None:
            self._thread.join(CLOSE_S)
        if self._waiting:
            logger.warning("traces: %d are not sent at the end", len(self._waiting))

    def _turn(self) -> bool:
        self._news.wait(_SEND_EVERY_S)
        self._news.clear()
        self.send_waiting()
        return not self._closing.is_set() or bool(self._waiting)

    def send_waiting(self) -> None:
        """Send what waits; by the thread."""
        while self._waiting:
            some = min(len(self._waiting), MOST_AT_ONCE)
            traces = [self._waiting.popleft() for _ in range(some)]
            try:
                objection = self._delivered(self._encode([span for t in traces for span in t]))
            except BaseException:
                self.failed += some
                raise
            if objection is None:
                self.exported += some
            else:
                self.failed += some
                self._complain(objection)

    def _delivered(self, data: bytes) -> str | None:
        """Send one message, again if need be; why it was dropped, None where it was taken."""
        for pause_s in (*AGAIN_AFTER_S, None):
            try:
                remark = self._send(data)
            except NotTakenError as error:
                return str(error)
            except OSError as error:
                objection = str(error) or type(error).__name__
                if pause_s is None or self._closing.wait(pause_s):
                    return objection
            else:
                if remark:
                    self._complain(remark)
                return None
        raise AssertionError("the last one returns")

    def _complain(self, objection: str) -> None:
        now_ns, before_ns = self._clock(), self._complained_ns
        if before_ns is not None and now_ns - before_ns < COMPLAIN_EVERY_S * 1e9:
            return
        self._complained_ns = now_ns
        logger.warning(
            "traces: not all are taken at trace_endpoint, %s: %s; %d were sent and %d dropped",
            self._endpoint,
            objection,
            self.exported,
            self.failed + self.full,
        )
