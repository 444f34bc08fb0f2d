"""Resource use of processes, as the kernel reports it."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from ringbatch.frontend.metrics.processes import usage

CHILD = """
import sys, setproctitle
setproctitle.setproctitle("ringbatch: worker odd name/0")
held = bytearray(64 << 20)
print(flush=True)
sys.stdin.read()
"""


def test_descendants_are_found_by_their_titles_and_those_of_one_title_are_added_up(
    wait_until: Callable[..., object],
) -> None:
    children = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(2)
    ]
    try:
        for child in children:
            assert child.stdout is not None
            child.stdout.readline()
        found = usage(os.getpid())
        assert set(found) == {"worker odd name/0"}
        assert 2 * (64 << 20) < found["worker odd name/0"].memory_bytes < 2 * (256 << 20)
        assert found["worker odd name/0"].cpu_s > 0
    finally:
        for child in children:
            child.communicate()
    wait_until(lambda: usage(os.getpid()) == {}, "they have ended")


def test_without_the_kernels_figures_there_is_nothing(tmp_path: Path) -> None:
    assert usage(os.getpid(), tmp_path) == {}
