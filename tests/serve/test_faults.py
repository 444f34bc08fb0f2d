"""A fault of ringbatch's own, wherever the supervisor may have one: it serves, or it is gone."""

import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import pytest
from serve.client import Closed, Connection, fast, instances
from serve.server import COMMAND, Server, configured
from tiers import only

from ringbatch.shm.shm_objects import remove_dead_engines

WaitUntil = Callable[..., Any]

FAULTY: Final = Path(__file__).with_name("faulty.py")
ECHO: dict[str, dict[str, Any]] = {"echo": {"path": "moody.py"}}
LIMIT_S: Final = 30
"""Time limit for an engine with a fault to serve again or to end."""
FAULTS: Final = (
    # Where the fault is, at which calls, and the exit status: 0 where it is given up alone, 2 where
    # that is a process without which the engine cannot start.
    # At the start.
    ("supervisor.first_workers", "FirstWorkers.make_segment", "1", 1),
    ("supervisor.supervisor", "Supervisor._on_signature", "1", 2),
    ("supervisor.supervisor", "Supervisor.on_message", "2+", 2),
    ("supervisor.cpu_sets", "CpuSets.cpus_of", "1+", 1),
    ("supervisor.frontends", "Frontends.all_serve", "1", 1),
    ("supervisor.process_manager", "ProcessManager.mark_ready", "1", 2),
    ("supervisor.process_manager", "ProcessManager.turn", "3", 1),
    # At a death.
    ("supervisor.supervisor", "Supervisor.on_ended", "1", 1),
    ("supervisor.child_process", "ending", "1+", 1),
    ("supervisor.child_process", "Child.unread_messages", "1+", 1),
    ("supervisor.child_process", "Child.reap", "1", 1),
    ("supervisor.process_manager", "ProcessManager.plan_restart", "1", 0),
    ("supervisor.process_manager", "ProcessManager.spawn", "4", 1),
    ("process.respawn", "again", "1+", 1),
    # At an order.
    ("supervisor.control", "ControlServer._accept", "1", 0),
    ("supervisor.control", "ControlServer._receive", "1", 0),
    ("supervisor.control", "ControlServer._answer", "1", 0),
    ("supervisor.model_changes", "ModelChanges.advance", "1", 0),
    ("supervisor.model_changes", "ModelChanges._plan", "1", 0),
    ("supervisor.change_runner", "ChangeRunner._start_workers", "1", 0),
    ("supervisor.change_runner", "ChangeRunner._switch", "1", 0),
    ("supervisor.cpu_sets", "CpuSets.reread", "1+", 0),
    # At the stop.
    ("supervisor.model_changes", "ModelChanges.abandon", "1", 1),
    ("supervisor.control", "ControlServer.close", "1", 1),
    ("supervisor.frontends", "Frontends.refuse_new_connections", "1", 1),
    ("supervisor.process_manager", "ProcessManager.stop", "1", 1),
    ("supervisor.process_manager", "ProcessManager.end", "1", 1),
    ("supervisor.process_manager", "ProcessManager.end", "1+", 1),
    ("supervisor.supervisor", "Supervisor._drain", "1", 1),
    ("supervisor.supervisor", "Supervisor._unlink", "1", 1),
)

IN_EVERY_RUN: Final = (
    # One at the start, one at the stop.
    "FirstWorkers.make_segment-1",
    "ProcessManager.end-1",
)


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(*fault: str) -> Server:
        module, method, call = fault
        program = (sys.executable, str(FAULTY), f"ringbatch.engine.{module}", method, call)
        arguments = configured(tmp_path, ECHO, drain_s=1.0)
        servers.append(Server(tmp_path, *arguments, program=program))
        return servers[-1]

    yield start
    for server in servers:
        server.destroy()
    remove_dead_engines()


def serves(server: Server) -> bool:
    try:
        with Connection(server.port) as connection:
            return connection.ask(fast("echo", instances(1))).status == 200
    except (OSError, Closed):
        return False


def ended(server: Server) -> bool:
    return server.process.poll() is not None


def test_every_fault_is_of_a_function_that_there_is() -> None:
    for module, method, _, _ in FAULTS:
        assert attrgetter(method)(importlib.import_module(f"ringbatch.engine.{module}"))


@pytest.mark.parametrize(
    ("module", "method", "call", "status"),
    only({f"{f[1]}-{f[2]}": f for f in FAULTS}, *IN_EVERY_RUN),
)
def test_with_a_fault_it_serves_or_is_gone(
    begin: Callable[..., Server],
    wait_until: WaitUntil,
    module: str,
    method: str,
    call: str,
    status: int,
) -> None:
    server = begin(module, method, call)
    wait_until(lambda: ended(server) or "ringbatch: serving" in server.stdout, "a start", 60)
    if not ended(server):
        server.wait_ready()
        os.kill(server.role("worker echo/0"), signal.SIGKILL)
        order = [*COMMAND, "reload", "--model", "echo", "--pid", str(server.pid)]
        subprocess.run(order, capture_output=True, check=False, timeout=LIMIT_S)
        wait_until(lambda: ended(server) or serves(server), "it serves or is gone", LIMIT_S)
    server.watch()
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(LIMIT_S) == status
    wait_until(lambda: not server.living(), "no process is left")
    assert f"Fault: {method}" in server.stderr
    if "_unlink" not in method:
        wait_until(lambda: not server.names(), "no name is left")
