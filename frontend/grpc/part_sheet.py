"""Messages of many streams over one connection, written at once: a sheet with a line for each.

A line is a frame with a whole message. The lines of a sheet have one length, and the bytes of a
part stand at the same place in each. So the parts of a step are copied into the sheet as columns,
and the sheet is what the connection sends.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ringbatch.frontend.grpc.call_head import CallHead
from ringbatch.frontend.grpc.inference import Pending
from ringbatch.frontend.http2.connection import Connection
from ringbatch.frontend.http2.frames import FRAME_HEAD_BYTES
from ringbatch.frontend.request.parts_together import PartsTogether
from ringbatch.frontend.streams.outlet import Outlet

_SHEETS_KEPT: Final = 16


class SheetLine:
    """Line of one stream, as long as a request has parts of one form.

    Attributes:
        outlet: of the stream.
        pending: the request.
        line: a frame with any part of that form.
        response_bytes: of the response in it.
    """

    __slots__ = ("line", "outlet", "pending", "response_bytes")

    def __init__(self, outlet: Outlet[CallHead], pending: Pending) -> None:
        self.outlet = outlet
        self.pending = pending
        self.line = b""
        self.response_bytes = 0


class PartSheet:
    """Sheet of one connection, see the module. It is the `PartForm` of its requests.

    Args:
        core: the connection.
        flush_soon: schedules a flush of it.
        prefix: first bytes of each part.
        size: of each part in bytes.
        tail: where the bytes for the line begin in a part.
        line_bytes: of each line.
        begin: where these bytes stand in a line.

    Attributes:
        prefix, size: as above.
        together: of the requests.
    """

    __slots__ = (
        "_begin",
        "_core",
        "_end",
        "_flush_soon",
        "_line_bytes",
        "_lines",
        "_message_bytes",
        "_tail",
        "prefix",
        "size",
        "together",
    )

    def __init__(
        self,
        core: Connection[CallHead],
        flush_soon: Callable[[], None],
        prefix: bytes,
        size: int,
        tail: int,
        line_bytes: int,
        begin: int,
    ) -> None:
        self._core = core
        self._flush_soon = flush_soon
        self._tail = tail
        self._line_bytes = line_bytes
        self._message_bytes = line_bytes - FRAME_HEAD_BYTES
        self._begin = begin
        self._end = begin + size - tail
        self._lines: NDArray[np.uint8] = np.zeros((0, line_bytes), np.uint8)
        self.prefix = prefix
        self.size = size
        self.together = PartsTogether(self)

    def takes(self, way: SheetLine) -> bool:
        """As in `PartForm`."""
        return way.outlet.takes(self._message_bytes)

    def has_room(self, count: int) -> bool:
        """As in `PartForm`."""
        return self._core.has_room(count, self._message_bytes)

    def arrange(self, ways: list[SheetLine]) -> None:
        """As in `PartForm`."""
        lines = bytearray(b"".join([way.line for way in ways]))
        self._lines = np.frombuffer(lines, np.uint8).reshape(len(ways), self._line_bytes)

    def send(
        self, ways: list[SheetLine], chosen: NDArray[np.bool_], parts: NDArray[np.uint8]
    ) -> bool:
        """As in `PartForm`."""
        lines = self._lines if len(ways) == len(self._lines) else self._lines[chosen]
        lines[:, self._begin : self._end] = parts[:, self._tail :]
        streams = [way.outlet.stream for way in ways]
        self._core.send_frames(streams, lines.tobytes(), self._message_bytes)
        for way in ways:
            way.outlet.sent_bytes += self._message_bytes
            way.pending.parts_bytes += way.response_bytes
        self._flush_soon()
        return True


class PartSheets:
    """Sheets of one connection.

    Args:
        core: the connection.
        flush_soon: schedules a flush of it.
    """

    __slots__ = ("_core", "_flush_soon", "_known")

    def __init__(self, core: Connection[CallHead], flush_soon: Callable[[], None]) -> None:
        self._core = core
        self._flush_soon = flush_soon
        self._known: dict[tuple[bytes, int, int, int, int], PartSheet] = {}

    def of(self, prefix: bytes, size: int, tail: int, line_bytes: int, begin: int) -> PartSheet:
        """Return the sheet for such parts; the arguments are those of `PartSheet`."""
        form = prefix, size, tail, line_bytes, begin
        sheet = self._known.get(form)
        if sheet is None:
            if len(self._known) >= _SHEETS_KEPT:
                self._known.clear()
            sheet = self._known[form] = PartSheet(self._core, self._flush_soon, *form)
        return sheet

    def clear(self) -> None:
        """Forget all, because the connection has ended."""
        self._known.clear()
