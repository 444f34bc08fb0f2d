"""HTTP as bytes on a socket, so that a test can send what no library would."""

import json
import socket
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

_WATCHDOG_S: Final = 60
NO_BODY: Final = (204, 304)


class Closed(Exception):
    """The connection ended where an answer should begin or go on.

    Attributes:
        received: part of the answer received until then.
    """

    def __init__(self, received: bytes) -> None:
        super().__init__(f"closed after {received!r}")
        self.received = received


_ERRORS: Final = (["error"], ["error", "error_type"], ["message", "error"])
"""The members of an error in ringbatch's own form, in TEI's and in Cohere's."""


@dataclass(frozen=True)
class Response:
    """HTTP response; header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The text of an error."""
        assert self.headers["content-type"] == "application/json"
        assert list(self.json) in _ERRORS, self.body
        return str(self.json["error"])

    @property
    def comparable(self) -> tuple[int, Any, str]:
        """All of the response but batch and date, to compare two ways to the same answer."""
        body = self.json if self.headers["content-type"] == "application/json" else self.body
        if isinstance(body, dict):
            body = {key: value for key, value in body.items() if key != "batchId"}
        return self.status, body, self.headers["content-type"]


class Connection:
    """HTTP connection to 127.0.0.1; a context manager.

    Args:
        port: of the server.
        source: the address from which it comes.
    """

    def __init__(self, port: int, source: str = "127.0.0.1") -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), _WATCHDOG_S, (source, 0))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        self.port = self._socket.getsockname()[1]
        if self._socket.getsockname() == self._socket.getpeername():
            # No server listens there: TCP has connected the socket with itself.
            self.close()
            raise ConnectionRefusedError(f"port {port}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send all of the bytes."""
        self._socket.sendall(data)

    def receive(self, *, head: bool = False) -> Response:
        """The next answer.

        Args:
            head: whether it answers a HEAD, and so has no body whatever its headers say.

        Raises:
            Closed: the connection ended first.
        """
        text = self._until(b"\r\n\r\n").decode("latin-1")
        first, *lines = text[:-4].split("\r\n")
        headers = {}
        for line in lines:
            name, _, value = line.partition(": ")
            assert name.lower() not in headers, f"{name} stands there twice"
            headers[name.lower()] = value
        protocol, status, _reason = first.split(" ", 2)
        assert protocol == "HTTP/1.1", first
        number = int(status)
        bodiless = head or number < 200 or number in NO_BODY
        if not bodiless and headers.get("transfer-encoding") == "chunked":
            return Response(number, headers, b"".join(self._chunks()))
        size = 0 if bodiless else int(headers["content-length"])
        while len(self._buffer) < size:
            self._more(text.encode("latin-1") + self._buffer)
        body, self._buffer = self._buffer[:size], self._buffer[size:]
        return Response(number, headers, body)

    def _chunks(self) -> Iterator[bytes]:
        """The chunks of a body, each as long as the line before it says."""
        while size := int(self._until(b"\r\n"), 16):
            while len(self._buffer) < size + 2:
                self._more(self._buffer)
            yield self._buffer[:size]
            self._buffer = self._buffer[size + 2 :]
        self._until(b"\r\n")

    def ask(self, data: bytes) -> Response:
        """Send a request and receive its answer."""
        self.send(data)
        return self.receive()

    def send_aside(self, data: bytes) -> None:
        """Send the bytes from a thread of their own, so that answers can be received meanwhile."""
        threading.Thread(target=self._socket.sendall, args=(data,), daemon=True).start()

    def ended(self) -> bool:
        """Wait for the end of the connection; whether nothing came before."""
        assert not self._buffer, self._buffer
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _until(self, end: bytes) -> bytes:
        while (at := self._buffer.find(end)) < 0:
            self._more(self._buffer)
        found = self._buffer[: at + len(end)]
        self._buffer = self._buffer[at + len(end) :]
        return found

    def _more(self, so_far: bytes) -> None:
        try:
            data = self._socket.recv(1 << 16)
        except ConnectionError:
            data = b""
        if not data:
            raise Closed(so_far)
        self._buffer += data


def request(
    target: str,
    body: bytes | None = None,
    *,
    method: str = "POST",
    version: str = "1.1",
    headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
) -> bytes:
    """A request; Content-Length is there where `body` is, unless `headers` has one."""
    lines = list(headers.items() if isinstance(headers, Mapping) else headers)
    names = {name.lower() for name, _ in lines}
    if body is not None and not names & {"content-length", "transfer-encoding"}:
        lines.append(("Content-Length", str(len(body))))
    head = [f"{method} {target} HTTP/{version}", "Host: test"]
    head += [f"{name}: {value}" for name, value in lines]
    return "\r\n".join([*head, "", ""]).encode() + (body or b"")


def predict_target(model: str) -> str:
    """The path of a model's predictions."""
    return f"/v1/models/{model}:predict"


def instances(*values: Any) -> bytes:
    """The body of a request in row format."""
    return json.dumps({"instances": values}).encode()


def fast(model: str, body: bytes) -> bytes:
    """A prediction request that the fast lane takes."""
    return request(predict_target(model), body)


def escaped(model: str, body: bytes) -> bytes:
    """Return a prediction with another spelling of the path, which is Falcon's."""
    return request(f"/v1/models/{model}%3Apredict", body)


def chunked(model: str, body: bytes) -> bytes:
    """Return a prediction with its body in chunks, which is Falcon's."""
    pieces = [body[at : at + 7001] for at in range(0, len(body), 7001)]
    text = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    return request(predict_target(model), text, headers={"Transfer-Encoding": "chunked"})


def old(model: str, body: bytes) -> bytes:
    """Return a prediction over HTTP/1.0, which is Falcon's and ends the connection."""
    return request(predict_target(model), body, version="1.0")


WAYS: Final = {"fast": fast, "escaped": escaped, "chunked": chunked, "http10": old}
"""Ways to request the same prediction."""


def assert_serves(port: int) -> None:
    """Assert that a request on a new connection is answered."""
    with Connection(port) as connection:
        answer = connection.ask(fast("matmul", instances([0] * 16)))
    assert (answer.status, answer.json["predictions"]) == (200, [[0.0] * 10])
