"""Answers in parts: as many as an instance says, each after a pause; or fails as it says."""

import os
import signal
import time
from collections.abc import Iterator
from typing import Any


def predict(instances: list[Any]) -> Iterator[list[str]]:
    first = instances[0]
    if first == "refuse":
        raise ValueError("refused")
    if isinstance(first, str) and first.startswith("exit"):
        yield ["first "] * len(instances)
        os.kill(os.getpid(), signal.SIGKILL)
    if first == "raise":
        yield ["first "] * len(instances)
        raise ValueError("raised behind a part")
    count, pause_s = first if isinstance(first, list) else (first, 0.0)
    for number in range(count):
        yield [f"{number} "] * len(instances)
        time.sleep(pause_s)
