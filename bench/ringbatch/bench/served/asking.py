"""Single questions over HTTP, with words for what goes wrong."""

import http.client
import socket
import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ringbatch.bench.served.failures import CannotMeasure

_PATIENCE_S = 60.0
_UNIX = "unix:"
_SHOWN = 400


@dataclass(frozen=True)
class Address:
    """Address of a server.

    Attributes:
        host: a name or an address; of a Unix socket its path.
        port: of TCP; 0 with a Unix socket.
    """

    host: str
    port: int

    @classmethod
    def of(cls, url: str) -> "Address":
        """Return the address in ``http://HOST:PORT`` or ``unix:/PATH``.

        Raises:
            CannotMeasure: the text has neither form.
        """
        if url.startswith(f"{_UNIX}/"):
            return cls(url.removeprefix(_UNIX), 0)
        try:
            parts = urllib.parse.urlsplit(url)
            # As requests name it; what is no name of a host at all is refused by it.
            host, port = (parts.hostname or "").encode("idna").decode(), parts.port
        except ValueError:
            host, port = "", None
        if not host or parts.scheme != "http" or parts.path not in ("", "/"):
            raise CannotMeasure(f'found "{url}", but it must be http://HOST:PORT or unix:/PATH')
        return cls(host, port or 80)

    @property
    def authority(self) -> str:
        """Address as requests name it: ``HOST:PORT``."""
        if self.is_unix:
            return "localhost"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def is_unix(self) -> bool:
        """True for the address of a Unix socket."""
        return self.host.startswith("/")

    def connection(self, patience_s: float) -> socket.socket:
        """Connect to it; raises OSError."""
        if not self.is_unix:
            return socket.create_connection((self.host, self.port), patience_s)
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            client.settimeout(patience_s)
            client.connect(self.host)
        except OSError:
            client.close()
            raise
        return client

    def __str__(self) -> str:
        return f"{_UNIX}{self.host}" if self.is_unix else f"http://{self.authority}"


def reached(address: Address) -> Address:
    """Return the numeric address that answers, of all addresses that the name has.

    Raises:
        CannotMeasure: no server answers there.
    """
    try:
        with address.connection(_PATIENCE_S) as connection:
            if address.is_unix:
                return address
            numbers = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
            host, _ = socket.getnameinfo(connection.getpeername(), numbers)
    except OSError as error:
        raise _unreachable(address, error) from None
    return Address(host, address.port)


class Reply(NamedTuple):
    """HTTP answer.

    Attributes:
        status: the HTTP status.
        body: the body of the answer.
        content_type: type of the body; empty if the answer names none.
    """

    status: int
    body: bytes
    content_type: str


def excerpt(text: bytes) -> str:
    """Return the begin of a body, to show."""
    return text[:_SHOWN].decode(errors="replace")


def ask(
    address: Address,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Sequence[tuple[str, str]] = (),
    patience_s: float = _PATIENCE_S,
) -> Reply:
    """Return one answer.

    Raises:
        CannotMeasure: there is none.
    """
    connection = http.client.HTTPConnection(address.authority, timeout=patience_s)
    try:
        connection.sock = address.connection(patience_s)
        connection.request(method, path, body, dict(headers))
        answer = connection.getresponse()
        return Reply(answer.status, answer.read(), answer.getheader("Content-Type", ""))
    except TimeoutError:
        raise CannotMeasure(f"{address} does not answer {path} in {patience_s:g} s") from None
    except http.client.HTTPException as error:
        name = type(error).__name__
        raise CannotMeasure(f"what {address} answers is not HTTP: {name} {error}") from None
    except OSError as error:
        raise _unreachable(address, error) from None
    finally:
        connection.close()


def _unreachable(address: Address, error: OSError) -> CannotMeasure:
    return CannotMeasure(f"nothing serves at {address}: {error.strerror or error}")
