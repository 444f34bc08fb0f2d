"""A served model whose file changes, and clients that ask for it all the time."""

import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from serve.client import Connection, Response, fast, instances, request
from serve.server import COMMAND, Server, Start, toml

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
        server: the running server.
        folder: of its models.
    """

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.folder = folder

    def write(self, number: int, name: str = "m.py") -> None:
        """Write a model file whose answers have that number, so that it is never there in part."""
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
        """Return whether the model's readiness mentions another file at its path."""
        with Connection(self.server.port) as connection:
            ready = connection.ask(request("/v2/models/m/ready", method="GET"))
        return "model_file" in ready.json

    def workers(self) -> list[str]:
        """The titles of its workers, each as often as it is there."""
        found = []
        for pid in self.server.living():
            # The process may end in between.
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


class Load:
    """Clients that ask without a pause and check every answer.

    Attributes:
        least: the number that answers to requests sent from now on must have at least.
        answered: number of right answers.
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


def goes_on(load: Load, wait_until: WaitUntil) -> None:
    """Wait until many more requests are answered."""
    wanted = load.answered + 20 * CLIENTS
    wait_until(lambda: load.answered >= wanted or load.failures, "more requests are answered")


@pytest.fixture(scope="module")
def common_site(start_for_module: Start, tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("models")
    write_model(folder, 1)
    return Site(start_for_module({"m": {"path": str(folder / "m.py")}}, **SERVER), folder)


@pytest.fixture
def site(common_site: Site, wait_until: WaitUntil) -> Site:
    """Site with one model "m" that answers 1, and one worker, after any earlier test."""
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


@pytest.fixture
def load(site: Site, wait_until: WaitUntil) -> Iterator[Load]:
    """Load under way, of which no request may have failed at the end."""
    load = Load(site)
    try:
        goes_on(load, wait_until)
        yield load
    finally:
        load.stop()
    assert load.failures == []
