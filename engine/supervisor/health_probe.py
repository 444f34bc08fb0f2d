"""Health probe: the supervisor sends its own server a request, as a client would."""

import http.client
import math
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any

from ringbatch.shm.host.background import short_thread

LATE_S = 5.0
"""Time without a yes, after which the probe says so."""
_TIMEOUT_S = 2.0
_ENGINE_READY = (http.client.OK, http.client.BAD_GATEWAY)
"""BAD_GATEWAY: only a model server behind the engine is not ready, and may be later."""
_MARK = {"X-Request-Id": "ringbatch-probe"}
"""Shows readers of the access log that the request is the engine's own."""


class Probe:
    """Repeated question, in a thread, as the answer may take long.

    Args:
        ask: the question.
        on_late: called once if there is no yes after `LATE_S`.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        ask: Callable[[], bool],
        on_late: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask = ask
        self._on_late = on_late
        self._clock = clock
        self._late_s: float | None = None
        self._asking: threading.Thread | None = None
        self._yes = False

    def succeeds(self) -> bool:
        """Return whether the latest answer was yes; the probe repeats until it is."""
        if self._late_s is None:
            self._late_s = self._clock() + LATE_S
        elif not self._yes and self._clock() >= self._late_s:
            self._late_s = math.inf
            self._on_late()
        if not self._yes and (self._asking is None or not self._asking.is_alive()):
            self._asking = short_thread("the question whether the server serves", self._answer)
        return self._yes

    def _answer(self) -> None:
        self._yes = self._ask()


def answers_ready(listener: socket.socket, *, tls: bool = False) -> bool:
    """Return whether a frontend at that socket answers that all workers are ready; see `ask`."""
    return ask(listener, tls=tls) in _ENGINE_READY


def ask(
    listener: socket.socket, path: str = "/v2/health/ready", *, tls: bool = False
) -> int | None:
    """Return the status of a frontend's answer; None if no frontend answers.

    Args:
        listener: bound; the request goes to its address.
        path: of the request; by default it answers whether all workers are ready.
        tls: True to use TLS and accept any certificate.
    """
    connection = http.client.HTTPConnection("localhost", timeout=_TIMEOUT_S)
    try:
        connection.sock = _connected(listener, tls=tls)
        connection.request("GET", path, headers=_MARK)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def _connected(listener: socket.socket, *, tls: bool) -> socket.socket:
    client = socket.socket(listener.family, socket.SOCK_STREAM)
    try:
        client.settimeout(_TIMEOUT_S)
        client.connect(_reachable(listener.getsockname()))
        return _unverified().wrap_socket(client) if tls else client
    except OSError:
        client.close()
        raise


def _reachable(address: Any) -> Any:
    """Return the address at which a client of this machine reaches a socket bound to `address`."""
    if isinstance(address, str):
        return address
    host, *rest = address
    return ({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), *rest)


def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
