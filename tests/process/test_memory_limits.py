"""A process that may have only so much memory, and that the kernel ends before others."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from tiers import exhaustive

from ringbatch.engine.process.memory_limits import FRONTEND_HEAP, WORKER_HEAP, heap_environment

TAKES = """
import sys
import numpy as np
from ringbatch.engine.process.memory_limits import limit_memory
limit_memory({limit})
shared = np.memmap(sys.argv[1], np.uint8, "w+", shape=1 << 30)
try:
    kept = [np.ones(1 << 20) for _ in range(128)]
except MemoryError:
    print("MemoryError")
else:
    print("taken")
"""


@exhaustive
@pytest.mark.parametrize(
    ("limit", "printed"), [(512 << 20, "MemoryError"), (0, "taken")], ids=["limited", "not"]
)
def test_memory_beyond_the_limit_is_refused_and_shared_memory_is_not_counted(
    tmp_path: Path, limit: int, printed: str
) -> None:
    code = TAKES.format(limit=limit)
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "shared")], capture_output=True, text=True
    )
    assert done.stdout.strip() == printed, done.stderr


def test_a_worker_goes_before_others() -> None:
    code = (
        "from ringbatch.engine.process.memory_limits import go_first\n"
        "go_first()\nprint(open('/proc/self/oom_score_adj').read())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    own = int(Path("/proc/self/oom_score_adj").read_text())
    assert int(done.stdout) in {500, own}


FAULTS = """
import resource
import numpy as np

def run():
    kept = [np.ones(1 << 17) for _ in range(8)]

for _ in range(20):
    run()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(100):
    run()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(environment: dict[str, str]) -> int:
    done = subprocess.run(
        [sys.executable, "-c", FAULTS],
        capture_output=True,
        text=True,
        check=True,
        env={name: os.environ[name] for name in os.environ if name not in WORKER_HEAP}
        | environment,
    )
    return int(done.stdout)


def test_memory_that_a_run_has_freed_is_there_for_the_next() -> None:
    pages = 100 * 8 * (1 << 20) // resource.getpagesize()
    assert page_faults({"MALLOC_TRIM_THRESHOLD_": "0"}) > pages / 2, "what there is to save"
    assert page_faults(WORKER_HEAP) < pages / 100


def test_the_operators_heap_settings_are_left_alone() -> None:
    assert heap_environment({}, FRONTEND_HEAP) == FRONTEND_HEAP
    set_already = dict.fromkeys(WORKER_HEAP, "1")
    assert heap_environment(set_already, WORKER_HEAP) == {}
