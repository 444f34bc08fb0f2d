"""CPU times of the host, by process: what is below a process is its own, and others' is not."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Final

import pytest

from ringbatch.bench.served.machine import cpu_times

BURNS_S: Final = 0.3
BURNS: Final = f"""
import subprocess, sys, time
if len(sys.argv) > 1:
    # It ends before anybody looks again.
    subprocess.run([sys.executable, "-c", sys.argv[1]], check=True)
while time.process_time() < {BURNS_S}:
    pass
print("done", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def burner() -> Iterator["subprocess.Popen[str]"]:
    child = f"import time\nwhile time.process_time() < {BURNS_S}: pass"
    process = subprocess.Popen(
        [sys.executable, "-c", BURNS, child],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process
    process.communicate()


def test_a_process_and_its_descendants_have_their_own_cpu_time(
    burner: "subprocess.Popen[str]",
) -> None:
    before = cpu_times([burner.pid])
    assert burner.stdout is not None
    assert burner.stdout.readline() == "done\n"
    after = cpu_times([burner.pid])
    assert before.own_s is not None
    assert after.own_s is not None
    # The one that has ended counts too; a tick is 10 ms.
    assert after.own_s - before.own_s > 2 * BURNS_S - 0.1 - before.own_s
    assert after.processes_s > before.processes_s
    assert after.at_s > before.at_s


def test_no_process_takes_nothing_and_unknown_ones_have_no_figure(
    burner: "subprocess.Popen[str]",
) -> None:
    assert cpu_times([]).own_s == 0
    assert cpu_times(None).own_s is None
    assert burner.stdout is not None
    assert burner.stdout.readline() == "done\n"
    twice = cpu_times([burner.pid, burner.pid]).own_s
    once = cpu_times([burner.pid]).own_s
    assert twice == pytest.approx(once, rel=0.2), "each counts once"
