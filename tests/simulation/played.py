"""The processes of an engine as its supervisor meets them: they start, say what they say, and end.

What the collector tells the supervisor it tells as the real one, which is stepped here. Of workers
there is what precedes the first batch; of frontends, that they serve.
"""

import random
import signal
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, Final, TypeVar, cast

from simulation.kernel import Kernel, Popen, S, Violation
from simulation.process import Process

from ringbatch.engine.collector.collector import Collector
from ringbatch.engine.process.role_commands import (
    START_WORKER,
    AttachSegment,
    Dismiss,
    Drain,
    ReadTable,
    ReclaimWorker,
    StartCollector,
    StartWorker,
    ToRole,
)
from ringbatch.engine.process.role_events import (
    FromRole,
    ModelEvent,
    Signature,
    StandingBy,
    WarmUpStarted,
    WorkerHung,
    WorkerReclaimed,
    WorkerReleased,
)
from ringbatch.engine.worker.runner import Runner
from ringbatch.engine.worker.worker import Worker
from ringbatch.shm.descriptors import WorkerState, WorkerWords
from ringbatch.shm.engine_slots import EngineSlots
from ringbatch.shm.host.messages import Beat, Failed, Ready, Vocabulary, encode
from ringbatch.shm.model_spec import LOADING, SERVING, ModelSpec
from ringbatch.shm.segment import Segment

SIGNATURE: Final = Signature((), ())
BEAT_S: Final = 3.0
_COMMANDS: Final = Vocabulary[ToRole](
    StartWorker, AttachSegment, Dismiss, StartCollector, ReclaimWorker, ReadTable, Drain
)

M = TypeVar("M", bound="Member")


class Fault(Exception):
    """An exception that no code expects."""


class Cast:
    """State that the processes of one engine have in common.

    Attributes:
        kernel: theirs.
        segment: the engine's, once it is made.
        collector: the process that has the collector's lock.
        workers: the living processes of workers by number.
        unreclaimed: the numbers of those that have ended and were known to a collector.
        unsound: what models fail with at their declared shapes, each a path and the number of the
            content there.
        seen: number of events, by kind.
        slips: whether a process that is about to do something does not.
        fails: raises what nobody expects, where a call is to.
        explained: of the deaths of workers, those that the collector explains.
        names_lost: whether somebody has removed the segment's names, so that nobody can attach.
        haste: the share of the usual time that processes take for what takes a while.
    """

    names_lost = False
    haste = 1.0
    explained = 0.3

    def __init__(self, chance: random.Random) -> None:
        self.kernel = Kernel(chance, self._spawn)
        self.segment: Segment | None = None
        self.collector: CollectorProcess | None = None
        self.workers: dict[int, WorkerProcess] = {}
        self.unreclaimed: set[int] = set()
        self.unsound: set[tuple[str, int]] = set()
        self.seen: Counter[str] = Counter()
        self.slips: Callable[[Member, str], bool] = lambda *_: False
        self.fails: Callable[[str], None] = lambda _: None
        self._waiting: list[CollectorProcess] = []

    def _spawn(self, pid: int, call: Popen) -> "Member":
        kind = _KINDS[call.words[0]]
        process = kind(self, pid, call)
        if kind is not WorkerProcess:
            alike = [other for other in self.living(kind) if other.parts == process.parts]
            most = 2 if kind is CollectorProcess else 1
            if len(alike) >= most:
                raise Violation(f"{process} is one too many beside {alike[0]}")
        self.kernel.log(f"{process} is started")
        if self.names_lost and kind is not WorkerProcess:
            process.takes(0.05, 1.0, process.find_no_segment)
        else:
            process.begin()
        return process

    def living(self, kind: type[M]) -> list[M]:
        """The processes of a role that have not ended."""
        return [process for process in self.kernel.running if isinstance(process, kind)]

    @property
    def serving_lanes(self) -> int:
        """Number of frontends that serve."""
        return sum(one.serves for kind in (Arbiter, GrpcFrontend) for one in self.living(kind))

    def wait_for_lock(self, process: "CollectorProcess") -> None:
        """Let a process wait for the collector's lock."""
        self._waiting.append(process)
        self.kernel.after(0, self.hand_on_lock)

    def hand_on_lock(self) -> None:
        """Hand the lock to a waiting process that is not stopped."""
        if self.collector is None or self.collector.ended:
            self.collector = None
            able = [p for p in self._waiting if not (p.ended or p.stopped)]
            if able:
                self.collector = able[0]
                self._waiting.remove(able[0])
                able[0].after(0.01, able[0].take_over)

    def published(self, before: Collection[ModelSpec], now: Collection[ModelSpec]) -> None:
        """Note that the supervisor has published another table, and check it.

        Raises:
            Violation: a model serves that fails at its declared shape, or nobody serves one that is
                loaded anew.
        """
        served = {spec.reference for spec in before if spec.state == SERVING}
        for spec in now:
            if spec.state == SERVING and spec.reference not in served:
                workers = [self.workers[n] for n in spec.workers if n in self.workers]
                if unsound := [worker for worker in workers if worker.is_unsound]:
                    raise Violation(f"{spec.name} serves, and {unsound[0]} fails in warm-up")
        self._expect_warm(before, now)
        names = {spec.name for spec in before if spec.state == SERVING}
        names -= {spec.name for spec in now if spec.state == SERVING}
        if lost := names & {spec.name for spec in now if spec.state == LOADING}:
            raise Violation(f"nobody serves {min(lost)} while it is loaded anew")

    def _expect_warm(self, before: Collection[ModelSpec], now: Collection[ModelSpec]) -> None:
        """Assert that, if the load lets workers go, all that stay are ready."""
        earlier = {spec.reference: spec for spec in before}
        for spec in now:
            was = earlier.get(spec.reference, spec)
            gone = [self.workers.get(n) for n in was.workers if n not in spec.workers]
            if not (gone and spec.most and spec == replace(was, workers=spec.workers)):
                continue
            if self.seen["a fault"] or not all(worker and worker.serves for worker in gone):
                continue  # a change that is undone
            staying = [self.workers[n] for n in spec.workers if n in self.workers]
            if cold := [worker for worker in staying if not (worker.serves or worker.ended)]:
                raise Violation(f"workers of {spec.name} are let go, and {cold[0]} is not ready")

    @property
    def standby(self) -> "CollectorProcess | None":
        """Collector process that waits for the lock; None without one."""
        return next((p for p in self._waiting if not p.ended), None)


class Member(Process):
    """A process of an engine.

    Attributes:
        serves: whether it does what it is for.
        parts: parts of its title that tell it from others of its role.
    """

    def __init__(self, cast_: Cast, pid: int, call: Popen) -> None:
        super().__init__(cast_.kernel, pid, call.control)
        self.cast = cast_
        self.serves = False
        self.parts = [word for word in call.words if word.startswith("--number=")]
        self._unread = b""
        if self.control is not None:
            self.control.on_received = self.reached

    def begin(self) -> None:
        """Begin, as a process that has been started."""

    @property
    def well(self) -> bool:
        """True if the process serves, and neither ended, hangs nor is stopped."""
        return self.serves and not (self.ended or self.hangs or self.stopped)

    def signalled(self, number: int) -> None:
        """See `Process.signalled`."""
        if number == signal.SIGABRT and self.well and not isinstance(self, WorkerProcess):
            raise Violation(f"{self} moves, and is taken for hung")
        super().signalled(number)

    def takes(self, least_s: float, most_s: float, act: Callable[[], object]) -> None:
        """Do something that takes a while, unless it slips."""
        step = act.__name__
        self.after(
            self.cast.haste * self.kernel.chance.uniform(least_s, most_s),
            lambda: None if self.cast.slips(self, step) else act(),
        )

    def send(self, message: FromRole) -> None:
        """Say something on the control socket."""
        self.write(encode(message))

    def write(self, data: bytes) -> None:
        """Write anything there; who finds no room waits for ever."""
        assert self.control is not None
        try:
            self.control.send(data)
        except BlockingIOError:
            self.hangs = True
        except BrokenPipeError:
            self.end(1)

    def find_no_segment(self) -> None:
        """Fail to attach to the segment, and end."""
        if self.control is not None:
            self.send(Failed("the engine's shared memory is gone"))
        self.end(1)

    def reached(self, data: bytes) -> None:
        """Receive bytes at its socket."""
        self.after(0.001, self._read)

    def _read(self) -> None:
        assert self.control is not None
        data = b""
        while self.control.readable and (more := self.control.recv(1 << 16)):
            data += more
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            self.on_message(_COMMANDS.decode(line))

    def on_message(self, message: ToRole) -> None:
        """Handle a message of the supervisor."""


class WorkerProcess(Member):
    """A worker until its first batch.

    Attributes:
        path: of its model, once it has been told.
    """

    title = "worker"
    path = ""
    number = -1
    known = released = is_unsound = False

    def on_message(self, message: ToRole) -> None:
        """See `Member.on_message`."""
        if isinstance(message, StartWorker):
            held, (number,) = message.model, message.file.stamp
            required = held.warm_up is not None and held.warm_up.required
            self.path = held.path
            self.is_unsound = required and (held.path, number) in self.cast.unsound
            self.takes(0.05, 2.0, self.say_signature)
        elif isinstance(message, AttachSegment):
            lost = self.cast.names_lost
            self.takes(0.05, 2.0, self.find_no_segment if lost else self.warm_up)

    def reached(self, data: bytes) -> None:
        """See `Member.reached`; its number counts from the moment that it is given one."""
        super().reached(data)
        if self.number < 0:
            self._is(START_WORKER.decode(data.partition(b"\n")[0]).number)

    def _is(self, number: int) -> None:
        if (other := self.cast.workers.get(number)) is not None and not other.ended:
            raise Violation(f"worker {number} is started beside {other}")
        if number in self.cast.unreclaimed:
            raise Violation(
                f"worker {number} is started before what the last one held is reclaimed"
            )
        self.number = number
        self.title = f"worker {number}"
        self.cast.workers[number] = self

    def say_signature(self) -> None:
        """Send the signature of the opened model."""
        self.send(SIGNATURE)

    def warm_up(self) -> None:
        """Warm up the loaded model."""
        self._says(WorkerState.WARMING)
        self.known = True
        self.send(WarmUpStarted())
        self.takes(0.05, 1.0, self.fail_in_warm_up if self.is_unsound else self.get_ready)

    def fail_in_warm_up(self) -> None:
        """Fail in warm-up at the declared shape, at which no model should fail."""
        self.cast.seen["a model fails in warm-up"] += 1
        self.send(Failed("the model fails at its declared shape"))
        self.end(1)

    def get_ready(self) -> None:
        """Take batches from now on."""
        segment = self.cast.segment
        assert segment is not None
        mine = [spec for spec in segment.model_table.read()[1] if self.number in spec.workers]
        if not mine:
            # The table has it no longer.
            self.end(1)
            return
        segment.words[segment.layout.worker(self.number) + WorkerWords.MODEL] = mine[0].reference
        self._says(WorkerState.READY)
        self.serves = True
        nobody = cast(Any, None)
        clock = lambda: self.kernel.now_ns  # noqa: E731
        Worker(
            segment, self.number, cast(Runner, nobody), cast(EngineSlots, nobody), self._ring, clock
        ).begin()
        self.send(Ready())

    def fail(self) -> None:
        """Fail every request of the model from now on."""
        segment = self.cast.segment
        if segment is not None and self.serves:
            segment.words[segment.layout.worker(self.number) + WorkerWords.FAILING] = 8
            self.cast.seen["a model fails every request"] += 1

    def gone(self) -> None:
        """See `Process.gone`."""
        if self.known and not self.released:
            self.cast.unreclaimed.add(self.number)

    def _says(self, state: WorkerState) -> None:
        segment = self.cast.segment
        assert segment is not None
        segment.words[segment.layout.worker(self.number) + WorkerWords.STATE] = state

    def _ring(self) -> None:
        if self.cast.collector is not None:
            self.cast.collector.wake()


class CollectorProcess(Member):
    """The collector, or the one that stands by."""

    title = "collector"
    collector: Collector | None = None

    def begin(self) -> None:
        """See `Member.begin`."""
        self._deaths: list[ReclaimWorker] = []
        self._wakes = False
        self._hung: set[int] = set()
        self.takes(0.05, 1.0, self.stand_by)

    def on_message(self, message: ToRole) -> None:
        """See `Member.on_message`."""
        if isinstance(message, ReclaimWorker):
            self._deaths.append(message)
        self.wake()

    def stand_by(self) -> None:
        """Wait for the collector's lock."""
        self.send(StandingBy())
        self.cast.wait_for_lock(self)

    def take_over(self) -> None:
        """Become the collector, with its lock held."""
        if self.cast.slips(self, "take_over"):
            return
        segment = self.cast.segment
        assert segment is not None
        self.collector = Collector(
            segment,
            lambda _lane: None,
            lambda _worker: None,
            end_worker=lambda number: self.send(WorkerHung(number)),
            notify_supervisor=self._say,
        )
        self.collector.start(self.kernel.now_ns)
        self.serves = True
        self.send(Ready())
        self._turn()
        self._beat()

    def _say(self, message: ModelEvent) -> None:
        if isinstance(message, WorkerReleased):
            # It holds nothing, so there will be nothing to take back.
            self.cast.unreclaimed.discard(message.worker)
            if (worker := self.cast.workers.get(message.worker)) is not None:
                worker.released = True
        self.send(message)

    def wake(self) -> None:
        """Wake up for a ring of the doorbell."""
        if self.collector is not None and not self._wakes:
            self._wakes = True
            self.after(self.kernel.chance.uniform(0.0001, 0.01), self._turn)

    def _beat(self) -> None:
        self.wake()
        self.after(BEAT_S, self._beat)

    def _turn(self) -> None:
        self._wakes = False
        assert self.collector is not None
        if self.cast.slips(self, "step"):
            return
        while self._deaths:
            died = self._deaths.pop(0)
            self.collector.worker_died(died.worker, self.kernel.now_ns, killed=died.killed)
            self.cast.unreclaimed.discard(died.worker)
            self.send(
                WorkerReclaimed(died.worker, self.kernel.chance.random() < self.cast.explained)
            )
        until_ns = self.collector.step(self.kernel.now_ns)
        if until_ns is not None:
            self.after(max(0.01, (until_ns - self.kernel.now_ns) / S), self.wake)
        for number, worker in self.cast.workers.items():
            if worker.serves and (worker.hangs or worker.stopped) and worker.pid not in self._hung:
                self._hung.add(worker.pid)
                self.send(WorkerHung(number))

    def gone(self) -> None:
        """See `Process.gone`."""
        if self is self.cast.collector:
            self.cast.hand_on_lock()


class Arbiter(Member):
    """Gunicorn's arbiter, and its frontends."""

    title = "arbiter"

    def begin(self) -> None:
        """See `Member.begin`."""
        self.takes(0.1, 1.0, self.serve)

    def serve(self) -> None:
        """Serve from now on."""
        self.serves = True


class GrpcFrontend(Member):
    """A process that says that it moves."""

    title = "grpc frontend"

    def begin(self) -> None:
        """See `Member.begin`."""
        self.takes(0.1, 1.0, self.serve)

    def serve(self) -> None:
        """Serve from now on, and report it."""
        self.serves = True
        self.send(Ready())
        self.beat()

    def beat(self) -> None:
        """Report that it still serves, again and again."""
        self.send(Beat())
        self.takes(BEAT_S, BEAT_S, self.beat)


class ControlProcess(GrpcFrontend):
    """The process at the control address."""

    title = "control server"


_KINDS: Final[dict[str, type[Member]]] = {
    "ringbatch.engine.worker.role": WorkerProcess,
    "ringbatch.engine.collector.role": CollectorProcess,
    "ringbatch.frontend": Arbiter,
    "ringbatch.frontend.grpc.server": GrpcFrontend,
    "ringbatch.frontend.metrics.control_server": ControlProcess,
}
