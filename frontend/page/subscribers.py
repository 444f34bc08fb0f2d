"""Subscribers of the page, and the events that each has yet to get.

An event is made once for all subscribers. A subscriber keeps only the time of its last event: one
that reads slowly holds no memory, and catches up from the history.
"""

import asyncio
from typing import Any, Final

from falcon.asgi import SSEvent

from ringbatch.frontend.page.feed import BEGINNING, HEARTBEAT
from ringbatch.frontend.page.history import History

MAX_SUBSCRIBERS: Final = 16
"""A quarter of the connections of the control address: metrics and health have the others."""
PIECE_BYTES: Final = 1 << 15
"""Bytes that are sent at once; the next follow when the client has taken them."""
HEARTBEAT_S: Final = 15.0
"""Longest time without an event; then a comment is sent, so that no proxy in between takes the
stream for dead."""
MAX_LAG_S: Final = 30.0
"""A subscriber that takes longer for what it was sent is dropped; it may come again."""


class EncodedEvents(SSEvent):
    """Events that are encoded already."""

    def __init__(self, encoded: bytes) -> None:
        super().__init__()
        self._encoded = encoded

    def serialize(self, _handler: Any = None) -> bytes:
        """Return the next event; called by Falcon."""
        return self._encoded


class Subscribers:
    """All subscribers of one process.

    Args:
        history: the events that a new subscriber gets first.
        most: subscribers at once.

    Attributes:
        latest: by their kind, the events of which the latest alone is worth sending, each with
            a number that grows when there is another.
    """

    def __init__(self, history: History, most: int = MAX_SUBSCRIBERS) -> None:
        self.latest: dict[str, tuple[int, bytes]] = {}
        self._history = history
        self._most = most
        self._all: set[Subscriber] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._all)

    def publish(self, at_ms: int, figures: bytes | None, **latest: bytes) -> None:
        """Send events to all subscribers.

        Args:
            at_ms: when it happened.
            figures: the event with the figures of the time since the last one; None if unknown.
            latest: by kind, the event with the present state.
        """
        if figures is not None:
            self._history.add(at_ms, figures)
        for kind, encoded in latest.items():
            number, known = self.latest.get(kind, (0, b""))
            if encoded != known:
                self.latest[kind] = number + 1, encoded
        for subscriber in self._all:
            subscriber.news.set()

    def admit(self, after_ms: int, exchanges: set[Any]) -> "Subscriber | None":
        """Return a new subscriber; None if there are too many.

        Args:
            after_ms: instant up to which it has the events.
            exchanges: exchanges of its connection, which are told when it is closed.
        """
        if self._closed or len(self._all) >= self._most:
            return None
        subscriber = Subscriber(self, self._history, after_ms, exchanges)
        self._all.add(subscriber)
        exchanges.add(subscriber)
        return subscriber

    def leave(self, subscriber: "Subscriber") -> None:
        """Remove a subscriber."""
        self._all.discard(subscriber)

    def drop_all(self) -> None:
        """End every stream; its subscribers may connect again."""
        for subscriber in list(self._all):
            subscriber.gone()

    def close(self) -> None:
        """End every stream, and begin none any more."""
        self._closed = True
        self.drop_all()


class Subscriber:
    """Subscriber to the page's events: gives Falcon the next event to send."""

    def __init__(
        self, subscribers: Subscribers, history: History, after_ms: int, exchanges: set[Any]
    ) -> None:
        self.news = asyncio.Event()
        self._subscribers = subscribers
        self._history = history
        self._after_ms = after_ms
        self._exchanges = exchanges
        self._numbers: dict[str, int] = {}
        self._began = False
        self._over = False
        self._sent_at_s: float | None = None

    def gone(self) -> None:
        """End: the connection is closed, or to be closed."""
        self._over = True
        self._subscribers.leave(self)
        self._exchanges.discard(self)
        self.news.set()

    def __aiter__(self) -> "Subscriber":
        return self

    async def __anext__(self) -> EncodedEvents:
        """Return the next events, as soon as there are any."""
        clock = asyncio.get_running_loop().time
        if self._sent_at_s is not None and clock() - self._sent_at_s > MAX_LAG_S:
            self.gone()
        piece = b""
        while not piece and not self._over:
            self.news.clear()
            piece = self._next() or await self._awaited()
        if self._over:
            raise StopAsyncIteration
        self._sent_at_s = clock()
        return EncodedEvents(piece)

    async def _awaited(self) -> bytes:
        try:
            async with asyncio.timeout(HEARTBEAT_S):
                await self.news.wait()
        except TimeoutError:
            return HEARTBEAT
        return b""

    def _next(self) -> bytes:
        beginning = b"" if self._began else BEGINNING
        self._began = True
        self._after_ms, piece = self._history.after(self._after_ms, PIECE_BYTES)
        if len(piece) < PIECE_BYTES:
            piece += self._latest()
        return beginning + piece

    def _latest(self) -> bytes:
        found = []
        for kind, (number, encoded) in self._subscribers.latest.items():
            if self._numbers.get(kind) != number:
                self._numbers[kind] = number
                found.append(encoded)
        return b"".join(found)
