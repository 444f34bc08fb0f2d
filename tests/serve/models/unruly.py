"""Has processes of its own, and says what no worker says, as its instances ask."""

import atexit
import os
import signal
import sys
import time
from pathlib import Path

from ringbatch.engine.models.model import RestartWorker

HERE = Path(__file__).parent
CONTROL = int(sys.orig_argv[sys.orig_argv.index("--control-fd") + 1])


def load() -> None:
    while (HERE / "hold").exists():
        time.sleep(0.01)


def predict(instances: list[str]) -> list[int]:
    return [act(*instance.partition(" ")[::2]) for instance in instances]


def act(action: str, argument: str) -> int:
    if action == "say":
        os.write(CONTROL, os.fsencode(argument))
    elif action == "babble":
        while True:
            os.write(CONTROL, b"x" * 4096)
    elif action == "fork":
        return forked(argument)
    elif action == "lose":
        # As the libraries of a device do that answers no more.
        atexit.register(os.abort)
        raise RestartWorker(argument)
    elif action == "signal":
        os.kill(os.getpid(), int(argument))
    return os.getpid()


def forked(group: str) -> int:
    """A child that has all that its parent has, and nothing ends it but SIGKILL."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        if group == "own":
            os.setpgid(0, 0)
        os.write(writing, b"!")
        while True:
            time.sleep(1)
    os.read(reading, 1)
    return child
