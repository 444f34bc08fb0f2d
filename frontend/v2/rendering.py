"""How one V2 request is answered."""

from typing import NamedTuple

from ringbatch.frontend.codec.outcome import Answer, outcome
from ringbatch.frontend.codec.rendering import Results
from ringbatch.frontend.v2.answer import InferAnswers
from ringbatch.frontend.v2.requested_outputs import RequestedOutputs
from ringbatch.shm.errors import RequestError


class V2Rendering(NamedTuple):
    """See `ringbatch.frontend.codec.rendering.Rendering`.

    Attributes:
        answers: of its model.
        requested: what it asked for.
    """

    answers: InferAnswers
    requested: RequestedOutputs

    def render(self, results: Results, batch_id: str) -> Answer:
        """As in `Rendering`."""
        body, headers = self.answers.render(results, self.requested, batch_id)
        return 200, body, headers

    def render_in_place(
        self, memory: memoryview, rows: int, start: int, size: int, batch_id: str
    ) -> Answer:
        """As in `Rendering`."""
        return self.render(((rows, memory[start : start + size]),), batch_id)

    def render_error(self, error: RequestError, batch_id: str) -> Answer:
        """As in `Rendering`."""
        return outcome(error, batch_id=batch_id)
