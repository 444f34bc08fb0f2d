"""Models that come, go and change under load: no request fails, and none gets an old answer."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from serve.client import Connection, Response, fast, instances, request
from serve.grpc_stub import grpc_port
from serve.server import COMMAND, Server, Start, toml
from tiers import exhaustive, only
from tritonclient.utils import InferenceServerException

from ringbatch.frontend import Client

WaitUntil = Callable[..., Any]

CLIENTS = 8
SPARE = 6
MODEL = """
from pathlib import Path
import time
NUMBER = {number}
HERE = Path(__file__).parent
def load():
    while (HERE / "hold").exists():
        time.sleep(0.01)
def predict(values):
    while (HERE / "pause").exists():
        time.sleep(0.01)
    return [[NUMBER, value] for value in values]
"""


class Site:
    """A server and the files it serves from.

    Attributes:
        server: that serves.
        folder: of its models.
    """

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.folder = folder

    def write(self, number: int, name: str = "m.py") -> None:
        """A model file whose answers have that number; the file is never there in part."""
        write_model(self.folder, number, name)

    def configure(self, models: dict[str, dict[str, Any]], **more: Any) -> None:
        """Write the configuration anew; `path` is a file of this folder's."""
        placed = {
            name: keys | {"path": str(self.folder / keys["path"])} if "path" in keys else keys
            for name, keys in models.items()
        }
        self.server.config.write_text(toml(SERVER | more, placed))

    def reload(self, *models: str) -> subprocess.CompletedProcess[str]:
        """``ringbatch reload``, and what it came to."""
        flags = [word for model in models for word in ("--model", model)]
        return subprocess.run(
            [*COMMAND, "reload", *flags, "--pid", str(self.server.pid)],
            capture_output=True,
            text=True,
            check=False,
        )

    def ask(self, value: object, path: str = "m") -> Response:
        with Connection(self.server.port) as connection:
            return connection.ask(fast(path, instances(value)))

    def number(self, path: str = "m") -> int:
        """The number in an answer of the model."""
        answer = self.ask("?", path)
        assert answer.status == 200, answer.body
        return int(answer.json["predictions"][0][0])

    def post(self, path: str, body: bytes = b"") -> Response:
        with Connection(self.server.port) as connection:
            return connection.ask(request(path, body))

    def index(self) -> list[tuple[str, str, str]]:
        """Names, versions and states of the models."""
        lines = self.post("/v2/repository/index").json
        return [(line["name"], line["version"], line["state"]) for line in lines]

    def file_is_newer(self) -> bool:
        """Whether the model's readiness tells of another file at its path."""
        with Connection(self.server.port) as connection:
            ready = connection.ask(request("/v2/models/m/ready", method="GET"))
        return "model_file" in ready.json

    def workers(self) -> list[str]:
        """The titles of its workers, each as often as it is there."""
        found = []
        for pid in self.server.living():
            # It may end meanwhile.
            with suppress(FileNotFoundError, ProcessLookupError):
                text = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode()
                if text.startswith("ringbatch: worker "):
                    found.append(text.removeprefix("ringbatch: worker "))
        return sorted(found)


def write_model(folder: Path, number: int, name: str = "m.py") -> None:
    draft = folder / "draft"
    draft.write_text(MODEL.format(number=number))
    draft.rename(folder / name)


SERVER = {
    "port": 0,
    "frontends": 2,
    "grpc_port": 0,
    "max_request_bytes": 1 << 16,
    "spare_workers": SPARE,
    "model_control": True,
}


@pytest.fixture(scope="module")
def common_site(start_for_module: Start, tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("models")
    write_model(folder, 1)
    return Site(start_for_module({"m": {"path": str(folder / "m.py")}}, **SERVER), folder)


@pytest.fixture
def site(common_site: Site, wait_until: WaitUntil) -> Site:
    """One model "m" that says 1, and one worker; whatever an earlier test has left."""
    site = common_site
    for gate in ("hold", "pause"):
        (site.folder / gate).unlink(missing_ok=True)
    site.write(1)
    site.configure({"m": {"path": "m.py"}})
    for names in ((), ("m",)):
        done = site.reload(*names)
        assert done.returncode == 0, done.stderr
    wait_until(lambda: site.workers() == ["m/0"] and len(site.index()) == 1, "nothing is left")
    return site


class Load:
    """Clients that ask without a pause and check every answer.

    Attributes:
        least: the number that answers to requests sent from now on must have at least.
        answered: how many right answers came.
        failures: all others, in words.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._going = True
        self._lock = threading.Lock()
        self.least = 0
        self.answered = 0
        self.failures: list[str] = []
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _run(self, client: int) -> None:
        with Connection(self._site.server.port) as connection:
            count = 0
            while self._going:
                count += 1
                value = f"{client}.{count}"
                least = self.least
                answer = connection.ask(fast("m", instances(value)))
                right = (
                    answer.status == 200
                    and answer.json["predictions"][0][1] == value
                    and answer.json["predictions"][0][0] >= least
                )
                with self._lock:
                    self.answered += right
                    if not right:
                        self.failures.append(f"{value}, at least {least}: {answer.body!r}")

    def stop(self) -> None:
        self._going = False
        for thread in self._threads:
            thread.join()


@pytest.fixture
def load(site: Site, wait_until: WaitUntil) -> Iterator[Load]:
    """Under way; at the end no request has failed."""
    load = Load(site)
    try:
        goes_on(load, wait_until)
        yield load
    finally:
        load.stop()
    assert load.failures == []


def goes_on(load: Load, wait_until: WaitUntil) -> None:
    """Wait until many more requests are answered."""
    wanted = load.answered + 20 * CLIENTS
    wait_until(lambda: load.answered >= wanted or load.failures, "more requests are answered")


def test_a_model_is_reloaded_under_load_and_no_answer_is_an_old_one(
    site: Site, load: Load, wait_until: WaitUntil
) -> None:
    deaths = site.server.status().collector["worker_deaths"]
    for number in (2, 3, 4):
        site.write(number)
        done = site.reload()
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == "ringbatch: m: version 1 loaded\n"
        load.least = number
        goes_on(load, wait_until)
    wait_until(lambda: site.workers() == ["m/0"], "the old workers are gone")
    assert site.server.status().collector["worker_deaths"] == deaths


COLLECTOR = "ringbatch: collector"
BROKEN_MODELS = {
    "the file": ("import nothing_that_is_there\n", "No module named 'nothing_that_is_there'"),
    "load()": (
        "def load():\n    raise ValueError('no weights')\ndef predict(x): ...",
        "no weights",
    ),
    "warm-up": (
        "from ringbatch.engine import Tensor\ninputs = outputs = [Tensor('x', 'FP32', [2])]\n"
        "def predict(x):\n    raise ValueError('no such kernel')\n",
        "warm-up of m with x FP32 [1, 2]: ValueError: no such kernel",
    ),
    "the process": (
        "import os\ndef load():\n    os.kill(os.getpid(), 9)\ndef predict(x): ...",
        "worker m/0 process was killed by SIGKILL",
    ),
}


@exhaustive
def test_a_model_that_cannot_be_loaded_leaves_the_old_one_serving(site: Site, load: Load) -> None:
    for text, words in BROKEN_MODELS.values():
        (site.folder / "m.py").write_text(text)
        done = site.reload("m")
        assert (done.returncode, done.stdout) == (1, "")
        assert words in done.stderr
        answer = site.post("/v2/repository/models/m/load")
        assert answer.status == 500
        assert words in answer.error
        assert str(site.folder) not in answer.error
        assert site.number() == 1
    for names, words in ((["x"], 'no model "x"; there is: m'), ([], "m: ")):
        done = site.reload(*names)
        assert done.returncode == 1
        assert words in done.stderr
    site.configure({"m": {"path": "m.py", "workers": 0}})
    assert "found 0, but it must be a whole number" in site.reload().stderr
    site.write(2)
    site.configure({"m": {"path": "m.py"}})
    assert site.reload().returncode == 0
    load.least = 2
    assert site.number() == 2


@exhaustive
def test_a_reload_goes_on_whatever_becomes_of_the_collector(
    site: Site, load: Load, wait_until: WaitUntil
) -> None:
    (site.folder / "hold").touch()
    site.write(2)
    with ThreadPoolExecutor() as threads:
        reloading = threads.submit(site.reload)
        wait_until(lambda: ("m", "1", "LOADING") in site.index(), "the new one is entered")
        deaths = site.server.status().collector["worker_deaths"]
        killed = site.server.role("collector")
        os.kill(killed, signal.SIGKILL)
        wait_until(
            lambda: site.server.titles().get(COLLECTOR, killed) != killed, "there is another"
        )
        goes_on(load, wait_until)
        assert ("m", "1", "LOADING") in site.index()
        (site.folder / "hold").unlink()
        done = reloading.result()
    assert (done.returncode, done.stderr) == (0, "")
    assert site.server.status().collector["worker_deaths"] == deaths, "nothing is loaded again"
    wait_until(lambda: site.index() == [("m", "1", "READY")], "the old one is gone")
    load.least = 2
    goes_on(load, wait_until)
    wait_until(lambda: site.workers() == ["m/0"], "no other workers are left")
    site.configure({"m": {"path": "m.py", "workers": 1 + SPARE}})
    done = site.reload()
    assert (done.returncode, done.stderr) == (0, ""), "every place is free again"
    site.configure({"m": {"path": "m.py"}})
    assert site.reload().returncode == 0


def copies(site: Site) -> int:
    """Of model files, that the supervisor has in memory."""
    held = 0
    for entry in Path(f"/proc/{site.server.pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            held += os.readlink(entry).startswith("/memfd:m.py")
    return held


def test_copies_of_files_that_are_served_no_more_are_let_go(
    site: Site, wait_until: WaitUntil
) -> None:
    wait_until(lambda: copies(site) == 1, "what was there at the start is gone")
    for number in (2, 3):
        site.write(number)
        assert site.reload().returncode == 0
    (site.folder / "m.py").write_text("not python (")
    assert site.reload().returncode == 1
    assert site.number() == 3
    wait_until(lambda: site.workers() == ["m/0"], "no other workers are left")
    wait_until(lambda: copies(site) == 1, "only that of the one that serves is left")


def test_a_worker_that_takes_the_place_of_another_serves_what_was_loaded(
    site: Site, wait_until: WaitUntil
) -> None:
    assert not site.file_is_newer()
    site.write(2)
    worker = site.server.role("worker m/0")
    os.kill(worker, signal.SIGKILL)
    assert site.number() == 1, "what lies there now is for a reload to take"
    assert site.server.role("worker m/0") != worker
    wait_until(site.file_is_newer, "readiness to tell of the other file")
    completed = subprocess.run(
        [*COMMAND, "status", "--pid", str(site.server.pid)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "1 of 1 workers ready; the model file was changed or removed" in completed.stdout
    assert site.reload().returncode == 0
    assert site.number() == 2
    assert not site.file_is_newer()


@exhaustive
def test_a_link_that_leads_elsewhere_is_another_file(site: Site, wait_until: WaitUntil) -> None:
    link = site.folder / "m.py"
    for number in (2, 3):
        write_model(site.folder, number, f"blob{number}")
    link.unlink()
    link.symlink_to("blob2")
    assert site.reload().returncode == 0
    assert site.number() == 2
    link.unlink()
    link.symlink_to("blob3")
    wait_until(site.file_is_newer, "readiness to tell of the other file")
    assert site.number() == 2
    assert site.reload().returncode == 0
    assert site.number() == 3
    assert not site.file_is_newer()


def test_what_the_old_workers_cannot_finish_is_answered_by_the_new_ones(
    site: Site, wait_until: WaitUntil
) -> None:
    (site.folder / "pause").touch()
    killed = site.server.role("worker m/0")
    before = site.server.status().models["m"].requests
    with ThreadPoolExecutor() as threads:
        waiting = [threads.submit(site.ask, "held") for _ in range(2)]
        wait_until(lambda: site.server.status().models["m"].requests == before + 2, "they wait")
        site.write(2)
        assert site.reload().returncode == 0
        assert ("m", "1", "UNLOADING") in site.index()
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: site.index() == [("m", "1", "READY")], "the old one is gone")
        (site.folder / "pause").unlink()
        answers = [held.result() for held in waiting]
    assert [answer.json["predictions"] for answer in answers] == [[[2, "held"]]] * 2
    wait_until(lambda: site.workers() == ["m/0"], "the old worker is gone")


@pytest.mark.parametrize(
    "killing", only({"calm": False, "a collector is killed": True}, "a collector is killed")
)
def test_what_was_sent_before_is_answered_by_the_old_workers(
    site: Site, wait_until: WaitUntil, killing: bool
) -> None:
    (site.folder / "pause").touch()
    with ThreadPoolExecutor() as threads:
        before = site.server.status().models["m"]
        running = threads.submit(site.ask, "running")
        wait_until(lambda: site.server.status().models["m"].batches != before.batches, "it runs")
        queued = threads.submit(site.ask, "queued")
        wait_until(
            lambda: site.server.status().models["m"].requests == before.requests + 2, "it waits"
        )
        site.write(2)
        assert site.reload().returncode == 0
        if killing:
            os.kill(site.server.role("collector"), signal.SIGKILL)
        new = threads.submit(site.ask, "new")
        (site.folder / "pause").unlink()
        answers = [sent.result().json["predictions"] for sent in (running, queued, new)]
    assert answers == [[[1, "running"]], [[1, "queued"]], [[2, "new"]]]


def test_limits_policy_and_the_number_of_workers_change_without_loading(
    site: Site, load: Load, wait_until: WaitUntil
) -> None:
    first = site.server.role("worker m/0")
    deaths = site.server.status().collector["worker_deaths"]
    own = {"path": "m.py", "workers": 3, "max_batch_size": 4, "policy": "fixed"}
    site.configure({"m": own | {"max_latency_ms": 1}}, frontends=3)
    done = site.reload()
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "ringbatch: [server] frontends: not taken, because the engine runs; ringbatch handover "
        "takes it, and so does a restart\n"
        "ringbatch: m: version 1 adjusted\n"
    )
    assert site.workers() == ["m/0", "m/1", "m/2"]
    goes_on(load, wait_until)
    with Connection(site.server.port) as connection:
        answer = connection.ask(fast("m", instances(*range(50))))
    assert answer.json["predictions"] == [[1, value] for value in range(50)]
    assert site.server.status().models["m"].workers == 3
    site.configure({"m": {"path": "m.py", "kserve_errors": True}})
    assert site.reload().returncode == 0
    wait_until(lambda: site.workers() == ["m/0"], "two workers are gone")
    assert site.server.role("worker m/0") == first
    goes_on(load, wait_until)
    assert site.post("/v1/models/m:predict", b"{").body == b"can't Unmarshal body\n"
    assert site.server.status().collector["worker_deaths"] == deaths
    site.configure({"m": {"path": "m.py", "workers": 64}})
    assert "Restart the engine with a larger [server] spare_workers" in site.reload().stderr


def test_versions_are_served_side_by_side_and_come_and_go(
    site: Site, wait_until: WaitUntil
) -> None:
    site.write(2, "two.py")
    site.write(10, "ten.py")

    def configure(versions: dict[str, str], **of_all: str) -> None:
        models = {f'm.versions."{v}"': {"path": path} for v, path in versions.items()}
        site.configure({"m": of_all} | models | {"n": {"path": "two.py"}})

    configure({"1": "m.py", "2": "two.py", "10": "ten.py"})
    logged = len(site.server.stderr)
    site.server.process.send_signal(signal.SIGHUP)
    states = ["READY"] * 4
    wait_until(lambda: [state for *_, state in site.index()] == states, "all are loaded")
    assert "ERROR" not in site.server.stderr[logged:]
    assert [site.number(f"m{v}") for v in ("", "/versions/1", "/versions/2", "/versions/10")] == [
        *(10, 1, 2, 10)
    ]
    with Connection(site.server.port) as connection:
        described = connection.ask(request("/v2/models/m", method="GET"))
        assert described.json["versions"] == ["1", "2", "10"]
        missing = connection.ask(fast("m/versions/3", instances(0)))
        assert missing.error == 'model "m" has version "1" and "2" and "10" and no version "3"'
        assert missing.status == 404
        ready = connection.ask(request("/v2/models/m/versions/2/ready", method="GET"))
        assert ready.status == 200
        with Client(site.server.pid) as client:
            assert client.infer("m", [5]) == [[10, 5]]
            configure({"1": "m.py", "2": "two.py"}, default_version="1")
            assert site.reload().returncode == 0
            assert client.infer("m", [6]) == [[1, 6]]
        assert connection.ask(fast("m", instances(7))).json["predictions"] == [[1, 7]]
        assert connection.ask(fast("m/versions/10", instances(7))).status == 404
    assert site.post("/v2/repository/models/m/unload").json == {"name": "m", "unload": True}
    assert site.ask(0).error == 'Request for unknown model: there is no model "m"; there is: n'
    assert site.post("/v2/repository/models/m/unload").status == 404
    assert site.post("/v2/repository/models/m/load").json == {"name": "m", "load": True}
    assert site.number() == 1
    described_now = json.dumps(site.post("/v2/repository/index").json)
    assert described_now.count('"READY"') == 3


TYPED = """
from ringbatch.engine import Tensor
inputs = [Tensor("x", "FP32", [1])]
outputs = [Tensor("y", "FP32", [1])]
def predict(x):
    return x + {number}
"""


@pytest.mark.parametrize(
    "library", only({"http": tritonclient.http, "grpc": tritonclient.grpc}, "grpc")
)
def test_tritons_client_loads_versions_asks_for_them_and_unloads_them(
    site: Site, library: Any
) -> None:
    port = site.server.port if library is tritonclient.http else grpc_port(site.server)
    for number in (1, 2):
        (site.folder / f"typed{number}.py").write_text(TYPED.format(number=number))
    versions = {f"t.versions.{number}": {"path": f"typed{number}.py"} for number in (1, 2)}
    site.configure({"m": {"path": "m.py"}} | versions)
    x = library.InferInput("x", [1, 1], "FP32")
    x.set_data_from_numpy(np.zeros((1, 1), np.float32))
    with library.InferenceServerClient(f"127.0.0.1:{port}") as client:
        assert not _ready(client, "t")
        client.load_model("t")
        for version, expected in (("", 2), ("1", 1), ("2", 2)):
            assert client.is_model_ready("t", version)
            found = client.infer("t", [x], model_version=version)
            assert found.as_numpy("y").tolist() == [[expected]]
            answer = found.get_response()
            named = answer["model_version"] if isinstance(answer, dict) else answer.model_version
            assert named == str(expected)
        with pytest.raises(InferenceServerException, match="no version"):
            client.infer("t", [x], model_version="3")
        (site.folder / "typed1.py").write_text("import nothing_there")
        with pytest.raises(InferenceServerException, match="nothing_there"):
            client.load_model("t")
        (site.folder / "typed1.py").write_text(TYPED.format(number=1))
        with pytest.raises(InferenceServerException, match="is not accepted"):
            client.load_model("t", config="{}", files={"file:1/model.py": b"x"})
        for wrong in ("{", '{"max_batch_size":-1}', '{"backend":"other"}'):
            with pytest.raises(InferenceServerException, match="failed to load"):
                client.load_model("t", config=wrong)
        client.load_model("t", config='{"max_batch_size":"16"}')
        assert _largest_batch(client, "t") == 16
        assert client.infer("t", [x], model_version="1").as_numpy("y").tolist() == [[1]]
        site.reload()
        assert _largest_batch(client, "t") == 32
        client.unload_model("t")
        assert not _ready(client, "t")
        with pytest.raises(InferenceServerException, match='failed to unload "t"'):
            client.unload_model("t")


def _largest_batch(client: Any, name: str) -> int:
    found = client.get_model_config(name)
    largest = found["max_batch_size"] if isinstance(found, dict) else found.config.max_batch_size
    return int(largest)


def _ready(client: Any, name: str) -> bool:
    """Whether a model is; to Triton's client over gRPC one that is not there is an error."""
    try:
        return bool(client.is_model_ready(name))
    except InferenceServerException:
        return False


@exhaustive
def test_a_stop_amid_a_reload_tells_whoever_waits_and_leaves_nothing(
    start: Start, tmp_path: Path, wait_until: WaitUntil
) -> None:
    write_model(tmp_path, 1)
    site = Site(start({"m": {"path": str(tmp_path / "m.py")}}, **SERVER), tmp_path)
    (site.folder / "hold").touch()
    site.write(2)
    with ThreadPoolExecutor() as threads:
        reloads = [threads.submit(site.reload) for _ in range(2)]
        wait_until(lambda: ("m", "1", "LOADING") in site.index(), "one is under way")
        assert site.server.stop() == 0
        for reloading in reloads:
            assert reloading.result().returncode != 0
    assert site.server.gone()


def test_cpus_that_are_not_there_are_refused_in_words(
    site: Site, load: Load, wait_until: WaitUntil
) -> None:
    site.configure({"m": {"path": "m.py", "cpus": ["4095"]}})
    done = site.reload()
    assert done.returncode == 1
    assert "the configuration names CPUs" in done.stderr
    goes_on(load, wait_until)
