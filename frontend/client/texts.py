"""Arrays of texts as tokens in slots, for one model; the program's own thread makes them."""

from collections.abc import Mapping, Sequence

from ringbatch.frontend.client.arrays import Array, ArrayCodec, Arrays
from ringbatch.frontend.codec.payload import Part
from ringbatch.frontend.texts.tokenizing import TextModel
from ringbatch.shm.model_spec import ModelSpec


class ClientTextCodec:
    """See `ringbatch.frontend.client.calls.ClientCodec`.

    Args:
        arrays: of texts, and of answers.
        spec: the model, with `tokens`.
    """

    def __init__(self, arrays: ArrayCodec, spec: ModelSpec) -> None:
        self._arrays = arrays
        self._texts = TextModel(spec)

    def parse(self, inputs: Array | Mapping[str, Array]) -> tuple[Part, ...]:
        """Return the parts for slots, in the order of the rows.

        Raises:
            InvalidRequest: the inputs are no texts, or one is too long.
            ModelNotReady: the tokenizer cannot be loaded here; the log says why.
        """
        parts = self._arrays.parse(inputs)
        if not parts:
            return ()
        return self._texts.tokenized(self._texts.given(parts), in_order=True).parts

    def render(self, results: Sequence[tuple[int, bytearray]]) -> Arrays:
        """Return the outputs, as `ArrayCodec.render`."""
        return self._arrays.render(results)

    def result_bytes(self, rows: int) -> int | None:
        """As in `ClientCodec`."""
        return self._arrays.result_bytes(rows)
