"""The played kernel in place of the real supervisor's own, and stand-ins for the rest."""

import io
import random
import signal
import socket
import subprocess
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, redirect_stdout
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from simulation.kernel import Kernel, Pipe, Selector, Violation
from simulation.played import Cast, Fault

from ringbatch.engine.models.model_file import HeldFile
from ringbatch.engine.process import placement
from ringbatch.engine.process.cpu_plan import Host
from ringbatch.engine.process.role_commands import ToRole
from ringbatch.engine.process.role_events import FromRole
from ringbatch.engine.supervisor import (
    change_runner,
    child_process,
    cpu_sets,
    first_workers,
    frontends,
    launching,
    listening_sockets,
    process_manager,
    supervisor,
    upkeep,
    worker_pool,
)
from ringbatch.engine.supervisor import signals as signals_module
from ringbatch.engine.supervisor.change_plan import ChangeFailed
from ringbatch.engine.supervisor.change_runner import Effect
from ringbatch.engine.supervisor.child_process import Child, Death
from ringbatch.engine.supervisor.host_gauge import HostGauge
from ringbatch.engine.supervisor.loop import Act, Loop
from ringbatch.engine.supervisor.model_changes import ModelChanges
from ringbatch.engine.supervisor.scaling import Headroom
from ringbatch.engine.supervisor.signals import Signals
from ringbatch.shm.host.control_socket import Order, Report
from ringbatch.shm.layout import Layout
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.model_table import ModelTable
from ringbatch.shm.scalings import Cause
from ringbatch.shm.segment import Segment

LOOK_EVERY_S = 2.0


class House:
    """The surroundings of one supervisor.

    Attributes:
        cast: its processes.
        signals: its handler of signals.
        orders: its server of orders; None if it takes none.
        segment: the engine's, once it is made.
        files: content at each path, as a number that counts the changes.
        let_in: whether clients are in the midst of connecting.
        has_room: whether the host has room for any number of workers.
    """

    def __init__(self, cast: Cast) -> None:
        self.cast = cast
        self.kernel = cast.kernel
        self.signals: PlayedSignals | None = None
        self.orders: PlayedOrders | None = None
        self.files: dict[str, int] = {}
        self.let_in: Callable[[], bool] = lambda: False
        self.has_room = False
        self.segment: PlayedSegment | None = None
        self._outlasting: list[Pipe] = []

    @contextmanager
    def installed(self) -> Iterator[None]:
        """The supervisor's modules find all this."""
        kernel, clock = self.kernel, SimpleNamespace(monotonic_ns=lambda: self.kernel.now_ns)
        played_os = SimpleNamespace(
            environ={}, getcwd=lambda: "/", pidfd_open=kernel.pidfd_open, close=kernel.close
        )
        popen = SimpleNamespace(Popen=kernel.popen, DEVNULL=subprocess.DEVNULL)
        replaced: list[tuple[Any, dict[str, Any]]] = [
            (
                child_process,
                {
                    "os": played_os,
                    "socket": SimpleNamespace(socketpair=kernel.socketpair),
                    "signal": SimpleNamespace(
                        SIGKILL=signal.SIGKILL,
                        Signals=signal.Signals,
                        pidfd_send_signal=kernel.pidfd_send_signal,
                    ),
                    "kill_session": kernel.kill_session,
                },
            ),
            (launching, {"subprocess": popen}),
            (process_manager, {"reap_orphans": lambda _: None}),
            (cpu_sets, {"Child": self._child, "ModelFile": self._file}),
            (
                frontends,
                {
                    "Child": self._child,
                    "Probe": lambda *_: SimpleNamespace(succeeds=lambda: True),
                },
            ),
            (
                listening_sockets,
                {
                    "listen_all": lambda *_, **_more: [Door(kernel)],
                    "hold": lambda *_, **_more: Door(kernel),
                    "listen_for_control": lambda *_: Door(kernel),
                    "refuse_new_connections": lambda _: True,
                    "half_open": lambda _: self.let_in(),
                },
            ),
            (first_workers, {"Segment": SimpleNamespace(create=self._segment)}),
            (change_runner, {"ModelFile": self._file}),
            (worker_pool, {"time": clock}),
            (placement, {"on_cpus": nullcontext, "host": lambda: Host((0, 1), {}, 2)}),
            (signals_module, {"has_terminal": lambda: False}),
            (
                supervisor,
                {
                    "time": clock,
                    "random": kernel.chance,
                    "Loop": lambda: PlayedLoop(self),
                    "Signals": self._signals,
                    "ControlServer": self._control,
                    "ModelChanges": self._changes,
                    "ModelFile": self._file,
                },
            ),
            (
                upkeep,
                {
                    "time": clock,
                    "ModelFileWatch": self._watch,
                    "HostGauge": lambda: PlayedGauge(self),
                },
            ),
        ]
        with ExitStack() as undo:
            for module, names in replaced:
                undo.enter_context(patch.multiple(module, **names))
            undo.enter_context(redirect_stdout(io.StringIO()))
            yield

    def _child(self, *arguments: Any, **more: Any) -> Child:
        return FaultyChild(self.cast, *arguments, **more)

    def _file(self, path: object) -> "PlayedFile":
        return PlayedFile(self.files, str(path))

    def leave(self) -> None:
        """End the supervisor's process: close everything that it never closes."""
        for pipe in self._outlasting:
            pipe.close()

    def _signals(self) -> Signals:
        self.signals = PlayedSignals(self.kernel)
        self._outlasting.append(self.signals.pipe)
        return self.signals

    def _segment(
        self, layout: Layout, models: tuple[ModelSpec, ...], _name: str, _port: int
    ) -> "PlayedSegment":
        segment = PlayedSegment.local(layout, models)
        assert isinstance(segment, PlayedSegment)
        segment.cast = self.cast
        self.cast.segment = self.segment = segment
        segment.model_table = FaultyTable(self.cast, segment)
        return segment

    def _watch(
        self,
        files: Callable[[], Mapping[int, "PlayedFile"]],
        differing: Callable[[], Collection[int]],
    ) -> "PlayedWatch":
        watch = PlayedWatch(self.kernel, files, differing)
        self._outlasting.append(watch)
        return watch

    def _changes(self, *arguments: Any) -> ModelChanges:
        return FaultyChanges(self.cast, *arguments)

    def _control(self, _name: str, loop: Loop) -> "PlayedOrders":
        self.orders = PlayedOrders(self.kernel, loop)
        return self.orders


class PlayedSegment(Segment):
    """A segment that only this process sees, some of whose calls fail as nobody expects.

    Attributes:
        cast: state that the engine's processes share.
        unlinked: whether its name is removed.
    """

    cast: Cast
    unlinked = False

    def serving_lanes(self) -> int:
        """See `Segment.serving_lanes`."""
        return self.cast.serving_lanes

    def unlink(self) -> None:
        """See `Segment.unlink`."""
        self.unlinked = True

    def lost_names(self) -> list[str]:
        """See `Segment.lost_names`."""
        return ["/dev/shm/ringbatch"] if self.cast.names_lost else []

    def worker_ended(self, worker: int, *, by_chance: bool = False) -> None:
        """See `Segment.worker_ended`."""
        self.cast.fails("worker_ended")
        super().worker_ended(worker, by_chance=by_chance)

    def publish_worker_start(self, worker: int, errno: int, again_ns: int = 0) -> None:
        """See `Segment.publish_worker_start`."""
        self.cast.fails("publish_worker_start")
        super().publish_worker_start(worker, errno, again_ns)

    def publish_collector_start(self, errno: int) -> None:
        """See `Segment.publish_collector_start`."""
        self.cast.fails("publish_collector_start")
        super().publish_collector_start(errno)

    def collector_gone(self) -> None:
        """See `Segment.collector_gone`."""
        self.cast.fails("collector_gone")
        super().collector_gone()

    def publish_stopping(self) -> None:
        """See `Segment.publish_stopping`."""
        self.cast.fails("publish_stopping")
        super().publish_stopping()

    def drain(self, *, superseded: bool = False) -> None:
        """See `Segment.drain`."""
        self.cast.fails("drain")
        super().drain(superseded=superseded)


class PlayedLoop(Loop):
    """The loop, which waits with the played selector. What is caught in it is what was meant to
    be."""

    def __init__(self, house: House) -> None:
        super().__init__(Selector(house.kernel))
        self._house = house

    def guard(self, act: Act, contain: Act | None = None) -> None:
        """See `Loop.guard`."""

        def watched() -> None:
            try:
                act()
            except (Fault, ChangeFailed) as fault:
                self._house.kernel.log(f"a fault: {fault}")
                raise
            except Exception as error:
                raise Violation(f"{type(error).__name__}: {error}") from error

        super().guard(watched, contain)


class FaultyTable(ModelTable):
    """A table that is sometimes not to be published, as nobody expects."""

    def __init__(self, cast: Cast, segment: PlayedSegment) -> None:
        super().__init__(segment.words, segment.memory, segment.layout)
        self._cast = cast

    def publish(self, models: tuple[ModelSpec, ...]) -> int:
        """See `ModelTable.publish`."""
        self._cast.fails("publish")
        before = self.read()[1]
        number = super().publish(models)
        self._cast.published(before, models)
        return number


class FaultyChanges(ModelChanges):
    """Changes that sometimes fail between two steps, as nobody expects."""

    def __init__(self, cast: Cast, *arguments: Any) -> None:
        self._cast = cast
        super().__init__(*arguments)

    def advance(self) -> list[Effect]:
        """See `ModelChanges.advance`."""
        self._cast.fails("advance")
        return super().advance()


class FaultyChild(Child):
    """A child, some of whose calls fail as nobody expects."""

    def __init__(self, cast: Cast, *arguments: Any, **more: Any) -> None:
        self._cast = cast
        super().__init__(*arguments, **more)

    def send(self, message: ToRole) -> None:
        """See `Child.send`."""
        self._cast.fails(f"send {type(message).__name__}")
        super().send(message)

    def receive(self) -> list[FromRole] | None:
        """See `Child.receive`."""
        self._cast.fails("hear")
        return super().receive()

    def kill(self, number: signal.Signals) -> None:
        """See `Child.kill`."""
        self._cast.fails("kill")
        super().kill(number)

    def unread_messages(self) -> list[FromRole]:
        """See `Child.unread_messages`."""
        self._cast.fails("unread_messages")
        return super().unread_messages()

    def reap(self, why_killed: Callable[[], str] = str) -> Death:
        """See `Child.reap`."""
        self._cast.fails("reap")
        return super().reap(why_killed)


class PlayedGauge(HostGauge):
    """A host that has room, or not, or fails as nobody expects."""

    def __init__(self, house: House) -> None:
        super().__init__(lambda _: None, lambda: None, lambda: 2)
        self._house = house
        self._chance = random.Random("room")

    def look(self, now_ns: int, pids: Iterable[int]) -> None:
        """See `HostGauge.look`."""
        self._house.cast.fails("look")
        super().look(now_ns, pids)

    def room(
        self, pids: Iterable[int], starting: Iterable[tuple[Iterable[int], int]] = ()
    ) -> Headroom:
        """See `HostGauge.room`."""
        if self._house.has_room:
            return super().room(pids, starting)
        return Headroom(self._chance.randrange(3), Cause.MEMORY)


class PlayedSignals(Signals):
    """Signals that nobody sends."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.pipe = Pipe(kernel)

    def catch(self, loop: Loop) -> None:
        """See `Signals.catch`."""
        loop.watch(self.pipe, self._empty)

    def _empty(self) -> None:
        self.pipe.readable = False

    def come(self, number: int) -> None:
        """Send a signal to the supervisor."""
        if number == signal.SIGHUP:
            self._hangups += 1
        else:
            self.received.append(number)
        self.pipe.readable = True


class PlayedOrders:
    """The socket on which orders come.

    Attributes:
        reports: outcome of each order, by its number; None until it is known.
        open: whether any may come.
        taken: whether they are taken by now.
    """

    def __init__(self, kernel: Kernel, loop: Loop) -> None:
        self.reports: dict[int, Report | None] = {}
        self.open = True
        self.taken = False
        self._loop = loop
        self._come: list[tuple[int, Order]] = []
        self._pipe = Pipe(kernel)

    def take_orders(self, take: Callable[..., None], _hand_over: object) -> None:
        """See `ControlServer.take_orders`."""
        self._take = take
        self.taken = True
        self._loop.watch(self._pipe, self._accept, self.close)

    def order(self, order: Order) -> None:
        """Send an order to the engine."""
        if self.open:
            self._come.append((len(self.reports), order))
            self.reports[len(self.reports)] = None
            self._pipe.readable = True

    def _accept(self) -> None:
        self._pipe.readable = False
        while self._come:
            number, order = self._come.pop(0)
            self._take(order, lambda report, number=number: self._answer(number, report))

    def _answer(self, number: int, report: Report) -> None:
        if self.reports[number] is not None:
            raise Violation(f"order {number} is answered twice")
        self.reports[number] = report

    def close(self) -> None:
        """See `ControlServer.close`."""
        if self.open:
            self.open = False
            self._loop.forget(self._pipe)
            self._pipe.close()
            for number, _ in self._come:
                del self.reports[number]
            self._come.clear()


class PlayedFile:
    """The file that lay at a path when it was opened."""

    fds = ()

    def __init__(self, files: Mapping[str, int], path: str) -> None:
        self.path = path
        self._files = files
        self._number = files.get(path, 0)

    def kept(self) -> HeldFile:
        """See `ModelFile.kept`."""
        return HeldFile(-1, (self._number,), copied=False)

    def differs(self) -> bool:
        """See `ModelFile.differs`."""
        return self._files.get(self.path, 0) != self._number


class PlayedWatch(Pipe):
    """The look at files, without a thread."""

    def __init__(
        self,
        kernel: Kernel,
        files: Callable[[], Mapping[int, PlayedFile]],
        differing: Callable[[], Collection[int]],
    ) -> None:
        super().__init__(kernel)
        self._files = files
        self._differing = differing
        self._found: frozenset[int] = frozenset()
        kernel.after(LOOK_EVERY_S, self._look)

    def take(self) -> frozenset[int]:
        """See `ModelFileWatch.take`."""
        self.readable = False
        return self._found

    def _look(self) -> None:
        found = frozenset(ref for ref, file in dict(self._files()).items() if file.differs())
        if found != frozenset(self._differing()):
            self._found = found
            self.readable = True
        self._kernel.after(LOOK_EVERY_S, self._look)


class Door(Pipe):
    """A listening socket, to which nobody comes."""

    def getsockname(self) -> tuple[str, int]:
        """See `socket.socket.getsockname`."""
        return "127.0.0.1", 8080

    @property
    def family(self) -> int:
        """See `socket.socket.family`."""
        return socket.AF_INET

    def __enter__(self) -> "Door":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
