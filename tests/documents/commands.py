"""Commands of pages, run as a reader runs them: the shell's, against engines of these tests."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from serve.server import COMMAND, SMALL, Server

from ringbatch.engine.config.settings import ServerConfig
from ringbatch.shm.shm_objects import remove_dead_engines

_ADDRESS: Final = f"127.0.0.1:{ServerConfig().port}"
_CONTROL: Final = "127.0.0.1:9090"
"""The control address of every page."""


@contextmanager
def serving(folder: Path, command: str, *more: str, port: str = "0") -> Iterator[Server]:
    """Run a page's `ringbatch serve` in a folder, on free ports, until the block ends.

    Args:
        folder: the working directory.
        command: the command of the page.
        more: further arguments.
        port: the argument of ``--port``.
    """
    program, name, *arguments = shlex.split(command)
    assert program == "ringbatch"
    if "--control-port" in arguments:
        arguments[arguments.index("--control-port") + 1] = "0"
    server = Server(folder, *arguments, *SMALL, "--port", port, *more, command=name)
    try:
        yield server.wait_ready()
    finally:
        server.kill()
        remove_dead_engines()


def printed(command: str, folder: Path, server: Server | None = None) -> str:
    """Run a page's shell command in a folder and return what it prints.

    `curl` and `ringbatch` find the server in place of the page's: ports are replaced, and commands
    that look at a running engine get its process id, because other tests have engines too.
    """
    if "curl" in command and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    ringbatch = shlex.join(COMMAND)
    functions = "curl() { command curl -sS --noproxy '*' \"$@\"; }\n"
    functions += f'python() {{ {shlex.quote(sys.executable)} "$@"; }}\n'
    if server is None:
        functions += f'ringbatch() {{ {ringbatch} "$@"; }}\n'
    else:
        functions += f'ringbatch() {{ {ringbatch} "$1" {server.pid} "${{@:2}}"; }}\n'
        command = command.replace(_ADDRESS, f"127.0.0.1:{server.port}")
        if _CONTROL in command:
            command = command.replace(_CONTROL, f"127.0.0.1:{server.control_port}")
    completed = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", functions + command],
        cwd=folder,
        env=os.environ | {"PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
    )
    assert completed.returncode == 0, f"{command}\n{completed.stdout}\n{completed.stderr}"
    return completed.stdout


def write(folder: Path, name: str, text: str) -> None:
    """Write a page's file."""
    (folder / name).write_text(text + "\n")
