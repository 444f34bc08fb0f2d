"""`ringbatch serve` as a process, everything that it started, and clients of it."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from start_times import all_running, start_time_of

from ringbatch.engine.report.status import snapshot
from ringbatch.shm.shm_objects import DIRECTORY

WaitUntil = Callable[..., Any]
WriteModel = Callable[..., Path]

DOUBLE = """
    from ringbatch.engine import Tensor
    inputs = [Tensor("x", "FP32", [2])]
    outputs = [Tensor("y", "FP32", [2])]
    def predict(x):
        return x * 2
"""
HELD = """
    import os, time
    from pathlib import Path
    here = Path(__file__).parent
    def predict(instances):
        (here / "running").write_text(str(os.getpid()))
        while not (here / "go").exists():
            time.sleep(0.01)
        return [instance + 1000 for instance in instances]
"""


PROGRAM = ("-m", "ringbatch.engine")
SMALL = ("--max-request-bytes", "65536", "--lane-bytes", "262144")
"""Settings by which an engine needs little of /dev/shm, as others have to run beside it."""
TITLE = "ringbatch: "


class Server:
    """A ``ringbatch serve`` and everything it started."""

    def __init__(
        self, folder: Path, port: int, *arguments: str, program: Sequence[str] = PROGRAM
    ) -> None:
        self.port = port
        self._out, self._err = folder / "stdout", folder / "stderr"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    *program,
                    "serve",
                    *arguments,
                    "--port",
                    str(port),
                ],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=folder,
            )
        self.pid = self.process.pid
        self.seen: dict[int, int] = {}

    @property
    def stdout(self) -> str:
        return self._out.read_text()

    @property
    def stderr(self) -> str:
        return self._err.read_text()

    def serving(self) -> bool:
        assert self.process.poll() is None, self.stderr
        return "ringbatch: serving" in self.stdout

    def family(self) -> dict[int, int]:
        """Ids and start times of every process below the supervisor, itself included."""
        processes = all_running()
        children: dict[int, list[int]] = {}
        for pid, process in processes.items():
            children.setdefault(process.parent, []).append(pid)
        found, todo = set(), [self.pid]
        while todo:
            pid = todo.pop()
            found.add(pid)
            todo += children.get(pid, [])
        self.seen |= {pid: processes[pid].started for pid in found if pid in processes}
        return self.seen

    def roles(self) -> dict[str, int]:
        """The ids of the living processes by their titles, in one look: what two looks tell may
        never have been true together."""
        roles = {}
        for pid in self.family():
            with suppress(OSError):
                shown = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode()
                if shown.startswith(TITLE):
                    roles[shown.removeprefix(TITLE)] = pid
        return roles

    def role(self, title: str) -> int:
        """The id of the living process with that title."""
        return self.roles()[title]

    def gone(self) -> bool:
        """Return whether all processes and names that were seen are gone."""
        self.process.poll()
        alive = [pid for pid, when in self.seen.items() if start_time_of(pid) == when]
        return not alive and not self.names()

    def end(self) -> None:
        """End everything that was started, at once, and remove its names."""
        self.process.poll()
        while alive := [pid for pid, when in self.family().items() if start_time_of(pid) == when]:
            for pid in alive:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.005)
            self.process.poll()
        self.process.wait()
        for name in self.names():
            # An engine that starts also removes the names of dead engines.
            (DIRECTORY / name).unlink(missing_ok=True)

    def names(self) -> list[str]:
        return [
            e.name
            for e in DIRECTORY.iterdir()
            if re.match(rf"(sem\.)?ringbatch[^.]*\.[^.]+\.{self.pid}\.", e.name)
        ]

    def post(self, path: str, body: object) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("POST", path, json.dumps(body))
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def predict(self, *instances: object, model: str = "model") -> tuple[int, Any]:
        status, answer = self.post(f"/v1/models/{model}:predict", {"instances": instances})
        return status, answer.get("predictions")


Start = Callable[..., Server]


@pytest.fixture
def launch(tmp_path: Path, free_port_factory: Callable[[], int]) -> Iterator[Start]:
    """`launch(*arguments)` starts a small server; all that it started ends with the test."""
    servers: list[Server] = []

    def begin(*arguments: str, port: int | None = None, program: Sequence[str] = PROGRAM) -> Server:
        own = tmp_path / f"server{len(servers)}"
        own.mkdir()
        own_port = port or free_port_factory()
        servers.append(Server(own, own_port, *SMALL, *arguments, program=program))
        return servers[-1]

    yield begin
    for server in servers:
        server.end()


@pytest.fixture
def start(launch: Start, wait_until: WaitUntil) -> Start:
    """`start(*arguments)` starts a server and waits until it serves."""

    def begin(*arguments: str, **given: Any) -> Server:
        server = launch(*arguments, "--frontends", "1", **given)
        wait_until(server.serving, "the server serves", 240)
        server.family()
        return server

    return begin


class Asking:
    """Requests that are under way in threads of their own."""

    def __init__(
        self, server: Server, count: int, make: Callable[[int], object] = lambda number: number
    ) -> None:
        self.answers: list[tuple[int, Any] | None] = [None] * count

        def ask(number: int) -> None:
            self.answers[number] = server.predict(make(number))

        self._threads = [threading.Thread(target=ask, args=(n,)) for n in range(count)]
        for thread in self._threads:
            thread.start()

    def join(self) -> list[tuple[int, Any] | None]:
        for thread in self._threads:
            thread.join()
        return self.answers


def in_engine(server: Server) -> int:
    """Requests that the collector has taken in."""
    return sum(model.requests for model in snapshot(server.pid).models.values())
