"""A ``ringbatch serve`` as its operator sees it: a command, its words, its processes, its end."""

import ctypes
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

from open_files import open_files
from start_times import all_running

from ringbatch.engine.report.status import snapshot
from ringbatch.shm.shm_objects import DIRECTORY
from ringbatch.shm.snapshot.status import EngineStatus

MODELS: Final = Path(__file__).with_name("models")
COMMAND: Final = (sys.executable, "-m", "ringbatch.engine")

REQUEST_BYTES: Final = 1 << 16
LANE_BYTES: Final = 1 << 18
"""The limit of requests and the lanes where a test is not about large ones: /dev/shm may be as
small as a container's, and engines of other tests take of it at the same time."""
SMALL: Final = ("--max-request-bytes", str(REQUEST_BYTES), "--lane-bytes", str(LANE_BYTES))
"""Flags of small limits, for an engine without a configuration file."""
_LAST: Final = "ringbatch: standby"
"""The process that is started when all others are there."""
_CONTROL: Final = re.compile(r"serving metrics on https?://\S+:(\d+)/metrics")
_READY: Final = re.compile(
    r"^ringbatch: serving (.+) on (?:https?://127\.0\.0\.1:(\d+)|unix:/\S+)$", re.MULTILINE
)
_START_LIMIT_S: Final = 240
"""Less than the time limit of a test, so that it fails with words; a host may be busy."""
_LISTENED: Final = "0A"

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_SYS_PIDFD_GETFD: Final = 438
_PR_SET_PDEATHSIG: Final = 1
_PR_CAPBSET_DROP: Final = 24


@cache
def _stopped_with_parent() -> tuple[str, ...]:
    """Return the prefix of a command that is to end with this process; empty without setpriv.

    Python could ask for the signal itself behind a fork, but to fork a process of hundreds of MiB
    takes thirty milliseconds of processor time.
    """
    words = "setpriv", "--pdeathsig", "TERM"
    is_there = shutil.which("setpriv") and not subprocess.run([*words, "true"]).returncode
    return words if is_there else ()


def _stop_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _give_up_privileges() -> None:
    """Drop all privileges for the next program, even as root; a process without any keeps none."""
    number = 0
    while _LIBC.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) == 0:
        number += 1


class Server:
    """The command, started in a session of its own.

    Attributes:
        config: its configuration file, where it has one.

    Args:
        folder: its working directory, and the folder of its output.
        arguments: after the command.
        command: of ringbatch's.
        privileged: whether root's server may do what only root may.
        program: command that runs ringbatch.
        environment: added to this process's.
        errors: its standard error, where that is no file in the folder.
    """

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        command: str = "serve",
        privileged: bool = True,
        program: Sequence[str] = COMMAND,
        environment: Mapping[str, str] | None = None,
        errors: int | None = None,
    ) -> None:
        def prepare() -> None:
            _stop_with_parent()
            if not privileged:
                _give_up_privileges()

        # A test run that its watchdog ends has no time to clean up.
        executed_by = _stopped_with_parent() if privileged else ()
        self._out, self._err = folder / "stdout", folder / "stderr"
        self.config = folder / "ringbatch.toml"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [*executed_by, *program, command, *arguments],
                env=os.environ | dict(environment or {}),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err if errors is None else errors,
                cwd=folder,
                start_new_session=True,
                preexec_fn=None if executed_by else prepare,
            )
        self.pid = self.process.pid
        self.port = 0
        self._seen: dict[int, int] = {}

    @property
    def stdout(self) -> str:
        """The lines that it said so far."""
        return self._lines_of(self._out)

    @property
    def stderr(self) -> str:
        """The lines that it logged so far."""
        return self._lines_of(self._err)

    def _lines_of(self, path: Path) -> str:
        """Return a file without a last line that is still being written."""
        ended = self.process.poll() is not None
        text = path.read_bytes()
        return text[: None if ended else text.rfind(b"\n") + 1].decode()

    @property
    def control_port(self) -> int:
        """Port of the control address, once the server has printed it."""
        found = _CONTROL.search(self.stdout)
        assert found is not None, self.stdout
        return int(found[1])

    def wait_ready(self) -> "Server":
        """Wait until the server prints its port and all its processes are there."""
        give_up_at = time.monotonic() + _START_LIMIT_S
        # It is cheap to look at the words, and costs milliseconds to look at all processes.
        while (ready := _READY.search(self.stdout)) is None or _LAST not in self.titles():
            tail = self.stderr[-3000:]
            assert self.process.poll() is None, f"it ended before it served:\n{tail}"
            assert time.monotonic() < give_up_at, f"not ready in {_START_LIMIT_S} s:\n{tail}"
            time.sleep(0.05)
        self.port = int(ready[2] or 0)
        return self

    def watch(self) -> None:
        """Remember every process below the supervisor, itself included."""
        self.living()

    def living(self) -> list[int]:
        """Return the server's processes, of all ever seen, that have not ended."""
        self.process.poll()
        processes = all_running()
        children: dict[int, list[int]] = {}
        for pid, process in processes.items():
            children.setdefault(process.parent, []).append(pid)
        todo = [self.pid]
        while todo:
            pid = todo.pop()
            todo += children.get(pid, [])
            if pid in processes:
                self._seen[pid] = processes[pid].started
        return [
            pid
            for pid, started in self._seen.items()
            if pid in processes and processes[pid].started == started
        ]

    def titles(self) -> dict[str, int]:
        """The living processes by what `ps` calls them."""
        titles = {}
        for pid in self.living():
            with suppress(OSError):
                shown = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode()
                titles[shown] = pid
        return titles

    def role(self, title: str) -> int:
        """Return the id of the process with that role."""
        return self.titles()[f"ringbatch: {title}"]

    def names(self) -> list[str]:
        """Return the server's names in /dev/shm."""
        return [
            e.name
            for e in DIRECTORY.iterdir()
            if re.search(rf"ringbatch\.[^.]+\.{self.pid}\.", e.name)
        ]

    def gone(self) -> bool:
        """Return whether neither processes nor names of the server are left."""
        return not self.living() and not self.names()

    def status(self) -> EngineStatus:
        """Return the engine's counters."""
        return snapshot(self.pid)

    def serves(self, client_port: int) -> int | None:
        """The process that accepted the connection from that port of 127.0.0.1, if one has."""
        return self.served_by([client_port])[0]

    def served_by(self, client_ports: Sequence[int]) -> list[int | None]:
        """Return the processes that accepted these connections; None for one that none has.

        To read all connections of the host, or all open files, takes milliseconds of processor
        time, so each is read once.
        """
        table = _tcp_table()
        owners = {
            target: pid
            for pid in reversed(self.living())
            for target in open_files(pid).values()
            if target.startswith("socket:")
        }
        rows = [_row_of(table, self.port, port) for port in client_ports]
        return [owners.get(f"socket:[{row[9]}]") if row else None for row in rows]

    @contextmanager
    def listeners(self) -> Iterator[list[socket.socket]]:
        """Yield copies of the server's listening HTTP sockets, held by this process for a while."""
        inodes = {f"socket:[{row[9]}]" for row in _tcp_rows() if _listens(row, self.port)}
        with ExitStack() as stack:
            holder = os.pidfd_open(self.pid)
            stack.callback(os.close, holder)
            yield [
                stack.enter_context(socket.socket(fileno=_duplicate(holder, number)))
                for number, target in open_files(self.pid).items()
                if target in inodes
            ]

    def stop(self) -> int:
        """Stop the server by SIGTERM, and return its exit status."""
        self.watch()
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait()

    def kill(self) -> None:
        """End all of it at once, at the end of a test that is not about ends; names stay.

        An end in order takes a quarter of the processor time of an engine that serves nothing.
        """
        while living := self.living():
            with ExitStack() as stack:
                ends = []
                for pid in living:
                    with suppress(ProcessLookupError):
                        end = os.pidfd_open(pid)
                        stack.callback(os.close, end)
                        signal.pidfd_send_signal(end, signal.SIGKILL)
                        ends.append(end)
                # A look at all processes is a millisecond; the kernel tells of these by itself.
                for end in ends:
                    waiting = select.poll()
                    waiting.register(end, select.POLLIN)
                    waiting.poll()
        self.process.wait()

    def destroy(self) -> None:
        """End it by whatever means, at the end of a test."""
        self.watch()
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        for pid in self.living():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


class Standing:
    """Server of a test file whose tests may end it: the next test then starts another.

    Args:
        start: starts one.
    """

    def __init__(self, start: Callable[[], Server]) -> None:
        self._start = start
        self._server: Server | None = None

    def get(self) -> Server:
        """Return the running server, or start another."""
        if self._server is None or self._server.process.poll() is not None:
            self._server = self._start()
        return self._server


def toml(server: Mapping[str, Any], models: Mapping[str, Mapping[str, Any]]) -> str:
    """A configuration file, with small lanes where it says nothing else."""
    limit = server.get("max_request_bytes", REQUEST_BYTES)
    small = {"max_request_bytes": limit, "lane_bytes": max(2 * limit, LANE_BYTES)}
    lines = ["[server]", *_keys(small | dict(server))]
    for name, keys in models.items():
        lines += [f"[models.{name}]", *_keys(keys)]
    return "\n".join([*lines, ""])


def _keys(values: Mapping[str, Any]) -> list[str]:
    words = {True: "true", False: "false"}
    return [f"{key} = {words[v] if isinstance(v, bool) else repr(v)}" for key, v in values.items()]


def configured(
    folder: Path, models: Mapping[str, Mapping[str, Any]], **server: Any
) -> Sequence[str]:
    """Write a configuration and the model files it names; the arguments that serve it.

    Args:
        folder: for the files.
        models: the keys of each model; `path` is a file of this folder's models.
        server: the keys of the server; by default any port, one frontend and small lanes. With
            API keys all is logged that can be: the test run looks for them there.
    """
    for source in MODELS.glob("*.py"):
        shutil.copy(source, folder)
    keys: dict[str, Any] = {"port": 0, "frontends": 1}
    keys |= {"log_level": "debug"} if "api_keys_file" in server else {}
    keys |= server
    config = folder / "ringbatch.toml"
    config.write_text(toml(keys, models))
    return ("--config", str(config))


def unread(server_port: int, client_port: int) -> int:
    """Bytes of a connection that the server's kernel has and the server has not read."""
    row = _row_of(_tcp_table(), server_port, client_port)
    return int(row[4].split(":")[1], 16) if row else 0


def _duplicate(pidfd: int, fd: int) -> int:
    """A descriptor of our own for what another process has open."""
    own = _LIBC.syscall(_SYS_PIDFD_GETFD, pidfd, fd, 0)
    if own < 0:
        raise OSError(ctypes.get_errno(), "pidfd_getfd")
    return int(own)


def _listens(row: list[str], port: int) -> bool:
    return row[3] == _LISTENED and _ports(row)[0] == port


def _tcp_table() -> str:
    return Path("/proc/net/tcp").read_text()


def _tcp_rows() -> list[list[str]]:
    return [line.split() for line in _tcp_table().splitlines()[1:]]


def _row_of(table: str, own_port: int, other_port: int) -> list[str]:
    """The fields of the connection between two ports; none where there is none.

    A busy host has thousands of connections, so the others are not taken apart.
    """
    row = re.search(rf"^.*:{own_port:04X} [0-9A-F]+:{other_port:04X} .*$", table, re.MULTILINE)
    return row[0].split() if row else []


def _ports(row: list[str]) -> tuple[int, int]:
    return int(row[1].split(":")[1], 16), int(row[2].split(":")[1], 16)


Start = Callable[..., Server]
