"""Grouping of one model's requests that may share a batch, and their number.

The key of a request, its open dimensions, stands at the start of its payload. A frontend may change
it at any time. It decides here only which requests wait together; the worker reads again all that
it gathers.
"""

import struct
from collections.abc import Iterable
from functools import partial

from ringbatch.engine.ipc.shaping import Budget, Dimensions, Lengths, elements
from ringbatch.shm.engine_slots import Request
from ringbatch.shm.frame import Frame
from ringbatch.shm.model_spec import ModelSpec


class Grouping:
    """The rules of one model.

    Attributes:
        bounded: whether a batch is bounded by its elements as well as by its rows.

    Args:
        spec: the model.
        memory: the segment's.
    """

    def __init__(self, spec: ModelSpec, memory: memoryview) -> None:
        spec = spec.in_slots
        self._memory = memory
        self._lengths = (
            Lengths(spec.inputs, spec.outputs, spec.length_buckets)
            if spec.pad_variable_length
            else None
        )
        self._key_bytes = Frame(spec.inputs).key_bytes
        self._words = struct.Struct(f"<{self._key_bytes // 8}Q")
        shapes = [tensor.shape for tensor in spec.inputs]
        self._budget = Budget(
            spec.max_batch_elements, spec.allowed_batch_sizes, partial(elements, shapes)
        )
        self.bounded = spec.max_batch_elements > 0

    def key(self, request: Request) -> bytes:
        """Return the key of a request that has one; requests with equal keys may share a batch."""
        start = request.request_offset
        if self._lengths is None or request.key_bytes != self._key_bytes:
            return bytes(self._memory[start : start + request.key_bytes])
        return repr(self._lengths.goal(self._dimensions(request))).encode()

    def shared_key(self, starts: Iterable[int], key_bytes: int) -> bytes | None:
        """Return the `key` of several requests; None if they differ, or may.

        Args:
            starts: the offset of each payload.
            key_bytes: length of each request's key.
        """
        if not key_bytes:
            return b""
        if self._lengths is not None:
            return None
        memory = self._memory
        keys = {memory[start : start + key_bytes].tobytes() for start in starts}
        return keys.pop() if len(keys) == 1 else None

    def fitting(self, requests: Iterable[Request]) -> int:
        """Return how many of the oldest requests of one queue fit into the budget of elements."""
        # mypyc would make a list of a generator expression, and look at every request.
        return self._budget.fitting(map(self._rows_and_least, requests))

    def share(self, request: Request) -> float:
        """Return the part that a request takes of the budget of elements, up to 1."""
        return self._budget.share(request.rows, self._least(request))

    def _rows_and_least(self, request: Request) -> tuple[int, Dimensions]:
        return request.rows, self._least(request)

    def _least(self, request: Request) -> Dimensions:
        if request.key_bytes != self._key_bytes:
            return (0,) * (self._key_bytes // 8)
        dimensions = self._dimensions(request)
        return dimensions if self._lengths is None else self._lengths.least(dimensions)

    def _dimensions(self, request: Request) -> Dimensions:
        found: Dimensions = self._words.unpack_from(self._memory, request.request_offset)
        return found
