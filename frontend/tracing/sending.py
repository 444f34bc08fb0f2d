"""Sends messages to an OpenTelemetry collector over HTTP, on one connection that is kept."""

import http.client
from collections.abc import Mapping
from contextlib import suppress
from typing import Final
from urllib.parse import unquote, urlsplit

from ringbatch.frontend.tracing.messages import refusal
from ringbatch.shm.host.delivering import NotTakenError

HEADERS_VARIABLE: Final = "OTEL_EXPORTER_OTLP_HEADERS"
RESOURCE_VARIABLE: Final = "OTEL_RESOURCE_ATTRIBUTES"
"""OpenTelemetry's variables of the environment for additional headers and resource attributes."""
_PATH: Final = "/v1/traces"
_TYPE: Final = "application/x-protobuf"
_TIMEOUT_S: Final = 5.0
_LATER: Final = frozenset({429, 502, 503, 504})
"""Statuses after which the same may be sent again, by OTLP's specification."""
_MOST_BYTES: Final = 1 << 16
"""Most bytes that are read of the collector's answer."""


class Sender:
    """Sender of messages to an OpenTelemetry collector, for one thread.

    Args:
        endpoint: where, without OTLP's path.
        headers: that are sent besides.
    """

    def __init__(self, endpoint: str, headers: Mapping[str, str]) -> None:
        parts = urlsplit(endpoint)
        secure = parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        self._connection = kind(parts.hostname or "", parts.port, timeout=_TIMEOUT_S)
        self._path = parts.path.rstrip("/") + _PATH
        self._headers = {**headers, "content-type": _TYPE}

    def send(self, data: bytes) -> str:
        """Send one message.

        Returns:
            What was not right about it all the same; mostly empty.

        Raises:
            OSError: it did not arrive, or is to be sent again.
            NotTakenError: it was refused, or cannot be sent.
        """
        try:
            status, body = self._exchange(data)
        except http.client.HTTPException as error:
            self._connection.close()
            raise ConnectionError(f"its answer is not HTTP: {type(error).__name__}") from error
        except BaseException:
            self._connection.close()
            raise
        if status in _LATER:
            raise ConnectionError(f"it answers with status {status}")
        if not 200 <= status < 300:
            raise NotTakenError(f"it answers with status {status}")
        with suppress(ValueError):
            return refusal(body)
        return "its answer is not OTLP's"

    def _exchange(self, data: bytes) -> tuple[int, bytes]:
        if self._connection.sock is None:
            self._connect()
        try:
            self._connection.request("POST", self._path, data, self._headers)
        except ValueError:
            # The error itself quotes the value, which may be a secret.
            raise NotTakenError(f"what {HEADERS_VARIABLE} says cannot stand in a header") from None
        response = self._connection.getresponse()
        body = response.read(_MOST_BYTES)
        if not response.isclosed():
            self._connection.close()
        return response.status, body

    def _connect(self) -> None:
        try:
            self._connection.connect()
        except UnicodeError:
            raise NotTakenError("no host can have that name") from None


def pairs(text: str) -> dict[str, str]:
    """Return the pairs in an OpenTelemetry variable: ``name=value,name=value``, percent-encoded."""
    found = (item.partition("=") for item in text.split(","))
    return {name.strip(): unquote(value).strip() for name, equals, value in found if equals}
