"""The supervisor: starts, watches, restarts and stops all other processes.

It makes the segment and the listening sockets and passes both on. It never reads or writes a ring,
so no corrupt ring can take it down. It learns of events from the kernel (a process ended) or from
a control socket (a process says that it is ready). It waits only in its loop: whatever a process
does or leaves undone, the engine serves, or it ends.
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
from ringbatch.engine.process.role_messages import (
    AttachSegment,
    Compared,
    Drained,
    Draining,
    FailsAll,
    FromRole,
    Hung,
    Loaded,
    Reclaimed,
    Released,
    Signature,
    StandingBy,
    TableChanged,
    Waiting,
    Warming,
)
from ringbatch.engine.supervisor.autoscaler import Autoscaler
from ringbatch.engine.supervisor.change_orders import ChangeOrders
from ringbatch.engine.supervisor.change_runner import Introduce, ShowTable, Start
from ringbatch.engine.supervisor.child_process import CannotStart, Death
from ringbatch.engine.supervisor.collectors import Collectors
from ringbatch.engine.supervisor.control import ControlServer, log_report
from ringbatch.engine.supervisor.cpu_sets import CpuSets
from ringbatch.engine.supervisor.early_restarts import EarlyRestarts
from ringbatch.engine.supervisor.failing_workers import FailingWorkers
from ringbatch.engine.supervisor.first_workers import FirstWorkers
from ringbatch.engine.supervisor.frontends import Frontends
from ringbatch.engine.supervisor.handover import UNDER_SYSTEMD, Handover, OldEngine, Settled
from ringbatch.engine.supervisor.host_gauge import HostGauge
from ringbatch.engine.supervisor.launching import Launch, execute
from ringbatch.engine.supervisor.loop import Loop
from ringbatch.engine.supervisor.model_changes import ModelChanges
from ringbatch.engine.supervisor.model_file_watch import ModelFileWatch
from ringbatch.engine.supervisor.model_versions import Forwarding
from ringbatch.engine.supervisor.process_manager import ProcessManager
from ringbatch.engine.supervisor.process_slot import Limit, ProcessSlot
from ringbatch.engine.supervisor.served_models import ServedModels, overrun
from ringbatch.engine.supervisor.shm_names_check import NamesLost, ShmNamesCheck
from ringbatch.engine.supervisor.signals import Signals
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
        predecessor: the engine that this one replaces, if there is one.
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
        predecessor: OldEngine | None = None,
        launch: Launch = execute,
    ) -> None:
        self._config = config
        self._predecessor = predecessor
        self._reread = reread
        self._changes: ModelChanges | None = None
        self._served: ServedModels | None = None
        self._failing: FailingWorkers | None = None
        self._control: ControlServer | None = None
        self.frontends = Frontends(config.server, config.passes_to, predecessor, launch)
        self._service = Service(os.environ, self.frontends.answer)
        self._segment: Segment | None = None
        self._loop = Loop()
        self._handover = Handover(
            self._loop, self.frontends.sockets, UNDER_SYSTEMD if self._service.managed else ""
        )
        self._processes = ProcessManager(
            self, self._loop, config.server.hang_timeout_s, time.monotonic_ns, random.random
        )
        self._signals = Signals()
        self._failure = ""
        self._cpu_sets = CpuSets(config, launch)
        logger.info("placement: %s", self._cpu_sets.described)
        files = [ModelFile(model.path) for model in config.models]
        self._first = FirstWorkers(config, files, self._cpu_sets, predecessor)
        self._pool = WorkerPool()
        self._workers = self._pool.workers
        self._workers |= self._first.slots
        self._collectors = Collectors(
            self._cpu_sets.collector_slot(), self._cpu_sets.collector_slot()
        )

    @property
    def slots(self) -> list[ProcessSlot]:
        """All slots, with those that are being emptied."""
        return [*self._workers.values(), *self._collectors.slots, *self.frontends.slots]

    @property
    def watched(self) -> list[ProcessSlot]:
        """Watched slots, as in `ProcessOwner`."""
        if self._segment is not None:
            self._processes.moved(self._collectors.collector, self._segment.collector_ns)
        return [self._collectors.collector, *self.frontends.watched]

    def run(self) -> int:
        """Start, serve, stop; return the exit status."""
        status = 0
        self._signals.catch(self._loop)
        try:
            self._start()
            if self._predecessor is not None:
                self._predecessor.replace(self._processes.wait)
            self.frontends.greet(", ".join(self._config.names))
            self._service.is_ready()
            self._serve()
        except _StopRequested:
            signals = [signal.Signals(number).name for number in self._signals.received]
            fault = "" if self._handover.complete else "a fault of ringbatch's own"
            logger.info("stopping on %s", signals[0] if signals else fault or "a handover")
        except NamesLost as lost:
            logger.error("%s", lost)
            self._failure, status = str(lost), _BROKEN
        finally:
            self._stop()
        return _BROKEN if self._loop.broken else status

    def _start(self) -> None:
        workers = list(self._workers.values())
        for slot in workers:
            self._processes.spawn(slot)
        self._until(lambda: all(slot.signature is not None for slot in workers))
        self._segment = segment = self._first.make_segment(self._forwarding, self.frontends.port)
        self.frontends.segment_name = self._cpu_sets.segment_name = segment.name
        for slot in workers:
            self._introduce(slot)
        self._processes.spawn(self._collectors.collector)
        self._until(lambda: bool(self._collectors.collector.ready_ns))
        if self._predecessor is not None or self._config.server.share_port:
            # From then on they accept connections that the other engine could serve.
            self._until(lambda: all(slot.ready_ns for slot in workers))
        # This comes before any frontend, as clients of frontends may load models.
        self._control = ControlServer(segment.name, self._loop)
        for slot in self.frontends.slots:
            self._processes.spawn(slot)
            if self._predecessor is not None:
                self._until(partial(self.frontends.begun, slot, segment), _PROBE_EVERY_S)
        self._until(lambda: all(slot.ready_ns for slot in workers))
        self.frontends.http.begins("its start", Limit(), time.monotonic_ns())
        self._until(lambda: self.frontends.all_serve(segment.serving_lanes()), _PROBE_EVERY_S)
        self._processes.mark_ready(self.frontends.http)
        self._processes.spawn(self._collectors.standby)
        segment.say_ready(time.monotonic_ns())

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
        scaler = Autoscaler(segment, changes, self._pool, HostGauge(), time.monotonic_ns)
        early = EarlyRestarts(segment, served, self._pool, time.monotonic_ns)
        self._failing = failing = FailingWorkers(segment, served, self._pool, time.monotonic_ns)
        watch = ModelFileWatch(lambda: served.files, lambda: served.differing)
        drop = partial(self._loop.drop, watch)
        self._loop.watch(watch, lambda: changes.differ(watch.take()), drop)
        names = ShmNamesCheck(segment.lost_names, time.monotonic_ns)
        while True:
            reload = self._signals.take_reload()
            self._look_for_the_end()
            names.step()
            if reload:
                logger.info("reading the configuration again, on SIGHUP")
                take(Order("reload", None), log_report)
            self._loop.guard(scaler.step, scaler.pause)
            self._loop.guard(early.step)
            self._loop.guard(failing.step)
            self._loop.guard(partial(self._advance, changes), changes.break_off)
            status = serving_status(served.names, self.frontends.url, *self._pool.ready)
            self._service.serves(status, segment.collector_ns)
            own = scaler.next_ns, names.next_ns, early.next_ns, failing.next_ns
            instants = (changes.limit_ns, self._service.next_ns, *own)
            self._processes.turn(None, min(filter(None, instants)))

    def _advance(self, changes: ModelChanges) -> None:
        """Advance the changes under way, and take the actions they ask for."""
        while effects := changes.advance():
            for effect in effects:
                match effect:
                    case Start(number, model, index, file):
                        slot = self._cpu_sets.worker_slot(number, model, index, file)
                        self._pool.add(number, slot)
                        self._processes.spawn(slot)
                    case Introduce(slot):
                        self._introduce(slot)
                    case ShowTable():
                        self._show_table()
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
            limit_ns = None if self._predecessor is None else self._predecessor.limit_ns
            instants = filter(None, (limit_ns, self._service.next_ns))
            self._processes.turn(every_s, min(instants, default=None))
            self._look_for_the_end()
            if self._predecessor is not None:
                self._predecessor.expect_in_time()
        if self._failure:
            raise StartupError(self._failure)

    def _look_for_the_end(self) -> None:
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

    def cpus_of(self, slot: ProcessSlot) -> tuple[int, ...] | None:
        """Return the CPUs of a slot, as in `ProcessOwner`."""
        return self._cpu_sets.cpus_of(slot)

    def started(self, slot: ProcessSlot) -> None:
        """Handle the start of a process, as in `ProcessOwner`."""
        self._say_start(slot, 0)
        slot.note_start(self._segment)

    def not_started(self, slot: ProcessSlot, failure: CannotStart) -> None:
        """Handle a failed start, as in `ProcessOwner`; fatal if no process was ever ready here."""
        self._say_start(slot, failure.errno)
        if slot.lasting and not slot.ever_ready:
            self._failure = f"{slot.title}: {failure}"
        else:
            logger.error("%s: %s", slot.title, failure)
        self._count_restart(slot, RestartCase.REFUSED)

    def _count_restart(self, slot: ProcessSlot, case: RestartCase) -> None:
        if self._served is not None and slot.lasting and slot.worker is not None:
            self._served.count_restart(slot.worker, case)

    def _say_start(self, slot: ProcessSlot, errno: int) -> None:
        """Publish the errno of the last failed start for readiness; 0 once a process starts."""
        segment = self._segment
        if segment is not None and slot.worker is not None:
            segment.say_worker_start(slot.worker, errno, slot.restart_ns or 0)
        elif segment is not None and slot is self._collectors.collector:
            segment.say_collector_start(errno)

    def heard(self, slot: ProcessSlot, said: FromRole) -> None:
        """Handle a message, as in `ProcessOwner`."""
        match said:
            case Beat():
                self._processes.moved(slot, time.monotonic_ns())
            case Failed(reason):
                self._processes.failed(slot, reason)
            case Signature():
                self._opened(slot, said)
            case Waiting():
                self._say_start(slot, NO_PLACE_YET)
            case Warming():
                slot.begins("warm-up", slot.limits.warm_up, time.monotonic_ns())
            case StandingBy():
                self._collectors.stands_by(slot, time.monotonic_ns())
            case Ready():
                if self._collectors.has(slot):
                    self._promote(slot)
                self._processes.mark_ready(slot)
                self._collectors.limit_wait(time.monotonic_ns())
            case FailsAll():
                if self._failing is not None:
                    self._failing.heard(slot, said)
            case Hung(number):
                if (hung := self._workers.get(number)) is not None:
                    self._processes.end_hung(hung, overrun(self._served, number))
            case Reclaimed(number, explained):
                # It may be gone already, or its number may belong to another worker.
                reclaimed = self._workers.get(number)
                if reclaimed is not None and reclaimed.child is None:
                    reclaimed.unreclaimed = None
                    case = RestartCase.EXPLAINED if explained else reclaimed.case
                    self._processes.plan_restart(reclaimed, case)
                    self._count_restart(reclaimed, case)
                    self._say_start(reclaimed, 0)
                    if not reclaimed.lasting:
                        self._pool.release(number, self._entered)
            case Released(number):
                self._pool.release(number, self._entered)
            case Loaded() | Drained():
                if self._changes is not None:
                    self._changes.heard(said)
            case Compared():
                pass  # Nobody asks workers that serve for it.
            case _:
                assert_never(said)

    def _promote(self, slot: ProcessSlot) -> None:
        """Make the process in a slot the collector, as it has got the lock."""
        if (before := self._collectors.predecessor(slot)) is not None:
            self._processes.drain_messages(before)
        self._collectors.promote(slot, self._workers.values())
        self._say_start(slot, 0)
        self._pool.release_unheard_of(self._entered)

    def _opened(self, slot: ProcessSlot, signature: Signature) -> None:
        """Note a worker's signature; the worker waits to be attached to the segment."""
        slot.limit_ns = None
        self._say_start(slot, 0)
        if slot.signature is None:
            slot.signature = signature
        if slot.signature != signature:
            slot.refuse()
        elif self._segment is not None and slot.known:
            self._introduce(slot)

    def _introduce(self, slot: ProcessSlot) -> None:
        if slot.child is not None and self._segment is not None:
            slot.known = True
            slot.begins("loading the model", slot.limits.load, time.monotonic_ns())
            slot.child.tell(AttachSegment(self._segment.name))

    def _show_table(self) -> None:
        """Have the present or the next collector read the table."""
        self._loop.guard(partial(self._collectors.tell, TableChanged()), self._collectors.replace)

    def ended(self, slot: ProcessSlot, death: Death) -> None:
        """Handle the end of a process, as in `ProcessOwner`."""
        blameless = slot.note_end(self._segment, killed=death.killed)
        if slot.worker is not None and self._segment is not None:
            self._segment.worker_ended(slot.worker, by_chance=slot.by_chance)
        if slot.released:
            self._pool.remove(slot)
            return
        slot.failure = slot.error or f"the {slot.title} process {death.words}"
        if slot.lasting and not (slot.ever_ready and self._segment is not None):
            self._failure = slot.error or f"{slot.failure} at start"
            return
        reason = f": {slot.error}" if slot.error else ""
        logger.error("%s [%d] %s%s", slot.title, death.pid, death.words, reason)
        if slot.worker is not None and not slot.known:
            return
        if (heir := self._collectors.heir(slot)) is not None:
            self._promote(heir)
        if self._segment is not None and self._collectors.vacant:
            self._segment.collector_gone()
        if slot.worker is None:
            slot.count_end(self._segment, killed=death.killed)
            self._processes.plan_restart(slot, slot.case)
            self._collectors.limit_wait(time.monotonic_ns())
        else:
            self._collectors.worker_died(slot, killed=blameless)

    def _stop(self) -> None:
        """End all processes in the order that loses no request; a second signal ends them at once.

        Each step is taken whatever becomes of the others, and each has a time limit.
        """
        seen = len(self._signals.received)

        def at_once() -> bool:
            return len(self._signals.received) > seen or self._loop.broken

        end = self._processes.end
        self.frontends.shared = self._superseded or self._handover.under_way
        delay_s = 0.0 if self._superseded else self._config.server.stop_delay_s
        drain_s = self.frontends.drain_s(superseded=self._superseded) + _KILL_AFTER_S
        self._service.stops(self._failure or "stopping", delay_s + drain_s + _STOP_BEYOND_DRAIN_S)
        for step in (
            self._take_no_more_orders,
            partial(self._turn_away, delay_s, at_once),
            self._processes.stop,
            self.frontends.close_to_newcomers,
            partial(self._let_in, at_once),
            self.frontends.close,
            self._drain,
            partial(end, self.frontends.slots, drain_s, at_once),
            partial(self._answer_clients, at_once),
            partial(end, list(self._workers.values()), _KILL_AFTER_S, at_once),
            partial(end, [self._collectors.standby], _KILL_AFTER_S, at_once),
            partial(end, [self._collectors.collector], _KILL_AFTER_S, at_once),
            self._unlink,
        ):
            self._loop.guard(step)

    def _take_no_more_orders(self) -> None:
        if self._changes is not None:
            self._changes.abandon()
        if self._control is not None:
            self._control.close()

    def _turn_away(self, delay_s: float, at_once: Callable[[], bool]) -> None:
        """Ask clients to go elsewhere, and serve those that still come."""
        if self._segment is not None and not self._superseded:
            self._segment.say_stopping()
            if self._segment.ready_ns:
                self._processes.wait(at_once, delay_s)

    def _let_in(self, at_once: Callable[[], bool]) -> None:
        """Have the frontends go on until no client is in the midst of connecting."""
        some = self.frontends.awaits_newcomers
        self._processes.wait(lambda: at_once() or not some(), _HANDSHAKE_S, every_s=_PROBE_EVERY_S)

    def _answer_clients(self, at_once: Callable[[], bool]) -> None:
        """Have the workers go on until no program on this host waits for them."""
        if self._segment is not None and self._superseded:
            quiet, drain_s = Settled(self._segment.clients_wait).holds, self._config.server.drain_s
            self._processes.wait(lambda: at_once() or quiet(), drain_s, every_s=_PROBE_EVERY_S)

    @property
    def _superseded(self) -> bool:
        """True if another engine serves in this one's place."""
        before = self._predecessor
        return self._handover.complete or (before is not None and before.serves)

    def _drain(self) -> None:
        if self._segment is not None:
            self._segment.drain(superseded=self._superseded)
            self._handover.end()
            # Any message makes it read the header, which says that no further request comes.
            self._collectors.tell(Draining())

    def _unlink(self) -> None:
        if self._segment is not None:
            self._segment.unlink()
