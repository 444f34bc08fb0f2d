"""The architecture as a test: it reads the sources as syntax trees and imports none of them.

Each rule (`tidy_rules.py`, with its tables in `tidy_tables.py`) has two tests: that nothing in the
packages breaks it, and that snippets which do break it are reported.
"""

import ast
import re
from pathlib import Path

import pytest
from sources import PACKAGES, ROOT, assert_holds, breaks, calls, modules, own_files
from tidy_rules import (
    arms_timers_before_anything_fails,
    catches_everything_only_where_anything_can_come,
    has_a_particular_name,
    has_functions_short_enough_to_read,
    has_its_docstrings,
    imports_nothing_banned,
    imports_point_downwards,
    is_a_script,
    is_short_enough_to_read,
    keeps_attributes_quick,
    leaves_threads_and_tasks_to_background,
    passes_no_words_of_libraries_on,
    prints_only_where_a_person_reads,
    pure_stays_pure,
    starts_python_away_from_the_folder,
    uses_its_private_names,
)
from tidy_tables import (
    MAX_ATTRIBUTES,
    MAX_BODY_LINES,
    MAX_LINES,
    OWN_BACKGROUND,
    PURE_MODULES,
    ROLE_TOPS,
)


def test_every_package_has_sources_to_check() -> None:
    assert {module.package for module in modules()} == set(PACKAGES)


def test_every_module_listed_as_pure_exists() -> None:
    assert set(PURE_MODULES) - {module.name for module in modules()} == set()


def test_imports_point_downwards() -> None:
    assert_holds(imports_point_downwards)


def test_nothing_banned_is_imported() -> None:
    assert_holds(imports_nothing_banned)


def test_pure_modules_are_pure() -> None:
    assert_holds(pure_stays_pure)


def test_everything_is_caught_only_where_anything_can_come() -> None:
    assert_holds(catches_everything_only_where_anything_can_come)


def test_no_frontend_passes_words_of_libraries_on() -> None:
    assert_holds(passes_no_words_of_libraries_on)


def test_print_is_called_only_where_a_person_reads() -> None:
    assert_holds(prints_only_where_a_person_reads)


def test_python_is_started_away_from_the_folder() -> None:
    assert_holds(starts_python_away_from_the_folder)


def test_threads_and_tasks_are_left_to_background() -> None:
    assert_holds(leaves_threads_and_tasks_to_background)


def test_every_exempt_module_starts_its_threads_itself() -> None:
    used = {module.name: {called for _, called in calls(module)} for module in modules()}
    stale = {name: own - used.get(name, set()) for name, own in OWN_BACKGROUND.items()}
    assert not any(stale.values()), stale


def test_timers_are_armed_before_anything_fails() -> None:
    assert_holds(arms_timers_before_anything_fails)


def test_files_are_short_enough_to_read() -> None:
    assert_holds(is_short_enough_to_read)


def test_functions_are_short_enough_to_read() -> None:
    assert_holds(has_functions_short_enough_to_read)


def test_files_beside_the_packages_are_short_enough_to_read() -> None:
    folders = (ROOT / name for name in ("tests", "bench", "docs"))
    lines = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for folder in folders
        for path in own_files(folder)
    }
    assert "tests/test_tidy.py" in lines
    assert not {name: count for name, count in lines.items() if count > MAX_LINES}


def test_files_of_others_below_a_hidden_folder_are_left_out(tmp_path: Path) -> None:
    for name in (".peers/peer/lib/a.py", "inner/.hidden.py", "inner/own.py", "inner/own.txt"):
        file = tmp_path / ".clone" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    found = own_files(tmp_path / ".clone")
    assert [str(path.relative_to(tmp_path)) for path in found] == [".clone/inner/own.py"]


def test_objects_with_many_attributes_have_slots() -> None:
    assert_holds(keeps_attributes_quick)


def test_everything_public_has_a_docstring() -> None:
    assert_holds(has_its_docstrings)


def test_private_names_are_used() -> None:
    assert_holds(uses_its_private_names)


def test_modules_are_named_after_their_content() -> None:
    assert_holds(has_a_particular_name)


def test_bench_has_scripts_at_its_top_and_all_else_in_rooms() -> None:
    scripts = {path.name: path.read_text() for path in (ROOT / "bench").glob("*.py")}
    others = [name for name, source in scripts.items() if not is_a_script(source)]
    assert not others, f"no scripts, so they belong into a room of bench: {others}"
    rows = re.findall(r"(?m)^\| `.*?\|", (ROOT / "bench" / "README.md").read_text())
    named = re.findall(r"`(\w+\.py)`", "".join(rows))
    assert sorted(named) == sorted(scripts), "bench/README.md has one place for each script"
    rooms = {path.parent for path in (ROOT / "bench").glob("*/*.py")}
    silent = [
        room.name
        for room in rooms - {ROOT / "bench" / "models", ROOT / "bench" / "tests"}
        if not ast.get_docstring(ast.parse((room / "__init__.py").read_text()))
    ]
    assert not silent, f"rooms of bench without a docstring: {silent}"


@pytest.mark.parametrize(
    ("source", "script"),
    [
        ("import sys\nif __name__ == '__main__':\n    sys.exit(0)", True),
        ("def main():\n    if __name__ == '__main__':\n        pass", False),
        ("x = '__main__'", False),
    ],
)
def test_a_script_runs_as_main(source: str, script: bool) -> None:
    assert is_a_script(source) is script


@pytest.mark.parametrize(
    ("name", "source"),
    [
        (
            "ringbatch.engine.collector.collector",
            "from ringbatch.frontend.v1.protocol import decode",
        ),
        ("ringbatch.engine.collector.collector", "from ringbatch import frontend"),
        ("ringbatch.engine.collector.collector", "import ringbatch.frontend"),
        ("ringbatch.frontend.falcon.app", "import ringbatch.engine.config.document as c"),
        ("ringbatch.frontend.falcon.app", "def f():\n    from ringbatch.engine import Tensor"),
        ("ringbatch.frontend.falcon.app", "from . import v1"),
        ("ringbatch.bench.load.fleet", "from ringbatch.frontend import Client"),
        ("ringbatch.bench.client.role", "from ringbatch.frontend.client import Client"),
        ("ringbatch.bench.client.role", "from ringbatch.engine import Tensor"),
        ("ringbatch.shm.ring", "from ..engine import batching"),
        ("ringbatch.shm.ring", "from ringbatch.engine import batching"),
        ("ringbatch.shm.ring", "import orjson"),
        ("ringbatch.shm.ring", "import ringbatch.frontend"),
    ],
)
def test_an_import_against_the_direction_is_reported(name: str, source: str) -> None:
    assert breaks(imports_point_downwards, name, source)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        (
            "ringbatch.engine.collector.collector",
            "from ringbatch.shm.ring import Lane\nimport orjson",
        ),
        ("ringbatch.engine.collector.collector", "from ringbatch.engine import batching"),
        ("ringbatch.engine.collector.collector", "import ringbatch.frontend_of_someone_else"),
        ("ringbatch.frontend.falcon.app", "from ringbatch.shm import ring\nimport falcon"),
        ("ringbatch.shm.ring", "import mmap\nimport numpy as np\nimport posix_ipc"),
        ("ringbatch.shm.ring", "from ringbatch.shm import layout"),
        ("ringbatch.shm.ring", "from collections.abc import Iterator"),
    ],
)
def test_an_import_in_the_direction_is_not_reported(name: str, source: str) -> None:
    assert not breaks(imports_point_downwards, name, source)


@pytest.mark.parametrize(
    "source",
    [
        "import engine",
        "from shm.ring import Lane",
        "from frontend import app",
        "import pickle as p",
        "from pickle import loads",
        "import marshal",
        "import shelve",
        "from multiprocessing import shared_memory",
        "import multiprocessing.shared_memory",
        "from multiprocessing.shared_memory import SharedMemory",
        "numpy.load(path, allow_pickle=True)",
        "load(path, allow_pickle=flag)",
    ],
)
def test_a_banned_import_is_reported(source: str) -> None:
    assert breaks(imports_nothing_banned, "ringbatch.engine.models.model", source)


@pytest.mark.parametrize(
    "source", ["import ringbatch.engine", "import pickletools", "load(path, allow_pickle=False)"]
)
def test_a_seemingly_banned_import_is_not_reported(source: str) -> None:
    assert not breaks(imports_nothing_banned, "ringbatch.engine.models.model", source)


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "from os import environ",
        "import os.path",
        "def f():\n    import random",
        "from threading import Lock",
        "from ringbatch.shm.segment import Segment",
        "from ringbatch.shm import segment",
        "import ringbatch.shm",
        "text = open('/etc/hostname').read()",
        "print(1)",
    ],
)
def test_an_impure_pure_module_is_reported(source: str) -> None:
    assert breaks(pure_stays_pure, "ringbatch.shm.slot", source)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("ringbatch.shm.slot", "from ringbatch.shm import layout"),
        ("ringbatch.shm.slot", "from ringbatch.shm.layout import WORD\nimport numpy"),
        ("ringbatch.shm.segment", "import os\nimport mmap"),
    ],
)
def test_a_pure_module_among_its_like_is_not_reported(name: str, source: str) -> None:
    assert not breaks(pure_stays_pure, name, source)


@pytest.mark.parametrize(
    "source",
    [
        "try:\n    f()\nexcept Exception:\n    pass",
        "try:\n    f()\nexcept BaseException as e:\n    raise ValueError from e",
        "try:\n    f()\nexcept:\n    pass",
        "try:\n    f()\nexcept (OSError, Exception):\n    g()",
        "try:\n    f()\nexcept Exception:\n    if x:\n        return\n    raise",
        "with suppress(Exception):\n    f()",
        "with contextlib.suppress(OSError, BaseException):\n    f()",
    ],
)
def test_catching_everything_elsewhere_is_reported(source: str) -> None:
    assert breaks(
        catches_everything_only_where_anything_can_come, "ringbatch.frontend.client.client", source
    )


@pytest.mark.parametrize(
    ("name", "source"),
    [
        (ROLE_TOPS[0], "try:\n    f()\nexcept Exception:\n    pass"),
        ("ringbatch.frontend.client.client", "try:\n    f()\nexcept OSError:\n    pass"),
        (
            "ringbatch.frontend.client.client",
            "try:\n    f()\nexcept BaseException:\n    undo()\n    raise",
        ),
        ("ringbatch.frontend.client.client", "with suppress(FileNotFoundError):\n    f()"),
    ],
)
def test_catching_expected_errors_is_not_reported(name: str, source: str) -> None:
    assert not breaks(catches_everything_only_where_anything_can_come, name, source)


@pytest.mark.parametrize(
    ("caught", "raised", "reported"),
    [
        ("OSError", 'InvalidRequest(f"no: {error}")', True),
        ("(ours.Mine, zlib.error)", "InvalidRequest(str(error))", True),
        ("OSError", 'InvalidRequest(f"no: {error.strerror}")', False),
        ("Mine", 'InvalidRequest(f"no: {error}")', False),
        ("orjson.JSONDecodeError", 'InvalidRequest(f"no: {error}")', False),
    ],
)
def test_words_of_a_library_that_are_passed_on_are_reported(
    caught: str, raised: str, reported: bool
) -> None:
    handled = f"try:\n    f()\nexcept {caught} as error:\n    raise {raised}"
    source = f"class Mine(Exception):\n    pass\n{handled}"
    found = breaks(passes_no_words_of_libraries_on, "ringbatch.frontend.v1.request", source)
    assert bool(found) == reported


def test_print_below_the_surface_is_reported() -> None:
    assert breaks(prints_only_where_a_person_reads, "ringbatch.shm.ring", "def f():\n    print(1)")


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("ringbatch.engine.command.cli", "print(1)"),
        ("ringbatch.engine.demo.report", "print(1)"),
        ("ringbatch.shm.ring", "'print(1)'\nreport.print(1)"),
    ],
)
def test_print_for_a_person_is_not_reported(name: str, source: str) -> None:
    assert not breaks(prints_only_where_a_person_reads, name, source)


def test_python_that_looks_in_the_folder_first_is_reported() -> None:
    rule = starts_python_away_from_the_folder
    assert breaks(rule, "ringbatch.engine.x", "c = [sys.executable, '-m', 'a']")
    assert not breaks(rule, "ringbatch.engine.x", "c = [sys.executable, '-P', '-m', 'a']")


@pytest.mark.parametrize(("lines", "too_long"), [(MAX_LINES, False), (MAX_LINES + 1, True)])
def test_one_line_over_the_limit_is_reported(lines: int, too_long: bool) -> None:
    assert breaks(is_short_enough_to_read, "ringbatch.shm.ring", "x = 1\n" * lines) is too_long


@pytest.mark.parametrize(
    "opening", ["def f(\n    a,\n):\n", 'async def f():\n    """A.\n\n    B."""\n']
)
def test_a_function_with_one_line_over_the_limit_is_reported(opening: str) -> None:
    rule, line = has_functions_short_enough_to_read, "    x = 1\n"
    assert breaks(rule, "ringbatch.shm.ring", opening + line * (MAX_BODY_LINES + 1))
    assert not breaks(rule, "ringbatch.shm.ring", opening + line * MAX_BODY_LINES)


@pytest.mark.parametrize(
    "source", ["_X = 1", "_X: int = 1", "def _f(): pass", "class _C: pass", "async def _f(): _g()"]
)
def test_an_unused_private_name_is_reported(source: str) -> None:
    assert breaks(uses_its_private_names, "ringbatch.shm.ring", source)


@pytest.mark.parametrize(
    "source", ["_X = 1\ndef f(): return _X", "X = 1", "__version__ = 1", "def f():\n    _x = 1"]
)
def test_a_used_private_name_is_not_reported(source: str) -> None:
    assert not breaks(uses_its_private_names, "ringbatch.shm.ring", source)


@pytest.mark.parametrize(
    "source",
    [
        "x = 1",
        "'''  '''",
        "'''What.'''\nclass Public:\n    x = 1",
        "'''What.'''\ndef public():\n    return 1",
        "'''What.'''\nasync def public():\n    return 1",
    ],
)
def test_a_missing_docstring_is_reported(source: str) -> None:
    assert breaks(has_its_docstrings, "ringbatch.shm.ring", source)


@pytest.mark.parametrize(
    "source",
    [
        "'''What.'''\ndef _private():\n    return 1",
        "'''What.'''\nclass Public:\n    '''What.'''\n\ndef public():\n    '''What.'''",
    ],
)
def test_a_complete_docstring_is_not_reported(source: str) -> None:
    assert not breaks(has_its_docstrings, "ringbatch.shm.ring", source)


@pytest.mark.parametrize(
    ("attributes", "slots", "slow"),
    [(MAX_ATTRIBUTES, "", False), (MAX_ATTRIBUTES + 1, "", True), (99, "__slots__ = ()", False)],
)
def test_more_attributes_than_are_quick_are_reported(
    attributes: int, slots: str, slow: bool
) -> None:
    stores = "".join(f"  self.a{number} = self.a{number} = 0\n" for number in range(attributes))
    source = f"class A:\n {slots}\n def f(self):\n{stores}"
    assert breaks(keeps_attributes_quick, "ringbatch.shm.ring", source) is slow


@pytest.mark.parametrize("stem", ["utils", "helpers", "common", "misc", "_utils"])
def test_a_vague_name_is_reported(stem: str) -> None:
    assert breaks(has_a_particular_name, f"ringbatch.shm.{stem}", "")


@pytest.mark.parametrize(
    "source",
    [
        "threading.Thread(target=f).start()",
        "Timer(1, f).start()",
        "_thread.start_new_thread(f, ())",
        "ThreadPoolExecutor(1).submit(f)",
        "loop.run_in_executor(None, f)",
        "async def f():\n    await asyncio.to_thread(g)",
        "task = loop.create_task(f())",
        "asyncio.ensure_future(f())",
        "class Looks(threading.Thread):\n    pass",
    ],
)
def test_a_thread_or_task_that_may_end_unseen_is_reported(source: str) -> None:
    assert breaks(leaves_threads_and_tasks_to_background, "ringbatch.engine.worker.role", source)


def test_a_thread_by_background_is_not_reported() -> None:
    source = 'repeating_thread("the watch", self._turn)\nessential_task("the beat", beat())'
    name = "ringbatch.engine.worker.role"
    assert not breaks(leaves_threads_and_tasks_to_background, name, source)


@pytest.mark.parametrize(
    ("source", "late"),
    [
        ("def f(self):\n    self.look()\n    loop.call_later(1, self.f)", True),
        ('def f(self):\n    "Look."\n    self.look()\n    self.t = loop.call_at(1, self.f)', True),
        ("def f(self):\n    loop.call_later(1, self.f)\n    self.look()", False),
        ('def f(self):\n    "Look."\n    loop.call_later(1, self.f)\n    self.look()', False),
        ("def f(self):\n    self.look()\n    loop.call_later(1, self.g)", False),
    ],
)
def test_a_timer_that_is_armed_late_is_reported(source: str, late: bool) -> None:
    name = "ringbatch.frontend.load.agent_check"
    assert breaks(arms_timers_before_anything_fails, name, source) is late
