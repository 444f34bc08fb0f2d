"""Workers that an engine starts with: of each model as many as run without load."""

from collections.abc import Iterator, Sequence

from ringbatch.engine.config.dimensions import layout_of
from ringbatch.engine.config.settings import Config
from ringbatch.engine.models.model_file import ModelFile
from ringbatch.engine.supervisor.chains import Unfit, first_chains
from ringbatch.engine.supervisor.cpu_sets import CpuSets
from ringbatch.engine.supervisor.handover import OldEngine
from ringbatch.engine.supervisor.managed_process import ManagedProcess
from ringbatch.engine.supervisor.model_versions import Forwarding, first_entries
from ringbatch.shm.engines import alone_of_name
from ringbatch.shm.errors import StartupError
from ringbatch.shm.segment import Segment


class FirstWorkers:
    """Managed processes of the first workers.

    Attributes:
        processes: by worker number.

    Args:
        config: the engine's.
        files: of its models, in their order.
        cpu_sets: makes the processes.
        old_engine: the engine that is replaced, if there is one; it may have the same name.
    """

    def __init__(
        self,
        config: Config,
        files: Sequence[ModelFile],
        cpu_sets: CpuSets,
        old_engine: OldEngine | None = None,
    ) -> None:
        self._replaced = None if old_engine is None else old_engine.pid
        self._models = config.models
        self._server = config.server
        self._chains = config.chains
        assigned = [
            (model, index, file)
            for model, file in zip(config.models, files, strict=True)
            for index in range(model.processes)
        ]
        self._files = files
        self._held = [model.name for model, _, _ in assigned]
        self.processes: dict[int, ManagedProcess] = {
            number: cpu_sets.worker_process(number, *own) for number, own in enumerate(assigned)
        }

    def loading(self) -> Iterator[str]:
        """Yield the name of the model of each worker that is not ready."""
        processes = zip(self._held, self.processes.values(), strict=True)
        return (model for model, managed in processes if not managed.ready_ns)

    def hand_over(self) -> Sequence[ModelFile]:
        """Return the files of the models, in their order, and keep none; called once all serve.

        The copy of a file lives as long as the file object is referenced.
        """
        files, self._files = self._files, ()
        self._held, self.processes = [], {}
        return files

    def make_segment(self, forwarding: Forwarding, port: int) -> Segment:
        """Make the segment with the first model table, once all workers report their signatures.

        Args:
            forwarding: to model servers.
            port: the HTTP port; 0 without one.

        Raises:
            StartupError: the steps of a chain do not fit together, /dev/shm has no room, or an
                engine of that name runs.
        """
        signatures = {n: one.signature for n, one in self.processes.items() if one.signature}
        try:
            entries = first_chains(
                self._chains, first_entries(self._models, signatures, forwarding)
            )
        except Unfit as unfit:
            raise StartupError(str(unfit)) from None
        server = self._server
        with alone_of_name(server.name, self._replaced):
            segment = Segment.create(layout_of(server, entries), entries, server.name, port)
        if server.model_control:
            segment.allow_model_control()
        if server.fair_shares:
            segment.share_fairly()
        return segment
