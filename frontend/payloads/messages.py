"""Messages of a serving process to the control process: the events of exchanges. Pure.

A message is records, one after another. A record is either lines of a file, which only need to be
appended, or one event. Long bodies are passed on as they are, because to make lines of them would
hold up the requests of the serving process.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Final

import orjson

from ringbatch.frontend.payloads.events import Event, as_line, events
from ringbatch.frontend.payloads.exchange import PayloadExchange
from ringbatch.frontend.payloads.settings import EventSettings

SHORT_BYTES: Final = 1 << 12
"""The longest body of which a serving process makes a line."""
_RECORD: Final = struct.Struct("<QQ")
"""The bytes of the attributes, as JSON, and of the body, which follow. Lines have no attributes."""


def records(exchanges: Iterable[PayloadExchange], settings: EventSettings) -> bytes:
    """Return the events of exchanges as records."""
    pieces: list[bytes] = []
    lines: list[bytes] = []
    for exchange in exchanges:
        for event in events(exchange, settings):
            if settings.lines and len(event.data) <= SHORT_BYTES:
                lines.append(as_line(event))
            else:
                pieces += _record(b"", b"".join(lines)) if lines else ()
                lines.clear()
                pieces += _record(orjson.dumps(event.attributes), event.data)
    pieces += _record(b"", b"".join(lines)) if lines else ()
    return b"".join(pieces)


def contents(message: bytes) -> Iterator[Event | bytes]:
    """Yield what the records of a message have: events, and lines."""
    end = 0
    while end < len(message):
        attributes_bytes, data_bytes = _RECORD.unpack_from(message, end)
        start = end + _RECORD.size
        middle = start + attributes_bytes
        end = middle + data_bytes
        data = message[middle:end]
        yield Event(orjson.loads(message[start:middle]), data) if attributes_bytes else data


def _record(attributes: bytes, data: bytes) -> tuple[bytes, ...]:
    return _RECORD.pack(len(attributes), len(data)), attributes, data
