"""The payload log in the control process: exchanges in, events out to a server or a file."""

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ringbatch.frontend.payloads.events import Event, events
from ringbatch.frontend.payloads.exchange import unpacked
from ringbatch.frontend.payloads.file_sink import FileSink
from ringbatch.frontend.payloads.http_sink import HttpSink
from ringbatch.frontend.payloads.passage import received
from ringbatch.frontend.payloads.settings import Delivery
from ringbatch.shm.errors import StartupError
from ringbatch.shm.host.delivering import Delivering

logger = logging.getLogger("ringbatch.control")

MOST_WAITING_BYTES: Final = 64 << 20
"""Of events that the server or the disk has not taken."""
EVENT_BYTES: Final = 1 << 10
"""Of memory, beside the data of one event."""
_LINES_AT_ONCE: Final = 256
_LOOK_EVERY_S: Final = 0.1


class PayloadLog:
    """See the module.

    Args:
        delivery: the settings.
        reader: has the exchanges.
        delivering: takes the events.
        frontends_end: returns whether no serving process will pass on anything more.
    """

    def __init__(
        self,
        delivery: Delivery,
        reader: socket.socket,
        delivering: Delivering[Event],
        frontends_end: Callable[[], bool],
    ) -> None:
        self._delivery = delivery
        self._reader = reader
        self._delivering = delivering
        self._frontends_end = frontends_end

    @property
    def delivered(self) -> int:
        """Events that were taken."""
        return self._delivering.delivered

    @property
    def dropped(self) -> dict[str, int]:
        """Events that were not, by the reason."""
        return {"queue_full": self._delivering.full, "failed": self._delivering.failed}

    def listen(self) -> None:
        """Take exchanges from now on, on the running loop."""
        asyncio.get_running_loop().add_reader(self._reader, self.look)

    def look(self) -> bool:
        """Take exchanges that wait; return whether there were any."""
        found = False
        for message in received(self._reader):
            found = True
            for exchange in unpacked(message):
                for event in events(exchange, self._delivery):
                    self._delivering.put(event, len(event.data) + EVENT_BYTES)
        return found

    async def finish(self) -> None:
        """Take what comes until the serving processes have ended, and have it delivered."""
        while not self._frontends_end():
            await asyncio.sleep(_LOOK_EVERY_S)
        asyncio.get_running_loop().remove_reader(self._reader)
        while self.look():
            pass
        # It waits for a thread, and nobody is served any more.
        self._delivering.close()


def payload_log(
    given: tuple[Delivery, socket.socket], frontends_end: Callable[[], bool]
) -> PayloadLog:
    """Return the payload log of this process, with its thread.

    Args:
        given: the settings, and the socket that has the exchanges.
        frontends_end: as above.

    Raises:
        StartupError: the file cannot be written, the certificates for the server cannot be read,
            or the system has no thread.
    """
    delivery, reader = given
    sink: HttpSink | FileSink
    if "://" in delivery.target:
        try:
            sink, at_once = HttpSink(delivery.target, delivery.authority), 1
        except OSError as error:
            raise StartupError(
                f"[server] payload_log_ca: {delivery.authority}: {error.strerror or error}"
            ) from None
    else:
        sink = FileSink(Path(delivery.target), delivery.file_bytes, delivery.files)
        at_once = _LINES_AT_ONCE
        try:
            sink.open()
        except OSError as error:
            raise StartupError(
                f"[server] payload_log: {delivery.target}: {error.strerror}"
            ) from None
    delivering = Delivering(
        "payloads",
        f"payload_log, {delivery.target}",
        sink.deliver,
        at_once,
        MOST_WAITING_BYTES,
        time.monotonic_ns,
        logger,
    )
    delivering.start()
    return PayloadLog(delivery, reader, delivering, frontends_end)
