"""``import ringbatch``: what is there at once, and that nothing else is imported for it."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest


def python(code: str, folder: Path) -> str:
    """Return the output of a program that can import nothing but the installed package."""
    completed = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stderr
    return completed.stdout.strip()


def test_it_tells_its_version(tmp_path: Path) -> None:
    version = python("import ringbatch; print(ringbatch.__version__)", tmp_path)
    assert version == importlib.metadata.version("ringbatch")


def test_it_is_the_command_if_it_is_run(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ringbatch", "status", "--engine", "no-such-engine"]
    completed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert completed.returncode == 1
    assert completed.stderr.startswith("ringbatch: no engine of ringbatch with the name no-such")


@pytest.mark.parametrize(
    "code",
    [
        "from ringbatch import Client",
        "import ringbatch; Client = ringbatch.Client",
        "from ringbatch import *",
    ],
)
def test_its_client_is_the_frontend_s(code: str, tmp_path: Path) -> None:
    same = "import ringbatch.frontend; print(Client is ringbatch.frontend.Client)"
    assert python(f"{code}\n{same}", tmp_path) == "True"


def test_it_imports_no_part_of_itself_and_no_package(tmp_path: Path) -> None:
    code = (
        "import sys; before = {*sys.modules}; import ringbatch; "
        "print(*sorted({*sys.modules} - before))"
    )
    found = {name.partition(".")[0] for name in python(code, tmp_path).split()}
    assert found - sys.stdlib_module_names == {"ringbatch"}
    assert "ringbatch." not in python(code, tmp_path)


def test_shm_goes_without_the_sides_above_it(tmp_path: Path) -> None:
    code = (
        "import sys, ringbatch.shm.layout; "
        "print(*(name for name in sys.modules if name.startswith('ringbatch.')))"
    )
    assert all(name.startswith("ringbatch.shm") for name in python(code, tmp_path).split())


def test_a_name_that_it_has_not_is_an_attribute_error(tmp_path: Path) -> None:
    code = (
        "import ringbatch\n"
        "try: ringbatch.client\n"
        "except AttributeError as error: print(error)\n"
        "print('Client' in dir(ringbatch))"
    )
    assert python(code, tmp_path).splitlines() == [
        "module 'ringbatch' has no attribute 'client'",
        "True",
    ]
