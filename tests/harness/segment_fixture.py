"""An engine's memory in one process, and clients that use it through lanes as frontends do.

How tensors become bytes is written here a second time and plainly, so that the tests do not
check the engine's conversions against themselves.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringbatch.shm.descriptors import HeaderWords
from ringbatch.shm.lane import Lane
from ringbatch.shm.layout import PAGE, Layout, aligned
from ringbatch.shm.model_spec import ModelSpec, dumps
from ringbatch.shm.parts import PartReader
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import Answer
from ringbatch.shm.tensor import Tensor

Array = NDArray[Any]
FAR_NS = 1 << 62


def spec(
    index: int = 0,
    inputs: Sequence[Tensor] = (),
    outputs: Sequence[Tensor] = (),
    *,
    name: str = "m",
    max_batch_size: int = 32,
    max_latency_ns: int = 1_000,
    policy: str = "eager",
    workers: tuple[int, ...] = (0,),
    spares: int = 0,
    timeout_ns: int = FAR_NS,
    batch_timeout_ns: int = FAR_NS,
) -> ModelSpec:
    """A model's entry in the model table."""
    return ModelSpec(
        index=index,
        account=index,
        name=name,
        platform="python",
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        max_batch_size=max_batch_size,
        max_latency_ns=max_latency_ns,
        timeout_ns=timeout_ns,
        policy=policy,
        workers=workers,
        spares=spares,
        batch_timeout_ns=batch_timeout_ns,
    )


ALWAYS = 1 << 62
"""Instant that never passes: a collector seems to move for ever."""


def local_segment(
    *models: ModelSpec,
    lanes: int = 1,
    slots: int = 64,
    lane_bytes: int = 64 * PAGE,
    spare: int = 0,
    traced: int = 0,
) -> Segment:
    """Return a segment of this process alone, with places for so many more models and workers."""
    segment = Segment.local(_layout(models, lanes, slots, lane_bytes, spare, traced), models)
    segment.words[HeaderWords.COLLECTOR_NS] = ALWAYS
    return segment


@cache
def _layout(
    models: tuple[ModelSpec, ...], lanes: int, slots: int, lane_bytes: int, spare: int, traced: int
) -> Layout:
    """Return a layout, whose places are then computed once for all segments of that kind."""
    return Layout(
        lanes=lanes,
        slots=slots,
        lane_bytes=lane_bytes,
        workers=1 + max(number for model in models for number in model.workers) + spare,
        models=len(models) + spare,
        model_table_bytes=aligned(len(dumps(models)), PAGE) + spare * PAGE,
        traced=traced,
    )


class Reply(NamedTuple):
    """An answer as a client sees it: what stands beside it, and its bytes."""

    answer: Answer
    data: bytes


class Client:
    """A lane, and the replies that came to it, by the slot they came to."""

    def __init__(
        self, segment: Segment, index: int = 0, wake_collector: Callable[[], None] = lambda: None
    ) -> None:
        self.lane = Lane(segment, index, wake_collector)
        self.memory = segment.memory

    def send(
        self,
        payload: bytes,
        rows: int = 1,
        *,
        model: int = 0,
        key_bytes: int = 0,
        result_bytes: int = 1024,
        accepted_ns: int = 0,
        deadline_ns: int = FAR_NS,
        account: int = 0,
        in_parts: bool = False,
    ) -> int:
        """Publish and submit a request; its slot."""
        slot = self.lane.claim(len(payload), result_bytes, model)
        assert slot is not None, "the lane is full"
        start = self.lane.request_offset[slot]
        self.memory[start : start + len(payload)] = payload
        size = len(payload)
        if in_parts:
            PartReader(self.lane).open(slot)
        self.lane.publish(slot, model, rows, accepted_ns, deadline_ns, size, key_bytes, account)
        self.lane.submit()
        return slot

    def parts(self, slot: int) -> list[bytes]:
        """The parts in a slot, which is free for more then."""
        reader, found = PartReader(self.lane), []
        while (place := reader.next(slot)) is not None:
            start, size = place
            found.append(bytes(self.memory[start : start + size]))
            reader.take(slot, size)
        return found

    def collect(self) -> dict[int, Reply]:
        """The replies that have come, their slots free again."""
        replies = {}
        for slot in self.lane.collect():
            answer = self.lane.answer(slot)
            start = self.lane.result_offset[slot]
            assert slot not in replies, "the same answer came twice"
            replies[slot] = Reply(answer, bytes(self.memory[start : start + answer.size]))
            self.lane.release(slot)
        return replies


def pack(tensors: Sequence[Tensor], values: Sequence[Any]) -> tuple[bytes, int]:
    """Tensors with rows as the bytes of a frame, and how many of these are the key."""
    arrays = [np.asarray(v, _dtype(t)) for t, v in zip(tensors, values, strict=True)]
    texts = [_text(tensor, array) for tensor, array in zip(tensors, arrays, strict=True)]
    dimensions = [
        size
        for tensor, array in zip(tensors, arrays, strict=True)
        for size, declared in zip(array.shape[1:], tensor.shape, strict=True)
        if declared == -1
    ]
    lengths = [len(x) for t, x in zip(tensors, texts, strict=True) if not t.datatype.fixed]
    frame = b"".join(word.to_bytes(8, "little") for word in [*dimensions, *lengths])
    for text in texts:
        frame += b"\0" * (-len(frame) % 64) + text
    return frame, 8 * len(dimensions)


def unpack(tensors: Sequence[Tensor], rows: int, frame: bytes) -> list[Array]:
    """The tensors that a frame of that many rows holds."""
    opened = sum(tensor.shape.count(-1) for tensor in tensors)
    strings = sum(not tensor.datatype.fixed for tensor in tensors)
    words = [int.from_bytes(frame[8 * i : 8 * i + 8], "little") for i in range(opened + strings)]
    dimensions, lengths = iter(words[:opened]), iter(words[opened:])
    end, arrays = 8 * len(words), []
    for tensor in tensors:
        start = end + -end % 64
        shape = (rows, *(next(dimensions) if d == -1 else d for d in tensor.shape))
        if tensor.datatype.fixed:
            end = start + int(np.prod(shape)) * tensor.datatype.size
            arrays.append(_numbers(tensor, frame[start:end]).reshape(shape))
        else:
            end = start + next(lengths)
            arrays.append(_strings(frame[start:end]).reshape(shape))
    assert end == len(frame)
    return arrays


def _dtype(tensor: Tensor) -> str:
    names = {"BOOL": "?", "BYTES": "O", "BF16": "<f4"}
    return names.get(tensor.datatype.name) or tensor.datatype.numpy


def _text(tensor: Tensor, array: Array) -> bytes:
    if tensor.datatype.name == "BYTES":
        return b"".join(len(x).to_bytes(4, "little") + x for x in array.reshape(-1))
    if tensor.datatype.name == "BF16":
        data = array.tobytes()
        return b"".join(data[i + 2 : i + 4] for i in range(0, len(data), 4))
    return array.tobytes()


def _numbers(tensor: Tensor, data: bytes) -> Array:
    if tensor.datatype.name == "BF16":
        return np.frombuffer(
            b"".join(b"\0\0" + data[i : i + 2] for i in range(0, len(data), 2)), "<f4"
        )
    return np.frombuffer(data, _dtype(tensor))


def _strings(data: bytes) -> Array:
    found, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "little")
        found.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    array: Array = np.empty(len(found), dtype=object)
    array[:] = found
    return array
