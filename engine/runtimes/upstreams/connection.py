"""Kept connection to a model server: a request out, its whole answer in, by a deadline.

HTTP/1.1, over TLS or not, read by llhttp. A connection that the server has closed is noticed before
the next request, if that can be seen. If the server closes it at that moment, before a byte of an
answer, the request is sent once more over a new one. No other request is repeated: the server may
have run the batch.
"""

import re
import resource
import select
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import httptools

from ringbatch.engine.models.model import ServerFailed
from ringbatch.shm.host.authority import authority
from ringbatch.shm.slot import Status

MAX_HEAD_BYTES: Final = 1 << 16
_LANES: Final = 4
"""Lanes that one answer may fill: its requests may be in several, and JSON takes more room."""
_MEMORY_SHARE: Final = 64
"""Part of the free memory that an answer may take: a byte of JSON takes up to 40 once decoded, and
orjson ends the process if memory runs out."""
_RETRY_AFTER: Final = re.compile("[ -~]{0,40}")
_OWN_SIZES: Final = Path("/proc/self/statm")
_DATA: Final = 5
"""Field of `_OWN_SIZES` that RLIMIT_DATA limits, see proc(5)."""
_DIGITS: Final = 20
"""Digits to read of a Content-Length: such a length is too large in any case."""
CONNECT_S: Final = 5.0
"""A server that does not take a connection in this time is taken for down."""
_RECEIVE_BYTES: Final = 1 << 16
"""Size of a receive buffer; for a larger one malloc would map memory with every answer."""
_LONGEST_WAIT_S: Final = 86_400.0
"""poll's timeout has too few bits for more than 24 days."""
_INTERIM: Final = range(100, 200)
_FINAL: Final = range(200, 600)
_PORTS: Final = {"http": 80, "https": 443}
_LOOK_S: Final = 0.1
"""Interval of the check whether to wait any longer."""
_NOT_NOW: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Address(NamedTuple):
    """Address of a model server.

    Attributes:
        host: a name or an address.
        port: TCP's.
        path: of its predictions; empty for the usual one.
        scheme: ``http`` or ``https``.
    """

    host: str
    port: int
    path: str
    scheme: str = "http"

    @property
    def authority(self) -> str:
        """Host and port, as in a URL and in the header Host."""
        return authority(self.host, self.port)

    @property
    def url(self) -> str:
        """URL without a path."""
        return f"{self.scheme}://{self.authority}"


class Bound(NamedTuple):
    """Size limit of an answer.

    Attributes:
        size: in bytes.
        words: the setting behind the limit, to follow the number in a message.
    """

    size: int
    words: str = ""


def description_bound() -> Bound:
    """Return the bound of answers without predictions."""
    return Bound(1 << 24)


def answer_bound(lane_bytes: int) -> Callable[[], Bound]:
    """Return a function that returns the present bound of answers with predictions.

    Args:
        lane_bytes: the setting.
    """
    most = Bound(_LANES * lane_bytes, f", {_LANES} times lane_bytes")
    limit, _ = resource.getrlimit(resource.RLIMIT_DATA)

    def of_memory_left() -> Bound:
        share = max(limit - held_bytes(), 0) // _MEMORY_SHARE
        words = f", a {_MEMORY_SHARE}th of the memory that worker_memory_bytes leaves"
        return most if most.size <= share else Bound(share, words)

    return (lambda: most) if limit == resource.RLIM_INFINITY else of_memory_left


def held_bytes() -> int:
    """Return the bytes of this process's memory that RLIMIT_DATA limits."""
    return int(_OWN_SIZES.read_text().split()[_DATA]) * resource.getpagesize()


class Unreached(ServerFailed):
    """Nothing was sent to the server: it takes no connection, or its certificate is wrong."""

    def __init__(self, reason: str) -> None:
        super().__init__(Status.SERVER_DOWN, f"the model server cannot be reached: {reason}")


class Lost(ServerFailed):
    """The server may have run the batch, and its answer is lost."""


class TooLarge(ServerFailed):
    """The server's answer is over the bound, perhaps because of a single request."""

    def __init__(self, bound: Bound) -> None:
        text = f"the model server's answer is over {bound.size} bytes{bound.words}"
        super().__init__(Status.SERVER_BROKEN, text, isolates=True)


class Answer(NamedTuple):
    """Answer of a server; header names are in lower case, the last of several counts."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def retry_after(self) -> str:
        """The header Retry-After, if it looks like seconds or a date; else empty."""
        value = self.headers.get("retry-after", "")
        return value if _RETRY_AFTER.fullmatch(value) else ""


def address_of(url: str) -> Address:
    """Return the parts of a URL.

    Raises:
        ValueError: it is not the URL of a model server.
    """
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError("it is not http://HOST:PORT or https://HOST:PORT")
    if (
        parts.query
        or parts.fragment
        or parts.username
        or not url.isascii()
        or not url.isprintable()
    ):
        raise ValueError("it has more than host, port and path")
    try:
        parts.hostname.encode("idna")
    except UnicodeError:
        raise ValueError(f"{parts.hostname[:80]!r} is no name of a host") from None
    port = parts.port or _PORTS[parts.scheme]
    return Address(parts.hostname, port, parts.path.rstrip("/"), parts.scheme)


class Upstream:
    """A server, over one connection that is opened when it is needed.

    Args:
        address: of the server.
        hosts: addresses of its host, so that no name is looked up; they are tried in turn.
        tls: the context for TLS.
        given_up: returns True if an answer is not to be waited for any longer.
        bound: returns the bound of an answer; called after its request is made.
    """

    def __init__(
        self,
        address: Address,
        hosts: Sequence[str],
        tls: ssl.SSLContext | None = None,
        given_up: Callable[[], bool] | None = None,
        bound: Callable[[], Bound] = description_bound,
    ) -> None:
        self.address = address
        self._bound = bound
        self._hosts = hosts
        self._tls = tls
        self._given_up = given_up
        self._host = address.authority.encode()
        self._socket: socket.socket | None = None
        self._news = select.poll()

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __del__(self) -> None:
        self.close()

    def get(self, target: str, until_ns: int) -> Answer:
        """Return the answer to a GET; raises as `post`."""
        head = b"GET %b HTTP/1.1\r\nHost: %b\r\n\r\n" % (target.encode(), self._host)
        return self._ask(head, until_ns)

    def post(self, target: bytes, headers: bytes, body: bytes, until_ns: int) -> Answer:
        """Return the answer to a POST.

        Args:
            target: path and query.
            headers: each line ended by CRLF, without Host and Content-Length.
            body: whole.
            until_ns: the deadline, on the monotonic clock.

        Raises:
            ServerFailed: there is no whole answer; the text says why.
        """
        head = b"POST %b HTTP/1.1\r\nHost: %b\r\n%bContent-Length: %d\r\n\r\n" % (
            target,
            self._host,
            headers,
            len(body),
        )
        return self._ask(head + body, until_ns)

    def _ask(self, request: bytes, until_ns: int) -> Answer:
        reader = _Reader(self._bound())
        try:
            if not self._asked_again(request, reader, until_ns):
                self._exchange(self._connect(until_ns), request, reader, until_ns)
        except TimeoutError:
            raise ServerFailed(Status.EXPIRED, "the model server did not answer in time") from None
        except OSError as error:
            when = "in the middle of its answer" if reader.received else "without an answer"
            text = f"the model server closed the connection {when}"
            raise Lost(Status.SERVER_BROKEN, text) from error
        finally:
            if not reader.reusable:
                self.close()
        return reader.answer()

    def _asked_again(self, request: bytes, reader: "_Reader", until_ns: int) -> bool:
        """Send a request over the kept connection; return False if that is closed."""
        if self._socket is None:
            return False
        # Unrequested bytes from a server announce the end of the connection.
        if not self._news.poll(0):
            try:
                self._exchange(self._socket, request, reader, until_ns)
            except ConnectionError:
                if reader.received:
                    raise
            else:
                return True
        self.close()
        return False

    def _connect(self, until_ns: int) -> socket.socket:
        limit_ns = min(until_ns, time.monotonic_ns() + int(CONNECT_S * 1e9))
        _left_s(until_ns)
        connection, reason = None, "its name has no address"
        for host in self._hosts:
            try:
                connection = self._connected(host, limit_ns)
                break
            except TimeoutError:
                reason = "timed out"
            except OSError as error:
                reason = (error.strerror or str(error)).lower()
        if connection is None:
            raise Unreached(reason)
        connection.setblocking(False)
        self._news = select.poll()
        self._news.register(connection, select.POLLIN)
        self._socket = connection
        return connection

    def _connected(self, host: str, until_ns: int) -> socket.socket:
        connection = socket.create_connection((host, self.address.port), _left_s(until_ns))
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is None:
                return connection
            connection.settimeout(_left_s(until_ns))
            return self._tls.wrap_socket(connection, server_hostname=self.address.host)
        except BaseException:
            connection.close()
            raise

    def _exchange(
        self, connection: socket.socket, request: bytes, reader: "_Reader", until_ns: int
    ) -> None:
        # Mostly the kernel has room for all of it, and there is no need to wait.
        unsent = _unsent(connection, request)
        if unsent:
            self._news.modify(connection, select.POLLIN | select.POLLOUT)
        while not reader.complete:
            self._wait(until_ns)
            if unsent:
                unsent = _unsent(connection, unsent)
                if not unsent:
                    self._news.modify(connection, select.POLLIN)
            try:
                data = connection.recv(_RECEIVE_BYTES)
            except _NOT_NOW:
                # No bytes have come; the loop checks the deadline.
                continue
            if not data:
                if reader.ends_with_connection:
                    return
                raise ConnectionResetError
            reader.feed(data)
        if unsent:
            # The server wants no more of this request, and would read the rest as another.
            self.close()

    def _wait(self, until_ns: int) -> None:
        """Wait until bytes can perhaps be sent or received.

        TLS holds none back: its records are smaller than one receive.
        """
        while True:
            left_s = min(_left_s(until_ns), _LONGEST_WAIT_S)
            if self._given_up is None:
                self._news.poll(left_s * 1000)
                return
            if self._news.poll(min(left_s, _LOOK_S) * 1000):
                return
            if self._given_up():
                text = "the model server does not answer, and is taken for down"
                raise Lost(Status.SERVER_BROKEN, text)


class _Reader:
    """Reader of an answer, from the callbacks of llhttp."""

    def __init__(self, bound: Bound) -> None:
        self._bound = bound
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._head_bytes = 0
        self._pieces: list[bytes] = []
        self._in_head = True
        self._status = 0
        self._keep_alive = False
        self.received = 0
        self.complete = False

    @property
    def ends_with_connection(self) -> bool:
        """True if the answer is whole when the connection ends here."""
        framed = {"content-length", "transfer-encoding"} & self._headers.keys()
        return not self._in_head and not framed

    @property
    def reusable(self) -> bool:
        """True if the connection can take another request."""
        return self.complete and self._keep_alive

    def feed(self, data: bytes) -> None:
        """Parse bytes of the answer.

        Raises:
            ServerFailed: they are no answer, or too much.
        """
        self.received += len(data)
        self._head_bytes += len(data) if self._in_head else 0
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if isinstance(error.__context__, MemoryError):
                # A parser callback ran out of memory; the parser's error would blame the answer.
                raise MemoryError from None
            if not self.complete:
                raise _broken(f"the model server's answer is not HTTP/1.1: {error}") from None
            self._keep_alive = False
        if self._in_head and self._head_bytes > MAX_HEAD_BYTES:
            raise _broken(f"the head of the model server's answer is over {MAX_HEAD_BYTES} bytes")
        if not self._in_head and self._status not in _FINAL:
            raise _broken(f"the model server answered {self._status}, which is no status of HTTP")
        size = self._bound.size
        if self.received > size or (not self.complete and self._announced_bytes() > size):
            raise TooLarge(self._bound)

    def _announced_bytes(self) -> int:
        """Return the Content-Length of a complete head, else 0."""
        length = "" if self._in_head else self._headers.get("content-length", "")
        return int(length.lstrip("0")[:_DIGITS] or 0) if length.isdecimal() else 0

    def answer(self) -> Answer:
        """Return the whole answer."""
        return Answer(self._status, self._headers, b"".join(self._pieces))

    def on_message_begin(self) -> None:
        """Handle the begin of a message; an exception ends the parsing."""
        if self.complete:
            raise ValueError("nothing was asked that this could answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Handle a header, or a trailer, which is ignored."""
        if self._in_head:
            self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Handle the end of the head."""
        self._status = self._parser.get_status_code()
        self._keep_alive = self._parser.should_keep_alive()
        self._in_head = self._status in _INTERIM

    def on_body(self, piece: bytes) -> None:
        """Handle a piece of the body."""
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        """Handle the end of the message."""
        if self._in_head:
            # It is an interim response; the final one is to come.
            self._headers.clear()
        else:
            self.complete = True


def _unsent(connection: socket.socket, request: bytes | memoryview) -> memoryview:
    """Send the bytes that the kernel has room for, and return the rest."""
    try:
        sent = connection.send(request)
    except _NOT_NOW:
        sent = 0
    except ConnectionError:
        # The server may have answered early, and closed; its answer is still in the buffer.
        sent = len(request)
    return memoryview(request)[sent:]


def _left_s(until_ns: int) -> float:
    left_ns = until_ns - time.monotonic_ns()
    if left_ns <= 0:
        raise TimeoutError
    return left_ns / 1e9


def _broken(text: str) -> ServerFailed:
    return ServerFailed(Status.SERVER_BROKEN, text)
