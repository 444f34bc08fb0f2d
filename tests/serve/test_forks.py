"""Models that fork: the ends of their children, and the end of the server."""

import signal
from collections.abc import Callable
from typing import Any

import pytest
from serve.client import Connection, fast, instances
from serve.server import Server, Standing, Start
from tiers import exhaustive

WaitUntil = Callable[..., Any]


def ask(server: Server, *acts: str) -> Any:
    with Connection(server.port) as connection:
        return connection.ask(fast("forks", instances(*acts))).json["predictions"]


@pytest.fixture(scope="module")
def pools(start_for_module: Start) -> Server:
    return start_for_module({"pools": {"path": "pools.py"}})


@pytest.fixture(scope="module")
def standing(start_for_module: Start) -> Standing:
    return Standing(lambda: start_for_module({"forks": {"path": "forks.py"}}, drain_s=1))


@pytest.fixture
def server(standing: Standing) -> Server:
    return standing.get()


@exhaustive
def test_a_child_ends_at_sigterm(server: Server) -> None:
    assert ask(server, *["terminated"] * 20) == [-signal.SIGTERM] * 20


def test_a_child_that_comes_back_from_the_model_is_ended_and_answers_nobody(
    server: Server,
) -> None:
    for act, status in (("returned", 1), ("raised", 1), ("exited", 3), ("loaded", 3)):
        assert ask(server, act) == [status], act


@exhaustive
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_a_pool_runs_functions_of_the_model_file_and_of_those_beside_it(
    pools: Server, method: str
) -> None:
    with Connection(pools.port) as connection:
        answer = connection.ask(fast("pools", instances(method)))
    assert answer.json["predictions"] == [[14, 21]]


def test_a_server_whose_model_has_children_stops(server: Server, wait_until: WaitUntil) -> None:
    ask(server, "daemon", "pooled")
    server.watch()
    server.process.send_signal(signal.SIGTERM)
    wait_until(server.gone, "nothing is left of the server")
    assert server.process.wait() == 0
