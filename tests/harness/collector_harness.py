"""A collector to be stepped by hand, its clients, and workers that do what a test says."""

from typing import Any

from segment_fixture import Client, local_segment, spec

from ringbatch.engine.collector.account_limits import LimitTable
from ringbatch.engine.collector.collector import Collector
from ringbatch.engine.ipc.messages import BatchTask, ReportKind, read_tasks, report_words, task_size
from ringbatch.engine.process.role_events import ModelEvent
from ringbatch.shm.descriptors import REPORT_WORDS, TASK_WORDS, ModelWords, WorkerState, WorkerWords
from ringbatch.shm.engine_slots import EngineSlots
from ringbatch.shm.model_counters import NOTHING, Spent
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.ring import Consumer, Producer
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import Status
from ringbatch.shm.snapshot.status import EngineStatus, ModelStatus, read

LATENCY = 1_000


class HandWorker:
    """A worker's rings, used as the test says."""

    def __init__(self, segment: Segment, number: int) -> None:
        self.segment = segment
        self.number = number
        self.engine_slots = EngineSlots(segment, number, lambda _lane: None)
        self._memory = segment.memory
        self._begin()

    def _begin(self) -> None:
        layout, words = self.segment.layout, self.segment.words
        self._tasks = Consumer(words, layout.task_ring(self.number), TASK_WORDS)
        self._reports = Producer(words, layout.report_ring(self.number), REPORT_WORDS)
        self._taken = 0
        """Number of tasks in the ring that the test has taken."""

    def ready(self, model: ModelSpec | None = None) -> None:
        """Be ready, as a process that has loaded its model, by default the table's."""
        self._begin()
        own = [model] if model else [m for m in self.segment.models if self.number in m.workers]
        for held in own:
            self._store(WorkerWords.MODEL, held.reference)
        self._store(WorkerWords.STATE, WorkerState.READY)
        self._say(ReportKind.READY, 0, 0)

    def _store(self, word: int, value: int) -> None:
        self.segment.words[self.segment.layout.worker(self.number) + word] = value

    def tasks(self) -> list[BatchTask]:
        """Return all tasks that the worker was given and has not taken."""
        given = read_tasks(self._tasks.peek())[self._taken :]
        self._taken += len(given)
        return given

    def task(self) -> BatchTask:
        """Return the first task that the worker was given and has not taken."""
        given = read_tasks(self._tasks.peek())[self._taken]
        self._taken += 1
        return given

    def let_go(self, batch: int) -> None:
        """Take a batch out of the ring if it is the first there."""
        first, *_ = [*read_tasks(self._tasks.peek()), None]
        if first is not None and first.mark.batch == batch:
            self._tasks.release(task_size(first.references))
            self._taken = max(self._taken - 1, 0)

    def write(self, task: BatchTask, result: bytes = b"done") -> None:
        """Put the answers into the slots and post nothing."""
        for ref in task.references:
            request = self.engine_slots.read(ref)
            assert request is not None
            start = request.result_offset
            self._memory[start : start + len(result)] = result
            self.engine_slots.answer(ref, Status.OK, len(result), task.mark, 0)

    def finish(self, task: BatchTask, kind: ReportKind = ReportKind.DONE, run_ns: int = 1) -> None:
        self.write(task)
        self.engine_slots.flush()
        self.let_go(task.mark.batch)
        self._say(kind, task.mark.batch, task.mark.rows, Spent(0, run_ns, 0, 0, 0))

    def say_dropped(self, batch: int, expired: int, cancelled: int) -> None:
        self._say(ReportKind.EXPIRED, batch, expired)
        self._say(ReportKind.CANCELLED, batch, cancelled)

    def say_done(self, batch: int) -> None:
        self.let_go(batch)
        self._say(ReportKind.DONE, batch, 0)

    def runs_again(self, batch: int) -> None:
        self._say(ReportKind.RUNS_AGAIN, batch, 0)

    def _say(self, kind: ReportKind, first: int, second: int = 0, spent: Spent = NOTHING) -> None:
        assert self._reports.offer(report_words(kind, first, second, spent))


class CollectorHarness:
    """A collector, its clients and its workers."""

    def __init__(self, *models: ModelSpec, lanes: int = 2, slots: int = 64, spare: int = 0) -> None:
        self.segment = local_segment(*models, lanes=lanes, slots=slots, spare=spare)
        self.clients = [Client(self.segment, lane) for lane in range(lanes)]
        self.lane_wakes: list[int] = []
        self.worker_wakes: list[int] = []
        self.ended: list[int] = []
        self.collectors = 0
        self.collector = self.new_collector()
        self.workers = [HandWorker(self.segment, n) for n in range(self.segment.layout.workers)]

    def new_collector(self, limits: LimitTable | None = None) -> Collector:
        self.collectors += 1
        self.collector = Collector(
            self.segment,
            self.lane_wakes.append,
            self.worker_wakes.append,
            end_worker=self.ended.append,
            notify_supervisor=self.notify,
        )
        self.collector.gate.set(limits or LimitTable())
        self.collector.start(1000 * self.collectors)
        return self.collector

    def notify(self, _message: ModelEvent) -> None:
        """Drop a message that the collector sends to the supervisor."""

    def dies(self, number: int, now_ns: int, *, killed: bool = False) -> bool:
        """A worker's process ends; the supervisor finds out, and tells the collector."""
        self.segment.worker_ended(number)
        return self.collector.worker_died(number, now_ns, killed=killed)

    def begin(self, now_ns: int = 0) -> "CollectorHarness":
        """Report all workers ready."""
        for worker in self.workers:
            worker.ready()
        self.collector.step(now_ns)
        return self

    def measure(self, cycle_ns: int = 1) -> "CollectorHarness":
        """The only worker runs a first batch, from now until then."""
        self.send()
        self.step(0)
        self.workers[0].finish(self.workers[0].task())
        self.step(cycle_ns)
        self.clients[0].collect()
        return self

    def send(self, number: int = 0, *, lane: int = 0, rows: int = 1, **more: Any) -> int:
        return self.clients[lane].send(b"%d" % number, rows, **more)

    def step(self, now_ns: int) -> int | None:
        return self.collector.step(now_ns)

    def payloads(self, task: BatchTask) -> list[int]:
        """The numbers that the requests of a task hold."""
        found = []
        for ref in task.references:
            request = self.workers[0].engine_slots.read(ref)
            assert request is not None
            start = request.request_offset
            found.append(int(bytes(self.segment.memory[start : start + request.request_bytes])))
        return found

    def running(self, worker: int = 0) -> list[int]:
        """The numbers in the task that a worker goes on with."""
        return self.payloads(self.workers[worker].task())

    def status(self) -> EngineStatus:
        return read(self.segment)

    def model(self, name: str = "m") -> ModelStatus:
        return self.status().models[name]

    def submit_words(self, *words: int, lane: int = 0) -> None:
        """Write any words into a lane's ring, as a hostile frontend may."""
        layout = self.segment.layout
        ring = Producer(self.segment.words, layout.submission_ring(lane), layout.slots)
        assert ring.offer(words)

    def ready_word(self, model: int = 0) -> int:
        word: int = self.segment.words[self.segment.layout.model(model) + ModelWords.READY]
        return word

    def takes_word(self, model: int = 0) -> int:
        word: int = self.segment.words[self.segment.layout.model(model) + ModelWords.TAKES]
        return word

    def all_free(self) -> bool:
        return [client.lane.in_flight for client in self.clients] == [0] * len(self.clients)


def fixed(**more: Any) -> ModelSpec:
    return spec(policy="fixed", max_latency_ns=LATENCY, **{"max_batch_size": 4} | more)


def eager(**more: Any) -> ModelSpec:
    return spec(policy="eager", max_latency_ns=LATENCY, **{"max_batch_size": 4} | more)
