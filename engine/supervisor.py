"""The supervisor: starts, watches, restarts and stops everything else.

It makes the segment and the listening sockets and hands both on; it never reads or writes a ring,
so nothing that happens to one can take it down. What it learns, it learns from the kernel (a
process ended) or from a control socket (a process says that it is ready).
"""

import logging
import os
import random
import selectors
import signal
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

from setproctitle import setproctitle

from ringbatch.engine import instructions, placement, respawn
from ringbatch.engine.child import Child
from ringbatch.engine.config import ConfigError
from ringbatch.engine.control import ControlServer
from ringbatch.engine.dimensions import layout_of
from ringbatch.engine.entries import Forwarding, first_entries
from ringbatch.engine.frontends import LEAN, Frontends
from ringbatch.engine.live import LiveChanges, stamp
from ringbatch.engine.memory_limits import heap_environment
from ringbatch.engine.place import Place
from ringbatch.engine.settings import Config, ModelConfig
from ringbatch.engine.signals import Signals
from ringbatch.engine.workforce import Workforce
from ringbatch.shm.control import Order, Report
from ringbatch.shm.errors import StartupError
from ringbatch.shm.key_headers import KEY_HEADERS
from ringbatch.shm.manifest import FIRST_VERSION
from ringbatch.shm.platform import require_ordered_stores
from ringbatch.shm.process import log_to_stderr
from ringbatch.shm.segment import Segment, sweep

logger = logging.getLogger("ringbatch.supervisor")

_KILL_AFTER_S = 5.0
"""What a process gets beyond its time before it is killed."""
_PROBE_EVERY_S = 0.05
_DUMP_NS = 500_000_000
"""What a hung process gets to write down where it stands, before it is killed."""


class _StopRequested(Exception):
    """A signal asked for the end while the engine was still starting."""


def run(config: Config, reread: Callable[[], Config] | None = None) -> int:
    """Serve until a signal says stop; the exit status.

    Args:
        config: what to serve.
        reread: reads the configuration again, for SIGHUP and for orders to reload.

    Raises:
        StartupError: in words, where the engine cannot start; nothing is left behind then.
    """
    require_ordered_stores()
    placement.wake_without_preempting()
    setproctitle("ringbatch: supervisor")
    log_to_stderr("supervisor", config.server.log_level)
    for name in sweep():
        logger.info("removed /dev/shm/%s, left by an engine that is gone", name)
    supervisor = Supervisor(config, reread or (lambda: config))
    with closing(supervisor.frontends):
        return supervisor.run()


class Supervisor:
    """The role. See `run`.

    Attributes:
        frontends: its frontends, which hold the ports.

    Raises:
        StartupError: a port cannot be had.
    """

    def __init__(self, config: Config, reread: Callable[[], Config]) -> None:
        self._config = config
        self._reread = reread
        self._stamps = [stamp(model) for model in config.models]
        self._live: LiveChanges | None = None
        self._control: ControlServer | None = None
        self.frontends = Frontends(config.server, lambda: self._segment_name, config.passes_to)
        self._segment: Segment | None = None
        self._selector = selectors.DefaultSelector()
        self._signals = Signals()
        self._stopping = False
        self._host = placement.host()
        self._plan, words = instructions.placed(config, self._host)
        self._seats = instructions.seats(config, self._plan)
        logger.info("placement: %s", words)
        assignments = [(model, index) for model in config.models for index in range(model.workers)]
        self._force = Workforce(
            self._worker_place, self._fill, self._introduce, self._table_changed, self._is_entered
        )
        self._workers = self._force.workers
        for number, (model, index) in enumerate(assignments):
            self._workers[number] = self._worker_place(number, model, index)
        self._collector = Place("collector", self._start_collector)

    @property
    def _places(self) -> list[Place]:
        return [*self._workers.values(), self._collector, *self.frontends.places]

    def run(self) -> int:
        """Start, serve, stop."""
        self._signals.catch(self._selector)
        try:
            self._start()
            names = ", ".join(dict.fromkeys(model.name for model in self._config.models))
            print(self.frontends.welcome(names), flush=True)
            self._serve()
        except _StopRequested:
            logger.info("stopping on %s", signal.Signals(self._signals.received[0]).name)
        finally:
            self._stop()
        return 0

    def _start(self) -> None:
        workers = list(self._workers.values())
        for place in workers:
            self._fill(place)
        self._until(lambda: all(place.signature is not None for place in workers))
        self._segment = self._make_segment()
        for place in workers:
            self._introduce(place)
        self._fill(self._collector)
        self._until(lambda: bool(self._collector.ready_ns))
        for place in self.frontends.places:
            self._fill(place)
        self._until(lambda: all(place.ready_ns for place in workers))
        segment = self._segment
        self._until(lambda: self.frontends.all_serve(segment.held_lanes()), every_s=_PROBE_EVERY_S)
        self._mark_ready(self.frontends.http)

    def _serve(self) -> None:
        """Until a signal comes, and change meanwhile what one is told to.

        Raises:
            _StopRequested: it has come.
        """
        segment = self._segment
        assert segment is not None, "it was made at the start"
        self._live = live = LiveChanges(
            self._force,
            segment,
            self._config,
            segment.models,
            self._stamps,
            self._read_again,
            self._forwarding,
        )
        self._control = ControlServer(segment.name, self._selector, live.take)
        while True:
            reload = self._signals.take_reload()
            if self._signals.received:
                raise _StopRequested
            if reload:
                logger.info("reading the configuration again, on SIGHUP")
                live.take(Order("reload", None), _log_report)
            live.advance()
            self._turn(None)

    def _until(self, done: Callable[[], bool], every_s: float | None = None) -> None:
        """Handle what comes in until `done`.

        Raises:
            _StopRequested: where a signal comes first.
            StartupError: where a process fails that was never ready.
        """
        while not done():
            self._turn(every_s)
            if self._signals.received:
                raise _StopRequested

    def _turn(self, timeout_s: float | None) -> None:
        plans = [(place.restart_ns, place.kill_ns) for place in self._places]
        planned = [instant for plan in plans for instant in plan if instant is not None]
        if planned:
            left_s = max(0.0, (min(planned) - time.monotonic_ns()) / 1e9)
            timeout_s = left_s if timeout_s is None else min(timeout_s, left_s)
        for key, _ in self._selector.select(timeout_s):
            # What came before in this turn may have buried the process that this is about.
            if self._selector.get_map().get(key.fd) is key:
                key.data()
        now_ns = time.monotonic_ns()
        for place in self._places:
            if place.restart_ns is not None and place.restart_ns <= now_ns:
                place.restart_ns = None
                self._fill(place)
            if place.kill_ns is not None and place.kill_ns <= now_ns:
                place.kill_ns = None
                if place.child is not None:
                    place.child.kill(signal.SIGKILL)

    def _worker_place(self, number: int, model: ModelConfig, index: int) -> Place:
        seat = instructions.seat_name(model, index)
        version = "" if model.version == FIRST_VERSION else f":{model.version}"
        own = f"{model.name}{version}/{index}"
        title = f"worker {own}"

        def start() -> Child:
            environment = placement.thread_environment(
                model.threads, self._seats[seat].threads, os.environ
            ) | heap_environment(os.environ)
            child = Child(title, "ringbatch.engine.work", [], environment)
            child.tell(
                number=number,
                title=own,
                log_level=self._config.server.log_level,
                parent_pid=os.getpid(),
                **instructions.of(model, index, again=self._workers[number].ever_ready),
            )
            return child

        return Place(title, start, worker=number, seat=seat)

    def _read_again(self) -> Config:
        """The configuration as it is now, with a seat for every worker in it.

        Raises:
            ConfigError: it is wrong, or names CPUs that cannot be used.
        """
        config = self._reread()
        try:
            found, _ = instructions.placed(config, self._host)
        except StartupError as error:
            raise ConfigError(str(error)) from None
        self._seats |= instructions.seats(config, found)
        return config

    @property
    def _forwarding(self) -> Forwarding:
        withheld = KEY_HEADERS if self.frontends.asks_for_keys else ()
        return Forwarding(self._config.server.sidecar, withheld)

    def _start_collector(self) -> Child:
        child = Child("collector", "ringbatch.engine.collect", [], LEAN)
        child.tell(segment=self._segment_name, log_level=self._config.server.log_level)
        return child

    @property
    def _segment_name(self) -> str:
        assert self._segment is not None, "only workers are started before the segment is made"
        return self._segment.name

    def _fill(self, place: Place) -> None:
        place.error = ""
        with placement.on_cpus(self._cpus_of(place)):
            place.child = child = place.start()
        logger.debug("started %s as process %d", place.title, child.pid)
        if child.control is not None:
            self._selector.register(
                child.control, selectors.EVENT_READ, lambda: self._listen(place, child)
            )
        elif place.ever_ready:
            # A process without a control socket says nothing; that it runs is all one knows.
            place.ready_ns = time.monotonic_ns()
        self._selector.register(child.pidfd, selectors.EVENT_READ, lambda: self._died(place, child))

    def _cpus_of(self, place: Place) -> tuple[int, ...] | None:
        if place.seat is None:
            return self._plan.frontends
        return self._seats[place.seat].cpus

    def _listen(self, place: Place, child: Child) -> None:
        """Hear what a process says; until its end, where that has come."""
        assert child.control is not None
        messages = child.control.receive()
        if messages is None:
            self._selector.unregister(child.control)
            return
        for message in messages:
            self._heard(place, message)

    def _heard(self, place: Place, message: dict[str, Any]) -> None:
        if "error" in message:
            place.error = message["error"]
        elif "inputs" in message:
            if place.signature is None:
                place.signature = message
            if place.signature != message:
                self._refuse(place)
            elif self._segment is not None and place.known:
                self._introduce(place)
        elif "hung" in message:
            self._end_hung(self._workers[message["hung"]])
        elif "buried" in message:
            # Gone already, or another's place, where nothing was expected of the dead one.
            buried = self._workers.get(message["buried"])
            if buried is not None and buried.child is None:
                self._plan_restart(buried, explained=message["explained"])
        elif "released" in message:
            self._force.release(message["released"])
        elif self._live is not None and "loaded" in message:
            self._live.loaded(message["loaded"])
        elif self._live is not None and "drained" in message:
            self._live.drained(message["drained"])
        elif "ready" in message:
            self._mark_ready(place)
            if place is self._collector:
                self._force.collector_ready()

    def _refuse(self, place: Place) -> None:
        """End a worker that would read and write other tensors than those in the manifest."""
        place.error = (
            "the model file now declares other inputs or outputs; restart the engine to serve it"
        )
        if place.child is not None:
            place.child.kill(signal.SIGKILL)

    def _end_hung(self, place: Place) -> None:
        """Have a worker write down where it stands, and end it."""
        if place.child is not None:
            logger.error("%s [%d] hangs and is ended", place.title, place.child.pid)
            place.child.kill(signal.SIGABRT)
            place.kill_ns = time.monotonic_ns() + _DUMP_NS

    def _mark_ready(self, place: Place) -> None:
        place.ever_ready = True
        place.ready_ns = time.monotonic_ns()
        logger.info("%s: ready", place.title)

    def _introduce(self, place: Place) -> None:
        if place.child is not None:
            place.child.tell(segment=self._segment_name)

    def _table_changed(self) -> None:
        if self._collector.child is not None:
            self._collector.child.tell(table=True)

    def _is_entered(self, number: int) -> bool:
        return self._live is None or self._live.holds(number)

    def _died(self, place: Place, child: Child) -> None:
        """A process of a place has ended; the kernel says so."""
        while child.control is not None and child.control in self._selector.get_map():
            self._listen(place, child)
        self._forget(child)
        ending = child.bury()
        place.child = None
        place.kill_ns = None
        if self._stopping:
            return
        if place.released:
            self._force.bury(place)
            return
        if place.lasting and not place.ever_ready:
            raise StartupError(place.error or f"the {place.title} process {ending} at start")
        place.failure = place.error or f"the {place.title} process {ending}"
        logger.error(
            "%s [%d] %s%s",
            place.title,
            child.pid,
            ending,
            f": {place.error}" if place.error else "",
        )
        if place.worker is not None and not place.known:
            return
        if place.worker is not None and self._collector.child is not None:
            self._collector.child.tell(died=place.worker, killed=child.killed)
        elif place is self._collector:
            self._restart_engine()
        else:
            self._plan_restart(place)

    def _restart_engine(self) -> None:
        """Without a collector nobody knows which slots the workers hold; so they end too.

        The requests stay where they are, in the slots, and the next collector finds them.
        """
        for place in self._workers.values():
            child, place.child = place.child, None
            if child is not None:
                child.kill(signal.SIGKILL)
                self._forget(child)
                child.bury()
            if child is not None or place.restart_ns is None:
                self._plan_restart(place, explained=child is not None)
        self._force.collector_died()
        self._plan_restart(self._collector)

    def _plan_restart(self, place: Place, *, explained: bool = False) -> None:
        """Have a place filled again, at once or after a while.

        Args:
            place: empty.
            explained: whether it is known what killed the last process, and that it will not be
                tried again; then those that wait for it need not wait longer.
        """
        if self._stopping or not place.lasting:
            return
        now_ns = time.monotonic_ns()
        decision = respawn.decide(
            ever_ready=place.ever_ready,
            failures_in_a_row=0 if explained else place.failures,
            lived_ns=now_ns - place.ready_ns if place.ready_ns else 0,
            jitter=random.random(),
            most_s=respawn.MOST_OWN_DELAY_S if place.worker is None else respawn.MOST_DELAY_S,
        )
        assert isinstance(decision, respawn.Restart), "what was never ready ends the start"
        place.failures = 0 if explained else decision.failures_in_a_row
        place.ready_ns = 0
        place.restart_ns = now_ns + int(decision.delay_s * 1e9)
        if decision.delay_s:
            logger.info("%s starts again in %.1f s", place.title, decision.delay_s)

    def _forget(self, child: Child) -> None:
        for source in (child.control, child.pidfd):
            if source is not None and source in self._selector.get_map():
                self._selector.unregister(source)

    def _make_segment(self) -> Segment:
        signatures = {n: place.signature or {} for n, place in self._workers.items()}
        entries = first_entries(self._config.models, signatures, self._forwarding)
        server = self._config.server
        segment = Segment.create(layout_of(server, entries, self.frontends.lanes), entries)
        if server.model_control:
            segment.allow_model_control()
        return segment

    def _stop(self) -> None:
        """End everything in the order that loses nothing; a second signal ends it at once."""
        self._stopping = True
        if self._live is not None:
            self._live.abandon()
        if self._control is not None:
            self._control.close()
        for place in self._places:
            place.restart_ns = None
        seen = len(self._signals.received)
        self.frontends.close_to_newcomers()
        if self._segment is not None:
            self._segment.drain()
            if self._collector.child is not None:
                # Any message makes it look; what it finds is that no company will come.
                self._collector.child.tell(draining=True)
        drain_s = self._config.server.drain_s + _KILL_AFTER_S
        for places, limit_s in (
            (self.frontends.places, drain_s),
            (list(self._workers.values()), _KILL_AFTER_S),
            ([self._collector], _KILL_AFTER_S),
        ):
            self._end(places, limit_s, seen)
        if self._segment is not None:
            self._segment.unlink()

    def _end(self, places: list[Place], limit_s: float, seen: int) -> None:
        def running() -> list[Child]:
            return [place.child for place in places if place.child is not None]

        for child in running():
            child.kill(signal.SIGTERM)
        until_ns = time.monotonic_ns() + int(limit_s * 1e9)
        while running() and len(self._signals.received) == seen:
            left_s = (until_ns - time.monotonic_ns()) / 1e9
            if left_s <= 0:
                break
            self._turn(left_s)
        for child in running():
            logger.warning("%s [%d] did not stop in time and is killed", child.title, child.pid)
            child.kill(signal.SIGKILL)
        while running():
            self._turn(None)


def _log_report(report: Report) -> None:
    level = logging.INFO if report.end == "done" else logging.ERROR
    for line in report.lines:
        logger.log(level, "reload: %s", line)
