"""Life of the real supervisor among simulated processes: does it end, or serve?

For a while anything may happen, as the seed says. Then everybody behaves. The whole engine must
serve within a bounded time. It may instead have ended with a status, if somebody asked for its end
or a fault of its own took it down.
"""

import errno
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from simulation.configs import first_config, other_config, path_of
from simulation.house import House, PlayedSignals
from simulation.kernel import S, Violation
from simulation.played import (
    Arbiter,
    Cast,
    CollectorProcess,
    ControlProcess,
    Fault,
    GrpcFrontend,
    Member,
    WorkerProcess,
)

from ringbatch.engine.config.settings import Config
from ringbatch.engine.process.role_events import (
    EntryDrained,
    EntryLoaded,
    FailsAll,
    Signature,
    StandingBy,
    WarmUpStarted,
    WorkerReclaimed,
    WorkerReleased,
)
from ringbatch.engine.supervisor.supervisor import Supervisor
from ringbatch.shm.counters import ModelCounter
from ringbatch.shm.descriptors import HeaderWords, ModelWords, WorkerWords
from ringbatch.shm.errors import StartupError
from ringbatch.shm.host.control_socket import Action, Order, Report
from ringbatch.shm.host.messages import Beat, Failed, Ready, encode
from ringbatch.shm.model_spec import INDEX_MASK, SERVING, ModelSpec
from ringbatch.shm.tensor import Tensor

REFUSALS: Final = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)
SERVES_WITHIN_S: Final = 1_500.0
"""Time for the engine to serve; each order waits for those before it, with their whole limits."""
ENDS_WITHIN_S: Final = 120.0
_LOOK_EVERY_S: Final = 1.0
_UNSOUND: Final = 0.4
"""Share of a model file's possible contents that fail at the declared shape."""
_UNSOUND_AT_FIRST: Final = 0.05
_FAULTY: Final = (
    "all",
    "reap",
    "collector_gone",
    "drain",
    "hear",
    "kill",
    "look",
    "unread_messages",
    "publish",
    "publish_collector_start",
    "publish_stopping",
    "publish_worker_start",
    "send ReclaimWorker",
    "send Drain",
    "send StartWorker",
    "send AttachSegment",
    "send ReadTable",
    "worker_ended",
    "advance",
)
"""Calls in which what nobody expects is raised."""
LOAD_EVERY_S: Final = 0.5
_LOAD_CHANGES: Final = 0.05
_NAMES_LOST: Final = 0.1
"""Share of lives in which somebody removes the engine's names from /dev/shm."""
_MAY_BE_LEFT_OUT: Final = (
    "something happens to a process",
    "the collector and the standby die",
    "the host is suspended",
    "the supervisor is stopped",
    "SIGTERM",
)
"""Lives differ most where each has some kinds of misfortune alone."""
_FAILS_ALL: Final = encode(FailsAll(8, "it raised OSError", 2 * S))
_NONSENSE: Final = (
    *[_FAILS_ALL] * 5,
    b"\n",
    b"}\n",
    b'{"type": "WorkerHung", "worker": 1',
    b'{"type": "WorkerHung", "worker": true}\n',
    encode(Beat()),
    encode(WarmUpStarted()),
    encode(EntryLoaded(99)) + encode(EntryDrained(98)),
    encode(Failed("as I say")),
    encode(Signature((), (Tensor("y", "FP32", [1]),))),
    b"[" * 4000 + b"\n",
)
_NONSENSE_OF_OTHERS: Final = (
    encode(Ready()),
    encode(StandingBy()),
    encode(WorkerReclaimed(0, explained=True)),
    encode(WorkerReleased(0)),
)


class Load(NamedTuple):
    """The load of every model whose workers are a range.

    Attributes:
        wait_ns: predicted, where somebody serves it.
        rows: rows that come in LOAD_EVERY_S.
    """

    wait_ns: int
    rows: int


IDLE: Final = Load(0, 0)
MUCH: Final = Load(S, 10)


class Life:
    """Life of a supervisor, which `run` lets pass.

    Attributes:
        seen: number of events, by kind.
        ends: number of ends, by kind.
        story: the same, as it went.

    Args:
        seed: decides everything.
        calm: whether nothing goes wrong.
    """

    def __init__(self, seed: int, *, calm: bool = False) -> None:
        self.seen: Counter[str] = Counter()
        self.ends: Counter[str] = Counter()
        self._chance = chance = random.Random(seed)
        self._contents = random.Random(f"contents of files {seed}")
        self._loads = random.Random(f"loads {seed}")
        self._load = IDLE
        self._cast = Cast(chance)
        self._cast.seen = self.seen
        self._kernel = self._cast.kernel
        self._house = House(self._cast)
        self.story = self._kernel.story
        self._config = first_config(chance, self._loads)
        if not calm and self._contents.random() < _UNSOUND_AT_FIRST:
            self._cast.unsound.add((str(path_of("a")), 0))
        self._unloaded: set[str | None] = set()
        self._wild = False
        self._asked_ns: int | None = None
        self._calm_ns = self._resumed_ns = 0
        self._liars: list[Member] = []
        self._supervisor: Supervisor | None = None
        self._slip_rate = chance.choice([0, 0.02, 0.1, 0.4])
        self._refuse_rate = chance.choice([0, 0, 0.1, 0.5, 0.95])
        self._fault_rate = chance.choice([0, 0, 0.01, 0.05, 0.3])
        self._faulty = chance.choice(_FAULTY)
        self._every_s = chance.choice([0.05, 0.5, 3.0])
        self._left_out = {kind for kind in _MAY_BE_LEFT_OUT if chance.random() < 0.4}
        self._cast.slips = self._slips
        self._cast.fails = self._fails
        self._kernel.refuses = self._refuses
        begins_s = chance.choice([0.0, 8.0, 8.0, 25.0])
        if not calm:
            self._kernel.after(begins_s, self._go_wild)
            names = random.Random(f"names {seed}")
            if names.random() < _NAMES_LOST:
                self._kernel.after(begins_s + names.uniform(0.0, 20.0), self._remove_names)
        self._kernel.after(begins_s + chance.choice([2.0, 10.0, 40.0]), self._behave)
        self._kernel.after(LOAD_EVERY_S, self._requests_come)

    def run(self) -> None:
        """Play the life.

        Raises:
            Violation: something does not hold.
        """
        with self._house.installed():
            try:
                self._supervisor = supervisor = Supervisor(self._config, self._reread)
                try:
                    end = f"status {supervisor.run()}"
                finally:
                    supervisor.frontends.close()
            except StartupError as error:
                end = "not started"
                self._kernel.log(f"it does not start: {error}")
            except Fault as fault:
                end = "fault"
                self._kernel.log(f"it ends by {fault}")
        self.ends[end] += 1
        self._check_end(end)

    # What may happen

    def _go_wild(self) -> None:
        self._kernel.log("from now on anything may happen")
        self._wild = True
        self._happens()

    def _happens(self) -> None:
        if self._wild:
            kind, act = self._chance.choice(
                [(kind, act) for kind, act in self._misfortunes if kind not in self._left_out]
            )
            self.seen[kind] += 1
            self._kernel.log(kind)
            act()
            self._kernel.after(self._chance.expovariate(1 / self._every_s), self._happens)

    @property
    def _misfortunes(self) -> list[tuple[str, Callable[[], object]]]:
        return [
            *[("something happens to a process", self._harm_one)] * 6,
            ("the collector and the standby die", self._harm_both),
            ("the host is suspended", self._suspend),
            ("the supervisor is stopped", self._stop_supervisor),
            ("an order is given", self._order),
            ("an order is given", self._order),
            ("SIGHUP", lambda: self._signal(signal.SIGHUP)),
            ("a model file changes", self._change_file),
            ("a client is connecting", self._connect),
            *[("SIGTERM", lambda: self._signal(signal.SIGTERM))] * (self._chance.random() < 0.1),
        ]

    def _remove_names(self) -> None:
        if self._wild and self._house.segment is not None:
            self.seen["the names are removed"] += 1
            self._kernel.log("the engine's names are removed")
            self._cast.names_lost = True

    def _length_s(self) -> float:
        return self._chance.choice([0.5, 5.0, 30.0, 400.0])

    def _suspend(self) -> None:
        # Single suspensions, as only several in a row would make a process count as hung.
        if self._kernel.now_ns - self._resumed_ns > 10 * S:
            self._kernel.suspend(self._length_s())
            self._resumed_ns = self._kernel.now_ns

    def _stop_supervisor(self) -> None:
        self._kernel.stopped_until_ns = self._kernel.now_ns + int(self._length_s() * S)

    def _connect(self) -> None:
        until_ns = self._kernel.now_ns + int(self._length_s() * S)
        self._house.let_in = lambda: self._kernel.now_ns < until_ns

    def _harm_one(self) -> None:
        if running := self._cast.living(Member):
            self._harm(self._chance.choice(running))

    def _harm_both(self) -> None:
        for process in self._cast.living(CollectorProcess):
            process.end(-signal.SIGKILL)

    def _slips(self, process: Member, step: str) -> bool:
        """Return whether a misfortune happens to a process instead of its next act."""
        rate = self._slip_rate / 10 if step in ("step", "beat") else self._slip_rate
        if not self._wild or self._chance.random() >= rate:
            return False
        self.seen["a process slips"] += 1
        self._kernel.log(f"{process} slips before {step}")
        if not self._harm(process):
            return False
        goes_on = step in ("step", "beat") or self._chance.random() < 0.1
        return process.ended or process.hangs or process.stopped or not goes_on

    def _harm(self, process: Member) -> bool:
        """Do something to a process; whether there was something to do."""
        chance = self._chance
        kind = chance.choice(["exit", "signal", "hang", "stop", "device", "orphan", "nonsense"])
        watched = not isinstance(process, Arbiter)
        if chance.random() < 0.1:
            process.parent_of = True
        if kind == "exit" or (kind == "orphan" and chance.random() < 0.5):
            process.end(chance.choice([0, 1, 3, 255]))
        elif kind in ("signal", "orphan"):
            process.end(-chance.randint(1, 64))
        elif kind == "stop" and watched:
            process.signalled(signal.SIGSTOP)
        elif kind in ("hang", "device") and watched:
            process.hangs = True
            if kind == "device":
                process.lingers_s = chance.choice([0.1, 3.0, 20.0])
        elif process.control is not None:
            self._liars.append(process)
            # What the collector says of itself and of workers, it alone can know.
            known = _NONSENSE_OF_OTHERS * (not isinstance(process, CollectorProcess))
            message = chance.choice(_NONSENSE + known)
            self._kernel.log(f"{process} says {message[:40]!r}")
            if message is _FAILS_ALL and isinstance(process, WorkerProcess):
                process.fail()
            process.write(message)
            return True
        else:
            return False
        self._kernel.log(f"{process}: {kind}")
        return True

    def _refuses(self, call: str) -> int:
        if self._wild and self._chance.random() < self._refuse_rate:
            self.seen[f"{call} refused"] += 1
            return self._chance.choice(REFUSALS)
        return 0

    def _fails(self, call: str) -> None:
        assert self._supervisor is not None
        if self._supervisor._loop.broken:
            return  # one is enough
        if not self._wild or self._faulty not in (call, "all"):
            return
        if self._chance.random() < self._fault_rate:
            self.seen["a fault"] += 1
            raise Fault(call)

    def _signal(self, number: int) -> None:
        signals = self._house.signals
        assert isinstance(signals, PlayedSignals)
        signals.come(number)
        if number != signal.SIGHUP and self._asked_ns is None:
            self._asked_ns = self._kernel.now_ns

    def _order(self) -> None:
        if self._house.orders is not None:
            action: Action = self._chance.choice(["reload", "load", "unload"])
            name = self._chance.choice(["a", "b", "c"])
            model = None if action == "reload" and self._chance.random() < 0.7 else name
            self._house.orders.order(Order(action, model))
            self._unloaded |= {model} if action == "unload" else set()
            self._kernel.log(f"{action} {model or ''}")

    def _change_file(self) -> None:
        path = str(path_of(self._chance.choice("ab")))
        self._house.files[path] = number = self._house.files.get(path, 0) + 1
        if self._contents.random() < _UNSOUND:
            self._kernel.log(f"the model at {path} fails at its declared shape")
            self._cast.unsound.add((path, number))

    def _reread(self) -> Config:
        return other_config(self._config, self._chance, self._loads)

    def _requests_come(self) -> None:
        """Publish the load in the collector's place, because that gets no requests here."""
        segment = self._cast.segment
        if self._loads.random() < _LOAD_CHANGES and self._asked_ns is None and not self._calm_ns:
            self._load = self._loads.choice((IDLE, MUCH))
        if segment is not None:
            words, layout = segment.words, segment.layout
            for spec in filter(lambda spec: spec.most, segment.model_table.read()[1]):
                first = layout.model(spec.index)
                answered = words[first + ModelWords.READY] > 0
                words[first + ModelWords.ANSWER_NS] = self._load.wait_ns * answered
                place = layout.model_counters(spec.account & INDEX_MASK)
                words[place + ModelCounter.ROWS] += self._load.rows
        self._kernel.after(LOAD_EVERY_S, self._requests_come)

    # What must follow

    def _behave(self) -> None:
        """Everybody does what is expected from now on, but those who hang already."""
        self._kernel.log("from now on everybody behaves")
        self._wild = False
        self._house.let_in = lambda: False
        self._kernel.stopped_until_ns = 0
        self._calm_ns = self._kernel.now_ns
        self._house.has_room = True
        for process in self._liars:
            process.end(1)
        self._look()

    def _look(self) -> None:
        """Look whether the engine serves; where it does, have it end."""
        kernel = self._kernel
        if self._asked_ns is not None:
            self._await_end()
            return
        if not (missing := self._missing()):
            self.ends["serves"] += 1
            kernel.log("it serves")
            self._signal(signal.SIGTERM)
            self._await_end()
        elif kernel.now_ns - self._calm_ns > SERVES_WITHIN_S * S:
            raise Violation(f"it neither serves nor ends: {missing}")
        else:
            kernel.after(_LOOK_EVERY_S, self._look)

    def _await_end(self) -> None:
        def late() -> None:
            raise Violation("it was asked to end, and does not")

        self._kernel.after(ENDS_WITHIN_S, late)

    def _missing(self) -> str:
        """Return what the engine lacks to serve; empty if nothing."""
        cast, supervisor = self._cast, self._supervisor
        if cast.names_lost:
            return "nobody can attach"
        segment, orders = cast.segment, self._house.orders
        if supervisor is None or segment is None or orders is None:
            return "it has not started"
        if None in orders.reports.values():
            return "an order has no answer"
        collector, standby = cast.collector, cast.standby
        if collector is None or not collector.well:
            return "there is no collector"
        if standby is None:
            return "nobody stands by"
        kinds: tuple[type[Member], ...] = (Arbiter, GrpcFrontend, ControlProcess)
        for kind in kinds:
            if not any(one.well for one in cast.living(kind)):
                return f"there is no {kind.title}"
        entries = segment.model_table.read()[1]
        if states := {spec.state for spec in entries} - {SERVING}:
            return f"a model is {states}"
        if len({(spec.name, spec.version) for spec in entries}) < len(entries):
            return "a model is served once, not twice"
        if not {"a"} <= {spec.name for spec in entries} | self._unloaded:
            return "a model is served no longer that always was to be"
        if unsettled := self._unsettled(entries):
            return unsettled
        numbers = {number for spec in entries for number in spec.workers}
        for number in numbers:
            worker = cast.workers.get(number)
            if worker is None or not worker.well:
                return f"worker {number} is not there"
            if segment.words[segment.layout.worker(number) + WorkerWords.ERRNO]:
                return f"worker {number} is said not to start"
        if segment.words[HeaderWords.COLLECTOR_ERRNO] or not segment.collector_ns:
            return "there is said to be no collector"
        if others := [w for w in cast.living(WorkerProcess) if w.number not in numbers]:
            return f"{others[0]} is too many"
        for managed in supervisor.processes:
            if managed.child is None or managed.next_ns() is not None:
                return f"{managed.title} is not at rest"
        return ""

    def _unsettled(self, entries: Iterable[ModelSpec]) -> str:
        """Return which model has another number of workers than its load wants; empty if none."""
        for spec in filter(lambda spec: spec.most, entries):
            wanted = spec.most if self._load.rows else spec.least
            if spec.running != wanted:
                return f"{spec.name} has {spec.running} workers and wants {wanted}"
        return ""

    def _check_end(self, end: str) -> None:
        kernel = self._kernel
        fault = self.seen["a fault"] > 0
        if end == "status 0" and self._asked_ns is None:
            raise Violation("it has ended, and nobody has asked for it")
        if end == "status 1" and self._cast.names_lost:
            self.ends["nobody could attach"] += 1
        elif end in ("status 1", "fault") and not fault:
            raise Violation("it has ended by a fault, and there was none")
        if end == "fault" and self._house.orders is not None and self._house.orders.taken:
            raise Violation("a fault has ended it that nothing has caught")
        if end == "not started" and not self.seen:
            raise Violation("it does not start, and nothing is wrong")
        if running := [one for one in self._cast.living(Member) if not one.doomed]:
            raise Violation(f"it has ended, and {running[0]} runs")
        if self._house.segment is not None and not self._house.segment.unlinked:
            raise Violation("it has ended, and its segment is there")
        self._house.leave()
        if kernel.fds and not (fault or kernel.running):
            raise Violation(f"it has ended, and descriptors are open: {[*kernel.fds.values()]}")
        reports = [] if self._house.orders is None else self._house.orders.reports.values()
        if None in reports:
            raise Violation("it has ended, and an order has no answer")
        if self._faulty == "send ReadTable" and any(map(_has_broken_off, reports)):
            raise Violation("an order has failed, and only the collector could not be told of it")


def _has_broken_off(report: Report | None) -> bool:
    """Return whether an order has failed by an unexpected exception."""
    return report is not None and any("the engine's log says how" in s for s in report.lines)
