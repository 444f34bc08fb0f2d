"""Rendering of V1 answers of one model, in one of two formats."""

from collections.abc import Sequence
from typing import Any

from ringbatch.frontend.codec.number_form import NumberForm
from ringbatch.frontend.codec.outcome import AGENT_TEXT, JSON, Answer, outcome
from ringbatch.frontend.codec.part_limits import NO_LIMITS, PartLimits
from ringbatch.frontend.codec.rendering import OffloadJob, Results
from ringbatch.frontend.v1.answer import Answers
from ringbatch.frontend.v1.offloaded_answers import write_v1
from ringbatch.frontend.v1.placed_answers import PlacedAnswers
from ringbatch.shm.errors import RequestError
from ringbatch.shm.model_spec import ModelSpec, dumps


class V1Rendering:
    """See `ringbatch.frontend.codec.rendering.Rendering`.

    Args:
        answers: of the model.
        spec: the model.
        columns: whether they are wanted in column format.
    """

    def __init__(self, answers: Answers, spec: ModelSpec, *, columns: bool) -> None:
        kserve_errors = spec.kserve_errors
        self._answers = answers
        self._spec = spec
        self._columns = columns
        self._kserve_errors = kserve_errors
        self._headers = AGENT_TEXT if kserve_errors else JSON

    @property
    def part_limits(self) -> PartLimits:
        """As in `Rendering`."""
        return NO_LIMITS

    def render(self, results: Results, batch_id: str) -> Answer:
        """As in `Rendering`."""
        return 200, self._answers.render(results, self._columns, batch_id), self._headers

    def render_in_place(
        self, memory: memoryview, rows: int, start: int, size: int, batch_id: str
    ) -> Answer:
        """As in `Rendering`."""
        return self.render(((rows, memory[start : start + size]),), batch_id)

    def apart(self, rows: Sequence[int], size: int, batch_id: str) -> OffloadJob | None:
        """Return the job that writes a large answer in another process, as in `Rendering`."""
        if not self._answers.takes_long(sum(rows), size):
            return None
        return write_v1, [dumps((self._spec,)).decode(), self._columns, batch_id, [*rows]]

    def written(self, value: Any, data: Sequence[memoryview]) -> Answer:
        """Return the answer that another process has written, as in `Rendering`."""
        return 200, bytes(data[0]), self._headers

    def number_form(self, rows: int, result: bytes, batch_id: str) -> NumberForm | None:
        """As in `NumberRendering`."""
        return None if self._columns else self._answers.number_form(rows, result, batch_id)

    def render_error(self, error: RequestError, batch_id: str) -> Answer:
        """As in `Rendering`."""
        return outcome(error, kserve_errors=self._kserve_errors, batch_id=batch_id)


class PlacedRendering(V1Rendering):
    """The same in row format, of a model whose answers are written from where results lie.

    Args:
        answers, spec: as in `V1Rendering`.
        placed: writes them so.
    """

    def __init__(self, answers: Answers, placed: PlacedAnswers, spec: ModelSpec) -> None:
        super().__init__(answers, spec, columns=False)
        self._placed = placed

    def render_in_place(
        self, memory: memoryview, rows: int, start: int, size: int, batch_id: str
    ) -> Answer:
        """As in `Rendering`."""
        body = self._placed.write(rows, start, size, batch_id)
        if body is None:
            return super().render_in_place(memory, rows, start, size, batch_id)
        return 200, body, self._headers
