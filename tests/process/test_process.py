"""Signals that end a process of the engine, and processes that it has forked."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ringbatch.engine.process.role_commands import StartCollector
from ringbatch.engine.process.role_events import FROM_COLLECTOR, FROM_FRONTEND
from ringbatch.shm.host.messages import Failed, encode

LOOP = """
import os, sys
from contextlib import suppress
from functools import partial
from operator import call
from posix_ipc import SignalError
from ringbatch.engine.process.startup import stop_on_sigterm
from ringbatch.shm import wakeup
from ringbatch.shm.wakeup import Wakeup

Wakeup.create(sys.argv[1])
doorbell = Wakeup.attach(sys.argv[1])
wakeup.unlink(sys.argv[1])
stopping = stop_on_sigterm(doorbell.wake)
begin, step = partial(os.write, 1, b"begins\\n"), partial(sum, range(20_000_000))
# A step and the sleep after it with no interpreted code between them, as where both are compiled.
while not stopping:
    with suppress(SignalError):
        [*map(call, (begin, step, doorbell._semaphore.acquire))]
print(*stopping, flush=True)
"""


def sleeps(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "S"


@pytest.mark.parametrize("late", [False, True], ids=["amid-a-step", "asleep"])
def test_sigterm_ends_the_loop_at_any_point(late: bool, wait_until: Callable[..., object]) -> None:
    name = f"/ringbatch-process-{os.getpid()}"
    child = subprocess.Popen([sys.executable, "-c", LOOP, name], stdout=subprocess.PIPE, text=True)
    with child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "begins\n"
            if late:
                wait_until(lambda: sleeps(child.pid), "the loop to sleep")
            child.send_signal(signal.SIGTERM)
            assert child.stdout.read() == f"{signal.SIGTERM:d}\n"
            assert child.wait() == 0
        finally:
            child.kill()


FORKS = """
import os, signal, sys
from ringbatch.engine.process import startup
from ringbatch.engine.process.control_socket import ControlSocket

control = ControlSocket.from_fd(int(sys.argv[1]))
startup.begin("parent", "warning", control)
startup.stop_on_sigterm(lambda: None)
if child := os.fork():
    os.write(1, b"%d\\n" % child)
while True:
    signal.pause()
"""


@pytest.fixture
def forked() -> Iterator[tuple[subprocess.Popen[str], int, socket.socket]]:
    """A process of the engine, the one that it has forked, and the supervisor's end."""
    ours, theirs = socket.socketpair()
    words = [sys.executable, "-c", FORKS, str(theirs.fileno())]
    with (
        ours,
        subprocess.Popen(
            words, stdout=subprocess.PIPE, text=True, pass_fds=[theirs.fileno()]
        ) as parent,
    ):
        theirs.close()
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        try:
            yield parent, child, ours
        finally:
            parent.kill()
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)


def test_a_forked_child_does_not_pass_for_its_process(
    forked: tuple[subprocess.Popen[str], int, socket.socket],
) -> None:
    parent, child, supervisors = forked
    parent.kill()
    parent.wait()
    supervisors.settimeout(60)
    assert supervisors.recv(1) == b""
    os.kill(child, 0)


def test_a_forked_child_is_ended_by_sigterm(
    forked: tuple[subprocess.Popen[str], int, socket.socket], wait_until: Callable[..., object]
) -> None:
    parent, child, _ = forked
    os.kill(child, signal.SIGTERM)
    zombie = Path(f"/proc/{child}/stat")
    wait_until(lambda: zombie.read_text().rpartition(") ")[2][0] == "Z", "the child's end")
    assert parent.poll() is None


@pytest.mark.parametrize(
    ("module", "start", "arguments"),
    [
        ("ringbatch.engine.collector.role", StartCollector("/rb.gone", "info"), []),
        (
            "ringbatch.frontend.metrics.control_server",
            None,
            ["--segment=/rb.gone", "--listen-fd=0", f"--parent-pid={os.getpid()}"],
        ),
        (
            "ringbatch.frontend.grpc.server",
            None,
            [
                *("--segment=/rb.gone", "--address=127.0.0.1:0", f"--parent-pid={os.getpid()}"),
                *("--number=0", "--max-request-bytes=1", "--max-connections=1"),
                *(
                    "--idle-timeout-s=1",
                    "--drain-s=1",
                    "--connection-age-s=1",
                    "--leave-s=1",
                    "--processes=1",
                ),
            ],
        ),
    ],
    ids=["collector", "control", "grpc"],
)
def test_a_process_that_finds_no_segment_ends_in_words(
    module: str, start: StartCollector | None, arguments: list[str]
) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        if start is not None:
            ours.sendall(encode(start))
        ended = subprocess.run(
            [sys.executable, "-m", module, f"--control-fd={theirs.fileno()}", *arguments],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 1
        assert "Traceback" not in ended.stderr
        message = FROM_FRONTEND.decode(ours.recv(4096))
        assert isinstance(message, Failed)
        assert message.reason.startswith(
            "the engine's shared memory is gone; has the engine stopped?"
        )


NO_MORE_THREADS = """
import sys, threading
from unittest import mock
from ringbatch.engine.collector import role

allowed, start = [None] * int(sys.argv.pop()), threading.Thread.start

def start_if_allowed(thread):
    if not allowed:
        raise RuntimeError("can't start new thread")
    allowed.pop()
    start(thread)

threading.Thread.start = start_if_allowed
role.Segment = mock.Mock()
role.Segment.attach.return_value.layout = mock.Mock(lanes=0, workers=0)
sys.exit(role.main())
"""


@pytest.mark.parametrize(
    ("threads", "name"),
    [(0, "the thread for the supervisor's messages"), (1, "the signals' thread")],
    ids=["none", "one"],
)
def test_a_collector_that_gets_no_thread_ends_in_words(threads: int, name: str) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(encode(StartCollector("/rb.any", "info")))
        control = f"--control-fd={theirs.fileno()}"
        ended = subprocess.run(
            [sys.executable, "-c", NO_MORE_THREADS, control, str(threads)],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 1
        assert "Traceback" not in ended.stderr
        *_, last = ours.recv(4096).splitlines(keepends=True)
        message = FROM_COLLECTOR.decode(last)
        assert isinstance(message, Failed)
        assert message.reason.startswith(f"no thread for {name}: can't start new thread; raise")
