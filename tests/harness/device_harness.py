"""A runner whose model is on a device that is played, fed with batches of two lanes."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from played_device import PlayedDevice
from runner_harness import BEGAN_NS, MARK, Harness
from segment_fixture import Reply

from ringbatch.engine.devices.batch_run import BatchRun
from ringbatch.engine.models.model import Model
from ringbatch.engine.worker.device_codec import DeviceCodec
from ringbatch.engine.worker.device_runner import Begun, DeviceRunner
from ringbatch.engine.worker.runner_setup import RunnerSetup
from ringbatch.shm.descriptors import SlotWords
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import FLAG_BITS, SLOT_BITS, SLOT_MASK
from ringbatch.shm.tensor import Tensor


class MemoryLaw:
    """The law: no copy reads the memory of a request that is answered.

    Attributes:
        broken: how it was broken; empty if it was not. A runner would take an exception for the
            model's.
    """

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.broken = ""
        self.places: list[tuple[int, int, int]] = []

    def sent(self, ref: int, size: int) -> None:
        """Note the memory of a request of so many bytes."""
        start = self.segment.words[self._slot(ref) + SlotWords.REQUEST_OFFSET]
        self.places.append((start - self.segment.layout.payload_byte, size, ref))

    def reads(self, start: int, size: int) -> Callable[[], None]:
        """Return a check for `PlayedDevice.reads`."""
        for first, length, ref in reversed(self.places):
            if first < start + size and start < first + length:
                return partial(self._expect_open, ref)
        raise AssertionError("a copy reads memory of no request")

    def _expect_open(self, ref: int) -> None:
        if self.segment.words[self._slot(ref) + SlotWords.DONE] >> FLAG_BITS >= ref >> SLOT_BITS:
            self.broken = "a copy reads the memory of an answered request"

    def _slot(self, ref: int) -> int:
        return self.segment.layout.slot(ref & SLOT_MASK)


class DeviceHarness(Harness):
    """Harness of a worker on a device.

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
        runner: type[DeviceRunner] = DeviceRunner,
    ) -> None:
        super().__init__(model, inputs, outputs)
        self.law = MemoryLaw(self.segment)
        self.device = device(lambda *arrays: [model(*arrays)], play, on_run, self.law.reads)
        layout = self.segment.layout
        self.batch_run = make(self.device, inputs, self.segment.memory, layout.payload_byte)
        if straight:
            self.batch_run.register()
            self.batch_run._straight = list(straight)
        self.runner: DeviceRunner = runner(
            RunnerSetup(
                Model(self.inputs, self.outputs, lambda: None, self.batch_run.predict),
                "m",
                self.engine_slots,
                lambda: self.now_ns,
                sizes=sizes,
                codec=DeviceCodec(
                    self.segment.memory,
                    Model(self.inputs, self.outputs, lambda: None, lambda: None),
                ),
            ),
            on_device=self.batch_run,
        )

    def send(self, payload: bytes, rows: int = 1, lane: int = 0, **more: Any) -> int:
        ref = super().send(payload, rows, lane, **more)
        self.law.sent(ref, len(payload))
        return ref

    def run(self, *references: int) -> list[Reply]:
        replies = super().run(*references)
        self.settle()
        return replies

    def begin(self, *references: int, **mark: Any) -> Begun | None:
        """Begin a batch beside those that are under way."""
        return self.runner.begin(list(references), MARK._replace(**mark), BEGAN_NS)

    def finish(self, begun: Begun, *references: int) -> list[Reply]:
        """End a batch; the replies in the order of the references."""
        self.runner.finish(begun)
        self.engine_slots.flush()
        assert not self.law.broken, self.law.broken
        return self.replies(*references)

    def settle(self) -> None:
        """Let all operations under way happen, once all requests are answered."""
        PlayedDevice.drain(self.device)
        assert not self.law.broken, self.law.broken
