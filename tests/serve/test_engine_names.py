"""Engines that are meant by name: by the commands, and by programs on their host."""

import io
import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pytest
from dev_shm import takes
from serve.server import Server, Start, configured
from tiers import exhaustive

from ringbatch.engine.command.cli import main
from ringbatch.frontend import Client, EngineGone
from ringbatch.shm.errors import StartupError

pytestmark = takes(20)

GATED = """
import time
from pathlib import Path
Path({opened!r}).touch()
while not Path({gate!r}).exists():
    time.sleep(0.001)
def predict(instances):
    return instances
"""
X = np.ones((1, 16), np.float32)
MATMUL = {"path": "matmul.py"}
ONE, TWO = f"one-{os.getpid()}", f"two-{os.getpid()}"
"""Tests run beside each other, on one host."""


def command_output(*words: str) -> "subprocess.CompletedProcess[str]":
    """Run a command in this process, which is quicker, and return its output and status."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            status = main(words)
        except SystemExit as ended:
            status = int(ended.code or 0)
    return subprocess.CompletedProcess(words, status, out.getvalue(), err.getvalue())


def again(server: Server, *more: str) -> Server:
    """Start another engine with the configuration of one."""
    arguments = ("--config", str(server.config), *more)
    folder = server.config.parent / "again"
    folder.mkdir()
    return Server(folder, *arguments)


def ask_for_ever(client: Client) -> None:
    while True:
        client.infer("m", X)


@pytest.fixture(scope="module")
def pair(start_for_module: Start) -> tuple[Server, Server]:
    one = start_for_module({"a": MATMUL}, name=ONE)
    return one, start_for_module({"b": MATMUL}, name=TWO)


def test_status_and_models_are_those_of_the_engine_named(pair: tuple[Server, Server]) -> None:
    for server, name, model in zip(pair, (ONE, TWO), "ab", strict=True):
        heading = f"engine {name}, process {server.pid}, port {server.port}\n{model}: "
        for words in ([name], ["--engine", name], [str(server.pid)], ["--pid", str(server.pid)]):
            for command in ("status", "models"):
                assert command_output(command, *words).stdout.startswith(heading)
    for command in ("status", "models"):
        assert {
            f"engine {name}, process {server.pid}, port {server.port}"
            for name, server in zip((ONE, TWO), pair, strict=True)
        } <= {*command_output(command).stdout.splitlines()}


def test_a_reload_is_for_the_engine_named(pair: tuple[Server, Server]) -> None:
    for words in ([TWO], ["--engine", TWO], [str(pair[1].pid)]):
        assert command_output("reload", *words, "--model", "b").returncode == 0
        assert command_output("reload", *words).returncode == 0
    wrong = command_output("reload", ONE, "--model", "b")
    assert wrong.returncode == 1
    assert "b" in wrong.stderr


def test_a_reload_takes_a_word_that_is_no_engine_for_a_model(pair: tuple[Server, Server]) -> None:
    done = command_output("reload", "b", "--engine", TWO)
    assert done.returncode == 0
    assert done.stderr == "ringbatch: b: it is taken for a model; write --model b\n"
    several = command_output("reload", "b")
    assert several.returncode == 2
    assert "b: no engine is called that, so it is taken for a model;" in several.stderr
    assert "engines run, say which" in several.stderr
    twice = command_output("reload", "b", "--engine", TWO, "--model", "b")
    assert twice.returncode == 2
    assert "leave out b" in twice.stderr


def test_a_client_opens_the_engine_named(pair: tuple[Server, Server]) -> None:
    for engine, model in ((ONE, "a"), (TWO, "b"), (pair[1].pid, "b")):
        with Client(engine) as client:
            assert client.models == (model,)
            assert client.infer(model, X).shape == (1, 10)


def test_an_unknown_name_is_reported_with_the_running_ones(pair: tuple[Server, Server]) -> None:
    unknown = f"none-{os.getpid()}"
    there = [f"{ONE} (process {pair[0].pid})", f"{TWO} (process {pair[1].pid})"]
    for words in (["status", unknown], ["models", unknown], ["reload", unknown, "--model", "b"]):
        answer = command_output(*words)
        assert answer.returncode != 0
        assert f"no engine of ringbatch with the name {unknown} is running" in answer.stderr
        assert all(one in answer.stderr for one in there)
    with pytest.raises(StartupError, match=f"with the name {unknown} is running; there is: "):
        Client(unknown)


@exhaustive
def test_a_client_opened_by_name_goes_on_with_the_next_of_that_name(
    start: Start, pair: tuple[Server, Server]
) -> None:
    name = f"next-{os.getpid()}"
    first = start({"m": MATMUL}, name=name)
    with Client(name) as named, Client(first.pid) as pinned:
        expected = named.infer("m", X)
        os.kill(first.pid, signal.SIGKILL)
        first.process.wait()
        for client in (named, pinned):
            with pytest.raises(EngineGone):
                ask_for_ever(client)
        with pytest.raises(EngineGone, match=f"with the name {name} is running; there is: "):
            named.infer("m", X)
        second = again(first)
        try:
            second.wait_ready()
            assert (named.infer("m", X) == expected).all()
            with pytest.raises(EngineGone, match="the engine has stopped"):
                pinned.infer("m", X)
        finally:
            second.destroy()


def test_a_second_engine_with_a_name_is_refused_with_a_remedy(
    pair: tuple[Server, Server],
) -> None:
    second = again(pair[0], "--port", "0", "--engine-name", TWO)
    try:
        assert second.process.wait(60) == 2
    finally:
        second.destroy()
    assert (
        f"an engine with the name {TWO} runs already: it is process {pair[1].pid} and serves at "
        f"port {pair[1].port}; replace it with ringbatch handover, or give this one another name"
    ) in second.stderr
    assert command_output("models", TWO).stdout.startswith(
        f"engine {TWO}, process {pair[1].pid}, port {pair[1].port}\nb: "
    )


def test_of_engines_that_start_in_one_instant_with_one_name_one_runs(
    tmp_path: Path, wait_until: Callable[..., object]
) -> None:
    """Their models open once all have passed the first look at the name."""
    gate, name, count = tmp_path / "gate", f"race-{os.getpid()}", 3
    servers = []
    for number in range(count):
        folder = tmp_path / str(number)
        folder.mkdir()
        opened = folder / "opened"
        (folder / "gated.py").write_text(GATED.format(opened=str(opened), gate=str(gate)))
        words = configured(folder, {"m": {"path": "gated.py", "runtime": "python"}}, name=name)
        servers.append((Server(folder, *words), opened))
    try:
        wait_until(lambda: all(opened.exists() for _, opened in servers), "all are about to load")
        gate.touch()
        for server, _ in servers:
            wait_until(lambda s=server: s.process.poll() is not None or s.stdout, "a start or end")
        (winner,) = [server for server, _ in servers if server.process.poll() is None]
        refused = [server for server, _ in servers if server is not winner]
        assert command_output("models", name).stdout.startswith(
            f"engine {name}, process {winner.pid}, port "
        )
        for server in refused:
            assert server.process.returncode == 2
            assert f"runs already: it is process {winner.pid} and serves at port" in server.stderr
    finally:
        for server, _ in servers:
            server.destroy()


@exhaustive
def test_an_engine_is_called_as_its_configuration_file(start: Start, pair: object) -> None:
    server = start({"m": MATMUL})
    assert (
        f"engine ringbatch, process {server.pid}, port {server.port}\n"
        in command_output("status", str(server.pid)).stdout
    )
