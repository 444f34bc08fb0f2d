"""`ringbatch top` in a real terminal, tmux's, and where there is none."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from serve.client import Connection, fast, instances
from serve.server import COMMAND, Server, Start
from tiers import exhaustive, first_of

WaitUntil = Callable[..., object]
NAME = f"top-{os.getpid()}"
needs_tmux = pytest.mark.skipif(
    shutil.which("tmux") is None, reason="tmux is not installed (Debian: tmux)"
)


@pytest.fixture(scope="module")
def server(start_for_module: Start) -> Server:
    return start_for_module(
        {"echo": {"path": "moody.py"}, "matmul": {"path": "matmul.py", "workers": 2}}, name=NAME
    )


class Terminal:
    """Terminal of tmux in which a command runs.

    Args:
        socket: of its tmux.
        columns, lines: its size.
        command: command that runs in it.
    """

    def __init__(self, socket: Path, columns: int, lines: int, command: str) -> None:
        self._tmux = ("tmux", "-f", "/dev/null", "-S", str(socket))
        size = ("-x", str(columns), "-y", str(lines))
        self.do("new-session", "-d", *size, command)

    def do(self, *arguments: str, check: bool = True) -> str:
        done = subprocess.run(
            [*self._tmux, *arguments], capture_output=True, text=True, check=check
        )
        return done.stdout

    @property
    def shown(self) -> str:
        """Text on the screen."""
        return self.do("capture-pane", "-p")

    @property
    def runs(self) -> bool:
        """True if the command has not ended."""
        return bool(self.do("list-sessions", check=False))


@pytest.fixture
def terminal(short_folder: Path) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def opener(columns: int, lines: int, command: str) -> Terminal:
        opened.append(Terminal(short_folder / f"t{len(opened)}", columns, lines, command))
        return opened[-1]

    yield opener
    for each in opened:
        each.do("kill-server", check=False)


def ask(server: Server, value: str) -> int:
    with Connection(server.port) as connection:
        return connection.ask(fast("echo", instances(value))).status


TOP = " ".join((*COMMAND, "top", NAME, "--interval", "0.2"))


@needs_tmux
@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (200, 50)])
def test_a_person_sees_an_engine_work_until_q_is_typed(
    server: Server,
    terminal: Callable[..., Terminal],
    wait_until: WaitUntil,
    columns: int,
    lines: int,
) -> None:
    seen = terminal(columns, lines, TOP)
    wait_until(lambda: f"ringbatch: {NAME}, process {server.pid}" in seen.shown, "it is shown")
    assert "MODEL" in seen.shown
    assert f"ready, process {server.role('worker matmul/1')}" in seen.shown

    def busy() -> bool:
        assert (ask(server, "x"), ask(server, "raise")) == (200, 500)
        return "echo: closed idle 100%; ended 200: " in seen.shown and ", 500: " in seen.shown

    wait_until(busy, "requests are seen")
    wait_until(lambda: "0 requests/s" in seen.shown, "the figures are of the last interval")
    assert all(len(line) <= columns for line in seen.shown.splitlines())
    seen.do("send-keys", "q")
    wait_until(lambda: not seen.runs, "it has ended")


@needs_tmux
def test_it_follows_the_size_of_its_window_and_leaves_the_screen_as_it_was(
    server: Server, terminal: Callable[..., Terminal], wait_until: WaitUntil
) -> None:
    seen = terminal(80, 24, "/bin/sh")
    seen.do("send-keys", "echo $((6*7)) before", "Enter")
    wait_until(lambda: "42 before" in seen.shown, "the shell is there")
    seen.do("send-keys", TOP, "Enter")
    wait_until(lambda: "workers died 0" in seen.shown, "all of it fits")
    assert "42 before" not in seen.shown
    seen.do("resize-window", "-x", "80", "-y", "6")
    wait_until(lambda: "more lines; a higher window" in seen.shown, "it is cut to fit")
    assert "workers died" not in seen.shown
    seen.do("resize-window", "-x", "80", "-y", "24")
    wait_until(lambda: "workers died 0" in seen.shown, "all of it fits again")
    seen.do("send-keys", "C-c")
    wait_until(lambda: "42 before" in seen.shown, "the screen is the one before")
    seen.do("send-keys", "echo $((6*7)) after", "Enter")
    wait_until(lambda: "42 after" in seen.shown, "keys are seen as they are typed")


@exhaustive
@needs_tmux
def test_it_says_that_the_engine_has_gone_and_shows_the_next_of_that_name(
    start: Start, terminal: Callable[..., Terminal], wait_until: WaitUntil
) -> None:
    name = f"topper-{os.getpid()}"
    first = start({"echo": {"path": "moody.py"}}, name=name)
    seen = terminal(80, 24, " ".join((*COMMAND, "top", name, "--interval", "0.2")))
    wait_until(lambda: f"process {first.pid}, ready" in seen.shown, "it is shown")
    os.kill(first.role("worker echo/0"), signal.SIGKILL)
    wait_until(lambda: "workers died 1" in seen.shown, "a death is seen")
    assert first.stop() == 0
    wait_until(lambda: f"no engine of ringbatch with the name {name}" in seen.shown, "it ends")
    second = start({"echo": {"path": "moody.py"}}, name=name)
    wait_until(lambda: f"process {second.pid}, ready" in seen.shown, "the next one is shown")


def test_without_a_terminal_and_with_once_the_first_interval_is_printed(server: Server) -> None:
    for more in ((), ("--once",)):
        done = subprocess.run(
            [*COMMAND, "top", str(server.pid), "--interval", "0.1", *more],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(f"ringbatch: {NAME}, process {server.pid}, ready for ")
        assert "\x1b" not in done.stdout
        assert done.stdout.count("ready, process ") == 3


@pytest.mark.parametrize("engine", first_of(["no-such-engine", "4194305"], 1))
def test_an_engine_that_does_not_run_is_reported(engine: str) -> None:
    done = subprocess.run(
        [*COMMAND, "top", engine], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 2
    assert done.stderr.startswith("ringbatch: no engine of ringbatch")
