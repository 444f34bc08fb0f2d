"""How requests are answered: what the way of a request asks of each protocol at its end."""

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

from ringbatch.shm.errors import RequestError

Results = Sequence[tuple[int, memoryview]]
"""The rows and the result of each part of a request, in order."""
Apart = tuple[Callable[[Any, Sequence[memoryview]], Any], Any]
"""A job of `ringbatch.frontend.apart.messages` and its value; the results go with that."""
LARGE_RESULT_BYTES: Final = 1 << 19
"""Numbers with more are written as JSON by another process: it takes up to 10 ns for each byte."""
LONG_RESULT_BYTES: Final = 1 << 16
"""The same of what is written element by element, in up to 100 ns for each byte."""
LONG_ROWS: Final = 1024
"""The same of rows that are written one by one, in some µs each."""
A_co = TypeVar("A_co", covariant=True)
"""What a protocol's answers are."""


class Rendering(Protocol[A_co]):
    """How one request is answered: with what it asked for, in its protocol. A value: it holds
    nothing of the request's way, and requests that differ in nothing share one.

    Those of texts inherit from it. Tuples cannot, and what is compiled would be slower for it."""

    def render(self, results: Results, batch_id: str) -> A_co:
        """The answer.

        Args:
            results: of each part; none where there were no instances.
            batch_id: of the batch that it was in; empty where it was in none.

        Raises:
            RequestError: there is none to be made of these results.
        """

    def render_in_place(
        self, memory: memoryview, rows: int, start: int, size: int, batch_id: str
    ) -> A_co:
        """The same of one part.

        Args:
            memory: the segment.
            rows: instances in the part.
            start: where its result begins, in bytes from the start of the segment.
            size: how many bytes it has.
            batch_id: as in `render`.
        """
        return self.render(((rows, memory[start : start + size]),), batch_id)

    def apart(self, rows: Sequence[int], size: int, batch_id: str) -> Apart | None:
        """How another process writes the answer; None where that takes no longer here.

        Args:
            rows: of each part.
            size: bytes of all results.
            batch_id: as in `render`.
        """
        return None

    def written(self, value: Any, data: Sequence[memoryview]) -> A_co:
        """The answer that another process has written: what the job of `apart` returned."""
        raise NotImplementedError

    def render_error(self, error: RequestError, batch_id: str) -> A_co:
        """The answer that says why there is none; arguments as in `render`."""
