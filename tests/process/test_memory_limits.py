"""A process that may have only so much memory, and that the kernel ends before others."""

import subprocess
import sys
from pathlib import Path

import pytest

TAKES = """
import sys
import numpy as np
from ringbatch.engine.memory_limits import limit_memory
limit_memory({limit})
shared = np.memmap(sys.argv[1], np.uint8, "w+", shape=1 << 30)
try:
    kept = [np.ones(1 << 20) for _ in range(128)]
except MemoryError:
    print("MemoryError")
else:
    print("taken")
"""


@pytest.mark.parametrize(
    ("limit", "said"), [(512 << 20, "MemoryError"), (0, "taken")], ids=["limited", "not"]
)
def test_what_is_asked_for_beyond_the_limit_fails_and_shared_memory_is_not_counted(
    tmp_path: Path, limit: int, said: str
) -> None:
    code = TAKES.format(limit=limit)
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "shared")], capture_output=True, text=True
    )
    assert done.stdout.strip() == said, done.stderr


def test_a_worker_goes_before_others() -> None:
    code = (
        "from ringbatch.engine.memory_limits import go_first\n"
        "go_first()\nprint(open('/proc/self/oom_score_adj').read())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    own = int(Path("/proc/self/oom_score_adj").read_text())
    assert int(done.stdout) in {500, own}
