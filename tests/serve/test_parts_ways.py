"""Answers in parts whatever lies between model and client, and whatever becomes of either.

Each part behind the first waits for a file of the test. So a part that a client has read was there
before the next was made.
"""

import json
import os
import re
import shutil
import socket
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from dev_shm import takes
from serve.client import Closed, Connection, fast, instances, request
from serve.secure import KEY, Authority, bearer, write_private
from serve.server import COMMAND, Server, Start, configured
from serve.server import MODELS as SOURCES
from serve.test_load_balancers import ENGINES, GRPC, HTTP, KINDS, Balancer

pytestmark = takes(30)

WaitUntil = Callable[..., Any]

EVENTS: Final = {"Accept": "text/event-stream"}
PATH: Final = "/v1/models/{}:predict"
MODELS: Final = {"gated": {"path": "let_through.py"}}
LOG: Final = {"access_log": "all", "log_format": "json"}
TIMEOUT_S: Final = 60
COUNT: Final = 4
WAYS: Final = ("http1", "http2", "tls", "tls-http2")


class Stream:
    """The events of an answer, one by one.

    Args:
        answer: their source.
        folder: the folder of the files that let parts be made.
    """

    def __init__(self, answer: httpx.Response, folder: Path) -> None:
        assert answer.status_code == 200
        self._lines = answer.iter_lines()
        self._folder = folder

    def next(self) -> Any:
        """Return the next event, decoded; None at the end."""
        line = ":"
        while line.startswith(":"):
            found = next(self._lines, None)
            if found is None:
                return None
            line = found
            assert next(self._lines) == ""
        return json.loads(line.removeprefix("data: "))

    def predictions(self) -> str | None:
        """Return the only prediction of the next event; None at the end."""
        event = self.next()
        return None if event is None else str(event["predictions"][0])

    def let(self, number: int) -> None:
        """Let the model make the part of that number."""
        (self._folder / str(number)).touch()

    def expect_one_by_one(self, begin: int = 0, by: str = "old") -> None:
        """Read all parts from that number on, each before the next can be made."""
        for number in range(begin, COUNT):
            if number:
                self.let(number)
            assert self.predictions() == f"{by} {number}"
        assert self.predictions() is None


@contextmanager
def streamed(
    client: httpx.Client, address: str, folder: Path, model: str = "gated"
) -> Iterator[Stream]:
    """Ask for an answer in parts."""
    url, body = address + PATH.format(model), {"instances": [[str(folder), COUNT]]}
    with client.stream("POST", url, json=body, headers=EVENTS) as answer:
        yield Stream(answer, folder)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def ports(free_port_factory: Callable[[], int]) -> dict[int, int]:
    """Ports of the engine, by those that the balancers' configuration names for it."""
    return {port: free_port_factory() for port in ENGINES[0]}


@pytest.fixture(scope="module")
def changing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model file that one test changes."""
    return Path(shutil.copy(SOURCES / "let_through.py", tmp_path_factory.mktemp("changing")))


@pytest.fixture(scope="module")
def plain(
    start_for_module: Start,
    tmp_path_factory: pytest.TempPathFactory,
    ports: dict[int, int],
    changing: Path,
) -> Server:
    http, grpc, agent = (ports[port] for port in ENGINES[0])
    wide = tmp_path_factory.mktemp("wide") / "wide.py"
    wide.write_text(WIDE)
    models = MODELS | {
        "changing": {"path": str(changing)},
        "wide": {"path": str(wide), "max_batch_size": 1},
        "parts": {"path": "streaming.py"},
    }
    addresses = {"port": http, "grpc_port": grpc, "agent_check_port": agent, "control_port": 0}
    return start_for_module(models, http2=True, lane_bytes=1 << 22, **addresses, **LOG)


@pytest.fixture(scope="module")
def secure(start_for_module: Start, authority: Authority) -> Server:
    certificate, key = authority.certify()
    keys = write_private(certificate.with_name("keys"), f"{KEY}\n")
    tls = {"tls_certificate": str(certificate), "tls_key": str(key)}
    return start_for_module(MODELS, http2=True, api_keys_file=str(keys), **tls)


@pytest.mark.parametrize("way", WAYS)
def test_each_part_comes_before_the_next_is_made(
    way: str, plain: Server, secure: Server, authority: Authority, tmp_path: Path
) -> None:
    tls, http2 = way.startswith("tls"), way.endswith("http2")
    server = secure if tls else plain
    verify = authority.client_context() if tls else False
    address = f"https://localhost:{server.port}" if tls else f"http://127.0.0.1:{server.port}"
    key = bearer() if tls else {}
    versions: dict[str, Any] = {"http1": not http2, "http2": http2, "verify": verify}
    with httpx.Client(timeout=TIMEOUT_S, trust_env=False, headers=key, **versions) as client:
        with streamed(client, address, tmp_path) as stream:
            stream.expect_one_by_one()
        if tls:
            path = PATH.format("gated")
            refused = client.post(address + path, headers=EVENTS | {"Authorization": "Bearer no"})
            assert refused.status_code == 401
            assert refused.headers["content-type"] == "application/json"


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_proxies_pass_each_part_on_at_once(
    kind: Any,
    plain: Server,
    ports: dict[int, int],
    free_port_factory: Callable[[], int],
    tmp_path: Path,
    wait_until: WaitUntil,
) -> None:
    own = {port: free_port_factory() for port in (HTTP, GRPC, *ENGINES[1])}
    with ExitStack() as stack:
        balancer = Balancer(kind, tmp_path, own | ports)
        stack.callback(balancer.stop)
        wait_until(balancer.serves, "it has found the engine")
        client = stack.enter_context(httpx.Client(timeout=TIMEOUT_S, trust_env=False, verify=False))
        with streamed(client, f"http://127.0.0.1:{balancer.port}", tmp_path) as stream:
            stream.expect_one_by_one()


def test_a_reload_lets_a_stream_end_on_the_old_model(
    plain: Server, changing: Path, tmp_path: Path, wait_until: WaitUntil
) -> None:
    with (
        httpx.Client(timeout=TIMEOUT_S, trust_env=False, verify=False) as client,
        streamed(client, f"http://127.0.0.1:{plain.port}", tmp_path, "changing") as stream,
    ):
        assert stream.predictions() == "old 0"
        changing.write_text(changing.read_text().replace('"old"', '"new"'))
        done = subprocess.run(
            [*COMMAND, "reload", str(plain.pid)], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        wait_until(lambda: ask_once(plain.port, "changing") == "new 0", "the new model serves")
        stream.expect_one_by_one(1)


def test_a_handover_lets_a_stream_end_on_the_old_engine(start: Start, tmp_path: Path) -> None:
    name = f"parts-{os.getpid()}"
    old = start(MODELS, name=name)
    folder = tmp_path / "next"
    folder.mkdir()
    arguments = configured(folder, MODELS, name=name)
    path = folder / "let_through.py"
    path.write_text(path.read_text().replace('"old"', '"new"'))
    with (
        httpx.Client(timeout=TIMEOUT_S, trust_env=False, verify=False) as client,
        streamed(client, f"http://127.0.0.1:{old.port}", tmp_path) as stream,
        ExitStack() as stack,
    ):
        assert stream.predictions() == "old 0"
        new = Server(folder, *arguments, command="handover")
        stack.callback(new.kill)
        new.wait_ready()
        assert ask_once(new.port) == "new 0"
        stream.expect_one_by_one(1)
        assert old.process.wait(TIMEOUT_S) == 0


def ask_once(port: int, model: str = "gated") -> str:
    """Return the only prediction of an answer in one piece; empty if there is none."""
    try:
        with Connection(port) as connection:
            answer = connection.ask(fast(model, instances(["/", 1])))
    except (OSError, Closed):
        return ""
    return str(answer.json["predictions"][0]) if answer.status == 200 else ""


WIDE: Final = """
def predict(instances):
    for number in range(int(instances[0])):
        yield [f"{number:065536}"] * len(instances)
"""
MANY: Final = 200
"""Parts of 64 KiB: more than kernels keep for a connection, and more than a frontend does."""


def test_a_client_that_reads_nothing_is_given_up_and_keeps_no_other_waiting(
    plain: Server, wait_until: WaitUntil
) -> None:
    ask = request(PATH.format("wide"), instances(MANY), headers=EVENTS)
    idle = socket.socket()
    idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    with idle:
        idle.connect(("127.0.0.1", plain.port))
        idle.sendall(ask)
        # The only worker runs one at a time, and the other comes behind.
        with Connection(plain.port) as other:
            answer = other.ask(fast("wide", instances(1)))
        assert answer.status == 200
        found = b""
        while not found.endswith(b"0\r\n\r\n"):
            found += idle.recv(1 << 20)
    assert b'data: {"error":"the client has not read 1048576 bytes of the answer"' in found
    wait_until(lambda: len(lines(plain, "wide")) == 2, "both are logged")
    assert sorted(line["status"] for line in lines(plain, "wide")) == [200, 503]


def lines(server: Server, model: str) -> list[dict[str, Any]]:
    """The lines of the access log on requests to that model."""
    found = [json.loads(line) for line in server.stderr.splitlines()]
    return [
        line
        for line in found
        if re.match("request (answered|failed)", line["message"]) and line.get("model") == model
    ]


ENDS: Final = {"3": 200, '"raise"': 500, '"exit"': 503, '"refuse"': 500}
"""Instances of streaming.py with the status of their ends."""


@pytest.mark.parametrize("way", ["http1", "http2"])
def test_log_and_metrics_have_one_request_with_the_status_of_its_end(
    way: str, plain: Server, wait_until: WaitUntil
) -> None:
    address = f"http://127.0.0.1:{plain.port}" + PATH.format("parts")
    logged = len(lines(plain, "parts"))
    versions: dict[str, Any] = {"http1": way == "http1", "http2": way == "http2"}
    with httpx.Client(timeout=TIMEOUT_S, trust_env=False, verify=False, **versions) as client:
        before = counted(plain)
        for number, (instance, status) in enumerate(ENDS.items(), start=logged + 1):
            body = f'{{"instances": [{instance}]}}'
            answer = client.post(address, content=body, headers=EVENTS)
            assert answer.status_code == (500 if instance == '"refuse"' else 200)
            wait_until(lambda number=number: len(lines(plain, "parts")) == number, "it is logged")
            line = lines(plain, "parts")[-1]
            assert (line["status"], line["model"], line["protocol"]) == (status, "parts", "v1")
            assert line["bytes_out"] == len(answer.content)
        with client.stream("POST", address, json={"instances": [[10**6, 0.01]]}, headers=EVENTS):
            pass
    # Over HTTP/2 its client leaves with the connection.
    wait_until(
        lambda: len(lines(plain, "parts")) == logged + len(ENDS) + 1,
        "the client that left is logged",
    )
    assert lines(plain, "parts")[-1]["status"] == 499
    found = Counter(counted(plain))
    found.subtract(before)
    model = 'model="parts",version="1",protocol="v1",code='
    ends = {"200": 1, "500": 2, "503": 1, "499": 1}
    assert +found == {f'{model}"{code}"': number for code, number in ends.items()}


def counted(server: Server) -> dict[str, int]:
    """The requests to the model that have ended, by their labels."""
    text = httpx.get(f"http://127.0.0.1:{server.control_port}/metrics", trust_env=False).text
    lines = re.findall(r'^ringbatch_requests_total\{(model="parts",.*)\} (\d+)', text, re.MULTILINE)
    return {labels: int(number) for labels, number in lines}
