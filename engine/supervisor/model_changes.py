"""Model changes while the engine serves: loads, reloads, unloads and scalings.

Orders are carried out one after the other, and each model of an order as `change_plan` says. So a
failure or a death leaves the earlier version serving. Scalings run beside orders and beside each
other, but never two changes of one model at once.

A change under way is a generator that yields the conditions it waits for. After each turn of the
supervisor's loop `ModelChanges.advance` runs every change as far as it goes, and returns the
supervisor's next actions.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from ringbatch.engine.config.document import ConfigError
from ringbatch.engine.config.settings import Config, ModelConfig, ServerConfig
from ringbatch.engine.process.role_events import EntryDrained, EntryLoaded
from ringbatch.engine.supervisor.change_plan import ChangeFailed, with_new_workers
from ringbatch.engine.supervisor.change_runner import (
    AT_ONCE,
    ChangeRunner,
    Effect,
    NotifyTableChanged,
    Steps,
    Wait,
)
from ringbatch.engine.supervisor.model_diff import (
    ChainChange,
    Change,
    UnfitSize,
    UnknownModel,
    compare,
    differing,
    loading,
    retirement,
    with_batch_size,
    with_chains,
)
from ringbatch.engine.supervisor.model_versions import Forwarding
from ringbatch.engine.supervisor.served_models import ServedModels
from ringbatch.engine.supervisor.worker_pool import WorkerPool
from ringbatch.shm.host.control_socket import Order, Report
from ringbatch.shm.model_spec import RETIRING

logger = logging.getLogger("ringbatch.supervisor")

MAX_ORDERS: Final = 64
"""Orders that may wait for their turn."""

Reply = Callable[[Report], None]


@dataclass(slots=True)
class _Task:
    """An order or a scaling under way: its steps, their condition, and its reply."""

    steps: Steps
    reply: Reply
    wait: Wait = AT_ONCE


class ModelChanges:
    """Orders to change an engine's models, and scalings of them.

    Attributes:
        served: the engine's models.

    Args:
        pool: of workers.
        served: the engine's models.
        server: the settings with which it was started.
        reread: reads the configuration again; raises `ConfigError`.
        forwarding: to model servers.
        clock_ns: the monotonic clock.
    """

    def __init__(
        self,
        pool: WorkerPool,
        served: ServedModels,
        server: ServerConfig,
        reread: Callable[[], Config],
        forwarding: Forwarding,
        clock_ns: Callable[[], int],
    ) -> None:
        self.served = served
        self._pool = pool
        self._server = server
        self._reread = reread
        self._clock_ns = clock_ns
        self._runner = ChangeRunner(pool, served, forwarding, clock_ns)
        self._orders: deque[tuple[Order, Reply]] = deque()
        self._order: _Task | None = None
        self._scalings: list[_Task] = []

    def take(self, order: Order, reply: Reply) -> None:
        """Carry an order out after those before it; `reply` is called once.

        The log has every change, and every reason why there was none.
        """
        if len(self._orders) >= MAX_ORDERS:
            lines = (f"{MAX_ORDERS} changes wait already; try again later",)
            _refuse(order, Report("failed", lines), reply)
            return
        self._orders.append((order, reply))

    def can_scale(self, reference: int) -> bool:
        """Return whether the model of that entry serves, and no change of it is under way."""
        model = self.served.models.get(reference)
        return model is not None and not self._runner.is_changing(model.name)

    def scale(self, reference: int, running: int, reply: Reply) -> None:
        """Change the number of workers as the load wants it; only if `can_scale`.

        Args:
            reference: of an entry that serves.
            running: how many workers.
            reply: called once, when it is done or has failed.
        """
        model = self.served.models[reference]
        change = Change(model.name, adjust=(model,), running={model.version: running})
        steps = self._runner.change(change)
        self._scalings.append(_Task(self._scale(model.name, steps, reply), reply))

    def advance(self) -> list[Effect]:
        """Run all changes as far as they go; called after every turn of the supervisor's loop.

        Returns:
            The actions to take before the next call, in order; empty if all changes wait.
        """
        while not self._runner.effects and (task := self._due()) is not None:
            following = next(task.steps, None)
            if following is not None:
                task.wait = following
            # An ended change releases its objects, such as the model files of its workers.
            elif task is self._order:
                self._order = None
            else:
                self._scalings.remove(task)
        effects, self._runner.effects = self._runner.effects, []
        return effects

    @property
    def limit_ns(self) -> int | None:
        """Latest time of the next `advance`; None without a time limit."""
        limits = (task.wait.limit_ns for task in self._tasks)
        return min((limit for limit in limits if limit is not None), default=None)

    def break_off(self) -> None:
        """Undo the changes under way after an unexpected failure; the orders behind them go on.

        Raises:
            ChangeFailed: they could not be undone. If undoing fails unexpectedly too, its exception
                is raised.
        """
        tasks, self._order, self._scalings = self._tasks, None, []
        try:
            self._runner.break_off()
        finally:
            for task in tasks:
                task.reply(Report("failed", ("ringbatch has failed; the engine's log says how",)))
        entered = [n for s in self.served.entries if s.state != RETIRING for n in s.workers]
        if not all(n in self._pool.workers and self._pool.workers[n].lasting for n in entered):
            raise ChangeFailed("it could not be undone")

    def abandon(self) -> None:
        """Reply to all orders that the engine is stopping."""
        replies = [reply for _, reply in self._orders]
        if self._order is not None:
            replies.append(self._order.reply)
        self._orders.clear()
        self._order, self._scalings = None, []
        for reply in replies:
            reply(Report("failed", ("the engine is stopping",)))

    def on_entry_event(self, message: EntryLoaded | EntryDrained) -> None:
        """Handle the collector's message about an entry."""
        (self.loaded if isinstance(message, EntryLoaded) else self.drained)(message.reference)

    def loaded(self, reference: int) -> None:
        """Note the collector's message that all workers of an entry are ready."""
        self._runner.loaded.add(reference)

    def drained(self, reference: int) -> None:
        """Note the collector's message that nothing of a retiring entry is left."""
        if self.served.drained(reference):
            self._runner.effects.append(NotifyTableChanged())

    def differ(self, references: Collection[int]) -> None:
        """Publish that other files lie at the paths of these entries, and of no others.

        It is left out while an order is under way.
        """
        if self._order is None and self.served.differ(references):
            self._runner.effects.append(NotifyTableChanged())

    @property
    def _tasks(self) -> list[_Task]:
        return [*self._scalings, *([] if self._order is None else [self._order])]

    def _due(self) -> _Task | None:
        """Return a task that need not wait any longer; without an order under way, start one."""
        if self._order is None and self._orders:
            order, reply = self._orders.popleft()
            self._order = _Task(self._carry_out(order, reply), reply)
        return next((task for task in self._tasks if self._is_over(task.wait)), None)

    def _is_over(self, wait: Wait) -> bool:
        late = wait.limit_ns is not None and self._clock_ns() >= wait.limit_ns
        return late or wait.is_over()

    def _carry_out(self, order: Order, reply: Reply) -> Steps:
        try:
            changes, untaken = self._plan(order)
        except UnknownModel as unknown:
            _refuse(order, Report("unknown", (str(unknown),)), reply)
            return
        except ConfigError as error:
            _refuse(order, Report("failed", error.problems), reply)
            return
        except UnfitSize as error:
            _refuse(order, Report("failed", (str(error),)), reply)
            return
        # An order for one model asks for no other change.
        lines, failed = list(untaken), bool(untaken) and order.model is None
        for change in changes:
            yield Wait(partial(self._is_free, change.name))
            try:
                if isinstance(change, ChainChange):
                    yield from self._runner.change_chain(change)
                else:
                    change = with_new_workers(change, self.served.entries)
                    yield from self._runner.change(change)
            except ChangeFailed as failure:
                failed = True
                lines.append(f"{change.name}: {failure}")
                logger.error("%s: %s", change.name, failure)
            else:
                lines.append(change.described())
                logger.info("%s", change.described())
        if not lines:
            lines.append("nothing has changed")
            logger.info("%s: %s", order.action, lines[0])
        reply(Report("failed" if failed else "done", tuple(lines)))

    @staticmethod
    def _scale(name: str, steps: Steps, reply: Reply) -> Steps:
        try:
            yield from steps
        except ChangeFailed as failure:
            logger.error("%s: %s", name, failure)
            reply(Report("failed", (str(failure),)))
        else:
            reply(Report("done", ()))

    def _plan(self, order: Order) -> tuple[list[Change | ChainChange], tuple[str, ...]]:
        """Return an order's changes, and messages about settings that no order changes."""
        serving = tuple(self.served.models.values())
        chains = tuple(self.served.chains.values())
        if order.action == "unload":
            if any(chain.name == order.model for chain in chains):
                return [ChainChange(order.model or "", None)], ()
            return [retirement(order.model or "", serving)], ()
        config = self._reread()
        self.served.order = config.models
        untaken = self._untaken(config.server)
        if order.model is None:
            changes = compare(serving, config.models, self.served.is_another_file)
            return with_chains(changes, chains, config.chains), untaken
        put = [ChainChange(c.name, c) for c in config.chains if c.name == order.model]
        if put:
            if order.max_batch_size is not None:
                raise UnfitSize("max_batch_size: is not for a chain, which has steps")
            return [*put], untaken
        wanted: Sequence[ModelConfig] = config.models
        if order.max_batch_size is not None:
            wanted = with_batch_size(wanted, order.model, order.max_batch_size)
        return [loading(order.model, serving, wanted)], untaken

    def _untaken(self, server: ServerConfig) -> tuple[str, ...]:
        """Return a message about the changed settings that need a restart of the engine."""
        names = sorted(differing(self._server, server))
        if not names:
            return ()
        line = (
            f"[server] {', '.join(names)}: not taken, because the engine runs; ringbatch handover "
            f"takes {'them' if len(names) > 1 else 'it'}, and so does a restart"
        )
        logger.warning("%s", line)
        return (line,)

    def _is_free(self, name: str) -> bool:
        return not self._runner.is_changing(name)


def _refuse(order: Order, report: Report, reply: Reply) -> None:
    """Log and report why an order changes nothing."""
    # Clients of the HTTP API may name any model, which is no fault of the engine.
    level = logging.WARNING if report.end == "unknown" else logging.ERROR
    for line in report.lines:
        logger.log(level, "%s refused: %s", order.action, line)
    reply(report)
