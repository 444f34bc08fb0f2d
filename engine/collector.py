"""The collector: takes requests out of the lanes, forms batches, hands them to workers.

One process, one thread, no polling. `step` does everything there is to do and says when it wants
to be called again if nobody rings before. A request belongs to the collector from the moment it
is published until it is dispatched; what dies here is expired, cancelled or without a worker.
"""

from collections.abc import Callable

from ringbatch.engine.backlog import estimate
from ringbatch.engine.batching import Wait, decide, taking
from ringbatch.engine.members import Members, Model, Worker
from ringbatch.engine.messages import ReportKind, Task, reports, task_words
from ringbatch.engine.queues import Queue
from ringbatch.engine.suspects import CRASHED, KILLED, REPLACED_NS, Killers, regroup
from ringbatch.shm import trials
from ringbatch.shm.counters import (
    BATCHES_BY_REASON,
    BATCHES_BY_ROWS,
    CollectorCounter,
    Counters,
    ModelCounter,
    rows_bucket,
)
from ringbatch.shm.fence import full_fence
from ringbatch.shm.holder import BatchMark, Holder, Request
from ringbatch.shm.layout import (
    COLLECTOR_NS,
    MODEL_ANSWER_NS,
    MODEL_ROW_NS,
    RING_COLLECTOR,
    WORD,
)
from ringbatch.shm.manifest import LOADING
from ringbatch.shm.ring import Consumer, CorruptRingError
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import Reason, State, Status

MAX_DEATHS = 2
"""A request with which this many workers have crashed, the last of them alone, is given up."""
RETRY_NS = 10_000_000
"""How soon answers are announced again that found no room in a lane's ring."""
_SERVICE_SHARE = 8
"""The expected run time follows the measured one by one part in this many."""


class Collector:
    """The role, to be stepped.

    Args:
        segment: the memory, in which this process is the only collector.
        wake_lane: rings a frontend's doorbell.
        wake_worker: rings a worker's doorbell.
        first_batch: the number of the first batch; larger than any that an earlier collector
            of this segment gave out.
        alive: whether a process of that id runs; what a dead worker said last may still stand
            in its ring when a new collector starts.
        end_worker: has a worker ended that hangs; its death is told as any other.
        say: tells the supervisor what has become of the table's latest change: ``loaded`` or
            ``drained``, a model's reference, or ``released``, a worker's number.
    """

    def __init__(
        self,
        segment: Segment,
        wake_lane: Callable[[int], None],
        wake_worker: Callable[[int], None],
        first_batch: int,
        alive: Callable[[int], bool],
        end_worker: Callable[[int], object],
        say: Callable[..., object] = lambda **_: None,
    ) -> None:
        layout, words = segment.layout, segment.words
        self._segment = segment
        self._words = words
        self._batch = first_batch
        self._alive = alive
        self._end_worker = end_worker
        self._say = say
        self._wake_lane = wake_lane
        self._holder = Holder(segment, layout.workers, wake_lane)
        self._counters = Counters(words, layout.collector_counters())
        self._submissions = [
            Consumer(words, layout.submission_ring(lane), layout.slots)
            for lane in range(layout.lanes)
        ]
        self._known: dict[int, int] = {}
        """By reference, the requests taken in and not yet answered: what deaths they are suspected
        of, see `ringbatch.engine.suspects`."""
        self._killers = Killers(segment.memory)
        self._adopted: list[int] = []
        """What an earlier collector left, to be taken in by the first step."""
        self._members = Members(segment, wake_worker)
        self._models = self._members.models
        self._workers = self._members.workers
        self.rung_for_requests = True
        """Whether frontends have been told to ring."""
        self._members.follow(0)
        for model in self._models.values():
            self._tell_backlog(model)
        self._adopt()

    def step(self, now_ns: int) -> int | None:
        """Do everything there is to do; the instant by which to call again, None for never."""
        self._counters.add(CollectorCounter.STEPS)
        self._words[COLLECTOR_NS // WORD] = now_ns
        if self._members.outdated:
            self._follow(now_ns)
        # Before submissions are taken: what was sent until then is among them.
        acknowledged = bool(self._members.retiring) and self._members.acknowledged(now_ns)
        for worker in self._workers.values():
            self._take_reports(worker, now_ns)
        while self._adopted:
            self._take_in(self._adopted.pop(), now_ns)
        for lane, submissions in enumerate(self._submissions):
            self._take_submissions(lane, submissions, now_ns)
        wanted = [self._serve(model, now_ns) for model in self._models.values()]
        wanted += [self._watch(worker, now_ns) for worker in self._workers.values() if worker.batch]
        if self._members.changing:
            self._let_go(acknowledged)
        if self._holder.delayed:
            self._holder.flush()
        if self._holder.delayed or self._members.retiring:
            wanted.append(now_ns + RETRY_NS)
        return min([until_ns for until_ns in wanted if until_ns is not None], default=None)

    @property
    def in_flight(self) -> int:
        """Requests taken in and not yet answered."""
        return len(self._known)

    def may_sleep(self) -> bool:
        """Say whether requests must ring from now on, and look once more for some.

        While no worker is idle, a request could only be put into a queue; that can wait until
        a worker reports, and the ring saved is most of what a request costs the collector.

        Returns:
            False where there is something to do before sleeping.
        """
        self.rung_for_requests = any(model.idle for model in self._models.values())
        self._words[RING_COLLECTOR // WORD] = self.rung_for_requests
        full_fence()
        return not (self.rung_for_requests and self.has_news())

    def has_news(self) -> bool:
        """Whether the next step would find requests or reports."""
        if any(submissions.waiting for submissions in self._submissions):
            return True
        return any(worker.reports.waiting for worker in self._workers.values())

    def worker_died(self, number: int, now_ns: int, *, killed: bool = False) -> bool:
        """Take back what a worker held; only after its process is proved to be gone.

        Args:
            number: the worker's.
            now_ns: the time.
            killed: whether it was ended with SIGKILL.

        Returns:
            Whether it is known which request it died of.
        """
        worker = self._workers.get(number)
        if worker is None:
            return False
        self._take_reports(worker, now_ns)
        self._counters.add(CollectorCounter.WORKER_DEATHS)
        hung, worker.ending = worker.ending, False
        model = worker.model
        model.health.worker_died(number, now_ns)
        if worker.ready:
            worker.ready = False
            model.ready -= not worker.leaving
            model.health.ready(model.ready)
        if worker in model.idle:
            model.idle.remove(worker)
        explained = False
        if worker.batch is not None:
            mark = worker.batch.mark
            explained = self._take_back(worker, mark, now_ns, hung=hung, killed=killed)
        if self._models.get(model.spec.reference) is not model:
            self._move_on(model, now_ns)
        return explained

    def _follow(self, now_ns: int) -> None:
        """Take over what the supervisor has changed in the table of models."""
        gone = self._members.follow(now_ns)
        while self._members.replaced:
            worker = self._members.replaced.pop()
            if worker.batch is not None:
                self._take_back(worker, worker.batch.mark, now_ns, hung=False, killed=True)
                if self._models.get(worker.model.spec.reference) is not worker.model:
                    gone.append(worker.model)
        for model in gone:
            self._move_on(model, now_ns)
        for model in self._models.values():
            model.health.ready(model.ready)
            self._tell_backlog(model)
        if self._members.retiring:
            for lane in range(self._segment.layout.frontend_lanes):
                self._wake_lane(lane)

    def _move_on(self, model: Model, now_ns: int) -> None:
        """Give what waits for a model that will not run it to the one in its place."""
        successor = self._members.successor(model.spec)
        for request in model.empty():
            if successor is None:
                self._fail(request, Status.NO_WORKER, _UNLOADED, _NO_BATCH, now_ns)
            else:
                successor.again.add([[request]])

    def _let_go(self, acknowledged: bool) -> None:
        """Tell the supervisor of retiring models and leaving workers that are done."""
        for model in self._members.retiring:
            if acknowledged and not model.drained and not self._members.busy(model):
                model.drained = True
                self._say(drained=model.spec.reference)
        for worker in [worker for worker in self._members.leaving if worker.batch is None]:
            self._members.remove(worker)
            self._say(released=worker.number)

    def _watch(self, worker: Worker, now_ns: int) -> int | None:
        """Have a worker ended whose batch runs too long; the instant at which it will."""
        if worker.ending:
            return None
        if now_ns < worker.limit_ns:
            return worker.limit_ns
        worker.ending = True
        self._counters.add(CollectorCounter.WORKERS_HUNG)
        self._end_worker(worker.number)
        return None

    def _take_back(
        self, worker: Worker, mark: BatchMark, now_ns: int, *, hung: bool, killed: bool
    ) -> bool:
        """The requests of a dead worker's batch run again, in groups that find a killer."""
        model, known = worker.model, self._known
        left = []
        for request in worker.requests:
            if self._holder.repeat(request.ref):
                del known[request.ref]
            else:
                left.append(request)
        first = not any(known[request.ref] for request in left)
        for request in left:
            known[request.ref] += KILLED if killed and not hung else CRASHED
        explained = len(left) == 1 and known[left[0].ref] >= MAX_DEATHS * CRASHED
        if explained:
            killer = left.pop()
            self._killers.remember(killer, now_ns)
            model.health.explained(worker.number, now_ns)
            text = "the worker process died while it ran this request, and so did a second one"
            self._fail(killer, Status.WORKER_DIED, text, mark, now_ns)
        death_ns = REPLACED_NS + hung * model.spec.batch_timeout_ns
        model.again.add(regroup(left, first=first, run_ns=model.cycle_ns, death_ns=death_ns))
        worker.batch = None
        worker.requests = []
        return explained

    def _adopt(self) -> None:
        """Take over what an earlier collector of this segment had not finished.

        Only right while no worker holds a batch: those of the earlier collector must be gone.
        """
        for submissions in self._submissions:
            submissions.skip()
        for ref, state in self._holder.published():
            if state is State.FREE:
                # The worker may have died between answering and announcing the answer.
                self._holder.repeat(ref)
            else:
                self._adopted.append(ref)

    def _take_reports(self, worker: Worker, now_ns: int) -> None:
        for kind, first, second in reports(worker.reports.take()):
            if kind is ReportKind.READY:
                if self._alive(first):
                    self._worker_ready(worker, now_ns)
            elif worker.batch is None or worker.batch.mark.batch != first:
                continue
            elif kind is ReportKind.RUNS_AGAIN:
                self._runs(worker, now_ns)
            else:
                self._batch_done(worker, kind, second, now_ns)

    def _runs(self, worker: Worker, now_ns: int) -> None:
        """A worker begins a run of its batch."""
        model = worker.model
        worker.limit_ns = now_ns + model.spec.batch_timeout_ns
        if not model.idle:
            model.health.all_busy(now_ns, model.cycle_ns, model.spec.batch_timeout_ns)

    def _worker_ready(self, worker: Worker, now_ns: int) -> None:
        assert not worker.ready, "a worker is ready once, and again only after its death is known"
        worker.ready = True
        if worker.leaving:
            return
        model = worker.model
        model.ready += 1
        model.idle.append(worker)
        model.health.worker_ready(worker.number, now_ns)
        model.learn(trials.read(self._segment, worker.number))
        model.health.ready(model.ready)
        if model.spec.state == LOADING and model.ready == len(model.spec.workers):
            self._say(loaded=model.spec.reference)

    def _batch_done(self, worker: Worker, kind: ReportKind, run_ns: int, now_ns: int) -> None:
        model = worker.model
        assert worker.batch is not None, "it is this batch that is done"
        cycle_ns = max(now_ns - worker.batch.mark.dispatched_ns, 0)
        model.cycle_ns += (cycle_ns - model.cycle_ns) // (_SERVICE_SHARE if model.cycle_ns else 1)
        for request in worker.requests:
            del self._known[request.ref]
        worker.batch = None
        worker.requests = []
        if not worker.ending and not worker.leaving:
            model.idle.append(worker)
            model.health.moves()
        model.service_ns += (run_ns - model.service_ns) // _SERVICE_SHARE
        model.counters.add(ModelCounter.RUN_NS, run_ns)
        if kind is ReportKind.FAILED:
            model.counters.add(ModelCounter.FAILED)

    def _take_submissions(self, lane: int, submissions: Consumer, now_ns: int) -> None:
        try:
            references = submissions.take()
        except CorruptRingError:
            submissions.skip()
            self._counters.add(CollectorCounter.CORRUPT_RINGS)
            return
        if references and self._members.outdated:
            # Who sent them may know the other table.
            self._follow(now_ns)
        for ref in references:
            if self._holder.lane_of(ref) != lane:
                self._counters.add(CollectorCounter.CORRUPT_SLOTS)
            elif ref not in self._known and self._holder.is_open(ref):
                self._take_in(ref, now_ns)

    def _take_in(self, ref: int, now_ns: int) -> None:
        request = self._holder.read(ref)
        if request is None:
            self._counters.add(CollectorCounter.CORRUPT_SLOTS)
            self._holder.answer(ref, Status.CORRUPT, 0, _NO_BATCH, 0)
            return
        self._known[ref] = 0
        model = self._models.get(request.model) or self._members.heir(request.model)
        if model is None:
            self._fail(request, Status.NO_WORKER, _UNLOADED, _NO_BATCH, now_ns)
            return
        if request.rows > model.most_rows:
            text = f"a request may hold {model.most_rows} instances"
            self._fail(request, Status.INVALID, text, _NO_BATCH, 0)
            return
        if self._killers.count and self._killers.knows(request, now_ns):
            self._counters.add(CollectorCounter.KILLERS)
            text = "the worker processes that ran the same request a moment ago died"
            self._fail(request, Status.WORKER_DIED, text, _NO_BATCH, now_ns)
            return
        if not now_ns - model.spec.timeout_ns <= request.accepted_ns <= now_ns:
            # Accepted after the clock was read, if its frontend is not lying; and nobody else
            # is to wait longer for a lie.
            accepted_ns = max(now_ns - model.spec.timeout_ns, 0)
            request = request._replace(
                accepted_ns=min(max(request.accepted_ns, accepted_ns), now_ns)
            )
        key = model.grouping.key(request) if request.key_bytes else b""
        model.queues.append(key, request)
        model.taken_requests += 1
        model.taken_rows += request.rows

    def _serve(self, model: Model, now_ns: int) -> int | None:
        """Dispatch what can be; the instant by which something else must happen."""
        if model.taken_requests:
            model.counters.add(ModelCounter.REQUESTS, model.taken_requests)
            model.counters.add(ModelCounter.ROWS, model.taken_rows)
            model.taken_requests = model.taken_rows = 0
        if model.retiring and not model.ready:
            # Those that die while they retire are not started again.
            self._move_on(model, now_ns)
        until_ns = self._serve_again(model, now_ns) if model.again else None
        emptied = False
        for queue in model.queues:
            # Where more waits than one batch takes, none of its places is for an answer that
            # would come too late.
            crowded = queue.rows > model.policy.max_batch_size
            for request in queue.expire(now_ns + model.cycle_ns * crowded):
                self._drop_expired(model, request, now_ns)
            wait_ns = self._serve_queue(model, queue, now_ns)
            if wait_ns is None:
                emptied = True
            elif until_ns is None or wait_ns < until_ns:
                until_ns = wait_ns
        if emptied:
            model.queues.drop_empty()
        self._publish_backlog(model)
        return until_ns

    def _publish_backlog(self, model: Model) -> None:
        rows, cap = model.queues.rows, model.policy.max_batch_size
        backlog = estimate(rows, cap, len(model.idle), model.ready, model.cycle_ns)
        if backlog != model.backlog:
            model.backlog = backlog
            self._tell_backlog(model)

    def _tell_backlog(self, model: Model) -> None:
        first = self._segment.layout.model(model.spec.index)
        self._words[(first + MODEL_ROW_NS) // WORD] = model.backlog.row_ns
        self._words[(first + MODEL_ANSWER_NS) // WORD] = model.backlog.answer_ns

    def _serve_again(self, model: Model, now_ns: int) -> int | None:
        """Dispatch what runs once more; the instant by which some of the rest expires."""
        while model.again and model.idle:
            self._dispatch(model, model.again.take(), Reason.RETRY, now_ns)
        self._drop(model, model.again.expire(now_ns), now_ns)
        return model.again.earliest_ns

    def _serve_queue(self, model: Model, queue: Queue, now_ns: int) -> int | None:
        """Dispatch what can be of one queue; when to look again, None once it is empty."""
        policy = model.policy
        others = len(model.queues) > 1
        while queue.rows:
            decision = decide(
                queue.pending(policy.max_batch_size, others),
                now_ns,
                policy,
                len(model.idle),
                model.service_ns,
                self._segment.draining,
            )
            if isinstance(decision, Wait):
                until_ns = decision.until_ns
                return queue.earliest_ns if until_ns is None else min(until_ns, queue.earliest_ns)
            taken = queue.take(taking(queue.rows, policy))
            self._dispatch(model, taken, decision.reason, now_ns)
        return None

    def _dispatch(self, model: Model, requests: list[Request], reason: Reason, now_ns: int) -> None:
        is_wanted = self._holder.wanted
        wanted = [r for r in requests if r.deadline_ns > now_ns and is_wanted(r.ref)]
        if len(wanted) < len(requests):
            runs = {request.ref for request in wanted}
            self._drop(model, [r for r in requests if r.ref not in runs], now_ns)
            if not wanted:
                return
        worker = model.idle.pop()
        rows = waited_ns = 0
        for request in wanted:
            rows += request.rows
            waited_ns += now_ns - request.accepted_ns
        mark = BatchMark(self._batch, rows, reason, now_ns)
        self._batch += 1
        worker.batch = Task(mark, [request.ref for request in wanted])
        worker.requests = wanted
        self._runs(worker, now_ns)
        fits = worker.tasks.offer(task_words(worker.batch))
        assert fits, "a worker holds one task, and its ring has room for the largest"
        worker.wake()
        counters = model.counters
        counters.add(ModelCounter.WAIT_NS, waited_ns)
        counters.add(BATCHES_BY_REASON + reason)
        counters.add(BATCHES_BY_ROWS + rows_bucket(rows))
        if reason is Reason.RETRY:
            counters.add(ModelCounter.RETRIED, len(wanted))

    def _drop(self, model: Model, requests: list[Request], now_ns: int) -> None:
        for request in requests:
            if request.deadline_ns <= now_ns:
                self._drop_expired(model, request, now_ns)
            else:
                model.counters.add(ModelCounter.CANCELLED)
                self._fail(request, Status.CANCELLED, "", _NO_BATCH, now_ns)

    def _drop_expired(self, model: Model, request: Request, now_ns: int) -> None:
        model.counters.add(ModelCounter.EXPIRED)
        text = "the deadline passed before a worker was free"
        self._fail(request, Status.EXPIRED, text, _NO_BATCH, now_ns)

    def _fail(
        self, request: Request, status: Status, text: str, mark: BatchMark, now_ns: int
    ) -> None:
        del self._known[request.ref]
        self._holder.fail(request, status, text, mark, now_ns)


_NO_BATCH = BatchMark(0, 0, Reason.DEADLINE, 0)
_UNLOADED = "the model was unloaded or changed while the request was on its way; send it again"
