"""Codec of models with declared inputs and outputs: tensors in the slots, arrays to the model."""

from collections.abc import Collection, Sequence
from copy import copy
from typing import Any, TypeVar

import numpy as np

from ringbatch.engine.models.model import Model
from ringbatch.engine.worker.joined_parts import copied, empty_rows, joined_outputs
from ringbatch.engine.worker.outputs import Checker, Fault, Outputs, WrongResult
from ringbatch.engine.worker.tensors import Gatherer, Scatterer, joined
from ringbatch.shm.engine_slots import Request
from ringbatch.shm.frame import FrameError
from ringbatch.shm.ragged import answered
from ringbatch.shm.strided_view import StridedView
from ringbatch.shm.uniform_batch import UniformBatch

T = TypeVar("T")


class TensorCodec:
    """Batches of a model with declared inputs and outputs."""

    def __init__(self, memory: memoryview, model: Model, batched: bool = True) -> None:
        views = StridedView(memory)
        self._gatherer = Gatherer(memory, views, model.inputs)
        self.uniform = self._gatherer.static
        self._outputs = model.outputs
        self._checker = Checker(model.outputs, batched=batched, function=model.function)
        self._scatterer = Scatterer(memory, views, answered(model.outputs))

    def read_and_write(self, gatherer: Gatherer, scatterer: Scatterer) -> None:
        """Have inputs read and outputs written in another way than a request's own."""
        self.uniform = self.uniform and gatherer.static
        self._gatherer = gatherer
        self._scatterer = scatterer

    def read(self, requests: list[Request]) -> tuple[list[Request], list[Request], Any]:
        """See `Codec.read`."""
        placements = []
        for request in requests:
            placement = self._gatherer.placement(request)
            if placement is None:
                return self._read_one_by_one(requests)
            placements.append(placement)
        try:
            return requests, [], self._gatherer.gather(requests, placements)
        except FrameError:
            return self._read_one_by_one(requests)

    def _read_one_by_one(self, requests: list[Request]) -> tuple[list[Request], list[Request], Any]:
        readable, unreadable, rows = self._gatherer.gather_each(requests)
        return readable, unreadable, [joined(column) for column in zip(*rows, strict=True)]

    def read_uniform(self, uniform: UniformBatch) -> Any | None:
        """See `Codec.read_uniform`."""
        return self._gatherer.gather_uniform(uniform)

    def squeeze_batch(self, arguments: Any) -> Any:
        """See `Codec.squeeze_batch`."""
        return [array[0, ...] for array in arguments]

    def synthetic_arguments(self, values: Any) -> Any:
        """See `Codec.synthetic_arguments`."""
        return values

    def pad_rows(self, arguments: Any, count: int) -> Any:
        """See `Codec.pad_rows`."""
        return [np.concatenate([array, *[array[-1:]] * count]) for array in arguments]

    def check(self, returned: object, rows: list[int], spare: int = 0) -> Any:
        """See `Codec.check`."""
        count = sum(rows)
        outputs = self._checker.outputs(returned, count + spare)
        return outputs.first_rows(count) if spare else outputs

    def first_invalid(self, results: Any) -> WrongResult | None:
        """See `Codec.first_invalid`."""
        outputs: Outputs = results
        return outputs.faults[0].error if outputs.faults else None

    def per_row_results(self, results: Any, rows: int) -> list[list[Any]]:
        """See `Codec.per_row_results`."""
        outputs: Outputs = results
        return [[copy(array[row]) for array in outputs.arrays] for row in range(rows)]

    def row(self, results: Any, number: int) -> Any:
        """See `Codec.row`."""
        outputs: Outputs = results
        return copied(outputs.one_row(number))

    def empty_rows(self, results: Any) -> Collection[int]:
        """See `Codec.empty_rows`."""
        outputs: Outputs = results
        return empty_rows(outputs, self._outputs)

    def kept(self, results: Any) -> Any:
        """See `Codec.kept`."""
        outputs: Outputs = results
        return copied(outputs)

    def joined(self, parts: Sequence[Any]) -> Any:
        """See `Codec.joined`."""
        return joined_outputs(parts, self._outputs)

    def write(self, results: Any, requests: list[Request]) -> Sequence[int | WrongResult]:
        """See `Codec.write`."""
        outputs: Outputs = results
        sizes = self._scatterer.scatter(outputs.arrays, requests)
        return self._or_faults(sizes, outputs.faults, requests) if outputs.faults else sizes

    def parts(self, results: Any, requests: list[Request]) -> Sequence[bytes | WrongResult]:
        """See `Codec.parts`."""
        outputs: Outputs = results
        parts = self._scatterer.parts(outputs.arrays, [request.rows for request in requests])
        return self._or_faults(parts, outputs.faults, requests) if outputs.faults else parts

    def write_uniform(self, results: Any, uniform: UniformBatch) -> int | None:
        """See `Codec.write_uniform`."""
        outputs: Outputs = results
        return None if outputs.faults else self._scatterer.scatter_uniform(outputs.arrays, uniform)

    def _or_faults(
        self, found: Sequence[T | WrongResult], faults: Sequence[Fault], requests: list[Request]
    ) -> list[T | WrongResult]:
        """Return what was found for each request, or the fault that is in its result."""
        result = list(found)
        for fault in faults:
            start = 0
            for number, request in enumerate(requests):
                stop = start + request.rows
                if self._own_part(fault.elements[start:stop], fault.output, request).any():
                    result[number] = fault.error
                start = stop
        return result

    def _own_part(self, rows: Any, output: int, request: Request) -> Any:
        """Return a request's part of its rows of an output, or of their companion array."""
        return rows
