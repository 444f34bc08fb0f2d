"""What every process of the engine does first, whatever its role."""

import signal
import threading
from collections.abc import Callable
from typing import Any

from setproctitle import setproctitle

from ringbatch.engine.messages import ControlSocket
from ringbatch.shm.process import log_to_stderr


def begin(title: str, log_level: str) -> None:
    """Name the process, log to standard error, leave Ctrl-C to the supervisor."""
    setproctitle(f"ringbatch: {title}")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    log_to_stderr(title, log_level)


def watch(
    control: ControlSocket,
    on_message: Callable[[dict[str, Any]], None],
    on_end: Callable[[], None],
) -> None:
    """Read the supervisor's messages in a thread of their own; `on_end` when it is gone."""

    def read() -> None:
        while (messages := control.receive()) is not None:
            for message in messages:
                on_message(message)
        on_end()

    threading.Thread(target=read, name="control", daemon=True).start()
