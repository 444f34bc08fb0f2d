"""Models that actors of a Ray cluster hold: found again, ended, and served whatever dies.

The cluster is of processes on this host.

Tests engine/runtimes/ray/listing.py.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serve.client import Connection, predict_target, request
from serve.server import COMMAND, Server

pytest.importorskip("ray", reason="ray is not installed")

import ray
from cluster import kills, nodes
from cluster.nodes import Nodes, about, actor_names

from ringbatch.engine.runtimes.opening import open_model
from ringbatch.engine.runtimes.ray.actor import ActorModel, Holder, HolderActor
from ringbatch.engine.runtimes.ray.terms import actor_name

MODEL = kills.MODEL.read_text()
ONES = json.dumps({"instances": [[1] * 16]})


@pytest.fixture(scope="module")
def cluster() -> Iterator[Nodes]:
    shared = Path("/dev/shm")
    before = {*shared.glob("plasma*")}
    with nodes.nodes(3) as found:
        yield found
    assert not {*shared.glob("plasma*")} - before


@pytest.fixture(autouse=True)
def no_actor_is_left(cluster: Nodes, wait_until: Callable[..., object]) -> Iterator[None]:
    yield
    for name in actor_names():
        ray.kill(ray.get_actor(name))
    wait_until(lambda: not actor_names(), "no actors")


class Folder:
    """Folder of a test: its configuration, its model, and the model's record of its loads."""

    def __init__(self, folder: Path, cluster: Nodes) -> None:
        self.config = folder / "ringbatch.toml"
        self.model = folder / "model.py"
        self._folder = folder
        self._loads = folder / "loads"
        self._address = cluster.address
        self._started: list[Server] = []
        self.write_model()
        self.configure()

    def write_model(self, more: str = "") -> None:
        """Write the model file, with more code at its end.

        The path of the loads is written into it, as the actors lack the engine's environment.
        """
        loads = f"LOADS = Path({str(self._loads)!r})"
        self.model.write_text(
            MODEL.replace('LOADS = Path(os.environ.get("RINGBATCH_TEST_LOADS", os.devnull))', loads)
            + more
        )

    def configure(self, workers: object = 2, here: int = 0, **more: object) -> None:
        """Write the configuration file; the arguments are those of `kills.configuration`."""
        text = kills.configuration(self._address, workers, here, **more)
        self.config.write_text(text.replace(str(kills.MODEL), "model.py"))

    def start(self) -> Server:
        """Start an engine that is to serve."""
        server = Server(self._folder, "--config", str(self.config))
        self._started.append(server)
        return server

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """A command of ringbatch's, to its end."""
        return subprocess.run(
            [*COMMAND, *words], capture_output=True, text=True, timeout=120, cwd=self._folder
        )

    @property
    def loads(self) -> int:
        """Number of loads of the model so far."""
        return len(self._loads.read_text().splitlines()) if self._loads.exists() else 0

    def end(self) -> None:
        """End all engines of the test."""
        for server in self._started:
            server.destroy()


@pytest.fixture
def folder(tmp_path: Path, cluster: Nodes) -> Iterator[Folder]:
    found = Folder(tmp_path, cluster)
    yield found
    found.end()


def ask(server: Server, body: str = ONES) -> tuple[int, Any]:
    with Connection(server.port) as connection:
        answer = connection.ask(request(predict_target("m"), body.encode()))
    return answer.status, answer.json


def readiness(server: Server) -> str:
    """Return the server's answer about the model's readiness."""
    with Connection(server.port) as connection:
        answer = connection.ask(request("/v2/models/m/ready", method="GET"))
    return json.dumps(answer.json)


def stop(server: Server) -> None:
    server.process.terminate()
    assert server.process.wait(60) == 0


def digests() -> set[str]:
    return {name.digest for text in actor_names() if (name := actor_name(text)) is not None}


def test_a_restart_finds_its_actors_with_their_models_loaded(folder: Folder) -> None:
    first = folder.start().wait_ready()
    status, answer = ask(first)
    assert (status, answer["predictions"]) == (200, [[16.0, 1.0]])
    before = actor_names()
    assert (len(before), folder.loads) == (2, 2)
    processes = [about(name)["pid"] for name in before]
    stop(first)
    second = folder.start().wait_ready()
    assert ask(second)[0] == 200
    assert actor_names() == before
    assert [about(name)["pid"] for name in before] == processes
    assert folder.loads == 2


def test_an_engine_that_was_killed_finds_them_too(folder: Folder) -> None:
    first = folder.start().wait_ready()
    first.process.kill()
    first.process.wait()
    second = folder.start().wait_ready()
    assert ask(second)[0] == 200
    assert folder.loads == 2


def test_actors_that_are_not_kept_end_with_the_engine(
    folder: Folder, wait_until: Callable[..., object]
) -> None:
    folder.configure(ray_keep_s=0)
    stop(folder.start().wait_ready())
    wait_until(lambda: not actor_names(), "the actors to end")


def test_replaced_and_removed_actors_end_with_a_reload(
    folder: Folder, wait_until: Callable[..., object]
) -> None:
    server = folder.start().wait_ready()
    before = digests()
    folder.write_model("# another one\n")
    assert folder.run("reload", "--pid", str(server.pid)).returncode == 0
    wait_until(lambda: len(actor_names()) == 2, "the actors of the old model to end")
    assert not digests() & before
    assert ask(server)[0] == 200

    kept = actor_names()
    again = folder.run("reload", "m", "--pid", str(server.pid))
    assert again.returncode == 0, again.stderr
    assert ask(server)[0] == 200
    assert (actor_names(), folder.loads) == (kept, 4)

    folder.configure(workers=1)
    assert folder.run("reload", "--pid", str(server.pid)).returncode == 0
    wait_until(lambda: len(actor_names()) == 1, "the second worker's actor to end")
    assert ask(server)[0] == 200

    other = folder.config.read_text().partition("[models")[0]
    folder.config.write_text(f"{other}[models.other]\npath = 'model.py'\n")
    assert folder.run("reload", "--pid", str(server.pid)).returncode == 0
    wait_until(lambda: not actor_names(), "the last actor to end")


def test_the_command_lists_actors_and_ends_them(folder: Folder, cluster: Nodes) -> None:
    stop(folder.start().wait_ready())
    listed = folder.run("actors", "--config", str(folder.config))
    assert listed.returncode == 0, listed.stderr
    assert [line.partition(":1/")[0] for line in listed.stdout.splitlines()] == ["m", "m"]
    assert "loaded, on " in listed.stdout
    assert "no actors" in folder.run("actors", "other", "--address", cluster.address).stdout
    ended = folder.run("actors", "ringbatch", "--address", cluster.address, "--end")
    assert ended.stdout.count("; ended") == 2
    assert actor_names() == []


def test_checking_a_model_leaves_no_actor(
    folder: Folder, wait_until: Callable[..., object]
) -> None:
    checked = folder.run("check", "--config", str(folder.config), "--load")
    assert checked.returncode == 0, checked.stderr
    assert "# m: opened in " in checked.stdout
    wait_until(lambda: not actor_names(), "the actor to end")


def refused(folder: Folder) -> str:
    """Return the error of an engine that does not start."""
    server = folder.start()
    assert server.process.wait(100) == 2
    return server.stderr


def test_where_there_is_no_cluster_the_start_says_so(folder: Folder, free_port: int) -> None:
    folder.configure(ray_address=f"127.0.0.1:{free_port}")
    words = refused(folder)
    assert f"no Ray cluster at ray_address = 127.0.0.1:{free_port}: Connection refused" in words


def test_a_resource_that_no_node_has_is_logged_and_awaited(
    folder: Folder, cluster: Nodes, wait_until: Callable[..., object]
) -> None:
    folder.configure(workers=1, ray_resources=["rare=1"], load_timeout_s=60)
    server = folder.start()
    words = "no node of 4 has CPU 1, rare 1; the most that one has: CPU 2, rare 0"
    wait_until(lambda: words in server.stderr, "the log to say what is missing")
    cluster.add(resources={"rare": 1})
    assert ask(server.wait_ready())[0] == 200
    cluster.remove(cluster.nodes[-1])
    reason = "the cluster has no place for its actor yet; the log says what is missing"
    wait_until(lambda: reason in readiness(server), "readiness to say so too", 60)
    wait_until(lambda: server.stderr.count(words) == 2, "the log to say so again", 60)
    cluster.add(resources={"rare": 1})
    wait_until(lambda: ask(server)[0] == 200, "answers from the new node", 60)
    assert reason not in readiness(server)
    cluster.remove(cluster.nodes[-1])


def test_the_start_gives_up_on_a_resource_that_never_comes(folder: Folder) -> None:
    folder.configure(workers=1, ray_cpus=99, load_timeout_s=20)
    words = refused(folder)
    assert "no node of 4 has CPU 99; the most that one has: CPU 2" in words
    assert "load_timeout_s = 20" in words


def test_a_model_that_cannot_be_opened_is_refused_with_its_line(folder: Folder) -> None:
    folder.write_model("raise OSError('no weights')\n")
    words = refused(folder)
    assert f"{folder.model}: line " in words
    assert "OSError: no weights" in words


def test_a_model_that_fails_at_warm_up_is_refused_and_leaves_no_actor(
    folder: Folder, wait_until: Callable[..., object]
) -> None:
    folder.write_model("\n\ndef predict(x):\n    raise KeyError('w')\n")
    assert "warm-up of m with x FP32 [1, 16]: KeyError: 'w'" in refused(folder)
    wait_until(lambda: not actor_names(), "the actors to end")


def test_an_actor_of_the_same_name_that_is_none_of_ours_is_refused(folder: Folder) -> None:
    stop(folder.start().wait_ready())
    names = actor_names()
    assert folder.run("actors", "--config", str(folder.config), "--end").returncode == 0

    class Foreign:
        """Actor of another program."""

        def hello(self, *_: object) -> dict[str, object]:
            return about_it

    about_it = {"ringbatch": about_own()["ringbatch"], "digest": "another"}
    foreign: Any = ray.remote(Foreign)
    held = [foreign.options(name=name, lifetime="detached", num_cpus=0).remote() for name in names]
    assert "holds another model; end it with ringbatch actors --end" in refused(folder)
    for actor in held:
        ray.kill(actor)


def about_own() -> dict[str, Any]:
    """Return the description that an actor of this ringbatch gives of itself."""
    return Holder("digest").about()


def test_a_model_that_writes_into_a_large_batch_is_served(folder: Folder) -> None:
    folder.configure(max_batch_size=4096, warm_up="off")
    folder.write_model("\n\ndef predict(x):\n    x *= 2\n    return x[:, :2]\n")
    server = folder.start().wait_ready()
    rows = np.arange(4096 * 16).reshape(4096, 16)
    status, answer = ask(server, json.dumps({"instances": rows.tolist()}))
    assert status == 200, answer
    assert answer["predictions"] == (2 * rows[:, :2]).tolist()


def test_a_bad_request_fails_alone_and_one_that_hangs_is_refused(folder: Folder) -> None:
    folder.configure(batch_timeout_s=1, ray_keep_s=0)
    folder.write_model(
        "\n\ndef predict(x):\n"
        "    if x.min() == -1:\n        raise RuntimeError('minus one')\n"
        "    if x.min() == -2:\n        __import__('time').sleep(100)\n"
        "    return x[:, :2]\n"
    )
    server = folder.start().wait_ready()
    assert ask(server, ONES.replace("[1,", "[-1,"))[0] == 500
    assert "RuntimeError: minus one" in server.stderr
    status, answer = ask(server, ONES.replace("[1,", "[-2,"))
    assert status == 503, answer
    assert "a batch ran longer than batch_timeout_s = 1" in server.stderr
    assert ask(server)[0] == 200


def test_an_actor_that_nobody_comes_for_ends(wait_until: Callable[..., object]) -> None:
    actor: Any = (
        ray.remote(HolderActor).options(name="lonely", lifetime="detached").remote("digest")
    )
    ray.get(actor.hello.remote("worker", "host", 1.0))
    assert actor_names() == ["lonely"]
    wait_until(lambda: not actor_names(), "it to end")


def test_an_actor_without_its_worker_ends_a_hanging_call(
    tmp_path: Path, wait_until: Callable[..., object]
) -> None:
    source = "import time\ndef predict(instances):\n    time.sleep(100)\n"
    order = ActorModel(
        str(tmp_path / "model.py"),
        "python",
        {"max_batch_size": 1, "threads": 1},
        limit_s=60.0,
        open_model=open_model,
    )
    actor: Any = (
        ray.remote(HolderActor)
        .options(name="hanging", lifetime="detached", max_restarts=-1)
        .remote("digest")
    )
    ray.get(actor.open.remote(order, np.frombuffer(source.encode(), np.uint8)))
    ray.get(actor.load.remote(order))
    before = about("hanging")["pid"]
    hanging = actor.predict.remote(0.5, [1])
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(hanging, timeout=30)

    def is_new() -> bool:
        try:
            found = about("hanging")
        except ray.exceptions.RayActorError:
            return False
        return found["pid"] != before and not found["loaded"]

    wait_until(is_new, "Ray to start it again")


def test_kills_of_actors_and_nodes_cost_no_request(cluster: Nodes, tmp_path: Path) -> None:
    ledger = kills.run(cluster, 4, 1, 3, tmp_path)
    assert ledger.right
    assert (ledger.failed, ledger.wrong) == ([], [])


def test_kills_of_actors_beside_workers_here_cost_no_request(
    cluster: Nodes, tmp_path: Path
) -> None:
    ledger = kills.run(cluster, 4, 1, 2, tmp_path, here=1)
    assert ledger.right
    assert (ledger.failed, ledger.wrong) == ([], [])


SLOW = "\n\ndef predict(x):\n    __import__('time').sleep(0.1)\n    return x[:, :2]\n"
FOLLOWS = {"max_batch_size": 1, "target_wait_ms": 150, "scale_up_after_s": 0.5}


@pytest.mark.parametrize(
    ("workers", "here", "fewest", "most", "actors"),
    [
        pytest.param([0, 2], 1, 1, 3, 2, id="actors beside a worker here"),
        pytest.param([1, 3], 0, 1, 3, 3, id="actors alone"),
    ],
)
def test_actors_come_and_go_with_the_load(
    folder: Folder,
    wait_until: Callable[..., object],
    workers: list[int],
    here: int,
    fewest: int,
    most: int,
    actors: int,
) -> None:
    folder.write_model(SLOW)
    folder.configure(workers, here, scale_down_after_s=2, **FOLLOWS)
    server = folder.start().wait_ready()
    assert (kills.ready_workers(server.control_port), len(actor_names())) == (
        fewest,
        fewest - here,
    )
    answers: list[int] = []
    stop_asking = threading.Event()

    def ask_on() -> None:
        while not stop_asking.is_set():
            answers.append(ask(server)[0])

    clients = [threading.Thread(target=ask_on) for _ in range(6)]
    for client in clients:
        client.start()
    try:
        wait_until(lambda: kills.ready_workers(server.control_port) == most, "the most", 60)
        assert len(actor_names()) == actors
        output = folder.run("status").stdout
        assert output.count("drives an actor in a Ray cluster") == actors
    finally:
        stop_asking.set()
        for client in clients:
            client.join()
    wait_until(lambda: kills.ready_workers(server.control_port) == fewest, "the fewest", 60)
    wait_until(lambda: len(actor_names()) == fewest - here, "the other actors to end", 60)
    assert set(answers) == {200}


def test_without_a_cluster_those_here_serve_on(
    folder: Folder, wait_until: Callable[..., object], free_port: int
) -> None:
    folder.write_model(SLOW)
    folder.configure([0, 2], 1, ray_address=f"127.0.0.1:{free_port}", **FOLLOWS)
    server = folder.start().wait_ready()
    stop_asking = threading.Event()
    answers: list[int] = []

    def ask_on() -> None:
        while not stop_asking.is_set():
            answers.append(ask(server)[0])

    clients = [threading.Thread(target=ask_on) for _ in range(4)]
    for client in clients:
        client.start()
    words = f"no Ray cluster at ray_address = 127.0.0.1:{free_port}"
    try:
        wait_until(lambda: words in server.stderr, "the log to say why there are no more", 60)
        enough = len(answers) + 20
        wait_until(lambda: len(answers) >= enough, "further answers")
    finally:
        stop_asking.set()
        for client in clients:
            client.join()
    assert set(answers) == {200}


def test_without_ray_a_model_is_refused_in_words(folder: Folder) -> None:
    hidden = "import sys; sys.modules['ray'] = None; sys.argv[0] = 'ringbatch'\n"
    code = f"{hidden}from ringbatch.engine.runtimes.ray.listing import actors\n"
    code += "actors('auto', 'ringbatch', None, end=False)"
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (
        "needs the module ray, which is not installed; pip install 'ringbatch[ray]'"
        in completed.stderr
    )
