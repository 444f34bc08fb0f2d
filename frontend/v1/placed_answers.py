"""Answers of V1 made from results as they lie in the segment, with nothing in between.

Every result starts on a payload boundary, so that those of one size are items of one array, see
`ringbatch.shm.strided_view`. To take an item costs a third of making an array of a run of memory.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringbatch.frontend.v1.answer import NumberAnswers
from ringbatch.shm.strided_view import OFFSET_BITS, StridedView


class PlacedAnswers:
    """Answers of one model, in row format, from one slot each.

    Args:
        answers: writes them.
        windows: on the segment.
    """

    def __init__(self, answers: NumberAnswers, strided: StridedView) -> None:
        self._answers = answers
        self._strided = strided
        self._row_bytes = answers.row_bytes
        self._views: dict[int, NDArray[Any]] = {}

    def write(self, rows: int, offset: int, size: int, batch_id: str) -> bytes | None:
        """Write an answer.

        Args:
            rows: instances in it.
            offset: where the result starts, in bytes from the start of the segment.
            size: how many bytes it has.
            batch_id: as in `NumberAnswers.write`.

        Returns:
            None if it is to go the usual way, be it because something is wrong with it.
        """
        if size != rows * self._row_bytes:
            return None
        view = self._views.get(rows)
        if view is None:
            # A request's rows are at most those of a batch, so there are few of them.
            item = np.dtype((self._answers.dtype, self._answers.shape(rows)))
            view = self._views[rows] = self._strided.items(item)
        return self._answers.write(view[offset >> OFFSET_BITS], batch_id)
