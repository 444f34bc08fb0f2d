"""The payload log in the control process: messages in, events out to a server or a file.

One thread takes messages and delivers their events, so that a message wakes no other thread. While
a delivery lasts, messages wait in the socket.
"""

import asyncio
import logging
import os
import select
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeVar

from ringbatch.frontend.payloads.events import Event
from ringbatch.frontend.payloads.file_sink import FileSink
from ringbatch.frontend.payloads.http_sink import HttpSink
from ringbatch.frontend.payloads.passage import received
from ringbatch.frontend.payloads.settings import Delivery
from ringbatch.shm.errors import StartupError
from ringbatch.shm.host.delivering import Delivering

logger = logging.getLogger("ringbatch.control")

MOST_WAITING_BYTES: Final = 64 << 20
"""Most bytes of events that the server or the disk has not taken."""
_LOOK_EVERY_S: Final = 0.1

T = TypeVar("T")


class Sink(Protocol[T]):
    """A receiver of events, in the units of its own that it takes them in."""

    def entries(self, message: bytes) -> Iterator[tuple[T, int, int]]:
        """Yield the units of a message, each with its bytes of memory and its number of events."""

    def deliver(self, entries: Sequence[T]) -> str:
        """Deliver the one unit there is; see `Delivering`."""


class PayloadLog(Delivering[T]):
    """Payload log of the control process: a thread that delivers events to a sink.

    Args:
        place: of the sink.
        sink: takes the events.
        reader: has the messages.
        frontends_end: returns whether no serving process will pass on anything more.
    """

    def __init__(
        self,
        place: str,
        sink: Sink[T],
        reader: socket.socket,
        frontends_end: Callable[[], bool],
    ) -> None:
        super().__init__(
            "payloads",
            f"payload_log, {place}",
            sink.deliver,
            1,
            MOST_WAITING_BYTES,
            time.monotonic_ns,
            logger,
        )
        self._sink = sink
        self._reader = reader
        self._frontends_end = frontends_end
        self._end = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = select.poll()
        for descriptor in (reader.fileno(), self._end):
            self._poll.register(descriptor, select.POLLIN)

    @property
    def dropped(self) -> dict[str, int]:
        """Events that were not taken, by the reason."""
        return {"queue_full": self.full, "failed": self.failed}

    def wait(self) -> None:
        """Wait for a message, and take it."""
        self._poll.poll()
        self.look()

    def wake(self) -> None:
        """End the wait for good."""
        os.eventfd_write(self._end, 1)

    def look(self) -> None:
        """Take messages that wait."""
        for message in received(self._reader):
            for entry, weight, count in self._sink.entries(message):
                self.put(entry, weight, count)

    async def finish(self) -> None:
        """Wait until the serving processes have ended, and have the last events delivered."""
        while not self._frontends_end():
            await asyncio.sleep(_LOOK_EVERY_S)
        # This waits for a thread, which holds up no request any more.
        self.close()


def payload_log(
    given: tuple[Delivery, socket.socket], frontends_end: Callable[[], bool]
) -> PayloadLog[Event] | PayloadLog[bytes]:
    """Return the payload log of this process, with its thread.

    Args:
        given: the settings, and the socket that has the messages.
        frontends_end: as above.

    Raises:
        StartupError: the file cannot be written, the certificates for the server cannot be read,
            or the system has no thread.
    """
    delivery, reader = given
    log: PayloadLog[Event] | PayloadLog[bytes]
    if "://" in delivery.target:
        try:
            server = HttpSink(delivery.target, delivery.authority)
        except OSError as error:
            raise StartupError(
                f"[server] payload_log_ca: {delivery.authority}: {error.strerror or error}"
            ) from None
        log = PayloadLog(delivery.target, server, reader, frontends_end)
    else:
        file = FileSink(Path(delivery.target), delivery.file_bytes, delivery.files)
        try:
            file.open()
        except OSError as error:
            raise StartupError(
                f"[server] payload_log: {delivery.target}: {error.strerror}"
            ) from None
        log = PayloadLog(delivery.target, file, reader, frontends_end)
    log.start()
    return log
