"""Transport of an HTTP/2 connection, for gRPC and for ASGI alike.

The protocol itself is `ringbatch.frontend.http2`'s. All output of one turn of the event loop is
written at once. Header blocks that take long are read a few in each turn, so that other connections
have theirs. The only timer is that of the stop: `tick` is called once a second for every
connection.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from ringbatch.frontend.http2.connection import Connection
from ringbatch.frontend.http2.frames import CANCEL, INTERNAL_ERROR, NO_ERROR
from ringbatch.frontend.http2.stream import Stream
from ringbatch.frontend.streams.connection_clocks import ConnectionClocks, Due

log = logging.getLogger("ringbatch.frontend")

H = TypeVar("H")


class Served(Protocol):
    """Interface of an object that serves one stream."""

    def happened(self) -> None:
        """Look at the stream, on which something has come."""

    def looked(self) -> None:
        """Go on with the answer, for which there may be more room."""

    def tick(self) -> None:
        """Note that another second has passed."""

    def cancel(self) -> None:
        """Stop: the stream is gone, and no client waits any more."""


S = TypeVar("S", bound=Served)

LEAVE_S: Final = 1.0
"""Time for a client to say that it begins no further stream."""


class ServedConnection(asyncio.Protocol, Generic[H, S]):
    """Transport of one HTTP/2 connection. A subclass decides how a stream begins.

    Args:
        core: the connection as a state machine.
        clocks: clocks of the connection.
        loop: on which it is.

    Attributes:
        core: as above.
    """

    __slots__ = (
        "_clocks",
        "_flushing",
        "_held",
        "_loop",
        "_reliefs",
        "_serving",
        "_transport",
        "core",
    )

    _transport: asyncio.Transport

    def __init__(
        self, core: Connection[H], clocks: ConnectionClocks, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.core = core
        self._clocks = clocks
        self._loop = loop
        self._flushing = False
        self._serving: dict[int, S] = {}
        """Served streams by their numbers."""
        self._held: dict[int, Stream[H]] = {}
        """Streams that are not begun yet, because too many bytes of answers wait for the client."""
        self._reliefs = 0
        """The connection's count of reliefs at the last look for room for more streams."""

    def connection_lost(self, exc: Exception | None) -> None:
        """End a closed connection; called by the transport."""
        self._look_at_all(self.core.give_up(NO_ERROR, ""))
        self.core.take_output()

    def data_received(self, data: bytes) -> None:
        """Take received bytes; called by the transport."""
        self._look_at_all(self.core.receive(data))
        self._received()

    def received_in_place(self, data: memoryview) -> None:
        """As `data_received`, of bytes in memory that is another's afterwards."""
        at, end = 0, len(data)
        while at < end:
            size, streams = self.core.receive_in_place(data[at:])
            at += size
            self._look_at_all(streams)
        self._received()

    def _received(self) -> None:
        """Flush after all received bytes were looked at."""
        core = self.core
        if core.has_output or core.over or core.reliefs != self._reliefs:
            self._flush()
        if core.behind:
            self._stop_reading()
            self._loop.call_soon(self._catch_up)

    def _catch_up(self) -> None:
        """Read on in received bytes, after others have had their turn."""
        core, transport = self.core, self._transport
        if core.behind and not transport.is_closing():
            self.data_received(b"")
        # Over TLS more may have come meanwhile, and with it the rest was read.
        over = core.behind or transport.is_closing() or transport.is_reading()
        if core.writable and not over:
            transport.resume_reading()

    def _stop_reading(self) -> None:
        """Leave with the kernel what comes, for two reasons that there may be at once."""
        if self._transport.is_reading():
            self._transport.pause_reading()

    def eof_received(self) -> None:
        """Treat the end of the peer's bytes as its disconnect; called by the transport."""

    def pause_writing(self) -> None:
        """Pause, as the client does not read its answers; called by the transport."""
        self.core.writable = False
        self._stop_reading()

    def resume_writing(self) -> None:
        """Go on, as the client reads again; called by the transport."""
        self.core.writable = True
        self.core.go_on()
        if not self.core.behind:
            self._transport.resume_reading()
        self._flush()

    def tick(self) -> None:
        """Count a second; called by the server."""
        core = self.core
        core.tick()
        for number, served in list(self._serving.items()):
            self.attempt(number, served.tick)
        for stream in self._clocks.stalled(core):
            core.reset(stream, CANCEL)
            self._look_at(stream)
        due = self._clocks.tick(
            core,
            calls=self._under_way(),
            unsent_bytes=0 if core.writable else self._transport.get_write_buffer_size(),
        )
        if due is Due.ABORT:
            self._transport.abort()
            return
        if due is Due.PROBE:
            core.probe()
        elif due is Due.LEAVE:
            self.leave()
        elif due is Due.CLOSE:
            core.close()
        self._flush()

    def leave(self) -> None:
        """Ask the client to begin no further stream; called by the server."""
        if not self.core.leaving:
            self.core.leave()
            self._loop.call_later(LEAVE_S, self._close)
            self._flush()

    def let_go(self, stream: Stream[H]) -> None:
        """Forget a stream that its `Served` serves no longer."""
        self._serving.pop(stream.number, None)
        self.flush_soon()

    def flush_soon(self) -> None:
        """Schedule a flush, with all other output of this turn of the loop."""
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def attempt(self, number: int, act: Callable[[], None]) -> None:
        """Act for one stream; if that raises, only this stream ends."""
        try:
            act()
        except Exception:
            self.failed(number)

    def failed(self, number: int) -> None:
        """Log the exception that serving a stream has raised, and end that stream alone.

        Its client gets a reset.
        """
        log.exception("a request over HTTP/2 has failed")
        stream = self.core.streams.get(number)
        if stream is None:
            self._serving.pop(number, None)
            return
        self.core.reset(stream, INTERNAL_ERROR)
        self._look_at(stream)
        self.flush_soon()

    def _look_at_all(self, touched: list[Stream[H]]) -> None:
        """Handle events on several streams, first on those that are gone.

        As soon as another stream begins, an answer may come for a stream that is gone.
        """
        for gone in (True, False):
            for stream in touched:
                if stream.gone is gone:
                    self._look_at(stream)

    def _look_at(self, stream: Stream[H]) -> None:
        """Look at a stream on which its client or a clock has done something."""
        try:
            self._see_to(stream)
        except Exception:
            self.failed(stream.number)

    def _see_to(self, stream: Stream[H]) -> None:
        if not stream.begun:
            if stream.gone:
                self._held.pop(stream.number, None)
            elif self._is_full():
                self._held[stream.number] = stream
            else:
                stream.begun = True
                self._begin(stream)
            return
        served = self._serving.get(stream.number)
        if served is None:
            # It has all that it needs, and the answer has yet to be made or taken.
            stream.pieces.clear()
            if stream.gone:
                self._abandon(stream)
        elif stream.gone:
            served.cancel()
        else:
            served.happened()

    def _begin(self, stream: Stream[H]) -> None:
        """Serve a stream, of which there is at least the head."""
        raise NotImplementedError

    def _abandon(self, stream: Stream[H]) -> None:
        """End a stream that no `Served` serves any longer."""

    def _look_for_room(self) -> None:
        """Look for room for more of each answer, and for more streams."""
        self._reliefs = self.core.reliefs
        for number, served in list(self._serving.items()):
            self.attempt(number, served.looked)
        while self._held and not self._is_full():
            self._look_at(self._held.pop(next(iter(self._held))))

    def _is_full(self) -> bool:
        """Return whether so many bytes of answers wait that no more streams may begin."""
        return self.core.full

    def _under_way(self) -> int:
        """Return how many streams are served."""
        return len(self._serving)

    def _close(self) -> None:
        """Serve no further stream, even if the client has sent more."""
        self.core.close()
        self._flush()

    def _flush(self) -> None:
        """Send all output that waits, and close a connection that is at its end."""
        self._flushing = False
        core = self.core
        if self._transport.is_closing():
            core.take_output()
            return
        if core.reliefs != self._reliefs:
            self._look_for_room()
        if core.has_output:
            large = core.large
            out = core.take_output()
            if large:
                self._transport.writelines(out)
            else:
                self._transport.write(b"".join(out))
        if core.over or (core.closing and not core.streams):
            self._transport.close()
