"""Health of an engine for the watchdog: requests are answered, not only processes there."""

import threading
from collections.abc import Callable

from ringbatch.shm.host.background import short_thread


class Health:
    """Repeated proof that the engine works from end to end.

    Its collector moves, and a frontend answers requests. The supervisor works too, as it looks. A
    model that fails, and workers that come and go, are no reason for doubt: other parts care for
    them, and a restart of everything would not help.

    Args:
        answers: asks a frontend, as a client would; may take seconds.
    """

    def __init__(self, answers: Callable[[], bool]) -> None:
        self._answers = answers
        self._answered = False
        self._collector_ns = 0
        self._asking: threading.Thread | None = None

    def proven(self, collector_ns: int) -> bool:
        """Return whether both have been seen to work since the last time that both had.

        Args:
            collector_ns: when the collector last looked for requests.
        """
        proven = self._answered and collector_ns > self._collector_ns
        if proven:
            self._answered = False
            self._collector_ns = collector_ns
        if not self._answered and (self._asking is None or not self._asking.is_alive()):
            self._asking = short_thread("the proof of health", self._ask)
        return proven

    def _ask(self) -> None:
        self._answered = self._answers()
