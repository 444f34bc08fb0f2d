"""Codec of models on a device: it says where rows stand, and leaves them there."""

from collections.abc import Sequence
from typing import Any

from ringbatch.engine.devices.batch_run import Rows
from ringbatch.engine.worker.tensor_codec import TensorCodec
from ringbatch.shm.engine_slots import Request
from ringbatch.shm.frame import Placement
from ringbatch.shm.uniform_batch import UniformBatch


class DeviceCodec(TensorCodec):
    """As `TensorCodec`, with `Rows` in place of arrays if all requests can be read."""

    def read(self, requests: list[Request]) -> tuple[list[Request], list[Request], Any]:
        """See `Codec.read`."""
        placements = []
        for request in requests:
            placement = self._gatherer.placement(request)
            if placement is None:
                return super().read(requests)
            placements.append(placement)
        starts = [request.request_offset for request in requests]
        return requests, [], _rows(starts, [request.rows for request in requests], placements)

    def read_uniform(self, uniform: UniformBatch) -> Any | None:
        """See `Codec.read_uniform`."""
        sizes = uniform.sizes
        placement = self._gatherer.placed(sizes.rows, b"", sizes.request_bytes)
        if placement is None:
            return None
        starts = [int(start) for start in uniform.request_offsets]
        return _rows(starts, [sizes.rows] * len(starts), [placement] * len(starts))

    def pad_rows(self, arguments: Any, count: int) -> Any:
        """See `Codec.pad_rows`."""
        if not isinstance(arguments[0], Rows):
            return super().pad_rows(arguments, count)
        return [rows._replace(spare=count) for rows in arguments]


def _rows(
    starts: Sequence[int], rows: Sequence[int], placements: Sequence[Placement]
) -> list[Rows]:
    """Return the rows of each input, of requests that start there and are placed so."""
    return [
        Rows(
            [start + part.offset for start, part in zip(starts, parts, strict=True)],
            [part.size for part in parts],
            sum(rows),
        )
        for parts in zip(*[placement.parts for placement in placements], strict=True)
    ]
