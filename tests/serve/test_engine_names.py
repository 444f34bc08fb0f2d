"""Engines that are meant by name: by the commands, and by programs on their host."""

import os
import signal
import subprocess

import numpy as np
import pytest
from serve.server import COMMAND, Server, Start
from tiers import exhaustive

from ringbatch.frontend import Client, EngineGone
from ringbatch.shm.errors import StartupError

X = np.ones((1, 16), np.float32)
MATMUL = {"path": "matmul.py"}
ONE, TWO = f"one-{os.getpid()}", f"two-{os.getpid()}"
"""Tests run beside each other, on one host."""


def told(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*COMMAND, *words], capture_output=True, text=True)


def again(server: Server, *more: str) -> Server:
    """Another engine with the configuration of one."""
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
        heading = f"engine {name}, process {server.pid}\n{model}: "
        for words in ([name], ["--engine", name], [str(server.pid)], ["--pid", str(server.pid)]):
            for command in ("status", "models"):
                assert told(command, *words).stdout.startswith(heading)
    for command in ("status", "models"):
        assert {f"engine {ONE}, process {pair[0].pid}", f"engine {TWO}, process {pair[1].pid}"} <= {
            *told(command).stdout.splitlines()
        }


def test_a_reload_is_for_the_engine_named(pair: tuple[Server, Server]) -> None:
    for words in ([TWO], ["--engine", TWO], [str(pair[1].pid)]):
        assert told("reload", *words, "--model", "b").returncode == 0
        assert told("reload", *words).returncode == 0
    wrong = told("reload", ONE, "--model", "b")
    assert wrong.returncode == 1
    assert "b" in wrong.stderr


def test_a_reload_takes_a_word_that_is_no_engine_for_a_model(pair: tuple[Server, Server]) -> None:
    done = told("reload", "b", "--engine", TWO)
    assert done.returncode == 0
    assert done.stderr == "ringbatch: b: it is taken for a model; write --model b\n"
    several = told("reload", "b")
    assert several.returncode == 2
    assert "b: no engine is called that, so it is taken for a model;" in several.stderr
    assert "engines run, say which" in several.stderr
    twice = told("reload", "b", "--engine", TWO, "--model", "b")
    assert twice.returncode == 2
    assert "leave out b" in twice.stderr


def test_a_client_opens_the_engine_named(pair: tuple[Server, Server]) -> None:
    for engine, model in ((ONE, "a"), (TWO, "b"), (pair[1].pid, "b")):
        with Client(engine) as client:
            assert client.models == (model,)
            assert client.infer(model, X).shape == (1, 10)


def test_an_unknown_name_is_told_with_those_that_run(pair: tuple[Server, Server]) -> None:
    unknown = f"none-{os.getpid()}"
    there = [f"{ONE} (process {pair[0].pid})", f"{TWO} (process {pair[1].pid})"]
    for words in (["status", unknown], ["models", unknown], ["reload", unknown, "--model", "b"]):
        answer = told(*words)
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


@exhaustive
def test_who_starts_an_engine_with_a_name_that_is_taken_is_told(
    pair: tuple[Server, Server],
) -> None:
    second = again(pair[0], "--port", "0", "--engine-name", TWO)
    try:
        second.wait_ready()
        assert f"the name {TWO} is that of process {pair[1].pid} too" in second.stderr
        assert told("models", TWO).stdout.startswith(f"engine {TWO}, process {second.pid}\na: ")
    finally:
        second.destroy()
    assert told("models", TWO).stdout.startswith(f"engine {TWO}, process {pair[1].pid}\nb: ")


@exhaustive
def test_an_engine_is_called_as_its_configuration_file(start: Start, pair: object) -> None:
    server = start({"m": MATMUL})
    assert f"engine ringbatch, process {server.pid}\n" in told("status", str(server.pid)).stdout
