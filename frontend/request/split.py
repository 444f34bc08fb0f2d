"""A request of more instances than one batch may hold."""

from collections.abc import Sequence
from typing import Generic

from ringbatch.frontend.codec.payload import SlotPart
from ringbatch.frontend.request.task import (
    SMALL_RESULT_BYTES,
    A,
    Engine,
    InflightRequest,
    SlotRequest,
    Writing,
)
from ringbatch.shm.errors import RequestError
from ringbatch.shm.tallies import CLIENT_GONE


class SplitRequest(Generic[A]):
    """Request of more instances than one batch may hold, split into parts.

    The parts run as they can, and their answers are put together again. The first part that fails
    fails the request.
    """

    def __init__(self, engine: Engine, task: InflightRequest[A]) -> None:
        self._engine = engine
        self._task = task
        self._pieces: list[Piece[A]] = []
        self._over = False
        self._writing: Writing[A] | None = None

    def send(self, parts: Sequence[SlotPart], sizes: Sequence[int]) -> None:
        """Put every part into a slot with that many bytes for its answer.

        Raises:
            Overloaded: there are not slots or memory enough for all of them.
        """
        self._pieces = [Piece(self._task, rows, self) for rows, _, _ in parts]
        try:
            for piece, part, size in zip(self._pieces, parts, sizes, strict=True):
                piece.send(self._engine, part, size)
                if piece is not self._pieces[0]:
                    piece.count_no_more()
        except BaseException:
            self._let_go()
            raise

    @property
    def holds(self) -> tuple[int, int]:
        """The number of slots that the parts hold, and their bytes."""
        return len(self._pieces), sum(sum(piece.extent) for piece in self._pieces)

    def extents(self, grown: "Piece[A]", result_bytes: int) -> list[tuple[int, int]]:
        """Return the bytes of its parts and of their answers, if one part grows to a size."""
        return [
            piece.extent if piece is not grown else (piece.extent[0], result_bytes)
            for piece in self._pieces
        ]

    def abandon(self) -> None:
        """Abandon the request, as nobody waits any more; `reply` will not be called."""
        if self._writing is not None:
            self._writing.abandon()
        elif not self._over:
            task = self._task
            record = self._engine.outcomes.record
            record(task.tally, CLIENT_GONE, task.accepted_ns, account=task.account)
            self._let_go()

    def _let_go(self) -> None:
        self._over = True
        self._drop_pieces()

    def _drop_pieces(self) -> None:
        pieces, self._pieces = self._pieces, []
        for piece in pieces:
            piece.abandon()

    def join(self, batch: int, slot: int) -> A | None:
        """Return the answer once the last part stands in that slot; None while one is missing."""
        results = [(p.rows, p.result) for p in self._pieces if p.result is not None]
        if len(results) < len(self._pieces):
            return None
        task, engine = self._task, self._engine
        rows = sum(piece.rows for piece in self._pieces)
        batch_id = engine.batch_ids.text(batch)
        size = sum(len(result) for _, result in results)
        if size > SMALL_RESULT_BYTES:
            apart = task.rendering.apart([rows for rows, _ in results], size, batch_id)
            if apart is not None:
                writing = Writing(engine, task, rows, batch, slot, self._drop_pieces)
                writing.begin(apart, [result for _, result in results])
                self._over, self._writing = True, writing
                return None
        try:
            answer = task.rendering.render(results, batch_id)
            self._over = True
        finally:
            results.clear()
            self._drop_pieces()
        engine.outcomes.answered(task.tally, task.accepted_ns, rows, batch_id, slot)
        return answer

    def failed(self, error: RequestError, batch: int, slot: int) -> None:
        """Fail the request, as a piece has failed; arguments as of `_failed`."""
        if not self._over:
            self._let_go()
            self._task.fail(self._engine, error, batch, slot)


class Piece(SlotRequest[A]):
    """Part of a split request. It keeps its slot until all parts are answered.

    Attributes:
        rows: instances in it.
        result: the rows' result, once it is there.
    """

    __slots__ = ("_kept", "_whole", "result", "rows")

    def __init__(self, task: InflightRequest[A], rows: int, whole: SplitRequest[A]) -> None:
        self.model = task.model
        self.reply = task.reply
        self.accepted_ns = task.accepted_ns
        self.deadline_ns = task.deadline_ns
        self.account = task.account
        self.together = None
        self.rows = rows
        self.result: memoryview | None = None
        self._whole = whole
        self._slot = -1
        self._kept = -1

    def abandon(self) -> None:
        """Abandon the piece, and give back its slot."""
        super().abandon()
        if self._kept >= 0:
            self.result = None
            self._engine.lane.release(self._kept)
            self._kept = -1

    def count_no_more(self) -> None:
        """Mark the piece as a further part of a request that is already counted."""
        self._engine.lane.count_no_more(self._slot)

    @property
    def extent(self) -> tuple[int, int]:
        """Bytes of the part, and bytes for its answer."""
        _, payload, _ = self._part
        return len(payload), self._result_bytes

    def _extents(self, result_bytes: int) -> list[tuple[int, int]]:
        return self._whole.extents(self, result_bytes)

    def _take(self, slot: int, size: int, batch: int) -> A | None:
        self._kept, self.result = slot, self._result(slot, size, self._before(slot))
        return self._whole.join(batch, slot)

    def _failed(self, error: RequestError, batch: int, slot: int) -> None:
        self._whole.failed(error, batch, slot)
