"""Shares of /dev/shm (`dev_shm.py`): tests take no more than there is."""

import subprocess
import sys
from pathlib import Path

from dev_shm import EACH, MIB, Shares, shares_of
from test_conftest import run_pytest

HOLDS = """
import sys
from pathlib import Path
from dev_shm import EACH, Shares
shares = Shares(Path(sys.argv[1]), 3 * EACH)
print(shares.take(2), flush=True)
sys.stdin.read()
"""


def test_another_processs_share_is_there_again_when_it_has_ended(tmp_path: Path) -> None:
    file = tmp_path / "shares"
    shares = Shares(file, 3 * EACH + 1)
    command = [sys.executable, "-c", HOLDS, str(file)]
    folder = Path(__file__).parent
    with subprocess.Popen(
        command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        assert not shares.take(2)
        assert shares.take(1)
        shares.leave()
        other.kill()
    assert shares.take(3)
    shares.leave()
    assert not shares.take(4)


def test_a_share_that_is_begun_counts_whole() -> None:
    assert [shares_of(n) for n in (1, EACH, EACH + 1)] == [1, 1, 2]


def test_a_file_that_never_fits_is_skipped_with_the_numbers(tmp_path: Path) -> None:
    larger = 1 << 40
    run = run_pytest(
        tmp_path,
        f"""
        from dev_shm import takes

        pytestmark = takes({larger})

        def test_it():
            pass
        """,
        "-rs",
    )
    taken = shares_of(larger * MIB) * EACH // MIB
    assert f"its engines take {taken} MiB of /dev/shm, which has " in run.stdout, run.stdout
    assert "1 skipped" in run.stdout
