"""Server-sent events of an answer, counted by their bytes. Pure.

An event ends with an empty line. It is a part if it has data, unless the data is an error, the end
mark of OpenAI's streams, or an event of OpenAI's that has no text. Comments count for nothing.
"""

from typing import Final

from ringbatch.bench.load.answers import BadAnswer

_DATA: Final = b"data:"
_ERROR: Final = b'{"error"'
_DONE: Final = b"[DONE]"
_NO_TEXT: Final = (b'"delta":{}', b'"content":""', b'"text":""', b'"choices":[]')
"""Marks of the events of OpenAI's streams that have no text: the role, the end, the usage."""
_HEX_DIGITS_MAX: Final = 16


class ChunkedBody:
    """A body in chunks, taken apart as it comes.

    Attributes:
        ended: whether the last chunk has come.
    """

    __slots__ = ("_left", "_unread", "ended")

    def __init__(self) -> None:
        self._left = 0
        """Bytes of the current chunk that are still to come, its line end included."""
        self._unread = b""
        self.ended = False

    def take(self, data: bytes) -> bytes:
        """Take received bytes; return those of the body.

        Raises:
            BadAnswer: they are no chunks, or more follows the last one.
        """
        if self._unread:
            data, self._unread = self._unread + data, b""
        at, size, pieces = 0, len(data), []
        while at < size:
            if self.ended:
                raise BadAnswer("more bytes behind the end of an answer")
            if self._left:
                stop = min(at + self._left, size)
                self._left -= stop - at
                # Of what is left behind the chunk, the last two bytes are its line end.
                pieces.append(data[at : max(stop - max(2 - self._left, 0), at)])
                at = stop
                continue
            end = data.find(b"\r\n", at)
            if end < 0:
                self._unread = data[at:]
                if len(self._unread) > _HEX_DIGITS_MAX:
                    raise BadAnswer(f"a chunk without a size: {self._unread[:40]!r}")
                break
            length = _size_of(data[at:end])
            if length:
                self._left = length + 2
                at = end + 2
            elif data[end + 2 : end + 4] == b"\r\n":
                self.ended = True
                at = end + 4
            elif size < end + 4:
                self._unread = data[at:]
                break
            else:
                raise BadAnswer("an answer with trailers, which are not read here")
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _size_of(line: bytes) -> int:
    try:
        return int(line.partition(b";")[0], 16)
    except ValueError:
        raise BadAnswer(f"a chunk without a size: {line[:40]!r}") from None


class EventReader:
    """Events, as the bytes of their stream come."""

    __slots__ = ("_unread",)

    def __init__(self) -> None:
        self._unread = b""

    def take(self, data: bytes) -> list[bytes]:
        """Take bytes; return the data of each event that they end, without its name.

        An event without data, such as a comment, is left out.
        """
        text = self._unread + data if self._unread else data
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n")
        *events, self._unread = text.split(b"\n\n")
        return [found for event in events if (found := _data_of(event))]


def _data_of(event: bytes) -> bytes:
    if event.startswith(_DATA) and b"\n" not in event:
        return event[len(_DATA) :].lstrip()
    lines = [line[len(_DATA) :].strip() for line in event.split(b"\n") if line.startswith(_DATA)]
    return b"\n".join(lines)


def is_error(data: bytes) -> bool:
    """Return whether an event ends its answer with an error."""
    return data.startswith(_ERROR)


def is_part(data: bytes, *, openai: bool) -> bool:
    """Return whether an event is a part of its answer.

    Args:
        data: of the event.
        openai: True for a stream of OpenAI's, which has further events.
    """
    if not openai:
        return not is_error(data)
    if data == _DONE or is_error(data):
        return False
    return not any(mark in data for mark in _NO_TEXT)
