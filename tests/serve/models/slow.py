"""Is slow, or ends its process once, as its instances ask."""

import os
import signal
import time
from pathlib import Path
from typing import Any

ARMED = Path(__file__).with_name("armed")


def predict(instances: list[Any]) -> list[Any]:
    for what in instances:
        if what == "die" and ARMED.exists():
            ARMED.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        if isinstance(what, float):
            time.sleep(what)
    # So large that a client who does not read it leaves it with the server.
    return ["x" * 8_000_000 if what == "large" else what for what in instances]
