"""The memory of one batch on its way through a device, and the graphs that read it."""

from collections.abc import Sequence
from typing import Any

from ringbatch.engine.devices.port import Device, Locked
from ringbatch.shm.tensor import Tensor


class BufferSet:
    """Buffers of the device for a batch's rows, and page-locked memory to gather them in.

    A batch has a set for itself, from its first copy until its outputs are read.

    Args:
        device: whose memory it is.
        inputs: of the model.

    Attributes:
        buffers: for each input; none before the first batch.
        rows: that they have room for.
        graphs: by rows, those that read these buffers.
    """

    def __init__(self, device: Device, inputs: Sequence[Tensor]) -> None:
        self._device = device
        self._inputs = tuple(inputs)
        self._block: Locked | None = None
        self.buffers: Sequence[Any] = ()
        self.rows = 0
        self.graphs: dict[int, Any] = {}

    def room_for(self, rows: int) -> Sequence[Any]:
        """Return buffers for so many rows; graphs go with the buffers that they read."""
        if rows > self.rows:
            self.graphs.clear()
            self.buffers, self.rows = (), 0
            self.buffers = self._device.buffers(self._inputs, rows)
            self.rows = rows
        return self.buffers

    def block_of(self, size: int) -> Locked:
        """Return page-locked memory of at least so many bytes; nothing that has begun reads it."""
        block = self._block
        if block is None or len(block.array) < size:
            self._block = None
            block = self._block = self._device.block(size)
        return block

    def drop_block(self) -> None:
        """Let go of the page-locked memory."""
        self._block = None
