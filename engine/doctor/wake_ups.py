"""Cost of a wake-up here: two processes pass a word to and fro, as frontend and collector do.

One sleeps at a semaphore, the other at a named pipe, and the word crosses in rings. Before each
round trip both have slept a while, as they do if requests come one at a time.
"""

import mmap
import os
import signal
import time
from typing import Final

from ringbatch.engine.doctor.facts import WakeUps
from ringbatch.engine.doctor.host_files import HostFiles
from ringbatch.engine.doctor.probes import pipe, semaphore
from ringbatch.shm.doorbell import Doorbell
from ringbatch.shm.errors import StartupError
from ringbatch.shm.host.process import die_with_parent
from ringbatch.shm.layout import PAGE, WORD, aligned, ring_size
from ringbatch.shm.ring import Consumer, Producer
from ringbatch.shm.wakeup import Wakeup

_WORDS: Final = 8
_ANSWERS: Final = ring_size(_WORDS)
"""Start of the second ring, in words."""
_PAUSE_S: Final = 0.001
_PATIENCE_S: Final = 2.0


def measure(files: HostFiles, duration_s: float = 1.0) -> WakeUps:
    """Measure round trips of wake-ups for about that long.

    Raises:
        StartupError: a doorbell cannot be made, or the other process does not answer.
        OSError: no process can be started.
    """
    before = files.cpu_times()
    with (
        semaphore() as theirs,
        pipe() as ours,
        mmap.mmap(-1, aligned(2 * _ANSWERS * WORD, PAGE)) as memory,
        memoryview(memory).cast("Q") as words,
    ):
        trips = _to_and_fro(words, theirs, ours, duration_s)
    after = files.cpu_times()
    trips.sort()
    busy = stolen = None
    if before and after and after[0] > before[0]:
        ticks = after[0] - before[0]
        busy = 1 - (after[1] - before[1]) / ticks
        stolen = (after[2] - before[2]) / ticks
    return WakeUps(
        count=len(trips),
        median_ns=trips[len(trips) // 2],
        p99_ns=trips[len(trips) * 99 // 100],
        busy=busy,
        stolen=stolen,
    )


def _to_and_fro(words: memoryview, theirs: Wakeup, ours: Doorbell, duration_s: float) -> list[int]:
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            die_with_parent(parent)
            _answer(Consumer(words, 0, _WORDS), theirs, Producer(words, _ANSWERS, _WORDS), ours)
        finally:
            os._exit(0)
    try:
        there, back = Producer(words, 0, _WORDS), Consumer(words, _ANSWERS, _WORDS)
        trips: list[int] = []
        until_ns = time.monotonic_ns() + int(duration_s * 1e9)
        while (began_ns := time.monotonic_ns()) < until_ns or not trips:
            there.offer([began_ns])
            theirs.wake()
            while back.take() != [began_ns]:
                if not ours.wait(_PATIENCE_S):
                    raise StartupError(f"no answer for {_PATIENCE_S:g} s")
            trips.append(time.monotonic_ns() - began_ns)
            time.sleep(_PAUSE_S)
        return trips
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _answer(requests: Consumer, ours: Wakeup, answers: Producer, theirs: Doorbell) -> None:
    while True:
        for word in requests.take():
            answers.offer([word])
            theirs.wake()
        ours.wait()
