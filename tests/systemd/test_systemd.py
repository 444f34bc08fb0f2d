"""The units under a real systemd: what an operator sees of an engine, from its start to its end."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from documents.pages import example
from tiers import exhaustive

from .booted import Machine, booted, wait_for, why_not

pytestmark = [exhaustive, pytest.mark.timeout(900)]

UNIT: Final = "ringbatch@prod.service"
SOCKET: Final = "ringbatch@prod.socket"
PAGE: Final = "docs/how-to/deploy-with-systemd.md"
CONFIGURATION: Final = "/etc/ringbatch/prod.toml"
LOAD: Final = "/opt/load.py"
PORT: Final = 8080
WATCHDOG_S: Final = 20
CLIENTS: Final = 3

MODEL: Final = """\
from ringbatch.engine import Tensor

inputs = [Tensor("x", "FP32", [2])]
outputs = [Tensor("y", "FP32", [2])]
kept = []


def predict(x):
    if (x == 666).any():
        kept.append(bytearray(b"x" * (1 << 30)))
    return x * 2
"""
SETTINGS: Final = """\
[server]
frontends = 2
drain_s = 5
max_request_bytes = 65536
[models.double]
path = "model.py"
workers = 2
"""


def deployment() -> list[str]:
    """Return the lines of the page about systemd."""
    return example(PAGE, "deploy").splitlines()


class Operator:
    """Operator of the engine, with a record of its actions.

    Attributes:
        figures: a line for each thing that was done.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.figures: list[str] = []
        self.key = "a-key-of-the-tests-for-systemd-1"

    def install(self) -> None:
        """Install the engine as the page says."""
        machine = self.machine
        machine.write(CONFIGURATION, SETTINGS)
        machine.write("/etc/ringbatch/model.py", MODEL)
        machine.write(LOAD, Path(__file__).with_name("load.py").read_text())
        self.write_key()
        drop_in = f"[Service]\nWatchdogSec={WATCHDOG_S}\nStartLimitBurst=100\n"
        machine.write(f"/etc/systemd/system/{UNIT}.d/quick.conf", drop_in)
        for line in deployment()[:-2]:
            self.type(line)

    def type(self, line: str) -> str:
        """Run a line in a shell with ringbatch in its path, and return the output."""
        path = Path(self.machine.ringbatch).parent
        return self.machine.run("bash", "-c", f'PATH="{path}:$PATH"; {line}')

    def write_key(self) -> None:
        """Put the key where systemd finds it."""
        path = "/etc/ringbatch/prod.credentials/api_keys"
        self.machine.write(path, f"{self.key}\n", "0600")

    @property
    def status(self) -> str:
        """Status text that `systemctl status` shows."""
        return self.machine.show(UNIT, "StatusText")

    @property
    def restarts(self) -> int:
        """Number of automatic restarts by systemd."""
        return int(self.machine.show(UNIT, "NRestarts"))

    def serves(self) -> bool:
        """Return whether the engine serves, and none of its processes is missing."""
        active = self.machine.run("systemctl", "is-active", UNIT, check=False) == "active"
        titles = self.machine.processes(UNIT) if active else {}
        return (
            active and "; 1 model, 2 workers" in self.status and any("standby" in t for t in titles)
        )

    def pid_of(self, title: str) -> int:
        """Return the id of a process of the engine."""
        return wait_for(lambda: self.machine.processes(UNIT).get(f"ringbatch: {title}", 0), title)

    def is_gone(self, pid: int) -> bool:
        """Return whether a process of the engine has ended."""
        return pid not in self.machine.processes(UNIT).values()

    @contextmanager
    def load(self, action: str, *, may_break: int = 0) -> Iterator[None]:
        """Send requests all the while; none may fail but so many whose connections break.

        Args:
            action: during the load, for the figures.
            may_break: number of requests that may break with a process that was killed.
        """
        words = ["/usr/bin/env", *self._python(), LOAD, str(PORT), str(CLIENTS), self.key]
        pipe = subprocess.PIPE
        sender = subprocess.Popen(self.machine.command(*words), stdin=pipe, stdout=pipe, text=True)
        assert sender.stdout is not None
        try:
            assert sender.stdout.readline() == "began\n"
            yield
        finally:
            out, _ = sender.communicate(timeout=120)
        found = json.loads(out)
        seen: dict[str, int] = found["seen"]
        sent, broken = sum(seen.values()), sum(n for kind, n in seen.items() if "broken" in kind)
        failed = sent - seen.pop("answered", 0)
        self.log(
            f"{action}: {sent} requests, {failed} failed, the slowest took {found['slowest_s']} s"
        )
        assert failed == broken <= may_break, seen

    def _python(self) -> list[str]:
        return ["LD_LIBRARY_PATH=/opt/ringbatch/lib", self.machine.python]

    def log(self, line: str) -> None:
        """Note a figure."""
        self.figures.append(line)
        print(line, flush=True)


@pytest.fixture
def operator() -> Iterator[Operator]:
    if reason := why_not():
        pytest.skip(f"no systemd of our own can be run here: {reason}")
    with booted() as machine:
        operator = Operator(machine)
        try:
            yield operator
        finally:
            print(machine.run("systemctl", "status", "--no-pager", UNIT, check=False))
            print(machine.journal(UNIT))


def test_an_engine_under_systemd(
    operator: Operator, record_property: Callable[[str, object], None]
) -> None:
    operator.install()
    for act in (
        start,
        kill_each_role,
        kill_the_supervisor,
        hang_the_collector,
        hang_the_supervisor,
        hang_irreplaceable_processes,
        reload,
        reload_a_broken_file,
        run_out_of_memory,
        rotate_credentials,
        restart,
        stop,
    ):
        act(operator)
    record_property("figures", "\n".join(operator.figures))


def start(operator: Operator) -> None:
    """Start the socket first, so that early clients wait."""
    machine = operator.machine
    enable, status = deployment()[-2:]
    operator.type(enable)
    assert f"serving double on http://127.0.0.1:{PORT}" in operator.type(status)
    wait_for(operator.serves, "a standby")
    assert operator.status == f"serving double on http://127.0.0.1:{PORT}; 1 model, 2 workers"
    began, ready = (
        int(machine.show(UNIT, f"{name}TimestampMonotonic"))
        for name in ("InactiveExit", "ActiveEnter")
    )
    operator.log(f"ready {(ready - began) / 1e6:.1f} s after its start")
    with operator.load("light load"):
        wait_for(lambda: len(machine.processes(UNIT)) == 9, "all processes")


def kill_each_role(operator: Operator) -> None:
    """Kill a process of each role: others take their places, and a frontend's connections break."""
    for title in ("worker double/0", "collector", "standby", "frontend 0", "frontends"):
        with operator.load(f"kill -9 {title}", may_break=CLIENTS if "frontend" in title else 0):
            pid = operator.pid_of(title)
            operator.machine.run("kill", "-9", str(pid))
            wait_for(partial(operator.is_gone, pid), "its end")
            wait_for(operator.serves, "its replacement")
    assert operator.restarts == 0


def kill_the_supervisor(operator: Operator) -> None:
    """Kill the supervisor: all processes end with it; new clients wait in the socket."""
    with restarted(operator, "kill -9 of the supervisor"):
        operator.machine.run("kill", "-9", operator.machine.show(UNIT, "MainPID"))


@contextmanager
def restarted(operator: Operator, action: str) -> Iterator[None]:
    """Expect that systemd restarts the engine under load, and only accepted connections break."""
    before = operator.restarts
    with operator.load(action, may_break=CLIENTS):
        yield
        wait_for(lambda: operator.restarts > before, "a restart", 120)
        wait_for(operator.serves, "its start")


def hang_the_collector(operator: Operator) -> None:
    """Hang the collector: the supervisor replaces it before the watchdog acts."""
    before = operator.restarts
    with operator.load("kill -STOP collector"):
        pid = operator.pid_of("collector")
        operator.machine.run("kill", "-STOP", str(pid))
        wait_for(partial(operator.is_gone, pid), "its end")
        wait_for(operator.serves, "its replacement")
    assert operator.restarts == before


def hang_the_supervisor(operator: Operator) -> None:
    """Stop the supervisor's process, which only the watchdog notices."""
    with restarted(operator, "kill -STOP supervisor"):
        operator.machine.run("kill", "-STOP", operator.machine.show(UNIT, "MainPID"))
    assert "Watchdog timeout" in operator.machine.journal(UNIT)


def hang_irreplaceable_processes(operator: Operator) -> None:
    """Stop the frontends and their arbiter: nothing is answered, and every process is there."""
    before = operator.restarts
    for title in ("frontends", "frontend 0", "frontend 1"):
        operator.machine.run("kill", "-STOP", str(operator.pid_of(title)))
    wait_for(lambda: operator.restarts > before, "a restart", 120)
    wait_for(operator.serves, "its start")
    operator.log("kill -STOP of all frontends and their arbiter: restarted by the watchdog")


def reload(operator: Operator) -> None:
    """Reload, which loads a model beside the old one."""
    machine = operator.machine
    with operator.load("reload with another model"):
        machine.write(CONFIGURATION, SETTINGS + '[models.more]\npath = "model.py"\n')
        machine.run("systemctl", "reload", UNIT)
        assert "serving double, more on" in operator.status
        machine.write(CONFIGURATION, SETTINGS)
        machine.run("systemctl", "kill", "--kill-whom=main", "--signal=HUP", UNIT)
        wait_for(operator.serves, "the model's end")


def reload_a_broken_file(operator: Operator) -> None:
    """Reload a broken file: the engine keeps the old configuration, and its status says why."""
    machine = operator.machine
    with operator.load("reload of a broken file"):
        machine.write(CONFIGURATION, SETTINGS.replace("workers = 2", 'workers = "two"'))
        output = machine.run("systemctl", "reload", UNIT, check=False)
        assert "failed" in output
        assert re.search("serving double .*; the last change failed: .*workers", operator.status)
        machine.write(CONFIGURATION, SETTINGS)
        machine.run("systemctl", "reload", UNIT)
        assert operator.serves()
        assert "failed" not in operator.status


def run_out_of_memory(operator: Operator) -> None:
    """Let the kernel kill a worker for memory: the unit goes on."""
    machine, before = operator.machine, operator.restarts
    used = int(machine.show(UNIT, "MemoryCurrent"))
    machine.run("systemctl", "set-property", "--runtime", UNIT, f"MemoryMax={used + (400 << 20)}")
    if machine.show(UNIT, "MemoryMax") == "infinity":
        operator.log("MemoryMax= has no effect here: nobody was taken")
        return
    key = f"Authorization: Bearer {operator.key}"
    body, url = '{"instances": [[666, 666]]}', f"http://127.0.0.1:{PORT}/v1/models/double:predict"
    # Without CAP_SYS_RESOURCE systemd leaves OOMScoreAdjust= out and says nothing. Then the kernel
    # may take a frontend too, while its first victim still ends.
    with operator.load("out of memory, by MemoryMax=", may_break=CLIENTS):
        machine.run("curl", "-sm60", "-H", key, "-d", body, url, check=False)
        wait_for(operator.serves, "another worker")
    machine.run("systemctl", "set-property", "--runtime", UNIT, "MemoryMax=infinity")
    assert re.search("worker double.* was killed by SIGKILL", machine.journal(UNIT))
    assert operator.restarts == before


def rotate_credentials(operator: Operator) -> None:
    """Replace credentials that systemd loads: they are read at a start."""
    operator.key = "a-key-of-the-tests-for-systemd-2"
    operator.write_key()
    operator.machine.run("systemctl", "restart", UNIT)
    with operator.load("credentials rotated"):
        wait_for(operator.serves, "its start")


def restart(operator: Operator) -> None:
    """Restart the engine under load: accepted requests are answered, others wait in the socket."""
    with operator.load("restart"):
        operator.machine.run("systemctl", "restart", UNIT)
        wait_for(operator.serves, "its start")


def stop(operator: Operator) -> None:
    """Stop the engine, and check that nothing is left."""
    machine = operator.machine
    machine.run("systemctl", "stop", SOCKET, UNIT)
    assert machine.show(UNIT, "Result") == "success"
    assert machine.processes(UNIT) == {}
    assert machine.run("ls", "-A", "/dev/shm") == ""
    assert machine.run("pgrep", "-fc", "ringbatch: ", check=False) == "0"
    operator.log("stopped: no process and no name in /dev/shm is left")
