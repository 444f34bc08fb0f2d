"""Right answers in parts, and whether another answer is one. Pure."""

from collections.abc import Sequence
from typing import Any, Self

import orjson

from ringbatch.bench.load.answers import Reference
from ringbatch.bench.load.event_stream import EventReader, is_part


class StreamReference:
    """Right parts of one answer.

    Attributes:
        count: the least number of parts of another answer; 0 for any, as OpenAI's parts may have
            several tokens.

    Args:
        events: the data of each part, as it came once.
        openai: True for a stream of OpenAI's, whose parts are compared by their text.
    """

    def __init__(self, events: Sequence[bytes], *, openai: bool) -> None:
        self.count = 0 if openai else len(events)
        self._text = _text_of(events) if openai else None
        self._parts = [] if openai else [Reference.of(event) for event in events]

    @classmethod
    def of(cls, body: bytes, *, openai: bool) -> Self:
        """Return the reference of a right answer's body."""
        events = EventReader().take(body)
        return cls([event for event in events if is_part(event, openai=openai)], openai=openai)

    def is_met_by(self, events: Sequence[bytes]) -> bool:
        """Return whether an answer is right; numbers may differ by a thousandth of their size."""
        if self._text is not None:
            return _text_of(events) == self._text
        return len(events) == len(self._parts) and all(
            right.is_met_by(event) for right, event in zip(self._parts, events, strict=True)
        )


def _text_of(events: Sequence[bytes]) -> str:
    """Return the text of an answer in OpenAI's events; an event without one is its bytes."""
    return "".join(map(_event_text, events))


def _event_text(event: bytes) -> str:
    try:
        choice: dict[str, Any] = orjson.loads(event)["choices"][0]
        return str(choice["text"] if "text" in choice else choice["delta"]["content"])
    except (ValueError, TypeError, KeyError, IndexError):
        return event.decode(errors="replace")
