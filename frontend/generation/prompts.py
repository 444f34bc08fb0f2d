"""Prompts as they go into slots, and the tokens of answers as they come out of them. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from ringbatch.frontend.codec.defaults import Default
from ringbatch.frontend.codec.outcome import Answer
from ringbatch.frontend.codec.payload import Bytes, Part, framed
from ringbatch.frontend.codec.rendering import Rendering, Results
from ringbatch.frontend.codec.request_context import RawHeaders, RequestContext
from ringbatch.frontend.codec.tensor_to_json import Unwritable, placed
from ringbatch.frontend.texts import openai
from ringbatch.shm.errors import InvalidRequest, ModelFailed, RequestError
from ringbatch.shm.frame import Frame, FrameError
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.request_context import as_tensor
from ringbatch.shm.tensor import Tensor
from ringbatch.shm.texts import PROMPT

_REQUEST_ID: Final = ""


class Tokens(NamedTuple):
    """A part of an answer, as a model makes it.

    Attributes:
        ids: the tokens; none at the end of the answer.
    """

    ids: list[int]


Generated = Tokens | Answer
"""A part of an answer, or the answer that says why there is none."""
END: Final = Tokens([])
"""The reply behind the last part."""


class Prompts:
    """Prompts for one model, as parts for slots.

    Args:
        spec: a text generator.
    """

    def __init__(self, spec: ModelSpec) -> None:
        self._inputs = spec.inputs
        self._frame = Frame(spec.carried)
        self._defaults = {t.name: Default(t) for t in spec.inputs if t.default is not None}
        self._context = None if spec.words is None else RequestContext(spec)

    def part(
        self, ids: Sequence[int], values: Mapping[str, float], headers: RawHeaders = b""
    ) -> Part:
        """Return the part of a request.

        Args:
            ids: the tokens of the prompt.
            values: of further inputs, by name; the others have their defaults.
            headers: of the request, for a model that asks for its context.

        Raises:
            InvalidRequest: a value does not fit its input.
            RequestTooLarge: the headers are too large.
        """
        dimensions: list[int] = []
        tensors: list[Bytes] = []
        for tensor in self._inputs:
            if tensor.name == PROMPT:
                dimensions.append(len(ids))
                tensors.append(_bytes(tensor, ids))
            elif tensor.name in values:
                tensors.append(_bytes(tensor, values[tensor.name]))
            else:
                default = self._defaults[tensor.name]
                dimensions += default.dimensions
                tensors.append(default.tensor(1))
        if self._context is not None:
            tensors.append(as_tensor(self._context.text(headers, _REQUEST_ID, None), 1))
        payload = framed(self._frame, 1, tuple(dimensions), tensors)
        return Part(1, payload, self._frame.key_bytes)


def _bytes(tensor: Tensor, value: Any) -> bytes:
    try:
        return np.array(value, tensor.datatype.numpy).tobytes()
    except OverflowError:
        raise InvalidRequest(
            f'"{tensor.name}" is too large for the {tensor.datatype.name} that the model takes'
        ) from None


class TokensRendering(Rendering[Generated]):
    """Rendering of each part of an answer as its tokens.

    Args:
        spec: a text generator.
    """

    def __init__(self, spec: ModelSpec) -> None:
        self._frame = Frame(spec.answered)
        self._dtype = np.dtype(spec.outputs[0].datatype.numpy)
        assert spec.generator is not None, "a text generator"
        self._vocabulary = spec.generator.vocabulary

    def render(self, results: Results, _batch_id: str) -> Generated:
        """Return the tokens, as in `Rendering`."""
        ((rows, memory),) = results
        try:
            place = placed(self._frame, rows, memory).parts[0]
        except (Unwritable, FrameError) as error:
            raise ModelFailed(str(error)) from None
        ids = np.ndarray(place.shape, self._dtype, memory, place.offset)[0].tolist()
        wrong = next((token for token in ids if not 0 <= token < self._vocabulary), None)
        if wrong is not None:
            last = self._vocabulary - 1
            raise ModelFailed(f"the model gave the token {wrong}; its tokens are from 0 to {last}")
        return Tokens(ids)

    def written(self, _value: Any, _data: Sequence[memoryview]) -> Generated:
        """Return nothing: no other process writes such an answer."""
        raise NotImplementedError

    def render_error(self, error: RequestError, _batch_id: str) -> Generated:
        """Return the answer to a request that has failed, as in `Rendering`."""
        return openai.refused(error)
