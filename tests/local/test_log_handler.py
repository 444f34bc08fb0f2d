"""Log thread: a logging thread waits for lines that are taken, and never for lost ones."""

import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from ringbatch.shm.host.log_handler import MOST_WAITING, LogHandler

WaitUntil = Callable[..., object]


class Target:
    """Target that takes lines once it may, or fails.

    Attributes:
        lines: it has taken.
        may: whether it takes any.
        full: whether it fails, as a full disk does.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.may = threading.Event()
        self.may.set()
        self.full = False

    def write(self, line: bytes) -> None:
        self.may.wait()
        if self.full:
            raise OSError
        self.lines.append(line.decode().rstrip("\n"))


@pytest.fixture
def target() -> Target:
    return Target()


@pytest.fixture
def log(target: Target) -> Iterator[logging.Logger]:
    made = logging.Logger("of this test")
    made.addHandler(LogHandler(logging.Formatter("%(message)s"), target.write))
    yield made
    target.may.set()


def test_a_line_is_written_when_the_call_returns(log: logging.Logger, target: Target) -> None:
    for number in range(100):
        log.info("line %d", number)
        assert target.lines[-1] == f"line {number}"


def test_nobody_waits_for_a_target_that_takes_nothing(
    log: logging.Logger, target: Target, wait_until: WaitUntil
) -> None:
    target.may.clear()
    for number in range(MOST_WAITING + 50):
        log.info("line %d", number)
    assert target.lines == []
    target.may.set()
    wait_until(
        lambda: len(target.lines) == MOST_WAITING + 2, "all is written, and what is missing is said"
    )
    # The thread has one in its hands beside those that wait.
    *lines, last = target.lines
    assert lines == [f"line {number}" for number in range(MOST_WAITING + 1)]
    assert last == "lines that the log did not take: 49"
    log.info("again")
    assert target.lines[-1] == "again"


def test_unwritten_lines_are_counted_too(
    log: logging.Logger, target: Target, wait_until: WaitUntil
) -> None:
    target.full = True
    for _ in range(3):
        log.info("lost")
    target.full = False
    log.info("kept")
    wait_until(lambda: len(target.lines) == 2, "what is missing is said")
    assert target.lines == ["kept", "lines that the log did not take: 3"]


def test_a_line_that_cannot_be_made_says_so(log: logging.Logger, target: Target) -> None:
    log.info("%d", "no number")
    (line,) = target.lines
    assert line.startswith("a line of the log cannot be made\nTraceback")


def test_a_process_end_waits_for_lines_that_the_target_takes_and_no_longer(
    log: logging.Logger, target: Target
) -> None:
    (handler,) = log.handlers
    handler.flush()
    target.may.clear()
    log.info("first")
    handler.flush()
    assert target.lines == []
    target.may.set()
    handler.flush()
    assert target.lines == ["first"]


def test_without_a_thread_the_line_is_written_all_the_same(
    log: logging.Logger, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as none_left:
        none_left.setattr(threading.Thread, "start", fail)
        log.info("alone")
        assert target.lines == ["alone"]
    log.info("with one")
    assert target.lines == ["alone", "with one"]


def test_the_thread_goes_on_after_an_error_of_any_kind(
    log: logging.Logger, target: Target, monkeypatch: pytest.MonkeyPatch, wait_until: WaitUntil
) -> None:
    def fail(_self: LogHandler, _line: bytes) -> bool:
        raise MemoryError

    with monkeypatch.context() as short:
        short.setattr(LogHandler, "_write_one", fail)
        log.info("lost")
    log.info("kept")
    wait_until(lambda: len(target.lines) == 2, "what is missing is said")
    assert target.lines == ["kept", "lines that the log did not take: 1"]


FORKS = """
import logging, os, signal, sys
from ringbatch.shm.host.process import log_to_stderr
log_to_stderr("parent", "info")
logging.info("before")
child = os.fork()
logging.info("child" if child == 0 else "parent")
blocked = [
    line for task in os.listdir("/proc/self/task") if int(task) != os.getpid()
    for line in open(f"/proc/self/task/{task}/status") if line.startswith("SigBlk")
]
assert len(blocked) == 1, blocked
assert int(blocked[0].split()[1], 16) >> (signal.SIGTERM - 1) & 1, "it takes no signals"
if child == 0:
    logging.info("last words")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


def test_a_forked_child_writes_too_and_leaves_its_last_words() -> None:
    # Since 3.12 Python warns of a fork beside threads, which is what this is about.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKS]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    logged = sorted(line.rpartition("INFO ")[2] for line in ended.stderr.splitlines())
    assert logged == ["before", "child", "last words", "parent"]


FULL = """
import logging, os
from ringbatch.shm.host.process import log_to_stderr
log_to_stderr("full", "info")
for number in range(20_000):
    logging.info("line %d", number)
os.write(1, b"over")
"""


def test_a_process_ends_though_nobody_reads_its_standard_error() -> None:
    reading, writing = os.pipe()
    try:
        with suppress(BlockingIOError):
            full = os.open(f"/proc/self/fd/{writing}", os.O_WRONLY | os.O_NONBLOCK)
            while True:
                os.write(full, b"x" * 4096)
        ended = subprocess.run([sys.executable, "-c", FULL], stdout=subprocess.PIPE, stderr=writing)
    finally:
        os.close(full)
        os.close(writing)
        os.close(reading)
    assert (ended.returncode, ended.stdout) == (0, b"over")


CLOSED = """
import logging, os
from ringbatch.shm.host.process import log_to_stderr
log_to_stderr("role", "info")
os.closerange(3, 256)
for number in range(2):
    logging.getLogger("ringbatch.worker").error("line %d", number)
"""


def test_the_log_goes_to_standard_error_though_a_model_closes_all_other_descriptors() -> None:
    command = [sys.executable, "-c", CLOSED]
    logged = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert re.findall(r"line \d$", logged, re.M) == ["line 0", "line 1"]


def test_a_line_is_written_though_a_model_has_replaced_the_threads_of_python(
    log: logging.Logger, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as replaced:
        replaced.setattr(threading, "Thread", None)
        log.info("the last word")
    assert target.lines == ["the last word"]


LEVELS = """
import logging, sys
from ringbatch.shm.host.process import log_to_stderr
log_to_stderr("role", sys.argv[1])
for name in ("ringbatch.frontend", "hpack.hpack", "asyncio", "model"):
    for level in ("debug", "info", "warning", "error"):
        getattr(logging.getLogger(name), level)("%s %s", name, level)
"""


@pytest.mark.parametrize(
    ("level", "ours", "of_libraries"), [("debug", 4, 3), ("info", 3, 3), ("warning", 2, 2)]
)
def test_the_level_is_for_our_own_loggers_and_opens_none_of_a_library(
    level: str, ours: int, of_libraries: int
) -> None:
    command = [sys.executable, "-c", LEVELS, level]
    logged = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert logged.count("ringbatch.frontend ") == ours
    for library in ("hpack.hpack", "asyncio", "model"):
        lines = re.findall(rf" {re.escape(library)} (?:debug|info|warning|error)$", logged, re.M)
        assert len(lines) == of_libraries
