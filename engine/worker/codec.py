"""What a `Runner` asks of whoever reads and writes its batches."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from ringbatch.engine.worker.outputs import WrongResult
from ringbatch.shm.engine_port import Request
from ringbatch.shm.uniform_batch import UniformBatch


class Codec(Protocol):
    """How the batches of one kind of model are read and written.

    Attributes:
        uniform: whether requests of the same sizes can be read together.
    """

    uniform: bool

    def read(self, requests: list[Request]) -> tuple[list[Request], list[Request], Any]:
        """The requests that can be read, those that cannot, and the arguments of `predict`.

        Raises:
            Unlike: where each can be read, but not all together.
        """

    def read_uniform(self, uniform: UniformBatch) -> Any | None:
        """The arguments of `predict` for requests of the same sizes; None where those sizes are
        not the model's."""

    def alone(self, arguments: Any) -> Any:
        """The arguments for the one instance in them, of a model without a batch dimension."""

    def made_up(self, values: Any) -> Any:
        """The arguments for values that no client has sent."""

    def extended(self, arguments: Any, count: int) -> Any:
        """The arguments with their last row so many times more."""

    def check(self, returned: object, rows: list[int], spare: int = 0) -> Any:
        """What `predict` returned, in the form that `write` takes.

        Args:
            returned: by `predict`.
            rows: instances of each request.
            spare: rows that were added behind them, and are left out of the results.

        Raises:
            WrongResult: where it does not fit the signature or the number of rows.
        """

    def fault(self, results: Any) -> WrongResult | None:
        """Why something of the results for made-up values cannot be told; None where all can."""

    def each(self, results: Any, rows: int) -> list[list[Any]]:
        """For each row of made-up values, what it is answered: an array for each output, or the one
        value of JSON. It is nobody else's, as the model may write into what it has returned."""

    def write(self, results: Any, requests: list[Request]) -> Sequence[int | WrongResult]:
        """Each request's result into its memory; the bytes each takes, written or not, or why
        it alone cannot be written."""

    def write_uniform(self, results: Any, uniform: UniformBatch) -> int | None:
        """As `write`, after `read_uniform`: the bytes that every result takes, written or not; None
        where they are not all alike, and `write` is to be called."""


class Place(NamedTuple):
    """Where a batch is in a chain.

    Attributes:
        codec: reads what earlier steps have kept, and writes what later ones take, or the answer.
        number: of the step.
        last: whether it answers.
        kept_bytes: what earlier steps have kept of a request, at most all of its result memory.
    """

    codec: Codec
    number: int
    last: bool
    kept_bytes: Callable[[Request], int]
