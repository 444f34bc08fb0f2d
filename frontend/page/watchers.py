"""Watchers of the page, and the events that each has yet to get.

An event is made once for all watchers. A watcher keeps only the time of its last event: one that
reads slowly holds no memory, and catches up from the history.
"""

import asyncio
from typing import Any, Final

from falcon.asgi import SSEvent

from ringbatch.frontend.page.feed import BEGINNING, HEARTBEAT
from ringbatch.frontend.page.history import History

MAX_WATCHERS: Final = 16
"""A quarter of the connections of the control address: metrics and health have the others."""
PIECE_BYTES: Final = 1 << 15
"""Sent at once; more is sent once this is taken."""
HEARTBEAT_S: Final = 15.0
"""Without an event for so long there is a comment, lest whoever is in between takes the stream for
dead."""
MAX_LAG_S: Final = 30.0
"""A watcher that takes longer for what it was sent is dropped; it may come again."""


class Sent(SSEvent):
    """Events that are encoded already."""

    def __init__(self, encoded: bytes) -> None:
        super().__init__()
        self._encoded = encoded

    def serialize(self, _handler: Any = None) -> bytes:
        """Falcon's call."""
        return self._encoded


class Subscribers:
    """All of them.

    Args:
        history: of the events that those who come are told first.
        most: that may watch at once.

    Attributes:
        latest: by their kind, the events of which the latest alone is worth sending, each with
            a number that grows when there is another.
    """

    def __init__(self, history: History, most: int = MAX_WATCHERS) -> None:
        self.latest: dict[str, tuple[int, bytes]] = {}
        self._history = history
        self._most = most
        self._all: set[Watcher] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._all)

    def tell(self, at_ms: int, second: bytes | None, **latest: bytes) -> None:
        """There is news.

        Args:
            at_ms: when it happened.
            second: the event that says what happened, if anything is known of it.
            latest: by kind, how things are now.
        """
        if second is not None:
            self._history.add(at_ms, second)
        for kind, encoded in latest.items():
            number, known = self.latest.get(kind, (0, b""))
            if encoded != known:
                self.latest[kind] = number + 1, encoded
        for watcher in self._all:
            watcher.news.set()

    def admit(self, after_ms: int, exchanges: set[Any]) -> "Watcher | None":
        """Another one; None where there are too many.

        Args:
            after_ms: what happened up to then it knows.
            exchanges: those of its connection, which tells them when it is closed.
        """
        if self._closed or len(self._all) >= self._most:
            return None
        watcher = Watcher(self, self._history, after_ms, exchanges)
        self._all.add(watcher)
        exchanges.add(watcher)
        return watcher

    def leave(self, watcher: "Watcher") -> None:
        """Remove a watcher."""
        self._all.discard(watcher)

    def drop_all(self) -> None:
        """End every stream; those whose it was may ask again."""
        for watcher in list(self._all):
            watcher.gone()

    def close(self) -> None:
        """End every stream, and begin none any more."""
        self._closed = True
        self.drop_all()


class Watcher:
    """One of them, for Falcon: what to send next."""

    def __init__(
        self, watchers: Subscribers, history: History, after_ms: int, exchanges: set[Any]
    ) -> None:
        self.news = asyncio.Event()
        self._watchers = watchers
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
        self._watchers.leave(self)
        self._exchanges.discard(self)
        self.news.set()

    def __aiter__(self) -> "Watcher":
        return self

    async def __anext__(self) -> Sent:
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
        return Sent(piece)

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
        for kind, (number, encoded) in self._watchers.latest.items():
            if self._numbers.get(kind) != number:
                self._numbers[kind] = number
                found.append(encoded)
        return b"".join(found)
