"""Chains, served: over every protocol, while workers of their steps are killed, and while models
and chains come, change and go."""

import os
import random
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from dev_shm import takes
from serve.client import Connection, fast, instances, request
from serve.grpc_stub import grpc_port
from serve.server import COMMAND, Server, Start, toml
from tiers import exhaustive

from ringbatch.engine.process.respawn import MOST_DELAY_S
from ringbatch.frontend import Client

pytestmark = takes(20)

WaitUntil = Callable[..., Any]

TOKENIZE = """
import numpy as np
from ringbatch.engine import Tensor
inputs = [Tensor("text", "BYTES", [])]
outputs = [Tensor("ids", "INT64", [-1])]
def predict(text):
    rows = [[*t] for t in text.reshape(-1)]
    longest = max(map(len, rows))
    return np.array([row + [0] * (longest - len(row)) for row in rows])
"""
ENCODE = """
import numpy as np
from ringbatch.engine import Tensor
inputs = [Tensor("ids", "INT64", [-1])]
outputs = [Tensor("vector", "FP32", [2])]
def predict(ids):
    return np.stack([ids.sum(axis=1), (ids != 0).sum(axis=1)], axis=1).astype("f4")
"""
RANK = """
from ringbatch.engine import Tensor
inputs = [Tensor("vector", "FP32", [2]), Tensor("text", "BYTES", [])]
outputs = [Tensor("score", "FP32", []), Tensor("text", "BYTES", [])]
def predict(vector, text):
    return vector.sum(axis=1) * {factor}, [t[::-1] for t in text.reshape(-1)]
"""
SEARCH = {"steps": ["tokenize", "encode", "rank"]}
SERVER = {
    "port": 0,
    "frontends": 2,
    "grpc_port": 0,
    "max_request_bytes": 1 << 16,
    "spare_workers": 6,
    "model_control": True,
}
CLIENTS = 6


class Site:
    """A server of a chain and its models, which can be changed."""

    def __init__(self, start: Start, folder: Path) -> None:
        self.folder = folder
        for name, source in (("tokenize", TOKENIZE), ("encode", ENCODE)):
            (folder / f"{name}.py").write_text(source)
        self.rank()
        self.models: dict[str, dict[str, Any]] = {
            "tokenize": {"path": str(folder / "tokenize.py")},
            "encode": {"path": str(folder / "encode.py"), "workers": 2},
            "rank": {"path": str(folder / "rank.py")},
            "search": SEARCH,
        }
        self.server: Server = start(self.models, **SERVER)

    def rank(self, factor: int = 1) -> None:
        (self.folder / "rank.py").write_text(RANK.format(factor=factor))

    def command(self, *words: str) -> tuple[bool, str]:
        """A command to the engine: whether it was done, and what it said."""
        done = subprocess.run(
            [*COMMAND, *words, "--pid", str(self.server.pid)],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode == 0, done.stdout + done.stderr

    def repository(self, model: str, action: str) -> tuple[bool, str]:
        """An order over V2's repository: whether it was carried out, and the answer."""
        with Connection(self.server.port) as connection:
            answer = connection.ask(request(f"/v2/repository/models/{model}/{action}", b""))
        return answer.status == 200, answer.body.decode()

    def configure(self, **models: dict[str, Any] | None) -> None:
        self.models |= {name: keys for name, keys in models.items() if keys is not None}
        for name in [name for name, keys in models.items() if keys is None]:
            del self.models[name]
        self.server.config.write_text(toml(SERVER, self.models))

    def ask(self, text: str | list[int], model: str = "search") -> Any:
        with Connection(self.server.port) as connection:
            answer = connection.ask(fast(model, instances(text)))
            return answer.json["predictions"][0] if answer.status == 200 else answer.json


def wanted(text: str, factor: int = 1) -> dict[str, Any]:
    return {"score": factor * (sum(text.encode()) + float(len(text))), "text": text[::-1]}


@pytest.fixture
def site(start: Start, tmp_path: Path) -> Site:
    folder = tmp_path / "models"
    folder.mkdir()
    return Site(start, folder)


@pytest.fixture(scope="module")
def standing(start_for_module: Start, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Server for all tests that only send requests."""
    return Site(start_for_module, tmp_path_factory.mktemp("models"))


def test_a_chain_is_asked_as_any_model_over_every_protocol(standing: Site) -> None:
    assert standing.ask("abc") == wanted("abc")
    given = np.array(["one", "another", "x" * 9000], object)
    scores = [wanted(text)["score"] for text in given]
    for module, port in (
        (tritonclient.http, standing.server.port),
        (tritonclient.grpc, grpc_port(standing.server)),
    ):
        with module.InferenceServerClient(f"127.0.0.1:{port}") as client:
            metadata = client.get_model_metadata(
                "search", **({"as_json": True} if module is tritonclient.grpc else {})
            )
            assert [tensor["name"] for tensor in metadata["inputs"]] == ["text"]
            assert client.is_model_ready("search")
            tensor = module.InferInput("text", [3], "BYTES")
            tensor.set_data_from_numpy(given)
            result = client.infer("search", [tensor])
            assert result.as_numpy("score").tolist() == scores
            assert result.as_numpy("text").tolist() == [t[::-1].encode() for t in given]
    with Client(standing.server.pid) as own:
        found = own.infer("search", given)
        assert found["score"].tolist() == scores
        assert found["text"].tolist() == [t[::-1].encode() for t in given]


@exhaustive
def test_more_instances_than_a_step_takes_at_once_are_split_and_joined(standing: Site) -> None:
    rows = [f"row {number}" for number in range(100)]
    with Connection(standing.server.port) as connection:
        answer = connection.ask(fast("search", instances(*rows)))
    assert answer.json["predictions"] == [wanted(row) for row in rows]


def test_status_and_models_describe_a_chain(standing: Site) -> None:
    standing.ask("abc")
    done, output = standing.command("status")
    assert done
    assert re.search(r"search: a chain, ready\n  answered [1-9]\d*, errors 0\n", output), output
    done, output = standing.command("models")
    assert "search: chain, tokenize, then encode, then rank\n" in output


class Load:
    """Clients that ask without a pause, and look at every answer."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._going = True
        self._lock = threading.Lock()
        self.factors = {1}
        """Correct factors at present."""
        self.answered = 0
        self.wrong: list[str] = []
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _run(self, client: int) -> None:
        chance = random.Random(client)
        with Connection(self._site.server.port) as connection:
            while self._going:
                text = "abcdefgh"[: chance.randint(1, 8)] * chance.randint(1, 40)
                before = set(self.factors)
                answer = connection.ask(fast("search", instances(text)))
                right = answer.status == 200 and any(
                    answer.json["predictions"][0] == wanted(text, factor)
                    for factor in before | self.factors
                )
                with self._lock:
                    self.answered += right
                    if not right:
                        self.wrong.append(f"{text}: {answer.status} {answer.body!r}")

    def goes_on(self, wait_until: WaitUntil) -> None:
        """Wait until many more requests are answered, even if a step's only worker stays away."""
        enough = self.answered + 20 * CLIENTS
        wait_until(
            lambda: self.answered >= enough or self.wrong,
            "clients are answered",
            watchdog_s=MOST_DELAY_S + 30,
        )

    def stop(self) -> None:
        self._going = False
        for thread in self._threads:
            thread.join()


@pytest.fixture
def load(site: Site, wait_until: WaitUntil) -> Iterator[Load]:
    """Load under way, of which no answer may be wrong or missing at the end."""
    load = Load(site)
    try:
        load.goes_on(wait_until)
        yield load
        load.goes_on(wait_until)
    finally:
        load.stop()
    assert load.wrong == []


def found(server: Server, title: str) -> int | None:
    return server.titles().get(title)


@pytest.mark.parametrize("rounds", [1, pytest.param(10, marks=exhaustive)])
def test_no_request_is_lost_or_wrong_after_any_kill(
    site: Site, load: Load, wait_until: WaitUntil, rounds: int
) -> None:
    for _ in range(rounds):
        for role in ("worker tokenize/0", "worker encode/1", "worker rank/0", "collector"):
            title = f"ringbatch: {role}"
            os.kill(wait_until(partial(found, site.server, title), "it is there"), signal.SIGKILL)
            load.goes_on(wait_until)


@exhaustive
def test_a_step_that_is_loaded_again_serves_the_chain_from_then_on(
    site: Site, load: Load, wait_until: WaitUntil
) -> None:
    load.factors = {1, 2}
    site.rank(2)
    assert site.command("reload", "--model", "rank")[0]
    load.goes_on(wait_until)
    load.factors = {2}
    load.goes_on(wait_until)
    assert site.ask("abc") == wanted("abc", 2)


@exhaustive
def test_a_step_that_would_not_fit_is_refused_and_the_old_one_goes_on(
    site: Site, load: Load
) -> None:
    (site.folder / "rank.py").write_text(
        RANK.format(factor=3).replace('"vector", "FP32", [2]', '"vector", "FP32", [3]')
    )
    done, output = site.command("reload", "--model", "rank")
    assert not done
    assert (
        "rank would take or return other tensors than chain 'search', whose step 3 it is, was "
        "made with; unload search first, and load it again afterwards" in output
    )
    done, output = site.repository("encode", "unload")
    assert not done
    assert "encode is needed by chain 'search', whose step 2 it is; unload search first" in output


@exhaustive
def test_chains_come_change_and_go_with_a_reload(
    site: Site, load: Load, wait_until: WaitUntil
) -> None:
    short = {"steps": ["tokenize", "encode"]}
    site.configure(short=short)
    assert site.command("reload") == (True, "ringbatch: short: loaded\n")
    assert site.ask("ab", "short") == [195.0, 2.0]
    site.configure(short=short | {"timeout_s": 7}, search=SEARCH | {"timeout_s": 7})
    done, output = site.command("reload")
    assert done
    assert {*output.splitlines()} == {"ringbatch: short: loaded", "ringbatch: search: loaded"}
    load.goes_on(wait_until)
    assert site.repository("short", "unload")[0]
    assert "error" in site.ask("ab", "short")
    assert site.repository("short", "load")[0]
    assert site.ask("ab", "short") == [195.0, 2.0]
    site.configure(short={"steps": ["tokenize", "rank"]})
    done, output = site.command("reload", "--model", "short")
    assert not done
    assert "short: step 2 (rank): nothing gives its input 'vector'" in output
    assert site.ask("ab", "short") == [195.0, 2.0]
    site.configure(short={"path": str(site.folder / "encode.py")})
    assert site.command("reload", "--model", "short") == (
        True,
        "ringbatch: short: version 1 loaded\n",
    )
    assert site.ask([97, 98], "short") == [195.0, 2.0]
    site.configure(short=short)
    assert site.command("reload") == (True, "ringbatch: short: loaded\n")
    assert site.ask("ab", "short") == [195.0, 2.0]
    site.configure(short=None)
    assert site.command("reload") == (True, "ringbatch: short: unloaded\n")


@exhaustive
def test_an_engine_whose_chain_does_not_fit_does_not_start(start: Start, tmp_path: Path) -> None:
    for name, source in (("tokenize", TOKENIZE), ("rank", RANK.format(factor=1))):
        (tmp_path / f"{name}.py").write_text(source)
    config = tmp_path / "ringbatch.toml"
    models: dict[str, dict[str, Any]] = {
        name: {"path": str(tmp_path / f"{name}.py")} for name in ("tokenize", "rank")
    }
    config.write_text(toml({"port": 0}, models | {"search": {"steps": ["tokenize", "rank"]}}))
    done = subprocess.run(
        [*COMMAND, "serve", "--config", str(config)], capture_output=True, text=True, check=False
    )
    assert done.returncode
    assert "[models.search] step 2 (rank): nothing gives its input 'vector'" in done.stderr
