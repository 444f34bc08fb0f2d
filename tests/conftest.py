"""Fixtures for all tests, and the check that a test run leaves nothing behind.

The fixtures that act (`wait_until`, `tmp_model`, `free_port_factory`) are values that one calls,
because with pytest's importlib mode a test cannot import from here.
"""

import gc
import os
import re
import signal
import sys
import textwrap
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeVar

import pytest
from brief_reports import BriefReports
from dealing import dealt
from dev_shm import Turns
from free_ports import FreePorts
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from skips import VARIABLE, Outcomes
from tiers import MARKER, OPTION
from walking import Walk
from watchdog import Watchdog

import ringbatch.engine
from ringbatch.shm import shm_objects

T = TypeVar("T")

DEV_SHM = Path("/dev/shm")
LEFTOVER_PREFIXES = ("ringbatch", "sem.ringbatch")
LEFTOVER_GRACE_S = 10.0
KEY_MARK: Final = b"a-key-of-the-tests"
"""Part of every API key that a test gives to an engine, searched for in logs after the run."""
_REMOVED: Final = " (deleted)"
"""What Linux writes behind the path of a folder that is no more."""
LOGS: Final = ("stdout", "stderr", "*.log")
ROOT: Final = Path(__file__).resolve().parents[1]
EXAMPLES: Final = 15
EXAMPLES_IF_EXHAUSTIVE: Final = 100
LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
OF_A_TERMINAL: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
"""Signals that a shell's background job, or one under nohup, ignores."""

# Everything that is collected stays in use, so looking for garbage there finds nothing and costs a
# sixth of the time.
gc.disable()

_names_before: Final = pytest.StashKey[set[str]]()
_folder: Final = pytest.StashKey[int]()
"""The folder of the run. At its end pytest lets go of it, and any other run may then rename and
remove it."""
_left: Final = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        OPTION,
        action="store_true",
        help=f"run the second tier of tests too; with -m {MARKER}, run it alone",
    )


def pytest_configure(config: pytest.Config) -> None:
    _let_programs_have_signals()
    _ask_own_servers_directly()
    # An idle thread of OpenBLAS spins for a tenth of a second before it sleeps, and the worker of a
    # server with one model has such a thread. Here it sleeps at once.
    os.environ["OPENBLAS_THREAD_TIMEOUT"] = "4"
    # Tests start servers while they call over gRPC. gRPC's fork handlers break a fork beside calls,
    # and no test uses gRPC on both sides of a fork.
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
    in_ci = bool(os.environ.get("CI"))
    # No example has a time limit: the machine may be busy with something else.
    settings.register_profile(
        "ringbatch",
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        max_examples=EXAMPLES_IF_EXHAUSTIVE if config.getoption(OPTION) else EXAMPLES,
        derandomize=in_ci,
        **({"database": None} if in_ci else {}),
    )
    settings.load_profile("ringbatch")
    config.pluginmanager.register(Watchdog())
    if walk := Walk.of(config):
        config.pluginmanager.register(walk)
    if brief := BriefReports.of(config):
        config.pluginmanager.register(brief)
    # CI counts this run's outcomes, not those of runs that tests start.
    if folder := os.environ.pop(VARIABLE, None):
        config.pluginmanager.register(Outcomes(folder))


def _let_programs_have_signals() -> None:
    """Handle the signals that this process ignores: programs that it starts would do so too."""
    for number in OF_A_TERMINAL:
        if signal.getsignal(number) is signal.SIG_IGN:
            is_sigint = number == signal.SIGINT
            signal.signal(number, signal.default_int_handler if is_sigint else lambda *_: None)


def _ask_own_servers_directly() -> None:
    """Except this machine from the environment's proxy, which clients of all kinds would ask."""
    for name in ("no_proxy", "NO_PROXY"):
        given = os.environ.get(name, "").split(",")
        os.environ[name] = ",".join(dict.fromkeys(filter(None, [*given, *LOOPBACK])))


def pytest_report_header() -> str:
    """Return the folder of the ringbatch under test, and whether it is an installed copy."""
    found = Path(str(ringbatch.engine.__file__)).resolve().parent
    kind = "this working copy" if found == ROOT / "engine" else "an installed copy"
    return f"ringbatch: {kind}, {found.parent}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Have hypothesis find all characters while the processes of the run begin to read the tests.

    It keeps them in a file, which a fresh clone has not; each process would take a second for it.
    """
    if session.config.pluginmanager.has_plugin("dsession"):
        st.characters(codec="utf-8").validate()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None]:
    """Without the option, leave out the second tier; with it, count among it what tries more
    examples then, before `-m` selects by it. Deal what is selected to the processes of the run."""
    if config.getoption(OPTION):
        for item in items:
            if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
                item.add_marker(MARKER)
    elif second := [item for item in items if item.get_closest_marker(MARKER)]:
        config.hook.pytest_deselected(items=second)
        items[:] = [item for item in items if not item.get_closest_marker(MARKER)]
    yield
    if processes := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0")):
        items[:] = dealt(items, processes, lambda item: item.nodeid.partition("::")[0])


def pytest_collection_finish(session: pytest.Session) -> None:
    """Files take turns at /dev/shm. What was made so far is never looked through for garbage: tests
    that collect theirs need not go through all of pytest and hypothesis each time."""
    session.config.pluginmanager.register(Turns.of(session.config))
    gc.freeze()
    gc.enable()


# What is left behind. The processes of pytest-xdist run the tests, and the one that started them
# looks afterwards, for all.


def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        session.config.stash[_names_before] = _own_names()
        folder = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        session.config.stash[_folder] = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """The run fails where it leaves a process, a segment or a semaphore of ringbatch behind, or an
    API key in a log.

    A name that goes away within a few seconds was no leftover: it belonged to a process that
    was still ending, or to another test run on this machine.
    """
    before = session.config.stash.get(_names_before, None)
    if before is None:
        return
    folder = Path("/proc/self/fd", str(session.config.stash[_folder]))
    give_up_at = time.monotonic() + LEFTOVER_GRACE_S
    while (left := _leftovers(before, folder)) and time.monotonic() < give_up_at:
        time.sleep(0.1)
    if left := left + _logs_with_keys(folder):
        session.config.stash[_left] = left
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    for pid in _processes_in(folder):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the figures that tests recorded (`record_property("figures", ...)`), and leftovers."""
    for report in terminalreporter.getreports("passed"):
        for name, figures in report.user_properties:
            if name == "figures":
                terminalreporter.section(report.nodeid)
                terminalreporter.write_line(str(figures))
    if left := config.stash.get(_left, None):
        terminalreporter.section("left behind by the tests", red=True)
        for leftover in left:
            terminalreporter.write_line(leftover)


def _leftovers(before: set[str], folder: Path) -> list[str]:
    names = [f"in {DEV_SHM}: {name}" for name in sorted(_own_names() - before) if _is_dead(name)]
    return names + [f"process {pid}: {_title(pid)}" for pid in _processes_in(folder)]


def _logs_with_keys(folder: Path) -> list[str]:
    """Return the log files of the tests' processes that contain an API key."""
    logs = (path for pattern in LOGS for path in folder.resolve().rglob(pattern) if path.is_file())
    return [f"an API key in {path}" for path in logs if KEY_MARK in path.read_bytes()]


def _own_names() -> set[str]:
    """Return this user's names in /dev/shm.

    Other users' names are left out, as only those users see which of them are held.
    """
    found = set()
    for entry in DEV_SHM.iterdir():
        with suppress(FileNotFoundError):
            if entry.name.startswith(LEFTOVER_PREFIXES) and entry.stat().st_uid == os.geteuid():
                found.add(entry.name)
    return found


def _is_dead(name: str) -> bool:
    """Return whether no living engine, not even one of another test run, owns an object."""
    segment = re.match(r"(?:sem\.)?(ringbatch[^.]*\.[^.]+\.\d+\.[0-9a-f]{16})", name)
    if segment is None:
        return True
    try:
        fd = os.open(DEV_SHM / segment[1], os.O_RDWR | shm_objects.FLAGS)
    except FileNotFoundError:
        return (DEV_SHM / name).exists()
    try:
        return not shm_objects.is_locked(fd, shm_objects.LIFE_LOCK)
    finally:
        os.close(fd)


def _processes_in(folder: Path) -> list[int]:
    """Living processes that run in a folder of the tests."""
    inside = os.readlink(folder).removesuffix(_REMOVED)
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is another user's
            if Path(os.readlink(entry / "cwd").removesuffix(_REMOVED)).is_relative_to(inside):
                found.append(int(entry.name))
    return found


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return "ended meanwhile"


@pytest.fixture
def wait_until() -> Callable[..., object]:
    """`wait_until(predicate, condition, watchdog_s=100)`: the predicate's first true value.

    Fails with the name of the condition, if no true value came before the watchdog.
    """

    def wait(predicate: Callable[[], T], condition: str, watchdog_s: float = 100.0) -> T:
        started = time.monotonic()
        while True:
            # The last look comes after the watchdog's time, also where this process slept for long.
            waited_s = time.monotonic() - started
            if value := predicate():
                return value
            if waited_s > watchdog_s:
                pytest.fail(f"waited {watchdog_s:g} s in vain for: {condition}", pytrace=False)
            # Looking all the time would take CPU from the process that is waited for.
            time.sleep(min(0.005 + waited_s / 20, 0.05))

    return wait


@pytest.fixture(scope="session")
def free_port_factory() -> Iterator[Callable[[], int]]:
    """`free_port_factory()`: a TCP port of 127.0.0.1 that is free, another one each time."""
    with closing(FreePorts()) as ports:
        yield ports


@pytest.fixture
def free_port(free_port_factory: Callable[[], int]) -> int:
    """A free TCP port of 127.0.0.1."""
    return free_port_factory()


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder for Unix sockets, whose paths have at most 107 bytes, wherever TMPDIR is."""
    with TemporaryDirectory(prefix="rb-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def imports_as_before() -> Iterator[None]:
    """Restore Python's modules and search paths after the test."""
    path, hooks, modules = list(sys.path), list(sys.path_hooks), set(sys.modules)
    yield
    sys.path[:], sys.path_hooks[:] = path, hooks
    sys.path_importer_cache.clear()
    for name in set(sys.modules) - modules:
        del sys.modules[name]


@pytest.fixture
def tmp_model(tmp_path: Path) -> Callable[..., Path]:
    """`tmp_model(source, name="model.py")`: the path of a model file that holds the source."""

    def write(source: str, name: str = "model.py") -> Path:
        path = tmp_path / name
        path.write_text(textwrap.dedent(source))
        return path

    return write
