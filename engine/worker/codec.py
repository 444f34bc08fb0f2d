"""Interface that a `Runner` needs to read and write its batches."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, Protocol

from ringbatch.engine.worker.outputs import WrongResult
from ringbatch.shm.engine_slots import Request
from ringbatch.shm.uniform_batch import UniformBatch


class Codec(Protocol):
    """Codec of the batches of one kind of model.

    Attributes:
        uniform: True if requests of the same sizes can be read together.
    """

    uniform: bool

    def read(self, requests: list[Request]) -> tuple[list[Request], list[Request], Any]:
        """Return the requests that can be read, those that cannot, and the arguments of `predict`.

        Raises:
            Unlike: each can be read, but not all together.
        """

    def read_uniform(self, uniform: UniformBatch) -> Any | None:
        """Return the arguments of `predict` for uniform requests; None if sizes do not fit."""

    def squeeze_batch(self, arguments: Any) -> Any:
        """Return the arguments of one instance without its batch dimension."""

    def synthetic_arguments(self, values: Any) -> Any:
        """Return the arguments for synthetic values, which no client has sent."""

    def pad_rows(self, arguments: Any, count: int) -> Any:
        """Return the arguments with their last row repeated `count` more times."""

    def check(self, returned: object, rows: list[int], spare: int = 0) -> Any:
        """Return the results of `predict` in the form that `write` takes.

        Args:
            returned: by `predict`.
            rows: instances of each request.
            spare: rows that were added behind them, and are left out of the results.

        Raises:
            WrongResult: it does not fit the signature or the number of rows.
        """

    def first_invalid(self, results: Any) -> WrongResult | None:
        """Return the first error in the results for synthetic values; None if all are valid."""

    def per_row_results(self, results: Any, rows: int) -> list[list[Any]]:
        """Return the answer for each row of synthetic values.

        It is an array for each output, or the one value of JSON. It is a copy, as the model may
        write into its own results.
        """

    def row(self, results: Any, number: int) -> Any:
        """Return the results of one row, which stay as they are when the model goes on."""

    def empty_rows(self, results: Any) -> Collection[int]:
        """Return the numbers of the rows that would add nothing to parts before them."""

    def kept(self, results: Any) -> Any:
        """Return results that stay as they are when the model goes on."""

    def joined(self, parts: Sequence[Any]) -> Any:
        """Return kept parts, at least one, as the results of one answer."""

    def write(self, results: Any, requests: list[Request]) -> Sequence[int | WrongResult]:
        """Write each request's result into its memory.

        It returns the bytes that each takes, written or not, or why it alone cannot be written.
        """

    def parts(self, results: Any, requests: list[Request]) -> Sequence[bytes | WrongResult]:
        """Return each request's result as the bytes that `write` would write."""

    def write_uniform(self, results: Any, uniform: UniformBatch) -> int | None:
        """Write as `write`, after `read_uniform`; return the bytes of every result, written or not.

        It returns None if they are not all alike, and `write` is to be called.
        """


class Place(NamedTuple):
    """Place of a batch in a chain.

    Attributes:
        codec: reads the tensors of earlier steps, and writes those for later ones, or the answer.
        number: of the step.
        last: True if it answers.
        kept_bytes: that earlier steps have kept of a request, at most all of its result memory.
    """

    codec: Codec
    number: int
    last: bool
    kept_bytes: Callable[[Request], int]
