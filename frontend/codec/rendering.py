"""Rendering of answers: the operations that the pipeline needs from each protocol at its end."""

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

from ringbatch.frontend.codec.part_limits import NO_LIMITS, PartLimits
from ringbatch.shm.errors import RequestError

Results = Sequence[tuple[int, memoryview]]
"""The rows and the result of each part of a request, in order."""
OffloadJob = tuple[Callable[[Any, Sequence[memoryview]], Any], Any]
"""A job of `ringbatch.frontend.offload.messages` and its value; the results are its bytes."""
LARGE_RESULT_BYTES: Final = 1 << 19
"""Another process writes larger numeric results as JSON: each byte takes up to 10 ns."""
LONG_RESULT_BYTES: Final = 1 << 16
"""Limit of results that are written here element by element: each byte takes up to 100 ns."""
LONG_ROWS: Final = 1024
"""Limit of rows that are written here one by one: each takes some µs."""
A_co = TypeVar("A_co", covariant=True)
"""Type of a protocol's answers."""


class Rendering(Protocol[A_co]):
    """Rendering of one request's answer, in its protocol and with its options.

    It is a value: it holds nothing of the request's way, and equal requests share one. Those of
    texts inherit from it. Tuples cannot, and what is compiled would be slower for it.
    """

    @property
    def part_limits(self) -> PartLimits:
        """Limits of an answer in parts that the request itself names."""
        return NO_LIMITS

    def render(self, results: Results, batch_id: str) -> A_co:
        """Return the answer.

        Args:
            results: of each part; none if there were no instances.
            batch_id: of its batch; empty if it was in none.

        Raises:
            RequestError: these results make no answer.
        """

    def render_in_place(
        self, memory: memoryview, rows: int, start: int, size: int, batch_id: str
    ) -> A_co:
        """Return the answer of a single part.

        Args:
            memory: the segment.
            rows: instances in the part.
            start: where its result begins, in bytes from the start of the segment.
            size: how many bytes it has.
            batch_id: as in `render`.
        """
        return self.render(((rows, memory[start : start + size]),), batch_id)

    def apart(self, rows: Sequence[int], size: int, batch_id: str) -> OffloadJob | None:
        """Return the job that writes the answer in another process; None if that saves no time.

        Args:
            rows: instances in each part.
            size: bytes of all results.
            batch_id: as in `render`.
        """
        return None

    def written(self, value: Any, data: Sequence[memoryview]) -> A_co:
        """Return the answer that another process has written: the result of the `apart` job."""
        raise NotImplementedError

    def render_error(self, error: RequestError, batch_id: str) -> A_co:
        """Return the answer for an error; arguments as in `render`."""
