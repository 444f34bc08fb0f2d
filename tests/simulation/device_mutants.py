"""Defects of batches on a device, one at a time, each of which the simulation must find."""

from typing import Final

from simulation.mutation import Mutant

from ringbatch.engine.collector.models import Model
from ringbatch.engine.worker.device_runner import DeviceRunner
from ringbatch.engine.worker.device_worker import DeviceWorker

CHAINED: Final = "a batch of a chain is run as if it were of none"
DEVICE_MUTANTS: Final[dict[str, Mutant]] = {
    "a batch that runs again has company on a device": Mutant(
        Model, "expect_end", "mark.reason is not Reason.RETRY", "True"
    ),
    "a batch under way on a device is answered": Mutant(
        DeviceWorker, "_end_first", "if one.is_to_run_alone:", "if one.references:"
    ),
    "a batch under way on a device begins again": Mutant(
        DeviceWorker, "_take_up", "words[self._taken_words :]", "words"
    ),
    "a batch that a device has lost is not run again": Mutant(
        DeviceRunner, "finish", "self._retry.answer(self._requests(begun), mark, error)", "pass"
    ),
    "nobody looks again at a batch under way on a device": Mutant(
        DeviceWorker, "wait_s", "LOOK_AGAIN_S", "None"
    ),
    "a batch on a device has the task of the one behind it": Mutant(
        DeviceWorker, "_end_first", "self._taken_words -= size", "pass"
    ),
    "an answer has the copies of the batch before, too": Mutant(
        DeviceRunner,
        "_outputs",
        "outputs = self._on_device.finish(",
        "begun.runs.copied(self._on_device.copy_ns); outputs = self._on_device.finish(",
    ),
    "an answer has no copies of its batch": Mutant(
        DeviceRunner, "_outputs", "begun.runs.copied(self._on_device.copy_ns)", "pass"
    ),
    "an answer of a batch that ran alone has no copies": Mutant(
        DeviceRunner, "_alone", "self.runs.copied(run.copy_ns)", "pass"
    ),
    CHAINED: Mutant(DeviceRunner, "_may_begin", "and asked == self._asked", ""),
}
"""Mutants of the device runner, by name."""
