"""A runner whose model is on a device that is played, fed with batches of two lanes."""

from collections.abc import Callable, Sequence
from typing import Any

from played_device import PlayedDevice
from runner_harness import Harness
from segment_fixture import Reply

from ringbatch.engine.devices.batch_run import BatchRun
from ringbatch.engine.models.model import Model
from ringbatch.engine.worker.device_codec import DeviceCodec
from ringbatch.engine.worker.runner import Runner
from ringbatch.shm.descriptors import SlotWords
from ringbatch.shm.slot import FLAG_BITS, SLOT_BITS, SLOT_MASK
from ringbatch.shm.tensor import Tensor


class DeviceHarness(Harness):
    """As `Harness`, on a device.

    Whenever a copy reads a request's memory, the request must not be answered yet.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        *,
        play: Callable[[int], int] = lambda _: 0,
        straight: Sequence[bool] = (),
        sizes: Sequence[int] = (),
        on_run: Callable[[int], object] = lambda _: None,
        device: type[PlayedDevice] = PlayedDevice,
        make: type[BatchRun] = BatchRun,
    ) -> None:
        super().__init__(model, inputs, outputs)
        self._places: list[tuple[int, int, int]] = []
        self.device = device(
            lambda *arrays: [model(*arrays)], play, on_run, self._expect_unanswered
        )
        layout = self.segment.layout
        self.batch_run = make(self.device, inputs, self.segment.memory, layout.payload_byte)
        if straight:
            self.batch_run.register()
            self.batch_run._straight = list(straight)
        self.runner = Runner(
            Model(self.inputs, self.outputs, lambda: None, self.batch_run.predict),
            "m",
            self.engine_slots,
            lambda: self.now_ns,
            sizes=sizes,
            codec=DeviceCodec(
                self.segment.memory, Model(self.inputs, self.outputs, lambda: None, lambda: None)
            ),
        )

    def send(self, payload: bytes, rows: int = 1, lane: int = 0, **more: Any) -> int:
        ref = super().send(payload, rows, lane, **more)
        slot = self.segment.layout.slot(ref & SLOT_MASK)
        start = self.segment.words[slot + SlotWords.REQUEST_OFFSET]
        self._places.append((start - self.segment.layout.payload_byte, len(payload), ref))
        return ref

    def _expect_unanswered(self, start: int, size: int) -> None:
        for first, length, ref in self._places:
            if first < start + size and start < first + length and self._is_newest(first, ref):
                slot = self.segment.layout.slot(ref & SLOT_MASK)
                done = self.segment.words[slot + SlotWords.DONE] >> FLAG_BITS
                assert done < ref >> SLOT_BITS, "a copy reads the memory of an answered request"
                return
        raise AssertionError("a copy reads memory of no request")

    def _is_newest(self, first: int, ref: int) -> bool:
        return [own for start, _, own in self._places if start == first][-1] == ref

    def run(self, *references: int) -> list[Reply]:
        replies = super().run(*references)
        self.settle()
        return replies

    def settle(self) -> None:
        """Let everything happen that has begun, once all are answered."""
        PlayedDevice.drain(self.device)
