"""Ctrl-C before a command has begun: tests top/__main__.py."""

import signal
import subprocess
import sys

import pytest

from ringbatch.engine.command.cli import INTERRUPTED

PROGRAM = """
import os, signal, sys
name, handler, *sys.argv[1:] = sys.argv[1:]
class Interrupting:
    def find_spec(self, found, *_):
        if found == name:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
if handler == "ignored":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
from ringbatch.__main__ import main
sys.exit(main())
"""
"""Runs a command, and gets Ctrl-C at the import of the module that the first argument names."""
FIRST = "ringbatch.engine"
LAST = "ringbatch.engine.command.units"
OF_THE_COMMAND = "ringbatch.engine.doctor.examination"


def ended(interrupted_at: str, handler: str, *command: str) -> tuple[int, str]:
    """Return the exit status of a command, and what it has printed to standard error."""
    words = [sys.executable, "-P", "-c", PROGRAM, interrupted_at, handler, *command]
    completed = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    return completed.returncode, completed.stderr


@pytest.mark.parametrize("module", [FIRST, LAST])
def test_it_ends_the_process_without_a_traceback_of_an_import(module: str) -> None:
    assert ended(module, "python's", "--version") == (-signal.SIGINT, "")


def test_in_a_command_it_is_the_commands_end() -> None:
    assert ended(OF_THE_COMMAND, "python's", "doctor") == (INTERRUPTED, "")


@pytest.mark.parametrize("module", [FIRST, LAST])
def test_ignored_by_the_caller_it_stays_so(module: str) -> None:
    assert ended(module, "ignored", "--version") == (0, "")
