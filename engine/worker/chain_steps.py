"""Batches as steps of chains: inputs come from earlier steps, outputs go to later ones.

See `ringbatch.shm.chain`. A model's own codec does its particular work, such as padding; a step's
is a copy of that with another `Gatherer` and another `Scatterer`. All requests of a batch are at
the same step of the same chain. The collector says at which, so no frontend's word decides it.
"""

import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from ringbatch.engine.worker.chain_tensors import PLACEMENTS_KEPT, ChainTensors
from ringbatch.engine.worker.codec import Place
from ringbatch.engine.worker.outputs import WrongResult
from ringbatch.engine.worker.tensor_codec import TensorCodec
from ringbatch.engine.worker.tensors import Array, Gatherer, Scatterer
from ringbatch.shm.chain import REQUEST, Source, reference_in, step_in
from ringbatch.shm.engine_slots import Request
from ringbatch.shm.frame import PlacedTensor, Placement
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.ragged import answered
from ringbatch.shm.segment import Segment
from ringbatch.shm.strided_view import StridedView
from ringbatch.shm.tensor import ANY, Tensor
from ringbatch.shm.tuples import unchecked_tuple
from ringbatch.shm.uniform_batch import Sizes, UniformBatch

_PLACES_KEPT: Final = 256
"""More than a model has at once; those of chains that were changed are let go with the others."""
StoreStart = Callable[[Sequence[int], int], object]
"""Notes of requests how many bytes stand before their answers."""


class StepGatherer(Gatherer):
    """Reader of a chain's tensors, from requests or from earlier steps.

    Args:
        kept: of the chain.
        tensors: that are read.
        sources: source of each tensor.
    """

    def __init__(
        self, kept: ChainTensors, tensors: Sequence[Tensor], sources: Sequence[Source]
    ) -> None:
        super().__init__(kept.memory, kept.views, tensors)
        self._kept = kept
        self._sources = tuple(sources)
        self._count = max((source.step for source in sources), default=REQUEST) + 1
        self._asks = any(source.step == REQUEST for source in sources)
        self._combined: dict[tuple[int, int, bytes, tuple[bytes, ...]], Placement] = {}
        self._uniform: dict[tuple[int, int, int, int], Placement] = {}
        """Placements found valid, by rows, bytes of the request, distance and result capacity."""

    @property
    def static(self) -> bool:
        """As in `Gatherer`."""
        return self._kept.static

    def placement(self, request: Request) -> Placement | None:
        """As in `Gatherer`: from the start of the request, in any memory of its slot."""
        start, prefix_bytes = request.request_offset, self._kept.request.prefix_bytes
        if self._asks and prefix_bytes > request.request_bytes:
            return None
        prefix = bytes(self._memory[start : start + prefix_bytes]) if self._asks else b""
        return self._combine(
            request.rows,
            prefix,
            request.request_bytes,
            start,
            request.result_offset,
            request.result_capacity,
        )

    def gather_uniform(self, uniform: UniformBatch) -> list[Array] | None:
        """As in `Gatherer`."""
        sizes, distance = uniform.sizes, uniform.distance
        key = (sizes.rows, sizes.request_bytes, distance, sizes.result_capacity)
        placement = self._uniform.get(key)
        if placement is None:
            placement = self._combine(
                sizes.rows, b"", sizes.request_bytes, 0, distance, sizes.result_capacity
            )
            if placement is None:
                return None
            if len(self._uniform) >= PLACEMENTS_KEPT:
                self._uniform.clear()
            self._uniform[key] = placement
        return self._gathered(uniform.request_offsets, placement)

    def _combine(
        self, rows: int, prefix: bytes, request_bytes: int, start: int, result: int, capacity: int
    ) -> Placement | None:
        blocks = self._kept.blocks(rows, result, capacity, self._count)
        if blocks is None:
            return None
        own = Placement((), 0)
        if self._asks:
            placed = self._kept.request.placed(rows, prefix, request_bytes)
            if placed is None:
                return None
            own = placed
        key = (rows, result - start, prefix, tuple(block.prefix for block in blocks))
        combined = self._combined.get(key)
        if combined is None:
            parts = tuple(
                own.parts[place]
                if step == REQUEST
                else _moved(
                    blocks[step].placement.parts[place], result - start + blocks[step].start
                )
                for step, place in self._sources
            )
            if len(self._combined) >= PLACEMENTS_KEPT:
                self._combined.clear()
            combined = self._combined[key] = Placement(parts, 0)
        return combined

    def key(self, request: Request) -> bytes:
        """Return the open dimensions of the inputs, as words; for a request with sound tensors."""
        placement = self.placement(request)
        assert placement is not None, "what was just written makes sense"
        sizes = [
            size
            for tensor, part in zip(self._frame.tensors, placement.parts, strict=True)
            for size, declared in zip(part.shape[1:], tensor.shape, strict=True)
            if declared == ANY
        ]
        return struct.pack(f"<{len(sizes)}Q", *sizes)


class KeepingScatterer(Scatterer):
    """Writes what a step keeps, and the key of the step after it.

    Args:
        kept: of the chain.
        number: of the step.
        following: reads the inputs of the next.
    """

    def __init__(self, kept: ChainTensors, number: int, following: StepGatherer) -> None:
        steps = kept.chain.steps
        super().__init__(kept.memory, kept.views, steps[number].kept)
        self._kept = kept
        self._number = number
        self._keeps = steps[number].keeps
        self._following = following
        self._key_start = kept.key_starts[number + 1]
        self._key_bytes = steps[number + 1].key_bytes

    def scatter(
        self, arrays: Sequence[Any], requests: list[Request]
    ) -> Sequence[int | WrongResult]:
        """As in `Scatterer`; a size counts all that the request has in its result memory."""
        sizes, stop = [], 0
        for request in requests:
            start, stop = stop, stop + request.rows
            sizes.append(self._keep([arrays[n][start:stop] for n in self._keeps], request))
        return sizes

    def _keep(self, arrays: list[Any], request: Request) -> int | WrongResult:
        result, capacity = request.result_offset, request.result_capacity
        blocks = self._kept.blocks(request.rows, result, capacity, self._number)
        if blocks is None:
            return capacity + 1
        skipped = self._kept.end(blocks)
        (size,) = super().scatter(arrays, [_behind(request, skipped)])
        if isinstance(size, WrongResult):
            return size
        if skipped + size <= capacity and self._key_bytes:
            key = self._following.key(request)
            at = result + self._key_start
            self._memory[at : at + len(key)] = key
        return skipped + size

    def scatter_uniform(self, arrays: list[Array], uniform: UniformBatch) -> int | None:
        """As in `Scatterer`."""
        if self._key_bytes or not self._kept.static:
            return None
        sizes = uniform.sizes
        skipped = self._kept.static_end(sizes.rows, sizes.result_capacity, self._number)
        if skipped is None:
            return None
        own = [arrays[number] for number in self._keeps]
        size = super().scatter_uniform(own, _all_behind(uniform, skipped))
        return None if size is None else skipped + size


class AnsweringScatterer(Scatterer):
    """Writes the answer of a chain behind what its steps have kept.

    Args:
        kept: of the chain.
        outputs: of the chain.
        store_start: see `StoreStart`.
    """

    def __init__(
        self, kept: ChainTensors, outputs: Sequence[Tensor], store_start: StoreStart
    ) -> None:
        super().__init__(kept.memory, kept.views, answered(outputs))
        self._kept = kept
        self._store_start = store_start
        last = len(kept.chain.steps) - 1
        self._last = last
        self._answers = kept.chain.answers
        earlier = [
            (tensor, source)
            for tensor, source in zip(outputs, self._answers, strict=True)
            if source.step != last
        ]
        self._earlier = StepGatherer(kept, [t for t, _ in earlier], [s for _, s in earlier])
        self._earlier.keep_stored()

    def scatter(
        self, arrays: Sequence[Any], requests: list[Request]
    ) -> Sequence[int | WrongResult]:
        """As in `Scatterer`; a size that does not fit counts what stands before it too."""
        sizes, stop = [], 0
        for request in requests:
            start, stop = stop, stop + request.rows
            sizes.append(self._answer([array[start:stop] for array in arrays], request))
        return sizes

    def _answer(self, arrays: list[Any], request: Request) -> int | WrongResult:
        result, capacity = request.result_offset, request.result_capacity
        blocks = self._kept.blocks(request.rows, result, capacity, self._last)
        placement = self._earlier.placement(request)
        if blocks is None or placement is None:
            return capacity + 1
        earlier = iter(self._earlier.gather([request], [placement]))
        answers = [
            arrays[place] if step == self._last else next(earlier) for step, place in self._answers
        ]
        skipped = self._kept.end(blocks)
        (size,) = super().scatter(answers, [_behind(request, skipped)])
        if isinstance(size, WrongResult):
            return size
        self._store_start([request.ref], skipped)
        return size if skipped + size <= capacity else skipped + size

    def scatter_uniform(self, arrays: list[Array], uniform: UniformBatch) -> int | None:
        """As in `Scatterer`."""
        if any(step != self._last for step, _ in self._answers) or not self._kept.static:
            return None
        sizes = uniform.sizes
        skipped = self._kept.static_end(sizes.rows, sizes.result_capacity, self._last)
        if skipped is None:
            return None
        own = [arrays[place] for _, place in self._answers]
        size = super().scatter_uniform(own, _all_behind(uniform, skipped))
        if size is None:
            return None
        self._store_start(uniform.references, skipped)
        fits = skipped + size <= sizes.result_capacity
        return size if fits else skipped + size


class Steps:
    """The steps of chains that one model runs, as its worker knows them.

    Args:
        segment: whose model table says what chains there are.
        fresh: makes the codec of the model.
        store_start: see `StoreStart`.
    """

    def __init__(
        self, segment: Segment, fresh: Callable[[], TensorCodec], store_start: StoreStart
    ) -> None:
        self._segment = segment
        self._views = StridedView(segment.memory)
        self._fresh = fresh
        self._store_start = store_start
        self._kept: dict[int, ChainTensors] = {}
        self._places: dict[int, Place] = {}

    def place(self, asked: int) -> Place | None:
        """Return the place of a word's batches in their chain; None if it is no chain."""
        place = self._places.get(asked) or self._made(asked)
        if place is not None:
            if len(self._places) >= _PLACES_KEPT:
                self._places.clear()
            self._places[asked] = place
        return place

    def _made(self, asked: int) -> Place | None:
        spec = self._spec(reference_in(asked))
        if spec is None or spec.chain is None:
            return None
        kept = self._kept.get(spec.reference)
        if kept is None:
            kept = self._kept[spec.reference] = ChainTensors(
                self._segment.memory, self._views, spec
            )
        number, steps = step_in(asked), kept.chain.steps
        last = number == len(steps) - 1
        codec = self._fresh()
        codec.read_and_write(
            self._gatherer(kept, number),
            AnsweringScatterer(kept, spec.outputs, self._store_start)
            if last
            else KeepingScatterer(kept, number, self._gatherer(kept, number + 1)),
        )
        return Place(codec, number, last, partial(kept.kept_bytes, number))

    def _spec(self, reference: int) -> ModelSpec | None:
        for _ in range(2):
            for spec in self._segment.models:
                if spec.reference == reference:
                    return spec
            # The collector knows a later table than this worker has read.
            self._segment.read_models()
        return None

    @staticmethod
    def _gatherer(kept: ChainTensors, number: int) -> StepGatherer:
        step = kept.chain.steps[number]
        return StepGatherer(kept, step.inputs, step.sources)


def _behind(request: Request, skipped: int) -> Request:
    """Return a request whose result memory starts so many bytes later."""
    return request._replace(
        result_offset=request.result_offset + skipped,
        result_capacity=request.result_capacity - skipped,
    )


def _all_behind(uniform: UniformBatch, skipped: int) -> UniformBatch:
    references, slots, sizes, starts, distance = uniform
    model, rows, request_bytes, key_bytes, capacity = sizes
    # Replacing one of the fields takes thrice as long.
    left = unchecked_tuple(Sizes, (model, rows, request_bytes, key_bytes, capacity - skipped))
    return unchecked_tuple(UniformBatch, (references, slots, left, starts, distance + skipped))


def _moved(part: PlacedTensor, distance: int) -> PlacedTensor:
    return PlacedTensor(part.offset + distance, part.size, part.shape)
