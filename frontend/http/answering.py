"""Answers and failures of applications, the same over HTTP/1.1 and HTTP/2.

An application may be anybody's code. It can never end the process, leave a stream without an end,
or send a malformed answer.

    the application                                     its client gets
    --------------------------------------------------  -----------------------------------------
    answers                                             the answer
    ends without an answer                              500
    raises anything without an answer                   500, or the answer to a `RequestError`
    ends or raises in the middle of its answer          the beginning; the connection, or over
                                                        HTTP/2 the stream, then ends with an error
    sends an impossible head                            nothing of it; `send` raises
    streams on after its client has left                `send` raises `ClientGone`
"""

import asyncio
import logging
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ringbatch.frontend.codec.outcome import InternalError
from ringbatch.frontend.http.asgi import App, Receive, Scope, Send, refuse
from ringbatch.frontend.http.asgi_scope import EXCHANGES, REFUSED, Exchanges
from ringbatch.shm.errors import RequestError

log = logging.getLogger("ringbatch.frontend")

Header = tuple[bytes, bytes]

_START: Final = "http.response.start"
_BODY: Final = "http.response.body"
_STATUSES: Final = range(200, 600)
"""Statuses of final answers. After a lower one, a client still waits for the answer."""
_BODILESS: Final = (204, 304)
_UNKNOWN: Final = -1
_LENGTH: Final = b"content-length"
_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_CONTROL: Final = re.compile(rb"[\0-\x08\x0a-\x1f\x7f]")
_DIGITS: Final = re.compile(rb"[0-9]{1,18}")


class ClientGone(OSError):
    """Error of `send` after the client has left.

    It is an `OSError`, as ASGI requires of `send` (HTTP, version 2.4).
    """

    def __init__(self) -> None:
        super().__init__("the client has gone")


async def answered(app: App, scope: Scope, receive: Receive, send: Send) -> None:
    """Run an application, and answer its request or cut it off. No error leaves this function.

    Args:
        app: the application.
        scope, receive, send: as in ASGI. `send` gets only sound answers: names are in lower case,
            values have no blanks around them, and bodies are as long as their heads say. A body
            that may not be sent is empty.
    """
    answer = _Answer(scope, receive, send)
    refusal: RequestError = InternalError()
    try:
        await app(scope, answer.receive, answer.send)
        if not answer.begun and not answer.is_gone():
            log.error("frontend: %s: the application has not answered", _words(scope))
    except RequestError as error:
        refusal = error
    except BaseException:
        if _is_cancelled():
            raise
        # `SystemExit` would end the process, and `CancelledError` would leave the client waiting.
        if answer.whole or not answer.is_gone():
            log.exception("frontend: %s failed", _words(scope))
    if not answer.begun and not answer.is_gone():
        await refuse(answer.send, refusal)


class _Answer:
    """The answer of an application to one request.

    Attributes:
        begun: whether its head is sent.
        whole: whether all of it is sent.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._exchanges: Exchanges = scope.get(EXCHANGES, Exchanges())
        self._is_bodiless = scope["method"] == "HEAD"
        self._disconnect_received = False
        """True once the application knows that its client has left."""
        self._left = _UNKNOWN
        """Bytes of the body that are to come."""
        self.begun = self.whole = False

    def is_gone(self) -> bool:
        """Return whether nobody takes the answer: the client has left, or is refused already."""
        return self._exchanges.gone or bool(self._scope.get(REFUSED))

    async def receive(self) -> Mapping[str, Any]:
        """Return the next event to the application, as `receive` of ASGI."""
        if self._disconnect_received:
            # An application that asks again and again would give no other task a turn.
            await asyncio.sleep(0)
        message = await self._receive()
        self._disconnect_received = message["type"] == "http.disconnect"
        return message

    async def send(self, message: dict[str, Any]) -> None:
        """Send a part of the answer, as `send` of ASGI.

        Raises:
            RuntimeError, TypeError: the message is no part of an answer, or does not come next.
            ClientGone: nobody takes the answer any more.
        """
        kind = message["type"]
        if self.whole or kind != (_BODY if self.begun else _START):
            raise RuntimeError(f"ASGI message '{kind}' does not come next")
        if kind == _START:
            await self._send(self._head(message))
            self.begun = True
            return
        body, more = message.get("body", b""), bool(message.get("more_body", False))
        if not isinstance(body, bytes | bytearray | memoryview):
            raise TypeError(f"a body is bytes, not {type(body).__name__}")
        body = b"" if self._is_bodiless else bytes(body)
        if self._left != _UNKNOWN and not self._is_bodiless:
            self._expect_fit(len(body), more)
        await self._send({"type": _BODY, "body": body, "more_body": more})
        self.whole = not more
        if more:
            await self._pause()

    async def _pause(self) -> None:
        """Give other tasks a turn between two pieces, and end a stream that no client takes.

        By then, an application that listens for the client's end knows of it, and may stop in
        order.
        """
        gone = self.is_gone()
        await asyncio.sleep(0)
        if gone:
            raise ClientGone

    def _head(self, message: dict[str, Any]) -> dict[str, Any]:
        status = message["status"]
        if not isinstance(status, int) or status not in _STATUSES:
            raise RuntimeError(f"{status!r} is no status of an answer")
        headers = list(_sound(message.get("headers", ())))
        if status in _BODILESS:
            self._is_bodiless = True
            # Content-Length would describe a body that is not sent.
            headers = [line for line in headers if line[0] != _LENGTH]
        self._left = _length(headers)
        return {"type": _START, "status": int(status), "headers": headers}

    def _expect_fit(self, size: int, more: bool) -> None:
        """Return if a piece of this size, the last or not, agrees with Content-Length."""
        left = self._left - size
        if left < 0:
            raise RuntimeError("Response content longer than Content-Length")
        if left and not more:
            raise RuntimeError("Response content shorter than Content-Length")
        self._left = left


def _sound(headers: Iterable[Header]) -> Iterable[Header]:
    """Yield headers as both protocols take them. The connection decides how bodies are framed."""
    for name, value in headers:
        name = name.lower()
        if not _NAME.fullmatch(name):
            raise RuntimeError("Invalid HTTP header name.")
        if _CONTROL.search(value):
            raise RuntimeError("Invalid HTTP header value.")
        if name != b"transfer-encoding":
            yield name, value.strip(b" \t")


def _length(headers: Iterable[Header]) -> int:
    lengths = {value for name, value in headers if name == _LENGTH}
    if not lengths:
        return _UNKNOWN
    length = lengths.pop()
    if lengths or not _DIGITS.fullmatch(length):
        raise RuntimeError("Invalid Content-Length.")
    return int(length)


def _is_cancelled() -> bool:
    """Return whether the server cancels this very task, not the application one that it awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _words(scope: Scope) -> str:
    return f"{scope['method']} {scope['path'][:128]}"
