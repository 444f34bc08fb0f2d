"""Engine whose served models change, with workers and collector played by hand."""

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any, assert_never

from segment_fixture import local_segment

from ringbatch.engine.config.chained import ChainConfig, StepConfig
from ringbatch.engine.config.document import ConfigError
from ringbatch.engine.config.settings import Config, ModelConfig, ServerConfig
from ringbatch.engine.models.model_file import ModelFile
from ringbatch.engine.process.role_events import Signature
from ringbatch.engine.supervisor.chains import first_chains
from ringbatch.engine.supervisor.change_runner import Attach, Effect, NotifyTableChanged, Start
from ringbatch.engine.supervisor.managed_process import ManagedProcess
from ringbatch.engine.supervisor.model_changes import ModelChanges
from ringbatch.engine.supervisor.model_versions import Forwarding, first_entries
from ringbatch.engine.supervisor.served_models import ServedModels
from ringbatch.engine.supervisor.worker_pool import WorkerPool
from ringbatch.shm.errors import shortage
from ringbatch.shm.host.control_socket import Order, Report
from ringbatch.shm.model_spec import LOADING, RETIRING, SERVING, ModelSpec
from ringbatch.shm.tensor import Tensor

SIGNATURE = Signature((), ())
TENSORS = Signature((Tensor("x", "FP32", [1]),), ())
MAPS = Signature((Tensor("x", "FP32", [1]),), (Tensor("y", "FP32", [1]),))
RELOAD = Order("reload", None)


class Pool(WorkerPool):
    """A worker pool, whose workers are no processes.

    Attributes:
        ended: numbers of those that were ended before the collector knew them.
    """

    def __init__(self, workers: int) -> None:
        super().__init__()
        self.workers = {n: ManagedProcess(f"worker {n}", _nobody, worker=n) for n in range(workers)}
        self.ended: list[int] = []

    def end(self, managed: ManagedProcess) -> None:
        assert managed.worker is not None
        self.ended.append(managed.worker)
        super().end(managed)


def _nobody(_again: bool) -> Any:
    raise AssertionError("nobody is started here")


def model(name: str = "m", **more: Any) -> ModelConfig:
    found = ModelConfig(name=name, runtime="python", path=Path("/m.py"))
    return replace(found, **more)


def chain(name: str, *steps: str) -> ChainConfig:
    return ChainConfig(name=name, steps=tuple(StepConfig(model=step) for step in steps))


class Engine:
    """An engine that serves some models, and what it is told to serve next.

    Attributes:
        wanted: the present configuration; an error if that is wrong.
        reports: outcome of each order.
        attached: numbers of the workers that were told of the segment.
        looks: number of calls for a look of the collector.
        files: file that each started worker is to load.
        exhausted_from: the number from which on no process can be started.
    """

    def __init__(
        self,
        *models: ModelConfig,
        spare: int = 2,
        chains: tuple[ChainConfig, ...] = (),
        says: Signature = SIGNATURE,
    ) -> None:
        workers = sum(m.processes for m in models)
        self.pool = Pool(workers)
        signatures = dict.fromkeys(range(workers), says)
        entries = first_chains(chains, first_entries(models, signatures, Forwarding()))
        self.segment = local_segment(*entries, spare=spare)
        config = Config(models=models, chains=chains)
        self.wanted: Config | ConfigError = config
        self.reports: list[Report] = []
        self.attached: list[int] = []
        self.looks = 0
        self.files: dict[int, ModelFile] = {}
        self.exhausted_from = 1 << 10
        self.now_ns = 0
        self.live = ModelChanges(
            self.pool,
            ServedModels(
                self.segment, entries, models, [ModelFile(m.path) for m in models], chains
            ),
            config.server,
            self._reread,
            Forwarding(),
            lambda: self.now_ns,
        )

    def _reread(self) -> Config:
        if isinstance(self.wanted, ConfigError):
            raise self.wanted
        return self.wanted

    def advance(self) -> None:
        """Do what the supervisor does after each turn of its loop."""
        while effects := self.live.advance():
            for effect in effects:
                self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Start():
                self.start(effect)
            case Attach(managed):
                assert managed.worker is not None
                managed.tie.known = True
                self.attached.append(managed.worker)
            case NotifyTableChanged():
                self.looks += 1
            case _:
                assert_never(effect)

    def start(self, start: Start) -> None:
        assert start.number not in self.pool.workers
        self.files[start.number] = start.file
        managed = ManagedProcess(f"{start.model.name}/{start.index}", _nobody, worker=start.number)
        self.pool.add(start.number, managed)
        if start.number >= self.exhausted_from:
            managed.failure = shortage(errno.EAGAIN)

    def want(
        self, *models: ModelConfig, chains: tuple[ChainConfig, ...] = (), **server: Any
    ) -> None:
        self.wanted = Config(server=ServerConfig(**server), models=models, chains=chains)

    def order(self, order: Order = RELOAD) -> None:
        self.live.take(order, self.reports.append)
        self.advance()

    @property
    def serving(self) -> list[tuple[str, bool]]:
        """The names that serve, and whether each is a chain."""
        _, models = self.segment.model_table.read()
        return [(s.name, s.chain is not None) for s in models if s.state == SERVING]

    def table(self) -> list[tuple[str, str, str, tuple[int, ...]]]:
        _, models = self.segment.model_table.read()
        return [(s.name, s.version, s.state, s.workers) for s in models]

    def entry(self, state: str = LOADING) -> ModelSpec:
        _, models = self.segment.model_table.read()
        (found,) = (spec for spec in models if spec.state == state)
        return found

    def open(self, *numbers: int, says: Signature = SIGNATURE) -> None:
        """Let workers open their files."""
        for number in numbers:
            self.pool.workers[number].signature = says
        self.advance()

    def load(self, *numbers: int) -> None:
        """Let workers get ready, and the collector hear of it."""
        for number in numbers:
            self.pool.workers[number].ready_ns = 1
        self.advance()
        _, models = self.segment.model_table.read()
        for spec in models:
            if spec.state == LOADING:
                self.live.loaded(spec.reference)
        self.advance()

    def open_and_load(self, *numbers: int) -> None:
        self.open(*numbers)
        self.load(*numbers)

    def fail(self, number: int, words: str) -> None:
        self.pool.workers[number].failure = words
        self.advance()

    def retire(self) -> None:
        """End what retires: the collector is done with it, and its workers are gone."""
        spec = self.entry(RETIRING)
        self.live.drained(spec.reference)
        for number in spec.workers:
            del self.pool.workers[number]
        self.advance()
