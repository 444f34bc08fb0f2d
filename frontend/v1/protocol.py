"""KServe's V1 protocol for one model: request bodies to slots, results to response bodies."""

from typing import Any, Protocol

from ringbatch.frontend.codec.limit_messages import ANY_NUMBER
from ringbatch.frontend.v1.answer import NumberAnswers, answers_of
from ringbatch.frontend.v1.forwarded import ForwardedRequests
from ringbatch.frontend.v1.placed_answers import PlacedAnswers
from ringbatch.frontend.v1.rendering import PlacedRendering, V1Rendering
from ringbatch.frontend.v1.request import Parsed, Requests, requests_of
from ringbatch.frontend.v1.request_context import ContextRequests
from ringbatch.shm.frame import Frame
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.strided_view import StridedView


class ContextParser(Protocol):
    """Reads bodies with what came beside them."""

    def parse(self, body: bytes | bytearray, context: Any) -> Parsed:
        """Read a body.

        Args:
            body: all of it.
            context: its origin, if another server runs the model; else its headers.

        Raises:
            RequestError: in words.
        """


class V1Model:
    """Readers and writers of V1 for one model.

    Attributes:
        forwarded: reads bodies with their origin, and writes answers, if another server runs the
            model; else None.
        with_context: reads bodies together with the request context; None if the model does not
            ask for it.
        requests: reads bodies.
        answers: writes the bodies of answers.
        rows: renders answers in row format.
        columns: the same in column format.

    Args:
        spec: the model.
        windows: on the segment, if answers are to be written from the place of the results.
        max_in_flight: the most batches that one request may make.
    """

    def __init__(
        self,
        spec: ModelSpec,
        windows: StridedView | None = None,
        max_in_flight: int = ANY_NUMBER,
    ) -> None:
        forward = spec.forward
        self.forwarded = forward and ForwardedRequests(spec, forward, max_in_flight)
        asked = None if spec.words is None else ContextRequests(spec, max_in_flight)
        self.requests: Requests = self.forwarded or asked or requests_of(spec, max_in_flight)
        self.with_context: ContextParser | None = self.forwarded or asked
        self.answers = self.forwarded or answers_of(spec)
        self.columns = V1Rendering(self.answers, spec, columns=True)
        self.rows = V1Rendering(self.answers, spec, columns=False)
        if windows is not None and isinstance(self.answers, NumberAnswers):
            placed = PlacedAnswers(self.answers, windows)
            self.rows = PlacedRendering(self.answers, placed, spec)
        self._outputs = Frame(spec.answered)
        self._sized = spec.typed and self._outputs.static

    def result_bytes(self, rows: int) -> int | None:
        """Return the memory for an answer of so many rows; None if the model decides that."""
        return self._outputs.place(rows).size if self._sized else None
