"""Breaks as a device does that only another process gets to work again."""

import os
from pathlib import Path

from ringbatch.engine import InvalidInput, RestartWorker

MARKER = Path(__file__).with_suffix(".restarted")
broken = False


def predict(instances: list[str]) -> list[int]:
    return [act(instance) for instance in instances]


def act(what: str) -> int:
    global broken
    if what == "restart" and not MARKER.exists():
        MARKER.touch()
        try:
            raise RestartWorker("its device\nis gone")
        except Exception:
            return -1
    if what == "refuse":
        raise InvalidInput("no such thing")
    broken = broken or what == "break"
    if broken or what == "fail":
        raise RuntimeError("every call fails")
    return os.getpid()
