"""Model servers whose heads are unusual or wrong: each of their answers is one answer here too."""

import fcntl
import json
import select
import socket
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial

import pytest
from dev_shm import takes
from serve.client import Connection, Response, request
from serve.server import Server, Start

pytestmark = takes(20)

PREDICT = "/v1/models/any:predict"
BODY = b'{"instances": [1]}'
CHUNKED = {"Transfer-Encoding": "chunked"}
DESCRIBED = json.dumps(
    {
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]}],
    }
).encode()


class OddServer:
    """Model server that answers every prediction with the same bytes.

    To requests for its metadata it answers as it should.

    Attributes:
        answer: the bytes.
        headers: of the latest request.
        latest: the connection of the latest request that is no prediction.
        reads_bodies: or answers without, and waits for the end.
    """

    def __init__(self) -> None:
        self.answer = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.reads_bodies = True
        self.latest: socket.socket | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError), connection.makefile("rb") as lines:
            while first := lines.readline():
                headers = []
                while (line := lines.readline()) != b"\r\n":
                    name, _, value = line.partition(b":")
                    headers.append((name.lower(), value.strip()))
                self.headers = headers
                if b":predict" not in first:
                    self.latest = connection
                if not self.reads_bodies:
                    connection.sendall(self.answer)
                    select.select([], [], [connection])
                lines.read(int(dict(headers).get(b"content-length", b"0")))
                described = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(DESCRIBED)
                asked = b" /v2/models/tensors " in first
                connection.sendall(described + DESCRIBED if asked else self.answer)


@pytest.fixture(scope="module")
def odd() -> Iterator[OddServer]:
    with closing(OddServer()) as server:
        yield server


@pytest.fixture(autouse=True)
def as_new(odd: OddServer) -> None:
    odd.reads_bodies = True


@pytest.fixture(scope="module")
def sidecar(start_for_module: Start, odd: OddServer) -> Server:
    return start_for_module({"m": {"path": odd.url, "workers": 1}}, sidecar=True)


def answer(status: bytes, *lines: bytes, body: bytes = b"odd") -> bytes:
    head = b"".join(b"%b\r\n" % line for line in lines)
    return b"HTTP/1.1 %b\r\n%bcontent-length: %d\r\n\r\n%b" % (status, head, len(body), body)


def chunked(path: str) -> bytes:
    """Return the prediction in a form that the fast lane does not take."""
    head = request(path, headers=CHUNKED)
    return head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)


WAYS = {
    "fast-lane": request(PREDICT, BODY),
    "whole-http": chunked(PREDICT),
    "passed-on": request("/other", BODY),
}


def twice(server: Server, one: bytes, health: bytes) -> tuple[Response, Response]:
    """The answer to one request, and that to the one pipelined behind it."""
    with Connection(server.port) as connection:
        connection.send(one + health)
        return connection.receive(), connection.receive()


LIVE = request("/v2/health/live", method="GET")
V2 = b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}]}'


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("status", [400, 418, 499, 520, 529, 598, 599])
def test_a_status_without_a_name_is_passed_on(
    sidecar: Server, odd: OddServer, way: str, status: int
) -> None:
    odd.answer = answer(b"%d Nobody Knows" % status, body=b'{"error":"odd"}')
    first, second = twice(sidecar, WAYS[way], WAYS[way])
    assert [(one.status, one.json) for one in (first, second)] == [(status, {"error": "odd"})] * 2


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("status", [b"600", b"799", b"999", b"000", b"099", b"1000", b"99", b"-1"])
def test_an_invalid_status_is_a_failure_of_the_server(
    sidecar: Server, odd: OddServer, way: str, status: bytes
) -> None:
    odd.answer = answer(status + b" Nobody Knows")
    for one in twice(sidecar, WAYS[way], WAYS[way]):
        assert one.status == 502
        assert one.error.startswith("the model server")


@pytest.mark.parametrize("status", [499, 520, 600])
def test_a_model_over_v2_has_the_same_statuses(little: Server, odd: OddServer, status: int) -> None:
    odd.answer = answer(b"%d" % status, body=b'{"error":"odd"}')
    for path, body in (("/v1/models/free:predict", BODY), ("/v2/models/free/infer", V2)):
        one, live = twice(little, request(path, body), LIVE)
        assert one.status == (status if status < 600 else 502)
        assert live.status == 200


@pytest.mark.parametrize(
    ("head", "status", "names"),
    [
        (b"204 No Content\r\ncontent-length: 5", 204, {"date"}),
        (b'304 Not Modified\r\ncontent-length: 5\r\netag: "a"', 304, {"date", "etag"}),
        (b"200 OK\r\ncontent-length: 0\r\nx-a: \xe9", 200, {"date", "x-a", "content-length"}),
    ],
)
def test_an_answer_without_a_body_is_whole(
    sidecar: Server, odd: OddServer, head: bytes, status: int, names: set[str]
) -> None:
    odd.answer = b"HTTP/1.1 %b\r\n\r\n" % head
    for one in twice(sidecar, WAYS["passed-on"], WAYS["passed-on"]):
        assert (one.status, set(one.headers), one.body) == (status, names | {"x-request-id"}, b"")


@pytest.mark.parametrize(
    "head", [b"200 OK\r\nx-a: a\x01b", b"101 Switching\r\nupgrade: x\r\nconnection: upgrade"]
)
def test_a_head_that_may_not_be_sent_is_a_failure_of_the_server(
    sidecar: Server, odd: OddServer, head: bytes
) -> None:
    odd.answer = b"HTTP/1.1 %b\r\ncontent-length: 0\r\n\r\n" % head
    for one in twice(sidecar, WAYS["passed-on"], WAYS["passed-on"]):
        assert one.status == 502
        assert one.error.startswith("the model server")


MEMORY_BYTES = 160 << 20
"""A worker takes half of that for itself."""
BOUND = " bytes, a 64th of the memory that worker_memory_bytes leaves"


@pytest.fixture(scope="module")
def little(start_for_module: Start, odd: OddServer) -> Server:
    """Models with little memory, and one that may take what it likes."""
    model = {"workers": 2, "worker_memory_bytes": MEMORY_BYTES}
    tensors = {"path": f"{odd.url}/v2/models/tensors", "protocol": "v2"}
    return start_for_module(
        {
            "any": {"path": odd.url, **model},
            "tensors": {**tensors, **model},
            "free": {**tensors, "workers": 1},
        },
        lane_bytes=4 << 20,
        client_lanes=0,
    )


@pytest.mark.parametrize(
    ("odd_answer", "status", "words"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 600000000\r\n\r\n", 502, BOUND),
        (b"HTTP/1.1 200 OK\r\n\r\n" + bytes(8 << 20), 502, BOUND),
        (answer(b"200 OK", body=b'{"outputs":[' + b"[]," * 330_000 + b"[]]}"), 502, ""),
        (answer(b"200 OK", body=b'{"x":[' + b'{"a":0.5},' * 99_000 + b"[]]}"), 502, ""),
        (answer(b"429 Many", b"retry-after: 1 Jan 2026 1:1:1 -" + b"9" * 17), 429, ""),
        (answer(b"503 Busy", b"retry-after: 1 Jan 2026 " + b"9" * 20 + b":1:1 GMT"), 503, ""),
        (answer(b"200 OK", b"inference-header-content-length: " + b"1" * 5000), 502, ""),
    ],
    ids=["long", "endless", "lists", "objects", "zone", "hours", "digits"],
)
def test_no_answer_ends_a_worker(
    little: Server, odd: OddServer, odd_answer: bytes, status: int, words: str
) -> None:
    before = little.titles()
    odd.answer = odd_answer
    for path, body in (
        ("/v1/models/any:predict", BODY),
        ("/v1/models/tensors:predict", BODY),
        ("/v2/models/tensors/infer", V2),
    ):
        with Connection(little.port) as connection:
            reply = connection.ask(request(path, body))
        assert reply.status == status
        assert words in reply.error
    assert little.titles() == before


def test_no_target_names_another_server(sidecar: Server, odd: OddServer) -> None:
    odd.answer = answer(b"200 OK")
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        host, port = other.getsockname()
        for target in (f"*@{host}:{port}/secret", f"*.{host}:{port}/"):
            for method in ("GET", "OPTIONS"):
                with Connection(sidecar.port) as connection:
                    assert connection.ask(request(target, method=method)).status == 400
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.accept()


def test_headers_are_passed_on_byte_for_byte(sidecar: Server, odd: OddServer) -> None:
    odd.answer = answer(b"200 OK")
    text = "\u00e9\u20ac"
    with Connection(sidecar.port) as connection:
        connection.ask(request("/x", b"", headers={"X-A": text}))
    assert (b"x-a", text.encode()) in odd.headers


@pytest.mark.parametrize("length", [True, False])
def test_an_answer_that_comes_before_the_whole_request_is_passed_on(
    sidecar: Server, odd: OddServer, length: bool
) -> None:
    odd.answer = answer(b"413 Too Large")
    odd.reads_bodies = False
    size = 1 << 25
    lines = {"Content-Length": str(size)} if length else CHUNKED
    with Connection(sidecar.port) as connection:
        connection.send(request("/large", headers=lines))
        connection.send((b"" if length else b"%x\r\n" % size) + bytes(1 << 20))
        assert connection.receive().status == 413


def is_delivered(connection: socket.socket) -> bool:
    """Return whether the other end's kernel has all bytes that were sent: tcp(7)'s SIOCOUTQ."""
    return not any(fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)))


def test_unrequested_bytes_of_the_server_are_nobodys_answer(
    sidecar: Server, odd: OddServer, wait_until: Callable[..., object]
) -> None:
    odd.answer = answer(b"200 OK", body=b"asked")
    with Connection(sidecar.port) as connection:
        for _ in range(3):
            assert connection.ask(WAYS["passed-on"]).body == b"asked"
            assert odd.latest is not None
            odd.latest.sendall(answer(b"200 OK", body=b"unasked"))
            wait_until(partial(is_delivered, odd.latest), "it is there to be read")
            # By the time that this is answered, it was.
            connection.ask(WAYS["fast-lane"])
