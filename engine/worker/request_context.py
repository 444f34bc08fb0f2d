"""Batches of a model that takes the request's context: a codec around the usual one.

The context stands behind the inputs, as `ringbatch.shm.request_context` has it. It comes out of the
usual codec as one more argument, and goes to the model as an entry for each row.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
import orjson

from ringbatch.engine.models.request_context import Request as Asked
from ringbatch.engine.worker.codec import Codec
from ringbatch.engine.worker.json_codec import JsonCodec
from ringbatch.engine.worker.padding import PaddedCodec
from ringbatch.shm.engine_slots import Request
from ringbatch.shm.uniform_batch import UniformBatch

_SILENT: Final = Asked()


class RequestContextCodec:
    """Codec around another, which reads the request context as one more input.

    Args:
        inner: reads and writes the batches.
        is_wanted: returns whether a client waits for the request of a reference.
    """

    uniform = False

    def __init__(self, inner: Codec, is_wanted: Callable[[int], bool]) -> None:
        self._inner = inner
        self._is_wanted = is_wanted
        self.check = inner.check
        self.first_invalid = inner.first_invalid
        self.per_row_results = inner.per_row_results
        self.row = inner.row
        self.empty_rows = inner.empty_rows
        self.kept = inner.kept
        self.joined = inner.joined
        self.write = inner.write
        self.parts = inner.parts
        self.write_uniform = inner.write_uniform

    def read(self, requests: list[Request]) -> tuple[list[Request], list[Request], Any]:
        """See `Codec.read`."""
        readable, unreadable, arguments = self._inner.read(requests)
        if not readable:
            return readable, unreadable, arguments
        *own, words = arguments
        contexts, row = [], 0
        for request in readable:
            contexts += [self._asked(words[row], request)] * request.rows
            row += request.rows
        return readable, unreadable, [*own, contexts]

    def _asked(self, words: Any, request: Request) -> Asked:
        try:
            found = words if isinstance(words, dict) else orjson.loads(words)
            said = (found.get("id", ""), found.get("parameters"), found.get("headers"))
        except (ValueError, AttributeError):
            said = ("", None, None)
        return Asked(*said, request.deadline_ns, partial(self._is_wanted, request.ref))

    def read_uniform(self, uniform: UniformBatch) -> Any | None:
        """Return None, as the context is read request by request."""
        return None

    def squeeze_batch(self, arguments: Any) -> Any:
        """See `Codec.squeeze_batch`."""
        *own, contexts = arguments
        return [*self._inner.squeeze_batch(own), contexts]

    def pad_rows(self, arguments: Any, count: int) -> Any:
        """See `Codec.pad_rows`. Added rows have an empty context."""
        *own, contexts = arguments
        return [*self._inner.pad_rows(own, count), contexts + [_SILENT] * count]

    def synthetic_arguments(self, values: Any) -> Any:
        """See `Codec.synthetic_arguments`."""
        if isinstance(self._inner, JsonCodec):
            return [*self._inner.synthetic_arguments(values), [_SILENT] * len(values)]
        if isinstance(self._inner, PaddedCodec):
            nothing = np.array([b""], dtype=object)
            *own, words = self._inner.synthetic_arguments([[*row, nothing] for row in values])
            return [*own, [_SILENT] * len(words)]
        own = self._inner.synthetic_arguments(values)
        return [*own, [_SILENT] * len(own[0])]
