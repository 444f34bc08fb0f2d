"""The fixtures of conftest.py, the leftover check tried in a test run of its own."""

import os
import re
import secrets
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

CONFTEST = Path(__file__).with_name("conftest.py")

LEAVES = """
    from pathlib import Path

    def test_makes_an_object():
        Path("/dev/shm", {name!r}).touch()
"""
CLEANS_UP = LEAVES + "        Path('/dev/shm', {name!r}).unlink()\n"


def run_pytest(folder: Path, test: str, grace_s: float) -> subprocess.CompletedProcess[str]:
    conftest, changes = re.subn(
        r"(?m)^LEFTOVER_GRACE_S = .*", f"LEFTOVER_GRACE_S = {grace_s}", CONFTEST.read_text()
    )
    assert changes == 1
    (folder / "conftest.py").write_text(conftest)
    (folder / "test_it.py").write_text(textwrap.dedent(test))
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", os.devnull, str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("prefix", ["ringbatch-", "sem.ringbatch-"])
def test_a_run_that_leaves_an_object_fails_and_names_it(tmp_path: Path, prefix: str) -> None:
    name = f"{prefix}selftest-{secrets.token_hex(4)}"
    try:
        run = run_pytest(tmp_path, LEAVES.format(name=name), grace_s=0)
    finally:
        Path("/dev/shm", name).unlink(missing_ok=True)
    assert run.returncode == 1
    assert f"left behind in /dev/shm: {name}" in run.stdout


def test_a_run_that_cleans_up_passes(tmp_path: Path) -> None:
    name = f"ringbatch-selftest-{secrets.token_hex(4)}"
    run = run_pytest(tmp_path, CLEANS_UP.format(name=name), grace_s=10)
    assert run.returncode == 0, run.stdout


def test_wait_until_returns_the_first_true_value(wait_until: Callable[..., object]) -> None:
    values = iter([None, 0, "there"])
    assert wait_until(lambda: next(values), "a value") == "there"


def test_wait_until_fails_with_the_name_of_what_never_came(
    wait_until: Callable[..., object],
) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"in vain for: Godot"):
        wait_until(lambda: False, "Godot", watchdog_s=0.01)


def test_free_ports_differ_and_can_be_bound(free_port_factory: Callable[[], int]) -> None:
    ports = [free_port_factory() for _ in range(20)]
    assert len(set(ports)) == len(ports)
    with socket.socket() as server:
        server.bind(("127.0.0.1", ports[0]))


def test_tmp_model_writes_the_source_without_its_indentation(
    tmp_model: Callable[..., Path],
) -> None:
    path = tmp_model(
        """
        def predict(instances):
            return instances
        """
    )
    assert path.name == "model.py"
    assert path.read_text().lstrip().startswith("def predict(instances):\n    return")


def test_examples_have_no_time_limit_and_are_repeatable_in_ci() -> None:
    assert settings.get_profile("ci").derandomize
    assert settings.get_profile("ci").deadline is None
    assert settings.get_profile("dev").deadline is None
