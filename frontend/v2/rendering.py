"""Rendering of one V2 answer."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from ringbatch.frontend.codec.outcome import Answer, outcome
from ringbatch.frontend.codec.part_limits import PartLimits
from ringbatch.frontend.codec.rendering import OffloadJob, Results
from ringbatch.frontend.v2.answer import InferAnswers
from ringbatch.frontend.v2.offloaded_answers import encode_requested, write_v2
from ringbatch.frontend.v2.requested_outputs import RequestedOutputs
from ringbatch.shm.errors import RequestError
from ringbatch.shm.model_spec import dumps


class V2Rendering(NamedTuple):
    """See `ringbatch.frontend.codec.rendering.Rendering`.

    Attributes:
        answers: of its model.
        requested: the outputs that the request asks for.
    """

    answers: InferAnswers
    requested: RequestedOutputs

    @property
    def part_limits(self) -> PartLimits:
        """As in `Rendering`."""
        return self.requested.limits

    def render(self, results: Results, batch_id: str) -> Answer:
        """As in `Rendering`."""
        body, headers = self.answers.render(results, self.requested, batch_id)
        return 200, body, headers

    def render_in_place(
        self, memory: memoryview, rows: int, start: int, size: int, batch_id: str
    ) -> Answer:
        """As in `Rendering`."""
        return self.render(((rows, memory[start : start + size]),), batch_id)

    def apart(self, rows: Sequence[int], size: int, batch_id: str) -> OffloadJob | None:
        """Return the job that writes a large answer in another process, as in `Rendering`."""
        answers, requested = self.answers, self.requested
        if not answers.takes_long(sum(rows), size, requested):
            return None
        spec = dumps((answers.spec,)).decode()
        return write_v2, [spec, encode_requested(requested), batch_id, [*rows]]

    def written(self, value: Any, data: Sequence[memoryview]) -> Answer:
        """Return the answer that another process has written, as in `Rendering`."""
        return 200, bytes(data[0]), tuple((name, found) for name, found in value)

    def render_error(self, error: RequestError, batch_id: str) -> Answer:
        """As in `Rendering`."""
        return outcome(error, batch_id=batch_id)
