"""CPUs of workers and collectors, and the managed processes that start them there."""

import os
from collections.abc import Callable
from dataclasses import replace

from ringbatch.engine.config.credentials import credentials_of
from ringbatch.engine.config.document import ConfigError
from ringbatch.engine.config.limit_messages import load_timeout, warm_up_timeout
from ringbatch.engine.config.settings import Config, ModelConfig
from ringbatch.engine.ipc import instructions
from ringbatch.engine.models.model_file import ModelFile
from ringbatch.engine.process import placement
from ringbatch.engine.process.memory_limits import WORKER_HEAP, heap_environment
from ringbatch.engine.process.role_commands import KeptFile, Parity, StartCollector, StartWorker
from ringbatch.engine.process.role_events import FROM_COLLECTOR, FROM_WORKER
from ringbatch.engine.supervisor.child_process import Child
from ringbatch.engine.supervisor.frontends import LEAN
from ringbatch.engine.supervisor.launching import Launch, execute
from ringbatch.engine.supervisor.managed_process import Limit, Limits, ManagedProcess
from ringbatch.shm.errors import StartupError
from ringbatch.shm.model_spec import FIRST_VERSION
from ringbatch.shm.restarts import Role


class CpuSets:
    """CPU set of each process; makes the managed processes of workers and collectors.

    Attributes:
        described: the placement of all processes, as text.
        segment_name: of the segment, once it is made; no collector is started before.

    Args:
        config: with which the engine was started.
        launch: makes the processes.

    Raises:
        StartupError: the configuration names CPUs that cannot be used, or the directory of
            credentials cannot be read.
    """

    def __init__(self, config: Config, launch: Launch = execute) -> None:
        self.segment_name = ""
        self._launch = launch
        self._host = placement.host()
        self._log_level = config.server.log_level
        self._engine = config.server.name
        self._account_limits = config.server.account_limits
        api_keys = credentials_of(config.server, os.environ).api_keys
        self._api_keys = "" if api_keys is None else str(api_keys)
        self._plan, self.described = instructions.placed(config, self._host)
        self._sets = instructions.cpu_sets(config, self._plan)

    def cpus_of(self, managed: ManagedProcess) -> tuple[int, ...] | None:
        """Return the CPUs of a managed process; None for all."""
        return self._plan.frontends if managed.cpu_set is None else self._sets[managed.cpu_set].cpus

    def reread(self, read: Callable[[], Config]) -> Config:
        """Read the configuration again, and give every worker in it a CPU set.

        Raises:
            ConfigError: it is wrong, or names CPUs that cannot be used.
        """
        config = read()
        try:
            found, _ = instructions.placed(config, self._host)
        except StartupError as error:
            raise ConfigError(str(error)) from None
        self._sets |= instructions.cpu_sets(config, found)
        return config

    def worker_process(
        self,
        number: int,
        model: ModelConfig,
        index: int,
        file: ModelFile,
        parity: Parity | None = None,
    ) -> ManagedProcess:
        """Return the managed process of one of a model's workers.

        Args:
            number: of the worker.
            model: that it holds.
            index: of the worker within its model.
            file: that it loads.
            parity: its comparison of answers; None without one.
        """
        cpu_set = instructions.cpu_set_name(model, index)
        version = "" if model.version == FIRST_VERSION else f":{model.version}"
        own = f"{model.name}{version}/{index}"
        title = f"worker {own}"
        launch = self._launch

        def start(again: bool) -> Child:
            environment = placement.thread_environment(
                model.threads, self._sets[cpu_set].threads, os.environ
            ) | heap_environment(os.environ, WORKER_HEAP)
            held = instructions.of(model, index, self._engine, again=again)
            first_message = StartWorker(
                number=number,
                title=own,
                log_level=self._log_level,
                parent_pid=os.getpid(),
                file=KeptFile(*file.kept()),
                model=replace(held, parity=parity),
            )
            module = "ringbatch.engine.worker.role"
            return Child(
                title,
                module,
                [],
                environment,
                file.fds,
                vocabulary=FROM_WORKER,
                first_message=first_message,
                launch=launch,
            )

        limits = Limits(
            Limit(model.load_timeout_s, load_timeout(model)),
            Limit(model.load_timeout_s + model.warm_up_s, warm_up_timeout(model)),
        )
        return ManagedProcess(title, start, worker=number, cpu_set=cpu_set, limits=limits)

    def collector_process(self) -> ManagedProcess:
        """Return a managed process for a collector."""

        def start(_again: bool) -> Child:
            first_message = StartCollector(
                self.segment_name, self._log_level, self._account_limits, self._api_keys
            )
            module = "ringbatch.engine.collector.role"
            return Child(
                "collector",
                module,
                [],
                LEAN,
                vocabulary=FROM_COLLECTOR,
                first_message=first_message,
                own_session=False,
                launch=self._launch,
            )

        return ManagedProcess("collector", start, role=Role.COLLECTOR)
