"""Unix sockets by real clients: HTTP and gRPC, beside TCP and alone, restarts and handovers."""

import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
from dev_shm import takes
from open_files import open_files
from serve.client import instances
from serve.secure import Authority
from serve.server import Server, Start, configured
from tiers import exhaustive

pytestmark = takes(20)

WaitUntil = Callable[..., Any]
PATH = "/v1/models/m:predict"
BODY = instances([1.0] * 16)
ROW = np.ones((1, 16), np.float32)
MODELS: dict[str, dict[str, Any]] = {"m": {"path": "matmul.py"}}


def short_folder() -> Iterator[Path]:
    """Paths of sockets are short, and those of pytest's folders are not."""
    found = Path(tempfile.mkdtemp(prefix="rb-", dir="/tmp"))
    yield found
    shutil.rmtree(found)


folder = pytest.fixture(short_folder)
folder_of_module = pytest.fixture(short_folder, scope="module")


def over(path: Path, **more: Any) -> httpx.Client:
    return httpx.Client(
        transport=httpx.HTTPTransport(uds=str(path), verify=False, **more),
        base_url="http://server",
        timeout=60,
    )


def ask(path: Path) -> int:
    with over(path) as client:
        return client.post(PATH, content=BODY).status_code


def infer(address: str) -> np.ndarray[Any, Any]:
    with triton_grpc.InferenceServerClient(address) as client:
        given = triton_grpc.InferInput("x", [1, 16], "FP32")
        given.set_data_from_numpy(ROW)
        found: np.ndarray[Any, Any] = client.infer("m", [given]).as_numpy("y")
        return found


def test_http_and_grpc_come_over_unix_sockets_beside_tcp(start: Start, folder: Path) -> None:
    http, calls = folder / "http", folder / "grpc"
    server = start(MODELS, unix_socket=str(http), grpc_unix_socket=str(calls), grpc_port=0)
    assert f"serving them on unix:{http} too" in server.stdout
    with (
        over(http) as client,
        httpx.Client(base_url=f"http://127.0.0.1:{server.port}", verify=False) as tcp,
    ):
        found = [one.post(PATH, content=BODY).json()["predictions"] for one in (client, tcp)]
        assert found[0] == found[1]
        assert client.post(PATH, content=b"{").status_code == 400
        assert client.get("/v2/health/ready").json() == {"ready": True}
    assert infer(f"unix:{calls}").tolist() == [found[0][0]]
    assert server.stop() == 0
    assert list(folder.iterdir()) == []


class Alone(NamedTuple):
    """A server without TCP, and the folder of its sockets."""

    server: Server
    folder: Path


@pytest.fixture(scope="module")
def alone(start_for_module: Start, folder_of_module: Path) -> Alone:
    folder = folder_of_module
    keys = {"host": f"unix:{folder / 'http'}", "grpc_unix_socket": str(folder / "grpc")}
    server = start_for_module(MODELS, frontends=2, grpc_frontends=2, http2=True, **keys)
    return Alone(server, folder)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_asks_over_it(alone: Alone) -> None:
    asked = ["curl", "-sS", "--unix-socket", str(alone.folder / "http"), f"http://x{PATH}"]
    completed = subprocess.run([*asked, "--data", BODY], capture_output=True, check=True)
    assert b'"predictions"' in completed.stdout


def test_without_tcp_nothing_listens_on_a_port(alone: Alone) -> None:
    server, folder = alone
    assert f"on unix:{folder / 'http'}\n" in server.stdout
    with over(folder / "http", http1=False, http2=True) as client:
        assert client.post(PATH, content=BODY).http_version == "HTTP/2"
    inodes = {
        row.split()[9] for row in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if row.split()[3] == "0A"
    }  # fmt: skip
    for pid in server.living():
        assert not set(open_files(pid).values()) & {f"socket:[{inode}]" for inode in inodes}


def held(folder: Path, name: str, count: int, stack: ExitStack) -> list[socket.socket]:
    found = []
    for _ in range(count):
        found.append(stack.enter_context(socket.socket(socket.AF_UNIX)))
        found[-1].connect(str(folder / name))
    return found


def test_frontends_share_the_connections_of_one_socket(alone: Alone) -> None:
    """The frontend that wakes first takes one connection, not all that wait."""
    head = b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (
        PATH.encode(),
        len(BODY),
    )
    accepted: Counter[int] = Counter()
    with ExitStack() as stack:
        clients = held(alone.folder, "http", 64, stack)
        for client in clients:
            client.sendall(head + BODY)
        for client in clients:
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 200")
        for title, pid in alone.server.titles().items():
            if title.startswith("ringbatch: frontend "):
                accepted[pid] = len(open_files(pid))
    low, high = sorted(accepted.values())
    assert low > high / 8, accepted


@exhaustive
def test_a_killed_frontend_is_replaced_on_the_same_socket(
    alone: Alone, wait_until: WaitUntil
) -> None:
    server, folder = alone
    before = server.titles()
    killed = ("ringbatch: frontends", "ringbatch: grpc frontend 1")
    for title in killed:
        os.kill(before[title], 9)

    def are_new() -> bool:
        now = server.titles()
        return all(now.get(title, before[title]) != before[title] for title in killed)

    wait_until(are_new, "they are replaced")
    assert ask(folder / "http") == 200
    assert len(infer(f"unix:{folder / 'grpc'}")) == 1
    assert (folder / "http").is_socket()


def test_a_second_engine_is_refused_and_the_first_goes_on(alone: Alone, tmp_path: Path) -> None:
    server, folder = alone
    words = configured(tmp_path, MODELS, host=f"unix:{folder / 'http'}", name="second")
    second = Server(tmp_path, *words)
    try:
        assert second.process.wait(60) == 2
        assert f"process {server.pid} listens on {folder / 'http'}" in second.stderr
    finally:
        second.destroy()
    assert ask(folder / "http") == 200


def test_tls_and_permissions_hold_over_unix_sockets(
    start: Start, folder: Path, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.certify()
    keys = {"tls_certificate": str(certificate), "tls_key": str(key), "unix_socket_mode": "0600"}
    server = start(MODELS, host=f"unix:{folder / 'http'}", **keys)
    assert (folder / "http").stat().st_mode & 0o777 == 0o600
    context: ssl.SSLContext = authority.client_context()
    with socket.socket(socket.AF_UNIX) as plain:
        plain.connect(str(folder / "http"))
        with context.wrap_socket(plain, server_hostname="localhost") as client:
            client.sendall(b"GET /v2/health/ready HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 200")
    assert server.stop() == 0


class Asking:
    """Requests and calls over the sockets without a pause, until `stop`."""

    def __init__(self, folder: Path) -> None:
        self.counts = [0, 0]
        self.failures: list[str] = []
        self._folder = folder
        self._going = True
        self._threads = [threading.Thread(target=run) for run in (self._ask, self._call)]
        for thread in self._threads:
            thread.start()

    def _ask(self) -> None:
        while self._going:
            try:
                status = ask(self._folder / "http")
                self.failures += [f"HTTP {status}"] * (status != 200)
            except httpx.HTTPError as error:
                self.failures.append(repr(error))
            self.counts[0] += 1

    def _call(self) -> None:
        with triton_grpc.InferenceServerClient(f"unix:{self._folder / 'grpc'}") as client:
            given = triton_grpc.InferInput("x", [1, 16], "FP32")
            given.set_data_from_numpy(ROW)
            while self._going:
                try:
                    client.infer("m", [given])
                except Exception as error:
                    self.failures.append(repr(error))
                self.counts[1] += 1

    def stop(self) -> None:
        self._going = False
        for thread in self._threads:
            thread.join()


@exhaustive
def test_a_handover_over_unix_sockets_fails_no_request(
    start: Start, folder: Path, tmp_path: Path, wait_until: WaitUntil
) -> None:
    name = f"unix-{os.getpid()}"
    keys = {"name": name, "host": f"unix:{folder / 'http'}", "grpc_connection_age_s": 0.5}
    keys |= {"grpc_unix_socket": str(folder / "grpc"), "frontends": 2}
    old = start(MODELS, **keys)
    asking = Asking(folder)
    place = tmp_path / "next"
    place.mkdir()
    new = Server(place, *configured(place, MODELS, **keys), command="handover")
    try:
        new.wait_ready()
        wait_until(lambda: old.process.poll() is not None, "the old one has ended")
        before = list(asking.counts)
        wait_until(
            lambda: all(now > then + 20 for now, then in zip(asking.counts, before, strict=True)),
            "all are answered by the new one",
        )
    finally:
        asking.stop()
        alive = (folder / "http").is_socket(), (folder / "grpc").is_socket()
        status = new.stop()
        new.destroy()
    assert asking.failures == []
    assert (alive, status, old.process.returncode) == ((True, True), 0, 0)
    assert list(folder.iterdir()) == []
