"""JSON values as what stands in slots, for one model without declared inputs.

Such a model takes and returns lists of values: what Python's own json module reads and writes, as
V1 has them, so that whole numbers of any size, the order of keys and `6.0` survive.
"""

import json
from collections.abc import Sequence
from typing import Any

from ringbatch.frontend.codec.outcome import NO_INSTANCES, WRONG_COUNT
from ringbatch.frontend.codec.payload import Part
from ringbatch.frontend.v1.forwarded import origin
from ringbatch.frontend.v1.request import FINITE
from ringbatch.shm.errors import InvalidRequest, ModelFailed, type_in_words
from ringbatch.shm.forward_envelope import KEY_BYTES, encode_envelope
from ringbatch.shm.host.json_text import why_unwritable
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.request_context import NOTHING, as_list


class ValueCodec:
    """Codec of one model's lists of JSON values. Pure.

    Args:
        spec: the model.
    """

    def __init__(self, spec: ModelSpec) -> None:
        self._name = spec.name
        self._cap = spec.cap
        self._asks = spec.words is not None
        self._front, self._key_bytes = b"", 0
        if spec.forward is not None:
            usual = origin(spec.forward, b"", {})
            self._front, self._key_bytes = encode_envelope(usual, b'{"instances":', b"}"), KEY_BYTES

    def parse(self, inputs: Sequence[Any]) -> tuple[Part, ...]:
        """Return the parts for slots, in order.

        Args:
            inputs: a list or tuple with one JSON value for each instance.

        Raises:
            InvalidRequest: it is no such list, is empty, or holds a value that JSON cannot carry.
        """
        if not isinstance(inputs, (list, tuple)):
            raise InvalidRequest(
                f"the inputs are {type_in_words(inputs)}, but model {self._name!r} declares "
                "none, and so takes a list of JSON values"
            )
        if not inputs:
            raise InvalidRequest(NO_INSTANCES)
        spans = (inputs[start : start + self._cap] for start in range(0, len(inputs), self._cap))
        if self._asks:
            return tuple(Part(len(own), as_list(NOTHING, _text(own)), 0) for own in spans)
        return tuple(
            Part(len(values), self._front + _text(values), self._key_bytes) for values in spans
        )

    def result_bytes(self, rows: int) -> int | None:
        """Return None: the model decides how much memory an answer takes."""
        return None

    def render(self, results: Sequence[tuple[int, bytearray]]) -> list[Any]:
        """Return the predictions, one for each instance.

        Args:
            results: rows and result of each part in order.

        Raises:
            ModelFailed: a result is no JSON list with one value for each row.
        """
        predictions: list[Any] = []
        for rows, text in results:
            try:
                values = FINITE.decode(text.decode())
            except (ValueError, RecursionError) as error:
                raise ModelFailed(f"the answer is no JSON list: {error}") from None
            if not isinstance(values, list):
                raise ModelFailed("the answer is no JSON list")
            if len(values) != rows:
                raise ModelFailed(WRONG_COUNT)
            predictions += values
        return predictions


def _text(values: Sequence[Any]) -> bytes:
    try:
        # ASCII alone, because a str may hold half of a surrogate pair, which UTF-8 does not have.
        return json.dumps(values, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        why = why_unwritable(error)
        raise InvalidRequest(f"the instances cannot be written as JSON: {why}") from None
