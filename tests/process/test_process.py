"""What a process of the engine does with the signal that ends it."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

LOOP = """
import os, sys
from contextlib import suppress
from functools import partial
from operator import call
from posix_ipc import SignalError
from ringbatch.engine.process import stop_on_sigterm
from ringbatch.shm import wakeup
from ringbatch.shm.wakeup import Wakeup

Wakeup.create(sys.argv[1])
doorbell = Wakeup.attach(sys.argv[1])
wakeup.unlink(sys.argv[1])
stopping = stop_on_sigterm(doorbell.wake)
begin, step = partial(os.write, 1, b"begins\\n"), partial(sum, range(20_000_000))
# A step and the sleep after it with no interpreted code between them, as where both are compiled.
while not stopping:
    with suppress(SignalError):
        [*map(call, (begin, step, doorbell._semaphore.acquire))]
print(*stopping, flush=True)
"""


def sleeps(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "S"


@pytest.mark.parametrize("late", [False, True], ids=["amid-a-step", "asleep"])
def test_sigterm_ends_the_loop_whatever_it_is_at(
    late: bool, wait_until: Callable[..., object]
) -> None:
    name = f"/rb-test-process-{late}"
    child = subprocess.Popen([sys.executable, "-c", LOOP, name], stdout=subprocess.PIPE, text=True)
    with child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "begins\n"
            if late:
                wait_until(lambda: sleeps(child.pid), "the loop to sleep")
            child.send_signal(signal.SIGTERM)
            assert child.stdout.read() == f"{signal.SIGTERM:d}\n"
            assert child.wait() == 0
        finally:
            child.kill()
