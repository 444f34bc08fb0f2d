"""A receiver of CloudEvents over HTTP, in binary content mode, on one connection that is kept."""

import http.client
import ssl
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from ringbatch.frontend.payloads.events import Event, as_headers
from ringbatch.frontend.payloads.messages import contents
from ringbatch.shm.host.delivering import NotTakenError

EVENT_BYTES: Final = 1 << 10
"""Bytes of memory that one event takes beside its data."""
_TIMEOUT_S: Final = 5.0
_LATER: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses after which the same event may be sent again."""
_MOST_BYTES: Final = 1 << 16
"""Most bytes that are read of the server's answer."""


class HttpSink:
    """Sink that posts CloudEvents to an HTTP server, for one thread.

    Args:
        address: http or https, with or without a path.
        authority: the certificates that the server's must be signed by; None for the system's.

    Raises:
        OSError, ssl.SSLError: the certificates cannot be read.
    """

    def __init__(self, address: str, authority: Path | None) -> None:
        parts = urlsplit(address)
        host, port = parts.hostname or "", parts.port
        self._connection: http.client.HTTPConnection
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=authority)
            self._connection = http.client.HTTPSConnection(
                host, port, timeout=_TIMEOUT_S, context=context
            )
        else:
            self._connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")

    def entries(self, message: bytes) -> Iterator[tuple[Event, int, int]]:
        """Yield the events of a message; see `Sink`."""
        for event in contents(message):
            if isinstance(event, Event):
                yield event, len(event.data) + EVENT_BYTES, 1

    def deliver(self, events: Sequence[Event]) -> str:
        """Send the one event there is; return a remark, which is empty.

        Raises:
            OSError: it did not arrive, or may be sent again.
            NotTakenError: it was refused.
        """
        (event,) = events
        try:
            self._connection.request("POST", self._target, event.data, as_headers(event))
            response = self._connection.getresponse()
            response.read(_MOST_BYTES)
            if not response.isclosed():
                self._connection.close()
        except http.client.HTTPException as error:
            self._connection.close()
            raise ConnectionError(f"its answer is not HTTP: {type(error).__name__}") from error
        except ValueError as error:
            self._connection.close()
            raise NotTakenError("an attribute of the event cannot stand in a header") from error
        except BaseException:
            self._connection.close()
            raise
        if response.status in _LATER:
            raise ConnectionError(f"it answers with status {response.status}")
        if not 200 <= response.status < 300:
            raise NotTakenError(f"it answers with status {response.status}")
        return ""

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
