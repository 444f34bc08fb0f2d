"""Tensors that a chain's steps leave in a request's slot, for later steps.

See `ringbatch.shm.chain`.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from ringbatch.engine.worker.tensors import Gatherer
from ringbatch.shm.chain import Chain
from ringbatch.shm.engine_slots import Request
from ringbatch.shm.frame import Placement
from ringbatch.shm.layout import aligned
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.strided_view import StridedView

PLACEMENTS_KEPT: Final = 1024


class Block(NamedTuple):
    """Tensors that one step has kept of a request.

    Attributes:
        start: of its frame, in bytes from that of the result memory.
        prefix: the words that open the frame.
        placement: of the frame's tensors.
    """

    start: int
    prefix: bytes
    placement: Placement


class ChainTensors:
    """Reader of a chain's requests and of the tensors that its steps have kept.

    Attributes:
        chain: the chain to read.
        static: True if every tensor's place follows from a request's rows alone.

    Args:
        memory: the segment's.
        views: of that memory.
        spec: the chain's entry.
    """

    def __init__(self, memory: memoryview, views: StridedView, spec: ModelSpec) -> None:
        assert spec.chain is not None, "only a chain has steps"
        self.chain: Chain = spec.chain
        self.memory = memory
        self.views = views
        steps = spec.chain.steps
        self.request = Gatherer(memory, views, spec.inputs)
        self._frames = [Gatherer(memory, views, step.kept) for step in steps[:-1]]
        self.key_starts = spec.chain.key_starts
        self.static = self.request.static and all(frame.static for frame in self._frames)
        self._ends: dict[tuple[int, int, int], int | None] = {}

    def blocks(self, rows: int, result: int, capacity: int, count: int) -> list[Block] | None:
        """Return the first blocks of a request; None if its words make no sense.

        Args:
            rows: of the request.
            result: the start of its result memory.
            capacity: bytes of that.
            count: how many blocks.
        """
        found, start = [], self.key_starts[-1]
        for frame in self._frames[:count]:
            limit = capacity - start
            if frame.prefix_bytes > limit:
                return None
            prefix = bytes(self.memory[result + start : result + start + frame.prefix_bytes])
            placement = frame.placed(rows, prefix, limit)
            if placement is None:
                return None
            found.append(Block(start, prefix, placement))
            start = aligned(start + placement.size)
        return found

    def end(self, blocks: Sequence[Block]) -> int:
        """Return the start of the next block."""
        if not blocks:
            return self.key_starts[-1]
        return aligned(blocks[-1].start + blocks[-1].placement.size)

    def kept_bytes(self, count: int, request: Request) -> int:
        """Return the end of so many blocks in a request's memory, at most the end of that."""
        capacity = request.result_capacity
        blocks = self.blocks(request.rows, request.result_offset, capacity, count)
        return capacity if blocks is None else min(self.end(blocks), capacity)

    def static_end(self, rows: int, capacity: int, count: int) -> int | None:
        """Return the start of the block behind `count` blocks of a static chain; None without room.

        Args:
            rows: of the request.
            capacity: bytes of its result memory.
            count: of blocks.
        """
        key = (rows, capacity, count)
        try:
            return self._ends[key]
        except KeyError:
            blocks = self.blocks(rows, 0, capacity, count)
            end = None if blocks is None else self.end(blocks)
            if len(self._ends) >= PLACEMENTS_KEPT:
                self._ends.clear()
            self._ends[key] = end
            return end
