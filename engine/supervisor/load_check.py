"""Load check of models: each is loaded as at a start, in one worker, and not served.

The worker has the limits that its model has in the engine: on memory, time, CPUs and threads. It
gets a segment of its own, in which only its warm-up has room.
"""

import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ringbatch.engine.config.dimensions import layout_of
from ringbatch.engine.config.settings import Config, ModelConfig, ServerConfig
from ringbatch.engine.models.model_file import ModelFile
from ringbatch.engine.process.role_commands import AttachSegment, Parity
from ringbatch.engine.process.role_events import FromRole, ParityCompared, Signature, WarmUpStarted
from ringbatch.engine.supervisor.chains import Unfit, first_chains
from ringbatch.engine.supervisor.child_process import CannotStart, Death
from ringbatch.engine.supervisor.cpu_sets import CpuSets
from ringbatch.engine.supervisor.launching import Launch
from ringbatch.engine.supervisor.loop import Loop
from ringbatch.engine.supervisor.managed_process import Limit, ManagedProcess
from ringbatch.engine.supervisor.model_versions import Forwarding, first_entries
from ringbatch.engine.supervisor.process_manager import ProcessManager
from ringbatch.shm import cost_profile
from ringbatch.shm.cost_profile import Trial
from ringbatch.shm.errors import StartupError
from ringbatch.shm.host.messages import Failed, Ready
from ringbatch.shm.layout import PAGE
from ringbatch.shm.segment import Segment

_END_S: Final = 5.0
_COMPARISON_S: Final = 3600.0
_NAME: Final = "check"
"""Name of the segment's engine; no client finds it, as it is never ready."""


@dataclass(slots=True)
class LoadResult:
    """Result of loading one version of a model.

    Attributes:
        model: its settings.
        in_ray: True if an actor in a Ray cluster has loaded it.
        failure: why it would not be served; empty if it would.
        opened_s: the time to open its file, with the start of the process.
        loaded_s: the time from then until it was loaded.
        warmed_s: the time of its warm-up.
        trials: the batches of its warm-up.
        compared: the differences between answers alone and in company; None without a comparison.
        signature: its inputs and outputs; None if it was not opened.
    """

    model: ModelConfig
    in_ray: bool = False
    failure: str = ""
    opened_s: float = 0.0
    loaded_s: float = 0.0
    warmed_s: float = 0.0
    trials: tuple[Trial, ...] = ()
    compared: ParityCompared | None = None
    signature: Signature | None = None


def unfit_chain(config: Config, results: Sequence[LoadResult]) -> str:
    """Return why the steps of a chain do not fit together; empty if all fit.

    Args:
        config: with the chains.
        results: the results of its models; if one of them would not be served, the fit is
            unknown.
    """
    if not config.chains or any(one.failure for one in results):
        return ""
    models = [replace(one.model, workers=1, ray_workers=None, spares=0) for one in results]
    signatures = {n: one.signature for n, one in enumerate(results) if one.signature}
    try:
        first_chains(config.chains, first_entries(models, signatures, Forwarding()))
    except Unfit as unfit:
        return str(unfit)
    return ""


def check_loading(
    config: Config, launch: Launch, samples: str | None = None, tolerance: float = 0.0
) -> Iterator[LoadResult]:
    """Load every version of every model, one after the other, and yield the results.

    A version with local workers and Ray workers is loaded once in each way.

    Args:
        config: with the models.
        launch: makes the workers.
        samples: the file of samples to compare answers alone and in company; empty for the model's
            warm_up_file, or made-up samples; None without a comparison.
        tolerance: of their differences.

    Raises:
        StartupError: the configuration names CPUs that cannot be used, or no segment can be made.
    """
    # It touches no actor of a serving engine, and leaves none behind.
    cpu_sets = CpuSets(replace(config, server=replace(config.server, name=_NAME)), launch)
    for model in config.models:
        own = None
        if samples is not None:
            own = Parity(samples or str(model.warm_up_file or ""), tolerance, model.warm_up_length)
        kept = replace(model, ray_keep_s=0.0)
        for index in sorted({model.in_ray.index(in_ray) for in_ray in model.in_ray}):
            yield _LoadCheck(kept, index, cpu_sets, time.monotonic_ns, own).run()


class _LoadCheck:
    """Load check of one version; owner of the managed process of its worker."""

    def __init__(
        self,
        model: ModelConfig,
        index: int,
        cpu_sets: CpuSets,
        clock_ns: Callable[[], int],
        parity: Parity | None,
    ) -> None:
        self._compares = parity is not None
        self._model = replace(model, workers=1, ray_workers=None, spares=0)
        self._cpu_sets = cpu_sets
        self._clock_ns = clock_ns
        self._loop = Loop()
        self._manager = ProcessManager(self, self._loop, 1, clock_ns, random.random)
        self._segment: Segment | None = None
        self._managed = cpu_sets.worker_process(0, model, index, ModelFile(model.path), parity)
        self._managed.let_go()
        self._found = LoadResult(model, in_ray=model.is_in_ray(index))
        self._since_ns = 0

    def run(self) -> LoadResult:
        """Start a worker, wait until it is ready or has ended, and end it."""
        self._since_ns = self._clock_ns()
        self._manager.spawn(self._managed)
        try:
            while self._managed.child is not None and not self._managed.ready_ns:
                self._manager.turn(None)
                if self._loop.broken:
                    raise StartupError("ringbatch has failed; the log says how")
        finally:
            self._manager.stop()
            self._manager.end([self._managed], _END_S, lambda: False)
            if self._segment is not None:
                self._segment.unlink()
                self._segment.detach()
        return self._found

    @property
    def processes(self) -> list[ManagedProcess]:
        """All processes, as in `ProcessOwner`."""
        return [self._managed]

    @property
    def watched(self) -> list[ManagedProcess]:
        """Watched processes, as in `ProcessOwner`."""
        return []

    def cpus_of(self, managed: ManagedProcess) -> tuple[int, ...] | None:
        """Return the CPUs of a managed process, as in `ProcessOwner`."""
        return self._cpu_sets.cpus_of(managed)

    def on_started(self, managed: ManagedProcess) -> None:
        """Handle the start of a process, as in `ProcessOwner`."""

    def on_start_refused(self, managed: ManagedProcess, failure: CannotStart) -> None:
        """Handle a failed start, as in `ProcessOwner`."""
        self._found.failure = str(failure)

    def on_message(self, managed: ManagedProcess, message: FromRole) -> None:
        """Handle a message, as in `ProcessOwner`."""
        match message:
            case Failed(reason):
                self._manager.failed(managed, reason)
            case Signature():
                self._found.opened_s = self._passed_s()
                managed.signature = self._found.signature = message
                self._attach_segment(managed, message)
            case WarmUpStarted():
                self._found.loaded_s = self._passed_s()
                limit = Limit(_COMPARISON_S) if self._compares else managed.limits.warm_up
                managed.begins("warm-up", limit, self._clock_ns())
            case ParityCompared():
                self._found.compared = message
            case Ready():
                self._ready(managed)

    def on_ended(self, managed: ManagedProcess, death: Death) -> None:
        """Handle the end of a process, as in `ProcessOwner`."""
        if not managed.ready_ns:
            self._found.failure = managed.error or f"its worker {death.words}"

    def _attach_segment(self, managed: ManagedProcess, signature: Signature) -> None:
        entries = first_entries((self._model,), {0: signature}, Forwarding())
        server = ServerConfig(
            frontends=1,
            client_lanes=0,
            max_in_flight=1,
            spare_workers=0,
            max_request_bytes=PAGE,
            lane_bytes=2 * PAGE,
        )
        assert managed.child is not None, "it has just message something"
        try:
            self._segment = Segment.create(layout_of(server, entries), entries, _NAME)
        except StartupError as error:
            managed.error = str(error)
            managed.child.kill(signal.SIGKILL)
            return
        managed.begins("loading the model", managed.limits.load, self._clock_ns())
        managed.child.send(AttachSegment(self._segment.name))

    def _ready(self, managed: ManagedProcess) -> None:
        assert self._segment is not None, "it has its name"
        self._manager.mark_ready(managed)
        trials = cost_profile.read(self._segment, 0)
        if self._found.loaded_s:
            self._found.warmed_s = self._passed_s()
        else:
            self._found.loaded_s = self._passed_s()
        self._found.trials = tuple(trials)

    def _passed_s(self) -> float:
        """Return the seconds since the last call, or the start."""
        before_ns, self._since_ns = self._since_ns, self._clock_ns()
        return (self._since_ns - before_ns) / 1e9
