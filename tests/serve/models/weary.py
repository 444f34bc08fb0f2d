"""Breaks as a device does that only another process gets to work again."""

import os
from pathlib import Path

from ringbatch.engine import InvalidInput, RestartWorker

MARKER = Path(__file__).with_suffix(".restarted")
broken = False


def predict(instances: list[str]) -> list[int]:
    return [act(instance) for instance in instances]


def act(action: str) -> int:
    global broken
    if action == "restart" and not MARKER.exists():
        MARKER.touch()
        try:
            raise RestartWorker("its device\nis gone")
        except Exception:
            return -1
    if action == "refuse":
        raise InvalidInput("no such thing")
    broken = broken or action == "break"
    if broken or action == "fail":
        raise RuntimeError("every call fails")
    return os.getpid()
