"""What every test may ask for, and what every test run must leave behind: nothing.

The fixtures that act (`wait_until`, `tmp_model`, `free_port_factory`) are values that one calls,
because with pytest's importlib mode a test cannot import from here.
"""

import os
import random
import socket
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import settings

T = TypeVar("T")

DEV_SHM = Path("/dev/shm")
LEFTOVER_PREFIXES = ("ringbatch", "sem.ringbatch")
LEFTOVER_GRACE_S = 10.0

# No example has a time limit: the machine may be busy with something else.
settings.register_profile("ci", derandomize=True, database=None, deadline=None, max_examples=100)
settings.register_profile("dev", deadline=None, max_examples=100)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


def _own_names() -> set[str]:
    return {entry.name for entry in DEV_SHM.iterdir() if entry.name.startswith(LEFTOVER_PREFIXES)}


def _held_by_another_process(name: str) -> bool:
    """Whether a living process other than this one has the object mapped."""
    # A pipe or semaphore belongs to the segment of the same name, less its suffix.
    needle = f"{DEV_SHM}/" + ".".join(name.removeprefix("sem.").split(".")[:4])
    for maps in Path("/proc").glob("[0-9]*/maps"):
        if maps.parent.name == str(os.getpid()):
            continue
        try:
            if needle in maps.read_text(errors="replace"):
                return True
        except OSError:  # the process ended, or belongs to someone else
            continue
    return False


def _leftovers(before: set[str]) -> set[str]:
    """New names; on a shared machine without those that a living process still uses."""
    new = _own_names() - before
    if os.environ.get("CI"):
        return new
    return {name for name in new if not _held_by_another_process(name)}


@pytest.fixture(scope="session", autouse=True)
def nothing_left_in_dev_shm() -> Iterator[None]:
    """The run fails where it leaves a segment or a semaphore of ringbatch behind.

    A name that goes away within a few seconds was no leftover: it belonged to a process that
    was still ending, or to another test run on this machine.
    """
    before = _own_names()
    yield
    give_up_at = time.monotonic() + LEFTOVER_GRACE_S
    while (left := _leftovers(before)) and time.monotonic() < give_up_at:
        time.sleep(0.1)
    if left:
        pytest.fail(f"left behind in {DEV_SHM}: {', '.join(sorted(left))}", pytrace=False)


@pytest.fixture
def wait_until() -> Callable[..., object]:
    """`wait_until(predicate, what, watchdog_s=30)`: the predicate's first true value.

    Fails, naming `what` was waited for, where none came before the watchdog.
    """

    def wait(predicate: Callable[[], T], what: str, watchdog_s: float = 30.0) -> T:
        give_up_at = time.monotonic() + watchdog_s
        while not (value := predicate()):
            if time.monotonic() > give_up_at:
                pytest.fail(f"waited {watchdog_s:g} s in vain for: {what}", pytrace=False)
            time.sleep(0.005)
        return value

    return wait


@pytest.fixture(scope="session")
def free_port_factory() -> Callable[[], int]:
    """`free_port_factory()`: a TCP port of 127.0.0.1 that is free, another one each time.

    It lies below the range from which Linux takes ports for outgoing connections, so that no
    client of a test sits down on it before the server does.
    """
    handed_out: set[int] = set()
    source = random.SystemRandom()

    def is_free(port: int) -> bool:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
        return True

    def free_port() -> int:
        while True:
            port = source.randrange(10_000, 32_000)
            if port not in handed_out and is_free(port):
                handed_out.add(port)
                return port

    return free_port


@pytest.fixture
def free_port(free_port_factory: Callable[[], int]) -> int:
    """One free TCP port of 127.0.0.1."""
    return free_port_factory()


@pytest.fixture
def tmp_model(tmp_path: Path) -> Callable[..., Path]:
    """`tmp_model(source, name="model.py")`: the path of a model file that holds the source."""

    def write(source: str, name: str = "model.py") -> Path:
        path = tmp_path / name
        path.write_text(textwrap.dedent(source))
        return path

    return write
