"""Server under test: started in a session of its own, waited for, stopped, with its log kept.

It ends with the benchmark, even if that is killed.
"""

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from host import procfs
from host.children import tied

HOST = "127.0.0.1"
_LOG_TAIL_LINES = 40
_LEFTOVER_GRACE_S = 1.0


class ServerDied(RuntimeError):
    """The server's process ended while it was needed; the message ends with its log."""


class ServerNotReady(RuntimeError):
    """The server did not answer its readiness request in time; the message ends with its log."""


class ServerLeftProcesses(RuntimeError):
    """The server's main process ended and left others behind, which were then killed."""


@dataclass(frozen=True)
class Command:
    """Command that starts a server.

    Attributes:
        argv: the command line.
        port: the port it will listen on at 127.0.0.1.
        ready_path: answers GET with 200 once the server can take requests.
        env: set on top of the environment of this process.
        start_timeout_s: how long the start may take.
        stop_signal: the signal that asks it to end in order.
        stop_timeout_s: how long it may take to end after that.
    """

    argv: Sequence[str]
    port: int
    ready_path: str
    env: Mapping[str, str] = field(default_factory=dict)
    start_timeout_s: float = 30.0
    stop_signal: signal.Signals = signal.SIGTERM
    stop_timeout_s: float = 15.0


class Server:
    """A running server, as a context manager.

    The signal goes to the main process alone, because a server's own parent has to be able to stop
    its children in order; whatever is left afterwards is killed, and named as an error.
    """

    def __init__(self, command: Command) -> None:
        self.command = command
        self.url = f"http://{HOST}:{command.port}"
        self._log = tempfile.NamedTemporaryFile("w+b", prefix="bench-", suffix=".log")  # noqa: SIM115
        self._process: subprocess.Popen[bytes] | None = None
        self._family: dict[int, int] = {}

    @property
    def port(self) -> int:
        """The port the server listens on."""
        return self.command.port

    @property
    def pid(self) -> int:
        """The pid of the main process, also the id of its group."""
        assert self._process is not None, "the server has not been started"
        return self._process.pid

    @property
    def log(self) -> str:
        """Everything the server has written to stdout and stderr."""
        return Path(self._log.name).read_text(errors="replace")

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as undo:
            undo.callback(self._log.close)
            undo.callback(self._kill)
            self._start()
            self._wait_ready()
            undo.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            leftovers = self.stop()
        finally:
            self._kill()
            if error is not None and not isinstance(error, ServerDied):
                error.add_note(f"the server's log ends with:\n{self._tail()}")
            self._log.close()
        if leftovers and error is None:
            raise ServerLeftProcesses(f"{self.command.argv[0]} left {', '.join(leftovers)}")

    def require_alive(self) -> None:
        """Raise ServerDied when the main process has ended."""
        if self._process is None or self._process.poll() is not None:
            code = None if self._process is None else self._process.returncode
            raise ServerDied(f"the server ended with status {code}\n{self._tail()}")

    def stop(self) -> list[str]:
        """Stop the server and return the titles of the processes it left behind.

        Raises:
            ServerDied: it was dead already, or did not end by itself when asked to.
        """
        self.require_alive()
        assert self._process is not None
        self._remember_family()
        self._process.send_signal(self.command.stop_signal)
        try:
            self._process.wait(self.command.stop_timeout_s)
        except subprocess.TimeoutExpired:
            tail = self._tail()
            self._kill()
            raise ServerDied(
                f"the server was still there {self.command.stop_timeout_s} s after "
                f"{self.command.stop_signal.name}\n{tail}"
            ) from None
        titles = list(_survivors(self._family))
        self._kill()
        return titles

    def _start(self) -> None:
        self._process = subprocess.Popen(
            self.command.argv,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **self.command.env},
            start_new_session=True,
            preexec_fn=tied(self.command.stop_signal),
        )

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + self.command.start_timeout_s
        while not _answers_200(self.command.port, self.command.ready_path):
            self.require_alive()
            if time.monotonic() > deadline:
                raise ServerNotReady(
                    f"{self.url}{self.command.ready_path} did not answer 200 within "
                    f"{self.command.start_timeout_s} s\n{self._tail()}"
                )
            time.sleep(0.05)
        self._remember_family()

    def _remember_family(self) -> None:
        """Note the start time of every process below the main one, while they can be found.

        They may be in sessions of their own, and belong to nobody once the main process is gone.
        """
        for pid in procfs.tree(self.pid):
            stat = procfs.stat_of(pid)
            if stat is not None:
                self._family[pid] = stat.start_ticks

    def _kill(self) -> None:
        if self._process is None:
            return
        self._remember_family()
        for pid, start_ticks in self._family.items():
            if _runs(pid, start_ticks):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def _tail(self) -> str:
        return "\n".join(self.log.splitlines()[-_LOG_TAIL_LINES:])


def free_port() -> int:
    """Return a port that nothing listens on at this moment."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _survivors(family: Mapping[int, int]) -> Iterator[str]:
    """Kill those of `family` (pid to start time) that still run; yield their titles.

    They get a moment first: a child may be between its last instruction and its end.
    """
    deadline = time.monotonic() + _LEFTOVER_GRACE_S
    while time.monotonic() < deadline and any(_runs(*member) for member in family.items()):
        time.sleep(0.02)
    for pid, start_ticks in family.items():
        found = procfs.sample(pid)
        if found is not None and found.start_ticks == start_ticks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            yield f"{found.title} ({pid})"


def _runs(pid: int, start_ticks: int) -> bool:
    stat = procfs.stat_of(pid)
    return stat is not None and stat.start_ticks == start_ticks and stat.state != "Z"


def _answers_200(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
