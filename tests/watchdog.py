"""The time limit of each test, kept by one thread of the process.

pytest-timeout starts a thread for each test and waits until it runs, which takes as long as most
tests of this suite do.
"""

import threading
from time import monotonic, sleep
from typing import Any, Final

import pytest
from pytest_timeout import timeout_timer

LOOK_EVERY_S: Final = 0.5


class Watchdog:
    """A plugin that takes the place of pytest-timeout's timers, for its method "thread"."""

    def __init__(self) -> None:
        self._limit: tuple[float, pytest.Item, Any] | None = None
        self._thread: threading.Thread | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_timeout_set_timer(self, item: pytest.Item, settings: Any) -> bool | None:
        if settings.method != "thread":
            return None
        self._limit = monotonic() + settings.timeout, item, settings
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
            self._thread.start()
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_timeout_cancel_timer(self, item: pytest.Item) -> bool | None:
        if self._limit is None:
            return None
        self._limit = None
        return True

    def _watch(self) -> None:
        # Imported functions, because a test may have replaced the module's.
        while True:
            sleep(LOOK_EVERY_S)
            limit = self._limit
            if limit is not None and monotonic() > limit[0]:
                timeout_timer(*limit[1:])
