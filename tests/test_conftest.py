"""The fixtures of conftest.py, the leftover check tried in a test run of its own."""

import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
import urllib.request
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from free_ports import FreePorts
from hypothesis import settings
from start_times import start_time_of
from tiers import exhaustive, first_of, only

from ringbatch import engine

PYTEST = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:schemathesis")
CONFTEST = Path(__file__).with_name("conftest.py")

LEAVES = """
    from pathlib import Path

    def test_makes_an_object():
        Path("/dev/shm", {name!r}).touch()
"""
CLEANS_UP = LEAVES + "        Path('/dev/shm', {name!r}).unlink()\n"


LEAVES_A_PROCESS = """
    import subprocess

    def test_starts_it(tmp_path):
        subprocess.Popen(["sleep", "3600"], cwd=tmp_path).returncode = 0

    def test_nothing():
        pass
"""
RENAMES = """
    import shutil

    import pytest

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(session):
        base = session.config._tmp_path_factory.getbasetemp()
        base.rename(base.with_name("garbage-of-a-test"))
        shutil.rmtree(base.with_name("garbage-of-a-test"))
"""
HANGS = """
    import time

    def test_hangs():
        time.sleep(3600)
"""
TELLS_A_KEY = """
    import pytest

    @pytest.mark.parametrize("name", ["stderr", "worker.log", "keys"])
    def test_tells_it(tmp_path, name):
        (tmp_path / name).write_text("it has a-key-of-the-" + "tests-1")
"""
MAKES_A_SEGMENT = """
    import subprocess, sys

    def test_starts_it():
        code = (
            "import os, sys, time; from ringbatch.shm import shm_objects as objects;"
            "made = objects.create_locked_segment('mine');"
            "print('made', made[0], 'in', os.getpid(), flush=True);"
            "os.close(1); time.sleep(60)"
        )
        made = subprocess.Popen([sys.executable, "-c", code], cwd="/", stdout=subprocess.PIPE)
        made.returncode = 0
        print(made.stdout.readline().decode())
        made.stdout.close()
"""
HAS_SIGNALS = """
    import signal, subprocess, sys

    def test_a_program_ignores_none():
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        code = "import signal; print([signal.getsignal(n) is signal.SIG_IGN for n in (1, 2, 3)])"
        told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert told.stdout == "[False, False, False]\\n"
"""
TIERS = """
    import pytest
    from hypothesis import given, settings, strategies

    def test_first():
        print("\\nran first")

    @pytest.mark.exhaustive
    def test_second():
        print("\\nran second")

    @given(strategies.none())
    def test_both(_):
        print("\\nran both", settings.default.max_examples)
"""


def run_pytest(
    folder: Path, test: str, *arguments: str, grace_s: float = 10
) -> subprocess.CompletedProcess[str]:
    conftest, changes = re.subn(
        r"(?m)^LEFTOVER_GRACE_S = .*", f"LEFTOVER_GRACE_S = {grace_s}", CONFTEST.read_text()
    )
    assert changes == 1
    (folder / "conftest.py").write_text(conftest)
    (folder / "test_it.py").write_text(textwrap.dedent(test))
    # A configuration in the folder keeps pytest from reading the folders above it, which may be
    # another user's.
    (folder / "pytest.ini").write_text(
        f"[pytest]\npythonpath = {CONFTEST.parent} {CONFTEST.parent}/harness\n"
        "markers = exhaustive\n"
    )
    return subprocess.run(
        [*PYTEST, str(folder), *arguments],
        cwd=folder,
        # What hypothesis found once it need not find again.
        env=os.environ | {"HYPOTHESIS_STORAGE_DIRECTORY": str(CONFTEST.parents[1] / ".hypothesis")},
        capture_output=True,
        text=True,
        check=False,
    )


@exhaustive
def test_a_run_in_the_background_lets_programs_have_signals(tmp_path: Path) -> None:
    numbers = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        run = run_pytest(tmp_path, HAS_SIGNALS)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert run.returncode == 0, run.stdout


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_own_servers_are_asked_directly_behind_a_proxy(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert urllib.request.proxy_bypass(host)


@pytest.mark.parametrize("prefix", first_of(["ringbatch-", "sem.ringbatch-"], 1))
def test_a_run_that_leaves_an_object_fails_and_names_it(tmp_path: Path, prefix: str) -> None:
    name = f"{prefix}selftest-{secrets.token_hex(4)}"
    try:
        run = run_pytest(tmp_path, LEAVES.format(name=name), grace_s=0)
    finally:
        Path("/dev/shm", name).unlink(missing_ok=True)
    assert run.returncode == 1
    assert "left behind by the tests" in run.stdout
    assert f"in /dev/shm: {name}" in run.stdout


def test_a_run_that_cleans_up_passes(tmp_path: Path) -> None:
    name = f"ringbatch-selftest-{secrets.token_hex(4)}"
    run = run_pytest(tmp_path, CLEANS_UP.format(name=name))
    assert run.returncode == 0, run.stdout


@exhaustive
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_another_users_objects_are_no_leftover(tmp_path: Path) -> None:
    name = f"ringbatch-selftest-{secrets.token_hex(4)}"
    given_away = LEAVES + "        __import__('os').chown('/dev/shm/{name}', 65534, 65534)\n"
    try:
        run = run_pytest(tmp_path, given_away.format(name=name))
    finally:
        Path("/dev/shm", name).unlink(missing_ok=True)
    assert run.returncode == 0, run.stdout


def test_a_test_that_hangs_ends_the_run_with_its_stack(tmp_path: Path) -> None:
    limit = ("-o", "timeout=0.1", "-o", "timeout_method=thread")
    run = run_pytest(tmp_path, HANGS, *limit)
    assert run.returncode == 1
    assert "Timeout" in run.stdout + run.stderr
    assert "in test_hangs" in run.stdout + run.stderr


@pytest.mark.parametrize("arguments", only({"distributed": ["-n", "2"], "alone": []}, "alone"))
def test_a_run_that_leaves_a_process_fails_and_ends_it(
    tmp_path: Path, arguments: list[str], wait_until: Callable[..., object]
) -> None:
    run = run_pytest(tmp_path, LEAVES_A_PROCESS, *arguments, grace_s=0)
    left = re.findall(r"process (\d+): sleep 3600", run.stdout)
    assert (run.returncode, len(left)) == (1, 1), run.stdout
    wait_until(lambda: start_time_of(int(left[0])) is None, "the killed process to be gone")


def test_a_process_is_found_although_another_run_has_renamed_the_folder(
    tmp_path: Path, wait_until: Callable[..., object]
) -> None:
    """Pytest removes folders of runs that have ended, and this one nearly has."""
    (tmp_path / "another_run.py").write_text(textwrap.dedent(RENAMES))
    run = run_pytest(tmp_path, LEAVES_A_PROCESS, "-p", "another_run", grace_s=0)
    left = re.findall(r"process (\d+): sleep 3600", run.stdout)
    assert (run.returncode, len(left)) == (1, 1), run.stdout + run.stderr
    wait_until(lambda: start_time_of(int(left[0])) is None, "the killed process to be gone")


def test_a_run_with_an_api_key_in_a_log_fails_and_names_it(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    run = run_pytest(tmp_path, TELLS_A_KEY, f"--basetemp={temporary}", grace_s=0)
    # This run would find it too.
    shutil.rmtree(temporary)
    logs = re.findall(r"an API key in \S+/(\S+)", run.stdout)
    assert (run.returncode, sorted(logs)) == (1, ["stderr", "worker.log"]), run.stdout


@exhaustive
def test_a_living_engine_of_another_run_is_no_leftover(tmp_path: Path) -> None:
    """It is made meanwhile, and outlives the run."""
    run = run_pytest(tmp_path, MAKES_A_SEGMENT, "-rP", grace_s=0)
    (name, pid) = re.findall(r"made /(\S+) in (\d+)", run.stdout)[0]
    try:
        assert run.returncode == 0, run.stdout
        assert Path("/dev/shm", name).exists()
    finally:
        os.kill(int(pid), signal.SIGKILL)
        Path("/dev/shm", name).unlink()


@pytest.mark.parametrize(
    ("arguments", "ran"),
    first_of(
        [
            ((), "first both"),
            (("--exhaustive",), "first second both"),
            (("--exhaustive", "-m", "exhaustive"), "second both"),
        ],
        1,
    ),
)
def test_the_second_tier_is_chosen_by_one_option(
    tmp_path: Path, arguments: tuple[str, ...], ran: str
) -> None:
    run = run_pytest(tmp_path, TIERS, *arguments, "-rP")
    found = re.findall(r"^ran (\w+)", run.stdout, re.MULTILINE)
    assert (run.returncode, " ".join(dict.fromkeys(found))) == (0, ran), run.stdout
    assert f"ran both {100 if arguments else 15}" in run.stdout


@exhaustive
def test_the_header_says_which_ringbatch_is_tested(tmp_path: Path) -> None:
    run = run_pytest(tmp_path, "def test_nothing(): pass")
    folder = Path(str(engine.__file__)).resolve().parents[1]
    assert re.search(rf"^ringbatch: .*{re.escape(str(folder))}$", run.stdout, re.MULTILINE)


def test_wait_until_returns_the_first_true_value(wait_until: Callable[..., object]) -> None:
    values = iter([None, 0, "there"])
    assert wait_until(lambda: next(values), "a value") == "there"


def test_wait_until_fails_with_the_name_of_its_condition(
    wait_until: Callable[..., object],
) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"in vain for: Godot"):
        wait_until(lambda: False, "Godot", watchdog_s=0.01)


def test_wait_until_looks_once_more_after_its_time(
    wait_until: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine may stand still between two looks."""
    now_s, values = [0.0], iter([None, "there"])
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])

    def look() -> str | None:
        now_s[0] += 1000
        return next(values)

    assert wait_until(look, "a value") == "there"


def test_free_ports_differ_and_can_be_bound(free_port_factory: Callable[[], int]) -> None:
    ports = [free_port_factory() for _ in range(20)]
    assert len(set(ports)) == len(ports)
    with socket.socket() as server:
        server.bind(("127.0.0.1", ports[0]))


def test_a_port_that_one_process_has_is_no_other_ones() -> None:
    with closing(FreePorts()) as before:
        first, second = before(), before()
    drawn = iter([first, first, second, first])
    with closing(FreePorts(drawn.__next__)) as one, closing(FreePorts(drawn.__next__)) as other:
        assert (one(), other()) == (first, second)
        one.close()
        assert other() == first


def test_a_port_in_use_is_nobodys() -> None:
    with closing(FreePorts()) as before:
        taken, free = before(), before()
    with (
        socket.create_server(("127.0.0.1", taken)),
        closing(FreePorts(iter([taken, free]).__next__)) as ports,
    ):
        assert ports() == free


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


def test_examples_have_no_time_limit() -> None:
    assert settings.default is not None
    assert settings.default.deadline is None


DEALT = """
    import pytest

    @pytest.mark.parametrize("number", range(4))
    def test_first(number):
        pass

    @pytest.mark.exhaustive
    @pytest.mark.parametrize("number", range({second}))
    def test_second(number):
        pass
"""


def test_the_selected_tests_are_dealt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of two processes begins with a slow file, whatever there was beside what `-m` takes."""
    for file, second in {"pure/test_a": 4, "serve/test_b": 1, "serve/test_c": 1}.items():
        path = tmp_path / "tests" / f"{file}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(DEALT.format(second=second)))
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "2")
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw1")
    nothing = "def test_nothing(): pass"
    run = run_pytest(tmp_path, nothing, "--collect-only", "-q", "--exhaustive", "-m", "exhaustive")
    files = re.findall(r"tests/\w+/test_(\w)\.py::test_second", run.stdout)
    assert files == ["b", "a", "a", "c", "a", "a"], run.stdout


REPORTED = """
    import pytest

    @pytest.fixture
    def broken():
        yield
        raise ValueError("in tear-down")

    @pytest.fixture
    def unmade():
        raise ValueError("in set-up")

    @pytest.fixture
    def chatty():
        print("said in set-up")

    def test_passes():
        pass

    def test_fails(chatty):
        assert [1] == [2]

    def test_is_skipped():
        pytest.skip("not here")

    def test_ends_badly(broken):
        pass

    def test_never_begins(unmade):
        pass
"""


@pytest.mark.parametrize(
    "processes", only({"distributed": ["-n", "1"], "alone": []}, "distributed")
)
def test_the_results_of_tests_are_reported(tmp_path: Path, processes: list[str]) -> None:
    """What a process leaves out is missed by nobody: a run has the same words without one."""
    run = run_pytest(tmp_path, REPORTED, *processes, "-rA")
    assert run.returncode == 1
    assert "1 failed, 2 passed, 1 skipped, 2 errors" in run.stdout
    for words in ("in tear-down", "in set-up", "assert [1] == [2]", "said in set-up", "not here"):
        assert words in run.stdout


@exhaustive
def test_each_process_begins_to_read_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Collected tests keep the order in which one process alone reads the files."""
    (tmp_path / "part").mkdir()
    for name in ("test_a", "test_b", "test_c", "test_d", "part/test_e", "part/test_f"):
        own = f"def test_{name[-1]}(): pass\nprint('read {name[-1]}')\n"
        (tmp_path / f"{name}.py").write_text(own)
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "2")
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw1")
    run = run_pytest(tmp_path, "def test_g(): pass", "--collect-only", "-q", "-s")
    assert re.findall(r"read (\w)", run.stdout) == [*"fecdab"], run.stdout
    assert re.findall(r"::test_(\w)", run.stdout) == [*"efabcdg"], run.stdout
