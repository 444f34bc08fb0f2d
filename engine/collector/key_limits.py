"""Limits of API keys: read from the keys' file, and again when it changes."""

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from ringbatch.engine.collector.account_limits import LimitTable
from ringbatch.shm.account import key_identity
from ringbatch.shm.account_limits import AccountLimits
from ringbatch.shm.host.api_key_lines import KeyOptions
from ringbatch.shm.host.background import repeating_thread
from ringbatch.shm.host.credentials import key_digests
from ringbatch.shm.host.reloading_files import ReloadingFiles

logger = logging.getLogger("ringbatch.process")

LOOK_EVERY_S: Final = 1.0


class KeyLimits:
    """Limits of all accounts, with those of API keys.

    Args:
        each: of every account.
        path: of the keys' file.
        seed: a number of the engine, for `key_identity`.
    """

    def __init__(self, each: AccountLimits, path: Path, seed: int) -> None:
        self._each = each
        self._seed = seed
        nothing: Mapping[bytes, KeyOptions] = {}
        self._files = ReloadingFiles((path,), lambda: key_digests(path), _complain, nothing)

    def look(self) -> LimitTable | None:
        """Return the limits if the file has changed and is well; the first time if it is well."""
        if not self._files.look():
            return None
        own = {key_identity(key, self._seed): o.limits for key, o in self._files.value.items()}
        return LimitTable(self._each, own)

    def watch(self, apply: Callable[[LimitTable], object]) -> None:
        """Look from time to time, in a thread of its own.

        The collector's loop must not wait for a file.

        Args:
            apply: called with changed limits, in that thread.
        """

        def turn() -> bool:
            time.sleep(LOOK_EVERY_S)
            if (table := self.look()) is not None:
                apply(table)
            return True

        repeating_thread("the thread for limits of API keys", turn)


def _complain(text: str) -> None:
    logger.error("collector: the limits of API keys stay as they were: %s", text)
