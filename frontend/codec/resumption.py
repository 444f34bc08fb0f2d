"""Resumption of an answer in parts that was cut off. Pure.

The model names inputs that take the parts so far, see `ringbatch.shm.model_spec.ModelSpec.resumes`.
The request is sent again with these inputs filled, and the model goes on behind them. So a client
sees a pause, and each part once.

To the collector, a resumed request is a new one, of which no part is out. If a worker dies of it
once more, the collector finds the request to blame, as it does for any other.
"""

import struct
from collections.abc import Sequence
from typing import Final

from ringbatch.frontend.codec.payload import Bytes, LazyBytes, Part, SlotPart, framed
from ringbatch.shm.frame import Frame, FrameError
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.tensor import ANY
from ringbatch.shm.texts import MAX_TOKENS

MOST_RESUMPTIONS: Final = 8
"""Resumptions of one request: it may kill each worker behind a further part."""
MOST_KEPT_BYTES: Final = 1 << 20
"""Bytes of the parts of one answer that a process keeps; an answer with more is not resumed."""


class NothingLeft(Exception):
    """The answer was cut off behind its last part: it has all tokens that were wanted."""


class ResumptionPlan:
    """Way from the parts of a model's answers to its inputs.

    Args:
        spec: of the model, which names some.
    """

    def __init__(self, spec: ModelSpec) -> None:
        self._inputs = Frame(spec.in_slots.carried)
        self._outputs = Frame(spec.answered)
        inputs = [tensor.name for tensor in self._inputs.tensors]
        outputs = [tensor.name for tensor in self._outputs.tensors]
        self._pairs = [(outputs.index(o), inputs.index(i)) for o, i in spec.resumes]
        counts = spec.generator is not None and MAX_TOKENS in inputs
        self._most = inputs.index(MAX_TOKENS) if counts else -1
        """The input with the most tokens that are wanted, of which some are there."""

    def extended(self, payload: Bytes, parts: Sequence[bytes]) -> bytes:
        """Return the payload of a request of one instance with the parts of its answer added.

        Args:
            payload: of the request, with the parts of earlier resumptions.
            parts: as they stood in the slot, since then.

        Raises:
            NothingLeft: there is nothing to go on for.
            FrameError, struct.error: a part has other dimensions, or the whole exceeds what memory
                can hold.
        """
        frame, data = self._inputs, bytes(payload)
        placed = frame.place(1, *frame.read_prefix(data)).parts
        tensors = [data[one.offset : one.offset + one.size] for one in placed]
        counts = [one.shape[1] if len(one.shape) > 1 else 0 for one in placed]
        for output, taken in self._pairs:
            emitted = [self._emitted(part, output) for part in parts]
            tensors[taken] += b"".join([data for _, data in emitted])
            count = sum([count for count, _ in emitted])
            counts[taken] += count
            if self._most >= 0:
                most = tensors[self._most]
                left = int.from_bytes(most, "little", signed=True) - count
                if left <= 0:
                    raise NothingLeft
                tensors[self._most] = left.to_bytes(len(most), "little")
        dimensions = tuple(
            count if place == 0 else size
            for tensor, one, count in zip(frame.tensors, placed, counts, strict=True)
            for place, (size, declared) in enumerate(zip(one.shape[1:], tensor.shape, strict=True))
            if declared == ANY
        )
        return framed(frame, 1, dimensions, tensors)

    def _emitted(self, part: bytes, output: int) -> tuple[int, bytes]:
        """Return how many elements a part adds along the first dimension, and their bytes."""
        frame = self._outputs
        placed = frame.place(1, *frame.read_prefix(part)).parts[output]
        shape = frame.tensors[output].shape
        joins = bool(shape) and shape[0] == ANY
        data = part[placed.offset : placed.offset + placed.size]
        return (placed.shape[1] if joins else 1), data


class Resumption:
    """Parts of one answer, with which its request is sent again when it is cut off.

    Args:
        plan: of the model.
    """

    __slots__ = ("_kept_bytes", "_left", "_parts", "_plan")

    def __init__(self, plan: ResumptionPlan) -> None:
        self._plan = plan
        self._parts: list[bytes] = []
        self._kept_bytes = 0
        self._left = MOST_RESUMPTIONS

    def keep(self, part: Bytes) -> None:
        """Keep a part that goes to the client."""
        self._kept_bytes += len(part)
        if self._kept_bytes <= MOST_KEPT_BYTES:
            self._parts.append(bytes(part))
        else:
            self._left = 0
            self._parts.clear()

    def resumed(self, part: SlotPart) -> Part | None:
        """Return the content of the slot with which a request goes on; None if it does not.

        A part that is not what the signature says ends the answer, too.

        Args:
            part: the content with which it was sent last.

        Raises:
            NothingLeft: only the end of the answer is missing.
        """
        rows, payload, key_bytes = part
        if isinstance(payload, LazyBytes):
            if payload.slot is not None:
                # Nothing else has these bytes, and the slot may be another's by now.
                return None
            payload = payload.read()
        if not self._left:
            return None
        self._left -= 1
        parts, self._parts = self._parts, []
        try:
            return Part(rows, self._plan.extended(payload, parts), key_bytes)
        except (FrameError, struct.error):
            return None
