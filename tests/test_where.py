"""Rule that each module's tests are found by its path: `tests/where.py`."""

import pytest
from sources import ROOT, Module, modules
from where import defines, files_for, imports, main, modules_of, named_by_tests, path_of


def test_every_module_has_tests_that_name_it_or_a_module_that_uses_it() -> None:
    paths = [path_of(module) for module in modules() if defines(module)]
    assert "engine/collector/usage.py" in paths
    lost = [path for path in paths if not files_for(path)]
    assert not lost, f'no test file imports them, or says "Tests PATH." in its docstring: {lost}'


def test_docstrings_of_tests_name_modules_that_exist() -> None:
    lost = sorted(path for path in named_by_tests() if not (ROOT / path).exists())
    assert not lost, f"docstrings of tests name modules that are not there: {lost}"


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("from ringbatch.shm import ring", "shm/ring.py"),
        ("from ringbatch.shm.ring import Producer", "shm/ring.py"),
        ("import ringbatch.engine.collector.queue", "engine/collector/queue.py"),
        ('"""Rings. Tests shm/ring.py."""', "shm/ring.py"),
        ('"""Tests bench/ringbatch/bench/role.py."""', "bench/ringbatch/bench/role.py"),
    ],
)
def test_a_test_file_names_its_modules(source: str, path: str) -> None:
    assert modules_of(Module.parse("test_x", source)) == {path}


def test_the_command_lists_the_most_special_file_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["engine/collector/batching.py"]) == 0
    first, file, *_ = capsys.readouterr().out.splitlines()
    assert (first, file) == ("engine/collector/batching.py:", "  tests/pure/test_batching.py")


def test_without_files_of_its_own_a_module_has_those_of_its_users() -> None:
    used = {path_of(module): imports(module) for module in modules()}
    others = {(path, by) for path in used for by in files_for(path) if by != path}
    assert others
    assert all(path in used[by] and files_for(by).keys() == {by} for path, by in others)


def test_a_path_of_no_module_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["engine/no.py"]) == 2
    assert "engine/no.py is no module" in capsys.readouterr().err
