"""KServe's V1 protocol for one model: request bodies to slots, results to response bodies."""

from collections.abc import Callable, Sequence

from ringbatch.frontend.v1.answer import NumberAnswers, answers_of
from ringbatch.frontend.v1.forwarded import ForwardedRequests
from ringbatch.frontend.v1.request import Parsed, parser
from ringbatch.shm.frame import Frame
from ringbatch.shm.model_spec import ModelSpec


class V1Codec:
    """What a V1 request to one model means, and how its answer is written; pure.

    Each way is a function chosen once, for what the model's signature allows.
    """

    numbers: NumberAnswers | None
    """Writes the answers, where they are numbers of one kind in a fixed shape."""

    forwarded: ForwardedRequests | None
    """Reads bodies with their origin, and writes answers, where another server runs the model."""

    parse: Callable[[bytes | bytearray], Parsed]
    """From a body to what goes into slots; raises `InvalidRequest`."""

    render: Callable[[Sequence[tuple[int, memoryview]], bool, str], bytes]
    """``render(parts, columns, batch_id)``: the body of the answer, from the rows and the result
    of each part in order; raises `ModelFailed` for a result that does not fit the model's
    outputs or that JSON cannot carry. The id must need no escape in JSON."""

    def __init__(self, spec: ModelSpec) -> None:
        self.forwarded = None if spec.forward is None else ForwardedRequests(spec, spec.forward)
        self.parse = parser(spec) if self.forwarded is None else self.forwarded.parse
        answers = answers_of(spec) if self.forwarded is None else self.forwarded
        self.render = answers.render
        self.numbers = answers if isinstance(answers, NumberAnswers) else None
        self._outputs = Frame(spec.outputs)
        self._sized = spec.typed and self._outputs.static

    def result_bytes(self, rows: int) -> int | None:
        """The memory that an answer of so many rows takes; None where the model decides that."""
        return self._outputs.place(rows).size if self._sized else None
