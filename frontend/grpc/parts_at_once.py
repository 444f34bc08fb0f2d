"""Parts of one answer over a stream that leave at once, each with one copy of its bytes.

The messages of a request differ in the bytes of the tensor alone, if its parts have one size and
one shape. So what stands around these bytes is made once: the frame's head, the message's prefix,
and the fields of the answer.
"""

from ringbatch.frontend.grpc.answer import infer_response_field
from ringbatch.frontend.grpc.call_head import CallHead
from ringbatch.frontend.grpc.inference import GrpcRendering, Pending
from ringbatch.frontend.grpc.message_reader import framed
from ringbatch.frontend.grpc.part_sheet import PartSheets, SheetLine
from ringbatch.frontend.http2.frames import DATA, LEAST_FRAME_BYTES, frame
from ringbatch.frontend.request.gateway import Together
from ringbatch.frontend.streams.outlet import Outlet


class PartsAtOnce(SheetLine):
    """Way of the parts of one request that need not wait. See `DirectParts`.

    Args:
        outlet: of the call.
        sheets: of its connection.
        pending: the request.
        rendering: of its answer.
        rows: in the request.
        batch_id: of its batch.
        more: the field of each message that says that it is not the last.

    Attributes:
        together: as in `DirectParts`.
    """

    __slots__ = (
        "_batch_id",
        "_before",
        "_more",
        "_most_bytes",
        "_prefix",
        "_rendering",
        "_rows",
        "_sheets",
        "_size",
        "_tail",
        "together",
    )

    def __init__(
        self,
        outlet: Outlet[CallHead],
        sheets: PartSheets,
        pending: Pending,
        rendering: GrpcRendering,
        rows: int,
        batch_id: str,
        more: bytes,
    ) -> None:
        super().__init__(outlet, pending)
        self.together: Together | None = None
        self._sheets = sheets
        self._rendering = rendering
        self._rows = rows
        self._batch_id = batch_id
        self._more = more
        self._most_bytes = LEAST_FRAME_BYTES
        """Bytes of the longest part that may leave so; -1 if none may, as the first did not."""
        self._size = -1
        """Bytes of the parts that the following is about; -1 if there is none."""
        self._prefix = b""
        """First bytes of such a part, which decide its shape."""
        self._tail = 0
        """Bytes of such a part before those of the tensor."""
        self._before = b""
        """Bytes of the frame before them."""

    def send(self, memory: memoryview, start: int, size: int) -> bool:
        """Send a part, as in `DirectParts`."""
        if size > self._most_bytes:
            return False
        part = memory[start : start + size].tobytes()
        known = size == self._size and part.startswith(self._prefix)
        if not known and not self._learn(part):
            return False
        line = b"".join((self._before, part[self._tail :], self._more))
        if not self.outlet.send_frame(line):
            return False
        self.pending.parts_bytes += self.response_bytes
        return True

    def _learn(self, part: bytes) -> bool:
        """Learn from a part what stands around its tensor; return whether that can be learnt."""
        rendering, answers, size = self._rendering, self._rendering.answers, len(part)
        self._size, self.together = -1, None
        tail = answers.tail_of(self._rows, part, rendering.requested)
        if tail is None:
            self._most_bytes = -1
            return False
        response = rendering.render(((self._rows, memoryview(part)),), self._batch_id).response
        message = framed(infer_response_field(response + self._more))
        self.line = line = frame(DATA, 0, self.outlet.number, message)
        begin = len(line) - len(self._more) - (size - tail)
        self._size, self._tail = size, tail
        self._prefix = prefix = part[: answers.prefix_bytes]
        self._before = line[:begin]
        self.response_bytes = len(response)
        if tail < size:
            sheet = self._sheets.of(prefix, size, tail, len(line), begin)
            self.together = sheet.together
        return True
