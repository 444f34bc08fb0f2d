"""Answers on a fuzzed connection: in parts as models make them, and all as a client reads them."""

import asyncio

from ringbatch.frontend.codec.outcome import Answer, outcome
from ringbatch.frontend.request.calls import Reply
from ringbatch.frontend.request.parts_task import InParts
from ringbatch.shm.errors import ModelFailed, RequestError


class Stream:
    """An answer in parts, one in each turn of the loop, of which some end with an error."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        part: Answer,
        count: int,
        reply: Reply,
        in_parts: InParts[Answer],
    ) -> None:
        self._loop = loop
        self._part = part
        self._left = count
        self._reply = reply
        self._in_parts = in_parts
        self._ended = False
        loop.call_soon(self._go_on)

    @property
    def holds(self) -> tuple[int, int]:
        """See `RequestHandle.holds`."""
        return 1, 1

    def abandon(self) -> None:
        """See `RequestHandle.abandon`."""
        assert not self._ended, "abandoned after its end"
        self._ended = True

    def _go_on(self) -> None:
        if self._ended:
            return
        if self._left:
            self._left -= 1
            try:
                self._in_parts.on_part(self._part)
            except RequestError as error:
                self._end(outcome(error))
                return
            self._in_parts.flush()
            self._loop.call_soon(self._go_on)
        elif self._part[1][-3:-2] in b"02468ace":
            self._end(self._in_parts.end)
        else:
            self._end(outcome(ModelFailed("behind the last part")))

    def _end(self, answer: Answer) -> None:
        self._ended = True
        self._reply(answer)


def answers_of(written: bytes) -> list[tuple[int, bytes, bool]]:
    """Status and body of each answer, and whether it says that it was the last."""
    found = []
    while written:
        head, _, rest = written.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        headers = dict(line.split(b": ", 1) for line in lines[1:])
        status = int(lines[0].split(b" ")[1])
        closes = headers.get(b"connection") == b"close"
        if headers.get(b"transfer-encoding") == b"chunked":
            body, written = _chunks(rest)
        else:
            length = int(headers.get(b"content-length", b"0"))
            body, written = rest[:length], rest[length:]
        found.append((status, body, closes))
    return found


def _chunks(written: bytes) -> tuple[bytes, bytes]:
    """Return a body in chunks, as far as it has come, and the bytes behind it.

    Where an answer is cut into chunks is no difference; a chunk that lacks bytes is an error.
    """
    body = b""
    while written:
        line, _, rest = written.partition(b"\r\n")
        size = int(line, 16)
        assert rest[size : size + 2] == b"\r\n", written
        written = rest[size + 2 :]
        body += rest[:size]
        if not size:
            return body + b"<end>", written
    return body, written
