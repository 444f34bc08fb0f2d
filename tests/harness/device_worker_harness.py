"""A worker of a model on a device that is played, its rings, and clients of two lanes."""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np
from device_harness import MemoryLaw
from played_device import PlayedDevice
from segment_fixture import FAR_NS, Client, local_segment, pack, spec, unpack

from ringbatch.engine.collector.takeover import held_by_all
from ringbatch.engine.devices.batch_run import SETS, BatchRun
from ringbatch.engine.ipc.messages import Report, ReportKind, read_reports, task_words
from ringbatch.engine.models.model import Model
from ringbatch.engine.worker.codec import Place
from ringbatch.engine.worker.device_codec import DeviceCodec
from ringbatch.engine.worker.device_runner import DeviceRunner
from ringbatch.engine.worker.device_worker import DeviceWorker
from ringbatch.engine.worker.runner_setup import RunnerSetup
from ringbatch.shm.descriptors import REPORT_WORDS, TASK_WORDS
from ringbatch.shm.engine_slots import BatchMark, EngineSlots
from ringbatch.shm.ring import Consumer, Producer
from ringbatch.shm.slot import SLOT_MASK, Reason, Status
from ringbatch.shm.tensor import Tensor

X = Tensor("x", "FP32", [2])
Y = Tensor("y", "FP32", [2])
LANES = 2
RUN_NS = 1_000
"""Duration of a run of the device."""
BAD = -1.0
"""Number of a row for which the model raises as the device runs it."""
SHORT = -2.0
"""Number of a row that the model leaves out of its result."""


class Fault(Exception):
    """Exception that the model of a test raises."""


class Site:
    """The worker, stepped by hand.

    Attributes:
        most: the most batches that were under way at a time.
        begun: number of batches under way as each run began, itself included.
    """

    def __init__(
        self,
        play: Callable[[int], int] = lambda _: 0,
        *,
        sizes: Sequence[int] = (),
        graphs: Sequence[int] = (),
        on_run: Callable[[int], object] = lambda _rows: None,
        place: Callable[[int], Place | None] = lambda _asked: None,
        worker: type[DeviceWorker] = DeviceWorker,
        runner: type[DeviceRunner] = DeviceRunner,
        lane_slots: int = 16,
    ) -> None:
        self.segment = local_segment(spec(0, [X], [Y]), lanes=LANES, slots=lane_slots)
        layout, words = self.segment.layout, self.segment.words
        self.law = MemoryLaw(self.segment)
        self.clients = [Client(self.segment, lane) for lane in range(LANES)]
        self.submitted = [
            Consumer(words, layout.submission_ring(lane), layout.slots) for lane in range(LANES)
        ]
        self.tasks = Producer(words, layout.task_ring(0), TASK_WORDS)
        self.reports = Consumer(words, layout.report_ring(0), REPORT_WORDS)
        self.now_ns = 0
        self.batches = count(1)
        self.begun: list[int] = []
        self.on_run = on_run
        self.on_wake: Callable[[], None] = lambda: None
        self.device = PlayedDevice(self._model, lambda _: 0, self._run_begins, self.law.reads)
        self.run = BatchRun(self.device, [X], self.segment.memory, layout.payload_byte)
        self.run.register()
        self.run._straight = [True]
        self._set_up(graphs)
        self.device.play = play
        self.slots = EngineSlots(self.segment, 0, lambda _lane: self.on_wake())
        model = Model((X,), (Y,), lambda: None, self.run.predict)
        self.runner = runner(
            RunnerSetup(
                model,
                "m",
                self.slots,
                lambda: self.now_ns,
                sizes=sizes,
                codec=DeviceCodec(self.segment.memory, model),
                run_again=lambda batch: self.worker.runs_again(batch),
                place=place,
            ),
            on_device=self.run,
        )
        self.worker = worker(
            self.segment, 0, self.runner, self.slots, lambda: self.on_wake(), lambda: self.now_ns
        )

    def _set_up(self, graphs: Sequence[int]) -> None:
        for _ in range(SETS):
            self.run.predict(np.zeros((64, 2), "f4"))
        for rows in graphs:
            self.run.capture(rows)
        self.now_ns = 0
        self.begun.clear()
        self.device.ran.clear()

    def _run_begins(self, rows: int) -> None:
        self.begun.append(len(self.run.under_way) + 1)
        self.on_run(rows)

    def _model(self, x: Any) -> list[Any]:
        self.now_ns += RUN_NS
        if BAD in x[:, 0]:
            raise Fault
        return [(x * 2)[x[:, 0] != SHORT]]

    def send(self, *numbers: float, lane: int = 0, deadline_ns: int = FAR_NS) -> int:
        """Publish a request with a row for each number; its reference."""
        payload, key_bytes = pack([X], [[[number, 0] for number in numbers]])
        rows = len(numbers)
        self.clients[lane].send(payload, rows, key_bytes=key_bytes, deadline_ns=deadline_ns)
        *_, ref = self.submitted[lane].take()
        self.law.sent(ref, len(payload))
        return ref

    def leave(self, ref: int) -> None:
        """Cancel a request, as if its client left."""
        lane, slot = divmod(ref & SLOT_MASK, self.segment.layout.slots)
        self.clients[lane].lane.cancel(slot)

    def hand_over(
        self, *refs: int, rows: int = 0, reason: Reason = Reason.FULL, asked: int = 0
    ) -> int:
        """Give the worker a batch; its number."""
        mark = BatchMark(next(self.batches), rows or len(refs), reason, self.now_ns)
        assert self.tasks.offer(task_words(mark, refs, asked))
        return mark.batch

    def held(self) -> list[int]:
        """Numbers of the batches in the ring."""
        return [task.mark.batch for task in held_by_all(self.segment)[0] or []]

    def take_reports(self) -> list[Report]:
        taken = read_reports(self.reports.take())
        assert taken is not None
        return taken

    def done(self) -> list[tuple[ReportKind, int]]:
        """Kinds and batches of the reports that have come."""
        return [(report.kind, report.first) for report in self.take_reports()]

    def collect(self) -> dict[int, tuple[Status, list[float]]]:
        """Return the new answers by slot of all lanes, with the rows' numbers."""
        found = {}
        for lane, client in enumerate(self.clients):
            for slot, (answer, data) in client.collect().items():
                numbers = []
                if answer.status is Status.OK:
                    rows = len(data) // 8
                    numbers = unpack([Y], rows, data)[0][:, 0].tolist()
                found[lane * self.segment.layout.slots + slot] = (answer.status, numbers)
        return found

    def answers(self) -> list[list[float]]:
        """The numbers of the answers that have come."""
        return [numbers for _, numbers in self.collect().values()]

    def go_on(self) -> None:
        """Let the device run every operation as soon as it can."""
        self.device.play = lambda options: options - 1
