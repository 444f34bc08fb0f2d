"""Engines that have a network of their own each, as if on hosts of their own: network namespaces,
joined to this one by a pair of virtual interfaces. That takes root."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from host.children import tied

MODEL = """
import time
from pathlib import Path
import numpy as np
from ringbatch.engine import Tensor
inputs = outputs = [Tensor("x", "FP32", [])]
FACTOR = Path({factor!r})
def predict(x):
    time.sleep(float(FACTOR.read_text()) * (0.010 + 0.001 * len(x)))
    return 2 * x
"""
CONFIGURATION = """
[server]
name = "{name}"
host = "0.0.0.0"
port = {port}
agent_check_port = {agent_port}
frontends = 1
stop_delay_s = 5
[models.m]
path = "model.py"
max_batch_size = 8
"""
PATH = "/v1/models/m:predict"
CAPACITY_PER_S = 8 / 0.018
"""Requests/s that one engine can answer at full speed, in full batches."""
SLOW = 3.0
_WITHIN_S = 60.0


def obstacle(*programs: str) -> str:
    """Return why engines cannot be kept apart here; empty if they can."""
    if os.geteuid() != 0:
        return "network namespaces take root"
    missing = [name for name in ("ip", *programs) if path_of(name) is None]
    return f"not installed: {', '.join(missing)}" if missing else ""


def path_of(program: str) -> str | None:
    """Return the path of a program, also in folders for administrators; None without it."""
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


class Engine:
    """Engine in a network namespace of its own.

    Attributes:
        host: its address, seen from here.
        port, agent_port: its ports.

    Args:
        number: from 0 on.
        folder: for its files.
    """

    def __init__(self, number: int, folder: Path) -> None:
        self.port, self.agent_port = 8081 + number, 8181 + number
        self.host = f"10.231.{number}.2"
        self._name = f"rbb{os.getpid()}-{number}"
        self._folder = folder / str(number)
        self._folder.mkdir()
        self._factor = self._folder / "factor"
        self.at_speed(1.0)
        (self._folder / "model.py").write_text(MODEL.format(factor=str(self._factor)))
        text = CONFIGURATION.format(name=self._name, port=self.port, agent_port=self.agent_port)
        (self._folder / "engine.toml").write_text(text)
        self._near, self._gateway = self._name, f"10.231.{number}.1"
        self._process: subprocess.Popen[bytes] | None = None

    @contextmanager
    def network(self) -> Iterator[None]:
        """Yield the engine's network namespace for as long as it is needed."""
        name = self._name
        _ip("netns", "add", name)
        try:
            _ip("link", "add", self._near, "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("address", "add", f"{self._gateway}/30", "dev", self._near)
            _ip("link", "set", self._near, "up")
            _ip("-n", name, "address", "add", f"{self.host}/30", "dev", "eth0")
            for device in ("eth0", "lo"):
                _ip("-n", name, "link", "set", device, "up")
            yield
        finally:
            _ip("netns", "delete", name)

    def at_speed(self, factor: float) -> None:
        """Have its model take so many times as long."""
        new = self._factor.with_suffix(".new")
        new.write_text(str(factor))
        # A worker that reads it finds the one or the other.
        new.replace(self._factor)

    def start(self, command: str = "serve") -> None:
        """Start it, or what takes its place, and wait until it serves."""
        words = ["ip", "netns", "exec", self._name, sys.executable, "-m", "ringbatch.engine"]
        words += [command, "--config", str(self._folder / "engine.toml")]
        before = self._process
        with (self._folder / f"{time.monotonic_ns()}.out").open("wb") as out:
            self._process = subprocess.Popen(
                words,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=tied(),
            )
        until = time.monotonic() + _WITHIN_S
        while b"serving m on" not in Path(out.name).read_bytes():
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(Path(out.name).read_text())
            time.sleep(0.02)
        if before is not None:
            before.wait(_WITHIN_S)

    def stop(self) -> None:
        """End it in order."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(_WITHIN_S)
            self._process = None

    def restart(self) -> None:
        """End it in order, and start it again."""
        self.stop()
        self.start()

    def kill(self) -> None:
        """End all of it at once."""
        if self._process is not None:
            for pid in self._family():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.wait(_WITHIN_S)
            self._process = None

    def hold(self, seconds: float) -> None:
        """Have all of it stand still."""
        family = self._family()
        for number, pause_s in ((signal.SIGSTOP, seconds), (signal.SIGCONT, 0.0)):
            for pid in family:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            time.sleep(pause_s)

    def is_there(self) -> bool:
        """Return whether it runs and accepts connections."""
        if self._process is None:
            return False
        with suppress(OSError), socket.create_connection((self.host, self.port), 1.0):
            return True
        return False

    def _family(self) -> list[int]:
        assert self._process is not None, "it has been started"
        found, todo = [], [self._process.pid]
        while todo:
            pid = todo.pop()
            found.append(pid)
            with suppress(OSError):
                children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
                todo += map(int, children.split())
        return found


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
