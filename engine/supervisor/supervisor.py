"""The supervisor: starts, watches, restarts and stops all other processes.

It makes the segment and the listening sockets and passes both on. It never reads or writes a ring,
so no corrupt ring can take it down. It learns of events from the kernel (a process ended) or from
a control socket (a process says that it is ready). It waits only in its loop. So no process can
hold it up: the engine serves, or it ends.
"""

import logging
import os
import random
import signal
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import assert_never

from ringbatch.engine.config.settings import Config
from ringbatch.engine.models.model_file import ModelFile
from ringbatch.engine.process.role_commands import AttachSegment, Drain, ReadTable
from ringbatch.engine.process.role_events import (
    EntryDrained,
    EntryLoaded,
    FailsAll,
    FromRole,
    ParityCompared,
    Signature,
    StandingBy,
    WaitsForPlace,
    WarmUpStarted,
    WorkerHung,
    WorkerReclaimed,
    WorkerReleased,
)
from ringbatch.engine.supervisor.change_orders import ChangeOrders
from ringbatch.engine.supervisor.change_runner import Attach, NotifyTableChanged, Start
from ringbatch.engine.supervisor.child_process import CannotStart, Death
from ringbatch.engine.supervisor.collectors import Collectors
from ringbatch.engine.supervisor.control import ControlServer
from ringbatch.engine.supervisor.cpu_sets import CpuSets
from ringbatch.engine.supervisor.first_workers import FirstWorkers
from ringbatch.engine.supervisor.frontends import Frontends
from ringbatch.engine.supervisor.handover import UNDER_SYSTEMD, Handover, OldEngine, Settled
from ringbatch.engine.supervisor.launching import Launch, execute
from ringbatch.engine.supervisor.loop import Loop
from ringbatch.engine.supervisor.managed_process import Limit, ManagedProcess
from ringbatch.engine.supervisor.model_changes import ModelChanges
from ringbatch.engine.supervisor.model_versions import Forwarding
from ringbatch.engine.supervisor.process_manager import ProcessManager
from ringbatch.engine.supervisor.served_models import ServedModels, overrun
from ringbatch.engine.supervisor.shm_names_check import NamesLost
from ringbatch.engine.supervisor.signals import Signals
from ringbatch.engine.supervisor.upkeep import Upkeep
from ringbatch.engine.supervisor.worker_pool import WorkerPool
from ringbatch.engine.systemd.service import Service, loading_status, serving_status
from ringbatch.shm.counters import RestartCase
from ringbatch.shm.errors import NO_PLACE_YET, StartupError
from ringbatch.shm.host.control_socket import Order
from ringbatch.shm.host.key_headers import KEY_HEADERS
from ringbatch.shm.host.messages import Beat, Failed, Ready
from ringbatch.shm.segment import Segment

logger = logging.getLogger("ringbatch.supervisor")

_KILL_AFTER_S = 5.0
"""Time for a process beyond its limit, before it is killed."""
_PROBE_EVERY_S = 0.05
_HANDSHAKE_S = 2.0
"""Time for clients that are connecting at the stop; a lost packet is repeated after 1 s."""
_STOP_BEYOND_DRAIN_S = _HANDSHAKE_S + 8 * _KILL_AFTER_S
"""Time for all steps of a stop beyond the frontends' drain, each with its SIGKILL."""
_BROKEN = 1
"""Exit status after a fault of ringbatch's own, or once no process can attach any more."""


class _StopRequested(Exception):
    """A signal asks to stop, or no other way is left after a fault."""


class Supervisor:
    """The role of the supervisor.

    Args:
        config: of the engine.
        reread: reads the configuration again.
        old_engine: the engine that this one replaces, if there is one.
        launch: makes its processes.

    Attributes:
        frontends: its frontends, which hold the ports.

    Raises:
        StartupError: a port cannot be had.
    """

    def __init__(
        self,
        config: Config,
        reread: Callable[[], Config],
        old_engine: OldEngine | None = None,
        launch: Launch = execute,
    ) -> None:
        self._config = config
        self._old_engine = old_engine
        self._reread = reread
        self._changes: ModelChanges | None = None
        self._served: ServedModels | None = None
        self._upkeep: Upkeep | None = None
        self._control: ControlServer | None = None
        self.frontends = Frontends(config.server, config.passes_to, old_engine, launch)
        self._service = Service(os.environ, self.frontends.answer)
        self._segment: Segment | None = None
        self._loop = Loop()
        self._handover = Handover(
            self._loop, self.frontends.sockets, UNDER_SYSTEMD if self._service.managed else ""
        )
        self._manager = ProcessManager(
            self, self._loop, config.server.hang_timeout_s, time.monotonic_ns, random.random
        )
        self._signals = Signals()
        self._failure = ""
        self._cpu_sets = CpuSets(config, launch)
        logger.info("placement: %s", self._cpu_sets.described)
        files = [ModelFile(model.path) for model in config.models]
        self._first = FirstWorkers(config, files, self._cpu_sets, old_engine)
        self._pool = WorkerPool()
        self._workers = self._pool.workers
        self._workers |= self._first.processes
        self._collectors = Collectors(
            self._cpu_sets.collector_process(), self._cpu_sets.collector_process()
        )

    @property
    def processes(self) -> list[ManagedProcess]:
        """All processes, with those that are being emptied."""
        return [*self._workers.values(), *self._collectors.processes, *self.frontends.processes]

    @property
    def watched(self) -> list[ManagedProcess]:
        """Watched processes, as in `ProcessOwner`."""
        if self._segment is not None:
            self._manager.record_progress(self._collectors.collector, self._segment.collector_ns)
        return [self._collectors.collector, *self.frontends.watched]

    def run(self) -> int:
        """Start, serve, stop; return the exit status."""
        status = 0
        self._signals.catch(self._loop)
        try:
            self._start()
            if self._old_engine is not None:
                self._old_engine.replace(self._manager.wait)
            self.frontends.greet(", ".join(self._config.names))
            self._service.is_ready()
            self._serve()
        except _StopRequested:
            # This comes before the log, whose readers may send the second signal.
            self._signals.begin_stop()
            signals = [signal.Signals(number).name for number in self._signals.received]
            fault = "" if self._handover.complete else "a fault of ringbatch's own"
            logger.info("stopping on %s", signals[0] if signals else fault or "a handover")
        except NamesLost as lost:
            logger.error("%s", lost)
            self._failure, status = str(lost), _BROKEN
        finally:
            self._stop()
        return _BROKEN if self._loop.broken else status or self._signals.status

    def _start(self) -> None:
        workers = list(self._workers.values())
        for managed in workers:
            self._manager.spawn(managed)
        self._until(lambda: all(managed.signature is not None for managed in workers))
        self._segment = segment = self._first.make_segment(self._forwarding, self.frontends.port)
        self.frontends.segment_name = self._cpu_sets.segment_name = segment.name
        for managed in workers:
            self._attach_segment(managed)
        self._manager.spawn(self._collectors.collector)
        self._until(lambda: bool(self._collectors.collector.ready_ns))
        if self._old_engine is not None or self._config.server.share_port:
            # From then on they accept connections that the other engine could serve.
            self._until(lambda: all(managed.ready_ns for managed in workers))
        # This comes before any frontend, as clients of frontends may load models.
        self._control = ControlServer(segment.name, self._loop)
        for managed in self.frontends.processes:
            self._manager.spawn(managed)
            if self._old_engine is not None:
                self._until(partial(self.frontends.begun, managed, segment), _PROBE_EVERY_S)
        # Each of these has a limit of its own, for which the HTTP frontends do not pay.
        others = (*workers, *self.frontends.watched)
        self._until(lambda: all(managed.ready_ns for managed in others))
        self.frontends.http.begins("its start", Limit(), time.monotonic_ns())
        self._until(lambda: self.frontends.all_serve(segment.serving_lanes()), _PROBE_EVERY_S)
        self._manager.mark_ready(self.frontends.http)
        self._manager.spawn(self._collectors.standby)
        segment.publish_ready(time.monotonic_ns())

    def _serve(self) -> None:
        """Serve until a signal comes, and carry out changes.

        Raises:
            _StopRequested: a signal has come.
            NamesLost: no process can attach any more.
        """
        segment, control = self._segment, self._control
        assert segment is not None, "it was made at the start"
        assert control is not None, "so was this"
        config = self._config
        self._served = served = ServedModels(
            segment, segment.models, config.models, self._first.hand_over(), config.chains
        )
        self._changes = changes = ModelChanges(
            self._pool,
            served,
            self._config.server,
            lambda: self._cpu_sets.reread(self._reread),
            self._forwarding,
            time.monotonic_ns,
        )
        take = ChangeOrders(self._handover, self._service, changes).take
        control.take_orders(take, self._handover.begin)
        self._upkeep = upkeep = Upkeep(segment, changes, self._pool, self._loop)
        while True:
            reload = self._signals.take_reload()
            self._check_for_stop()
            if reload:
                logger.info("reading the configuration again, on SIGHUP")
                # No client waits; the log has the changes and the reasons of refusals.
                take(Order("reload", None), lambda _: None)
            upkeep.step()
            self._loop.guard(partial(self._advance, changes), changes.break_off)
            status = serving_status(served.names, self.frontends.url, *self._pool.ready)
            self._service.serves(status, segment.collector_ns)
            instants = (changes.limit_ns, self._service.next_ns, upkeep.next_ns)
            self._manager.turn(None, min(filter(None, instants)))

    def _advance(self, changes: ModelChanges) -> None:
        """Advance the changes under way, and take the actions they ask for."""
        while effects := changes.advance():
            for effect in effects:
                match effect:
                    case Start(number, model, index, file):
                        managed = self._cpu_sets.worker_process(number, model, index, file)
                        self._pool.add(number, managed)
                        self._manager.spawn(managed)
                    case Attach(managed):
                        self._attach_segment(managed)
                    case NotifyTableChanged():
                        self._notify_table_changed()
                    case _:
                        assert_never(effect)

    def _until(self, done: Callable[[], bool], every_s: float | None = None) -> None:
        """Handle events until `done`.

        Raises:
            _StopRequested: a signal comes first.
            StartupError: a process fails that was never ready.
        """
        while not self._failure and not done():
            self._service.loads(loading_status(self._first.loading()))
            limit_ns = None if self._old_engine is None else self._old_engine.limit_ns
            instants = filter(None, (limit_ns, self._service.next_ns))
            self._manager.turn(every_s, min(instants, default=None))
            self._check_for_stop()
            if self._old_engine is not None:
                self._old_engine.expect_in_time()
        if self._failure:
            raise StartupError(self._failure)

    def _check_for_stop(self) -> None:
        if self._signals.received or self._loop.broken or self._handover.complete:
            raise _StopRequested

    @property
    def _forwarding(self) -> Forwarding:
        withheld = KEY_HEADERS if self.frontends.asks_for_keys else ()
        return Forwarding(self._config.server.sidecar, withheld)

    @property
    def _entered(self) -> Collection[int]:
        """Numbers of the workers in the table."""
        return self._workers if self._changes is None else self._changes.served.entered

    def cpus_of(self, managed: ManagedProcess) -> tuple[int, ...] | None:
        """Return the CPUs of a managed process, as in `ProcessOwner`."""
        return self._cpu_sets.cpus_of(managed)

    def on_started(self, managed: ManagedProcess) -> None:
        """Handle the start of a process, as in `ProcessOwner`."""
        self._publish_start_error(managed, 0)
        managed.note_start(self._segment)

    def on_start_refused(self, managed: ManagedProcess, failure: CannotStart) -> None:
        """Handle a failed start, as in `ProcessOwner`; fatal if no process was ever ready here."""
        self._publish_start_error(managed, failure.errno)
        if managed.lasting and not managed.ever_ready:
            self._failure = f"{managed.title}: {failure}"
        else:
            logger.error("%s: %s", managed.title, failure)
        self._count_restart(managed, RestartCase.REFUSED)

    def _count_restart(self, managed: ManagedProcess, case: RestartCase) -> None:
        if self._served is not None and managed.lasting and managed.worker is not None:
            self._served.count_restart(managed.worker, case)

    def _publish_start_error(self, managed: ManagedProcess, errno: int) -> None:
        """Publish the errno of the last failed start for readiness; 0 once a process starts."""
        segment = self._segment
        if segment is not None and managed.worker is not None:
            segment.publish_worker_start(managed.worker, errno, managed.restart_ns or 0)
        elif segment is not None and managed is self._collectors.collector:
            segment.publish_collector_start(errno)

    def on_message(self, managed: ManagedProcess, message: FromRole) -> None:
        """Handle a message, as in `ProcessOwner`."""
        match message:
            case Beat():
                self._manager.record_progress(managed, time.monotonic_ns())
            case Failed(reason):
                self._manager.failed(managed, reason)
            case Signature():
                self._on_signature(managed, message)
            case WaitsForPlace():
                self._publish_start_error(managed, NO_PLACE_YET)
            case WarmUpStarted():
                managed.begins("warm-up", managed.limits.warm_up, time.monotonic_ns())
            case StandingBy():
                self._collectors.stands_by(managed, time.monotonic_ns())
            case Ready():
                if self._collectors.has(managed):
                    self._promote(managed)
                self._manager.mark_ready(managed)
                self._collectors.limit_wait(time.monotonic_ns())
            case FailsAll():
                if self._upkeep is not None:
                    self._upkeep.failing.on_fails_all(managed, message)
            case WorkerHung(number):
                if (hung := self._workers.get(number)) is not None:
                    self._manager.end_hung(hung, overrun(self._served, number))
            case WorkerReclaimed(number, explained):
                # It may be gone already, or its number may belong to another worker.
                reclaimed = self._workers.get(number)
                if reclaimed is not None and reclaimed.child is None:
                    reclaimed.tie.unreclaimed = None
                    case = RestartCase.EXPLAINED if explained else reclaimed.case
                    self._manager.plan_restart(reclaimed, case)
                    self._count_restart(reclaimed, case)
                    self._publish_start_error(reclaimed, 0)
                    if not reclaimed.lasting:
                        self._pool.release(number, self._entered)
            case WorkerReleased(number):
                self._pool.release(number, self._entered)
            case EntryLoaded() | EntryDrained():
                if self._changes is not None:
                    self._changes.on_entry_event(message)
            case ParityCompared():
                pass  # Nobody asks workers that serve for it.
            case _:
                assert_never(message)

    def _promote(self, managed: ManagedProcess) -> None:
        """Make the process the collector, as it has got the lock."""
        if (before := self._collectors.collector_before(managed)) is not None:
            self._manager.drain_messages(before)
        self._collectors.promote(managed, self._workers.values())
        self._publish_start_error(managed, 0)
        self._pool.release_unheard_of(self._entered)

    def _on_signature(self, managed: ManagedProcess, signature: Signature) -> None:
        """Note a worker's signature; the worker waits to be attached to the segment."""
        managed.limit_ns = None
        self._publish_start_error(managed, 0)
        if managed.signature is None:
            managed.signature = signature
        if managed.signature != signature:
            managed.refuse()
        elif self._segment is not None and managed.tie.known:
            self._attach_segment(managed)

    def _attach_segment(self, managed: ManagedProcess) -> None:
        if managed.child is not None and self._segment is not None:
            managed.tie.known = True
            managed.begins("loading the model", managed.limits.load, time.monotonic_ns())
            managed.child.send(AttachSegment(self._segment.name))

    def _notify_table_changed(self) -> None:
        """Have the present or the next collector read the table."""
        self._loop.guard(partial(self._collectors.send, ReadTable()), self._collectors.replace)

    def on_ended(self, managed: ManagedProcess, death: Death) -> None:
        """Handle the end of a process, as in `ProcessOwner`."""
        blameless = managed.note_end(self._segment, killed=death.killed)
        if managed.worker is not None and self._segment is not None:
            self._segment.worker_ended(managed.worker, by_chance=managed.by_chance)
        if managed.tie.released:
            self._pool.remove(managed)
            return
        managed.failure = managed.error or f"the {managed.title} process {death.words}"
        if managed.lasting and not (managed.ever_ready and self._segment is not None):
            self._failure = managed.error or f"{managed.failure} at start"
            return
        reason = f": {managed.error}" if managed.error else ""
        logger.error("%s [%d] %s%s", managed.title, death.pid, death.words, reason)
        if managed.worker is not None and not managed.tie.known:
            return
        if (after := self._collectors.collector_after(managed)) is not None:
            self._promote(after)
        if self._segment is not None and self._collectors.vacant:
            self._segment.collector_gone()
        if managed.worker is None:
            managed.count_end(self._segment, killed=death.killed)
            self._manager.plan_restart(managed, managed.case)
            self._collectors.limit_wait(time.monotonic_ns())
        else:
            self._collectors.worker_died(managed, killed=blameless)

    def _stop(self) -> None:
        """End all processes in the order that loses no request; a second signal ends them at once.

        Each step is taken even if others fail, and each has a time limit.
        """
        self._signals.begin_stop()

        def at_once() -> bool:
            return self._signals.ends_at_once or self._loop.broken

        end = self._manager.end
        self.frontends.shared = self._superseded or self._handover.under_way
        delay_s = 0.0 if self._superseded else self._config.server.stop_delay_s
        drain_s = self.frontends.drain_s(superseded=self._superseded) + _KILL_AFTER_S
        self._service.stops(self._failure or "stopping", delay_s + drain_s + _STOP_BEYOND_DRAIN_S)
        for step in (
            self._close_control,
            partial(self._fail_readiness, delay_s, at_once),
            self._manager.stop,
            self.frontends.refuse_new_connections,
            partial(self._wait_for_handshakes, at_once),
            self.frontends.close,
            self._drain,
            partial(end, self.frontends.processes, drain_s, at_once),
            partial(self._answer_clients, at_once),
            partial(end, list(self._workers.values()), _KILL_AFTER_S, at_once),
            partial(end, [self._collectors.standby], _KILL_AFTER_S, at_once),
            partial(end, [self._collectors.collector], _KILL_AFTER_S, at_once),
            self._unlink,
        ):
            self._loop.guard(step)

    def _close_control(self) -> None:
        if self._changes is not None:
            self._changes.abandon()
        if self._control is not None:
            self._control.close()

    def _fail_readiness(self, delay_s: float, at_once: Callable[[], bool]) -> None:
        """Ask clients to go elsewhere, and serve those that still come."""
        if self._segment is not None and not self._superseded:
            self._segment.publish_stopping()
            if self._segment.ready_ns:
                self._manager.wait(at_once, delay_s)

    def _wait_for_handshakes(self, at_once: Callable[[], bool]) -> None:
        """Have the frontends go on until no client is in the midst of connecting."""
        busy = self.frontends.has_half_open_connections
        self._manager.wait(lambda: at_once() or not busy(), _HANDSHAKE_S, every_s=_PROBE_EVERY_S)

    def _answer_clients(self, at_once: Callable[[], bool]) -> None:
        """Have the workers go on until no program on this host waits for them."""
        if self._segment is not None and self._superseded:
            quiet, drain_s = Settled(self._segment.clients_wait).holds, self._config.server.drain_s
            self._manager.wait(lambda: at_once() or quiet(), drain_s, every_s=_PROBE_EVERY_S)

    @property
    def _superseded(self) -> bool:
        """True if another engine serves in this one's place."""
        before = self._old_engine
        return self._handover.complete or (before is not None and before.serves)

    def _drain(self) -> None:
        if self._segment is not None:
            self._segment.drain(superseded=self._superseded)
            self._handover.end()
            # Any message makes it read the header, which says that no further request comes.
            self._collectors.send(Drain())

    def _unlink(self) -> None:
        if self._segment is not None:
            self._segment.unlink()
