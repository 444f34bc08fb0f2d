"""Is slow, or ends its process once, as its instances ask; the next process takes a while."""

import os
import signal
import time
from pathlib import Path
from typing import Any

ARMED = Path(__file__).with_name("armed")
DIED = Path(__file__).with_name("died")
LOADING_S = 0.4


def load() -> None:
    if DIED.exists():
        time.sleep(LOADING_S)


def predict(instances: list[Any]) -> list[Any]:
    for instance in instances:
        if instance == "die" and ARMED.exists():
            ARMED.rename(DIED)
            os.kill(os.getpid(), signal.SIGKILL)
        if isinstance(instance, float):
            time.sleep(instance)
    # So large that the server holds most of it while the client does not read.
    return ["x" * 6_000_000 if instance == "large" else instance for instance in instances]
