"""Loading models as a start would, each in one worker of its own, without serving them.

A worker is started, watched and ended as by the supervisor, with the limits that its model has: on
memory, on time, on CPUs and threads. It gets a segment of its own, in which there is room for
nothing but what its warm-up took.
"""

import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from ringbatch.engine.config.dimensions import layout_of
from ringbatch.engine.config.settings import Config, ModelConfig, ServerConfig
from ringbatch.engine.process.role_messages import (
    AttachSegment,
    FromRole,
    Signature,
    Warming,
)
from ringbatch.engine.runtimes.model_file import ModelFile
from ringbatch.engine.supervisor.child import CannotStart, Death
from ringbatch.engine.supervisor.cpu_sets import CpuSets
from ringbatch.engine.supervisor.keeper import Keeper
from ringbatch.engine.supervisor.loop import Loop
from ringbatch.engine.supervisor.model_versions import Forwarding, first_entries
from ringbatch.engine.supervisor.process_slot import ProcessSlot
from ringbatch.shm import cost_profile
from ringbatch.shm.cost_profile import Trial
from ringbatch.shm.errors import StartupError
from ringbatch.shm.host.messages import Failed, Ready
from ringbatch.shm.layout import PAGE
from ringbatch.shm.segment import Segment

_END_S: Final = 5.0
_NAME: Final = "check"
"""Of the segment's engine, which nobody finds as it is never ready."""


@dataclass(slots=True)
class Rehearsed:
    """What came of loading one version of a model.

    Attributes:
        model: as it is configured.
        failure: why it would not be served; empty where it would.
        opened_s: what its file took to be opened, the start of the process included.
        loaded_s: what it took from then on to be loaded.
        warmed_s: what its warm-up took.
        trials: the batches that were run in it.
    """

    model: ModelConfig
    failure: str = ""
    opened_s: float = 0.0
    loaded_s: float = 0.0
    warmed_s: float = 0.0
    trials: tuple[Trial, ...] = ()


def rehearse(config: Config) -> Iterator[Rehearsed]:
    """Load every version of every model, one after the other.

    Raises:
        StartupError: the configuration names CPUs that cannot be used, or no segment can be made.
    """
    cpu_sets = CpuSets(config)
    for model in config.models:
        yield _Rehearsal(model, cpu_sets, time.monotonic_ns).run()


class _Rehearsal:
    """Of one version of a model; see `ringbatch.engine.supervisor.keeper.Owner`."""

    def __init__(self, model: ModelConfig, cpu_sets: CpuSets, clock_ns: Callable[[], int]) -> None:
        self._model = replace(model, workers=1, spares=0)
        self._cpu_sets = cpu_sets
        self._clock_ns = clock_ns
        self._loop = Loop()
        self._keeper = Keeper(self, self._loop, 1, clock_ns, random.random)
        self._segment: Segment | None = None
        self._slot = cpu_sets.worker_slot(0, model, 0, ModelFile(model.path))
        self._slot.let_go()
        self._found = Rehearsed(model)
        self._since_ns = 0

    def run(self) -> Rehearsed:
        """Start a worker, wait until it is ready or has ended, and end it."""
        self._since_ns = self._clock_ns()
        self._keeper.fill(self._slot)
        try:
            while self._slot.child is not None and not self._slot.ready_ns:
                self._keeper.turn(None)
                if self._loop.broken:
                    raise StartupError("ringbatch has failed; the log says how")
        finally:
            self._keeper.stop()
            self._keeper.end([self._slot], _END_S, lambda: False)
            if self._segment is not None:
                self._segment.unlink()
                self._segment.detach()
        return self._found

    @property
    def slots(self) -> list[ProcessSlot]:
        """As in `Owner`."""
        return [self._slot]

    @property
    def watched(self) -> list[ProcessSlot]:
        """As in `Owner`."""
        return []

    def cpus_of(self, slot: ProcessSlot) -> tuple[int, ...] | None:
        """As in `Owner`."""
        return self._cpu_sets.cpus_of(slot)

    def started(self, slot: ProcessSlot) -> None:
        """As in `Owner`."""

    def not_started(self, slot: ProcessSlot, failure: CannotStart) -> None:
        """As in `Owner`."""
        self._found.failure = str(failure)

    def heard(self, slot: ProcessSlot, said: FromRole) -> None:
        """As in `Owner`."""
        match said:
            case Failed(reason):
                slot.error = reason
            case Signature():
                self._found.opened_s = self._passed_s()
                slot.signature = said
                self._introduce(slot, said)
            case Warming():
                self._found.loaded_s = self._passed_s()
                slot.begins("warm-up", slot.limits.warm_up, self._clock_ns())
            case Ready():
                self._ready(slot)

    def ended(self, slot: ProcessSlot, death: Death) -> None:
        """As in `Owner`."""
        if not slot.ready_ns:
            self._found.failure = slot.error or f"its worker {death.words}"

    def _introduce(self, slot: ProcessSlot, signature: Signature) -> None:
        entries = first_entries((self._model,), {0: signature}, Forwarding())
        server = ServerConfig(
            frontends=1,
            client_lanes=0,
            max_in_flight=1,
            spare_workers=0,
            max_request_bytes=PAGE,
            lane_bytes=2 * PAGE,
        )
        assert slot.child is not None, "it has just said something"
        try:
            self._segment = Segment.create(layout_of(server, entries), entries, _NAME)
        except StartupError as error:
            slot.error = str(error)
            slot.child.kill(signal.SIGKILL)
            return
        slot.begins("loading the model", slot.limits.load, self._clock_ns())
        slot.child.tell(AttachSegment(self._segment.name))

    def _ready(self, slot: ProcessSlot) -> None:
        assert self._segment is not None, "it was told of it"
        self._keeper.mark_ready(slot)
        trials = cost_profile.read(self._segment, 0)
        if self._found.loaded_s:
            self._found.warmed_s = self._passed_s()
        else:
            self._found.loaded_s = self._passed_s()
        self._found.trials = tuple(trials)

    def _passed_s(self) -> float:
        """Seconds since the last time, or the start."""
        before_ns, self._since_ns = self._since_ns, self._clock_ns()
        return (self._since_ns - before_ns) / 1e9
