"""Changes of the model table, as the collector follows them and reports them as done."""

from collections.abc import Callable

from ringbatch.engine.collector.dead_batches import DeadBatches
from ringbatch.engine.collector.dispatcher import NO_BATCH, UNLOADED, Dispatcher
from ringbatch.engine.collector.model_pool import ModelPool
from ringbatch.engine.collector.models import Model
from ringbatch.engine.process.role_events import EntryDrained, ModelEvent, WorkerReleased
from ringbatch.shm.slot import Status


class Changeover:
    """Adds and removes models and workers as the table changes.

    Args:
        pool: the models and workers.
        dispatcher: answers requests that no worker can run.
        dead: takes back the requests of replaced workers.
        notify_supervisor: sends a message to the supervisor.
    """

    def __init__(
        self,
        pool: ModelPool,
        dispatcher: Dispatcher,
        dead: DeadBatches,
        notify_supervisor: Callable[[ModelEvent], object],
    ) -> None:
        self._pool = pool
        self._dispatcher = dispatcher
        self._dead = dead
        self._notify_supervisor = notify_supervisor

    def follow(self, now_ns: int) -> None:
        """Apply the supervisor's changes of the model table."""
        pool = self._pool
        gone = pool.follow(now_ns)
        while pool.replaced:
            worker = pool.replaced.pop()
            if worker.batches:
                self._dead.take_back(worker, now_ns, hung=False, killed=True)
                if pool.models.get(worker.model.reference) is not worker.model:
                    gone.append(worker.model)
        for model in gone:
            self.requeue_to_replacement(model, now_ns)
        for model in pool.models.values():
            model.backlog_words.publish(model.backlog)
        pool.agenda.add_all(pool.models)

    def requeue_to_replacement(self, model: Model, now_ns: int) -> None:
        """Move requests from a model that will not run them to its replacement."""
        replacement = self._pool.replacement(model.spec)
        self._pool.agenda.add(model.reference)
        for request in model.empty():
            if replacement is None:
                self._dispatcher.fail(request, Status.NO_WORKER, UNLOADED, NO_BATCH, now_ns)
            else:
                replacement.run_again([[request]])

    def requeue_from_retiring(self, now_ns: int) -> None:
        """Call `requeue_to_replacement` for retiring models without a worker.

        The supervisor does not replace dead workers of these.
        """
        for model in self._pool.retiring:
            if not model.roster.ready and (model.queues.rows or model.retries):
                self.requeue_to_replacement(model, now_ns)

    def report_drained(self, *, acknowledged: bool) -> None:
        """Notify the supervisor of retiring models and leaving workers that are done.

        Args:
            acknowledged: whether all frontends have stopped sending to retiring models.
        """
        for model in self._pool.retiring:
            if acknowledged and not model.drained and not self._pool.busy(model):
                model.drained = True
                self._notify_supervisor(EntryDrained(model.reference))
        for worker in [worker for worker in self._pool.leaving if not worker.batches]:
            self._pool.remove(worker)
            self._notify_supervisor(WorkerReleased(worker.number))
