"""``import ringbatch`` and its parts: what is there at once, and what is not imported for it."""

import ast
import importlib
import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest
from tiers import first_of

from ringbatch import engine, frontend


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
    first_of(
        [
            "from ringbatch import Client",
            "import ringbatch; Client = ringbatch.Client",
            "from ringbatch import *",
        ],
        1,
    ),
)
def test_its_client_is_the_frontend_s(code: str, tmp_path: Path) -> None:
    same = "import ringbatch.frontend; print(Client is ringbatch.frontend.Client)"
    assert python(f"{code}\n{same}", tmp_path) == "True"


def test_it_lends_the_public_names_of_its_parts(tmp_path: Path) -> None:
    of_engine = [*engine.__all__, "metrics"]
    public = sorted([*of_engine, *frontend.__all__, "__version__"])
    code = (
        "import ringbatch, ringbatch.engine.metrics, ringbatch.frontend\n"
        "from ringbatch import engine, frontend\n"
        f"assert sorted(ringbatch.__all__) == {public}\n"
        "for name in {*ringbatch.__all__} - {'__version__'}:\n"
        f"    home = engine if name in {of_engine} else frontend\n"
        "    assert getattr(ringbatch, name) is getattr(home, name), name"
    )
    assert python(code, tmp_path) == ""


def test_names_for_model_files_need_no_frontend(tmp_path: Path) -> None:
    code = (
        "import sys; from ringbatch import InvalidInput, Tensor, metrics; "
        "print('ringbatch.frontend' in sys.modules)"
    )
    assert python(code, tmp_path) == "False"


def test_it_imports_no_part_of_itself_and_no_package(tmp_path: Path) -> None:
    code = (
        "import sys; before = {*sys.modules}; import ringbatch; "
        "print(*sorted({*sys.modules} - before))"
    )
    found = {name.partition(".")[0] for name in python(code, tmp_path).split()}
    assert found - sys.stdlib_module_names == {"ringbatch"}
    assert "ringbatch." not in python(code, tmp_path)


def test_names_of_the_frontend_are_those_that_its_types_say() -> None:
    said = [
        (alias.asname or alias.name, getattr(importlib.import_module(node.module), alias.name))
        for node in ast.walk(ast.parse(Path(frontend.__file__).read_text()))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("ringbatch.")
        for alias in node.names
    ]
    assert sorted(name for name, _ in said) == sorted(frontend.__all__)
    assert [name for name, value in said if getattr(frontend, name) is not value] == []


def test_neither_the_supervisor_nor_the_fork_server_imports_an_event_loop(tmp_path: Path) -> None:
    """The import of asyncio takes 20 ms of each start."""
    code = (
        "import importlib, sys; from ringbatch.engine.supervisor import launching, run; "
        "[importlib.import_module(name) for name in launching.PRELOADED]; "
        "print('asyncio' in sys.modules)"
    )
    assert python(code, tmp_path) == "False"


def test_a_frontend_does_not_import_the_client_that_only_programs_need(tmp_path: Path) -> None:
    code = (
        "import sys, ringbatch.frontend.grpc.server; "
        "print([name in sys.modules for name in ('ringbatch.frontend.client', 'falcon')])"
    )
    assert python(code, tmp_path) == "[False, False]"


def test_shm_goes_without_the_sides_above_it(tmp_path: Path) -> None:
    code = (
        "import sys, ringbatch.shm.layout; "
        "print(*(name for name in sys.modules if name.startswith('ringbatch.')))"
    )
    assert all(name.startswith("ringbatch.shm") for name in python(code, tmp_path).split())


@pytest.mark.parametrize("package", ["ringbatch", "ringbatch.frontend"])
def test_a_name_that_it_has_not_is_an_attribute_error(package: str, tmp_path: Path) -> None:
    code = (
        f"import {package} as package\n"
        "try: package.no_such\n"
        "except AttributeError as error: print(error)\n"
        "print('Client' in dir(package))"
    )
    assert python(code, tmp_path).splitlines() == [
        f"module '{package}' has no attribute 'no_such'",
        "True",
    ]
