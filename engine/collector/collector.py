"""The collector: takes requests out of the lanes, forms batches, hands them to workers.

One process, one thread, no polling. `step` does everything there is to do and says when it wants
to be called again if nobody rings before. A request belongs to the collector from the moment it
is published until it is dispatched; what dies here is expired, cancelled or without a worker.
"""

from collections.abc import Callable

from ringbatch.engine.collector import takeover
from ringbatch.engine.collector.account_gate import AccountGate
from ringbatch.engine.collector.admission import may_be_late, refusal
from ringbatch.engine.collector.changeover import Changeover
from ringbatch.engine.collector.class_shares import class_shares
from ringbatch.engine.collector.dead_batches import DeadBatches
from ringbatch.engine.collector.dispatcher import NO_BATCH, UNLOADED, Dispatcher
from ringbatch.engine.collector.lingering import COSTLY_NS
from ringbatch.engine.collector.model_pool import ModelPool
from ringbatch.engine.collector.models import Batch, Worker
from ringbatch.engine.collector.quarantine import Quarantine
from ringbatch.engine.collector.reports import Reports
from ringbatch.engine.collector.usage import without_repeats
from ringbatch.engine.ipc.messages import BatchTask, Report, ReportKind, read_reports
from ringbatch.engine.ipc.shaping import padded_rows
from ringbatch.engine.process.role_events import EntryLoaded, ModelEvent, WorkerReleased
from ringbatch.shm import cost_profile, device_pace
from ringbatch.shm.account import MIXED
from ringbatch.shm.chain import step_in
from ringbatch.shm.counters import CollectorCounter, Counters, ModelCounter
from ringbatch.shm.descriptors import HeaderWords
from ringbatch.shm.engine_slots import EngineSlots, Opened, Request, columns
from ringbatch.shm.layout import ring_size
from ringbatch.shm.memory_order import full_fence
from ringbatch.shm.model_spec import LOADING
from ringbatch.shm.ring import Inbox
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import State, Status, is_part, without_part

RETRY_NS = 10_000_000
"""Delay before answers are posted again that found no room in a lane's ring."""
_STEPS = int(CollectorCounter.STEPS)
_DRAINING = HeaderWords.DRAINING
_COLLECTOR_NS = HeaderWords.COLLECTOR_NS
_FEW = 4
"""Fewer requests than this are looked at one by one sooner than together."""
_DROPPED = {ReportKind.EXPIRED: ModelCounter.EXPIRED, ReportKind.CANCELLED: ModelCounter.CANCELLED}


class Collector:
    """The role, to be stepped.

    Args:
        segment: the memory, in which this process is the only collector.
        wake_lane: rings a frontend's doorbell.
        wake_worker: rings a worker's doorbell.
        end_worker: has a hung worker ended; its death is reported as any other.
        notify_supervisor: sends the supervisor the result of the table's latest change.

    Attributes:
        gate: of accounts with limits; these are set before `start`.
    """

    def __init__(
        self,
        segment: Segment,
        wake_lane: Callable[[int], None],
        wake_worker: Callable[[int], None],
        end_worker: Callable[[int], object],
        notify_supervisor: Callable[[ModelEvent], object] = lambda _: None,
    ) -> None:
        layout, words = segment.layout, segment.words
        self._segment = segment
        self._words = words
        self._end_worker = end_worker
        self._notify_supervisor = notify_supervisor
        self._wake_lane = wake_lane
        self._slots = EngineSlots(segment, layout.workers, wake_lane)
        self._counters = Counters(words, layout.collector_counters())
        slots, lanes = layout.slots, layout.lanes
        self._submissions = Inbox(words, layout.submissions_word, ring_size(slots), lanes, slots)
        self._pool = ModelPool(segment, wake_worker)
        self._models = self._pool.models
        self._in_flight = self._pool.in_flight
        self._workers = self._pool.workers
        self._agenda = self._pool.agenda
        self.gate = gate = AccountGate(segment, self._slots)
        self._dispatcher = Dispatcher(segment, self._slots, self._in_flight, self._agenda, gate)
        self._limits = self._dispatcher.limits
        self._reports = Reports(words, layout, self._limits.at_ns, self._pool.expected)
        self._quarantine = Quarantine(segment.memory)
        self._dead = DeadBatches(self._slots, self._in_flight, self._quarantine, self._dispatcher)
        self._changeover = Changeover(self._pool, self._dispatcher, self._dead, notify_supervisor)
        self._to_requeue: list[int] = []
        """Requests of an earlier collector that no worker holds; the next step queues them."""
        self._unreadable_workers: set[int] = set()
        """Workers whose batches cannot be read; nothing is done before they are dead."""
        self._draining = 0
        """The segment's `draining` at the last look at all models for it."""
        self.rung_for_requests = True
        """True if frontends wake the collector for requests."""

    def start(self, now_ns: int) -> None:
        """Take over the segment's models, workers and earlier work; called once, before `step`."""
        # Nanoseconds since boot outrun any count of batches, so no two give out the same number.
        self._dispatcher.next_batch = now_ns
        self._counters.add(CollectorCounter.STARTS)
        self._pool.follow(now_ns)
        self._adopt(now_ns)
        for model in self._models.values():
            self._dispatcher.publish_initial_state(model)
            model.backlog_words.publish(model.backlog)
        self._agenda.add_all(self._models)

    def step(self, now_ns: int) -> int | None:
        """Do all work there is; return the instant by which to call again, None for never."""
        self._counters.add(_STEPS)
        self._words[_COLLECTOR_NS] = now_ns
        if self._unreadable_workers:
            return None
        pool, slots = self._pool, self._slots
        if pool.outdated:
            self._follow(now_ns)
        # Before submissions are taken: they then hold all that was sent before the acknowledgement.
        acknowledged = bool(pool.retiring) and pool.acknowledged(now_ns)
        for number, words in self._reports.take(now_ns):
            self._take_reports(number, words, now_ns)
        while self._to_requeue:
            self._requeue(self._to_requeue.pop(), now_ns)
        for lane, references in self._submissions.take():
            self._take_submissions(lane, references, now_ns)
        if self._quarantine.count:
            self._quarantine.tick(now_ns)
        if pool.retiring:
            self._changeover.requeue_from_retiring(now_ns)
        draining: int = self._words[_DRAINING]
        if draining != self._draining:
            self._draining = draining
            self._agenda.add_all(self._models)
        if now_ns >= pool.look_ns:
            pool.look_at_those_without_worker(now_ns)
        limits = self._limits
        if limits.at_ns and limits.first()[0] <= now_ns:
            self._watch(now_ns)
        self._dispatcher.serve_all(self._models, now_ns)
        if pool.retiring or pool.leaving:
            self._changeover.report_drained(acknowledged=acknowledged)
        slots.flush()
        until_ns = self._agenda.until_ns
        if limits.at_ns:
            limit_ns = limits.first()[0]
            until_ns = limit_ns if until_ns is None else min(until_ns, limit_ns)
        if slots.delayed or pool.retiring:
            retry_ns = now_ns + RETRY_NS
            until_ns = retry_ns if until_ns is None else min(until_ns, retry_ns)
        return until_ns

    @property
    def in_flight(self) -> int:
        """Requests taken in and not yet answered."""
        return len(self._in_flight)

    def prepare_to_sleep(self) -> bool:
        """Publish whether requests must ring from now on; return False if there is work already.

        While no worker is idle, or can be given a batch to run next, a request could only be put
        into a queue. That can wait until a worker reports. The saved ring is most of what a request
        costs the collector.
        """
        self.rung_for_requests = self._agenda.rings
        if self._words[HeaderWords.RING_COLLECTOR] != self.rung_for_requests:
            # Every store takes the word out of the caches of the frontends.
            self._words[HeaderWords.RING_COLLECTOR] = self.rung_for_requests
        full_fence()
        return not (self.rung_for_requests and self.has_news())

    def has_news(self) -> bool:
        """Return whether the next step would find requests or reports."""
        return self._submissions.has_items or self._reports.has_items

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
        explained = worker is not None and self._reclaim(worker, now_ns, killed=killed)
        takeover.reclaim(self._segment, number)
        if number in self._unreadable_workers:
            self._unreadable_workers.remove(number)
            self._adopt_slots()
        return explained

    def _reclaim(self, worker: Worker, now_ns: int, *, killed: bool) -> bool:
        for reporter, words in self._reports.inbox.take():
            self._take_reports(reporter, words, now_ns)
        self._counters.add(CollectorCounter.WORKER_DEATHS)
        hung, worker.ending = worker.ending, False
        model = worker.model
        model.counters.worker_died(hung=hung, killed=killed)
        model.health.worker_died(worker.number, now_ns)
        self._mark_not_ready(worker)
        self._agenda.add(model.reference)
        explained = bool(worker.batches) and self._dead.take_back(
            worker, now_ns, hung=hung, killed=killed
        )
        if self._models.get(model.spec.reference) is not model:
            self._changeover.requeue_to_replacement(model, now_ns)
        return explained

    def _mark_not_ready(self, worker: Worker) -> None:
        self._pool.expected.add(worker.number)
        if worker.ready:
            worker.ready = False
            if not worker.leaving:
                worker.model.roster.remove(worker)

    def _follow(self, now_ns: int) -> None:
        """Take over what the supervisor has changed in the model table."""
        self._changeover.follow(now_ns)
        if self._pool.retiring:
            for lane in range(self._segment.layout.frontend_lanes):
                self._wake_lane(lane)

    def _watch(self, now_ns: int) -> None:
        """End workers whose batches run too long."""
        for number in self._limits.take(now_ns):
            worker = self._workers.get(number)
            if worker is None or worker.ending:
                continue
            worker.ending = True
            self._mark_not_ready(worker)
            self._counters.add(CollectorCounter.WORKERS_HUNG)
            self._end_worker(number)
            # A spare may take over at once.
            self._agenda.add(worker.model.reference)

    def _adopt(self, now_ns: int) -> None:
        """Take over where an earlier collector of this segment stopped, whose workers go on.

        What they hold is looked at before the slots are: what one has let go of by then, it has
        answered, and its slot says so.
        """
        self._submissions.skip()
        for number, held in enumerate(takeover.held_by_all(self._segment)):
            if held is None:
                self._counters.add(CollectorCounter.CORRUPT_RINGS)
                self._end_unreadable(number)
            else:
                self._adopt_worker(number, held, now_ns)
        self._adopt_slots()
        takeover.wake_all(self._segment, self._wake_lane)

    def _adopt_worker(self, number: int, held: list[BatchTask], now_ns: int) -> None:
        ready = takeover.is_ready(self._segment, number)
        worker = self._workers.get(number)
        if worker is None and held:
            worker = self._pool.add_unlisted(number, takeover.model_of(self._segment, number))
            if worker is None:
                self._end_unreadable(number)
        if worker is None:
            if ready and not held:
                self._notify_supervisor(WorkerReleased(number))
            return
        for mark, references, asked in held:
            if not ready and step_in(asked):
                # The last collector may have begun to answer these over what their steps have kept.
                references = []
            requests = takeover.requests_of(self._slots, references, asked, now_ns)
            self._in_flight.update(dict.fromkeys(references))
            self.gate.hold(requests, now_ns)
            worker.batches.append(Batch(mark, requests))
        if ready:
            self._worker_ready(worker, now_ns)
        if held:
            # One that is not ready has died, and what it held is to be reclaimed.
            if ready and len(held) == 1 and not worker.places:
                self._dispatcher.on_batch_started(worker, now_ns)
            else:
                self._dispatcher.arm_batch_timeout(worker, now_ns)
            worker.began_ns = held[0].mark.dispatched_ns
            # Whether that was done is not known.
            worker.wake()

    def _end_unreadable(self, number: int) -> None:
        self._unreadable_workers.add(number)
        self._end_worker(number)

    def _adopt_slots(self) -> None:
        if self._unreadable_workers:
            return
        for ref, state in self._slots.published():
            if state is State.FREE:
                # The process that answered it may have died before it posted that.
                self._slots.repeat(ref)
            elif ref not in self._in_flight:
                self._to_requeue.append(ref)

    def _requeue(self, ref: int, now_ns: int) -> None:
        request = self._slots.read(ref)
        if request is None:
            self._refuse_spoilt(ref)
        else:
            self.gate.hold([request], now_ns)
            self._take_in(request, now_ns)
            self._dispatcher.answer_cancelled([ref], now_ns)

    def _take_reports(self, number: int, words: list[int] | None, now_ns: int) -> None:
        if words is None or (received := read_reports(words)) is None:
            self._counters.add(CollectorCounter.CORRUPT_RINGS)
            return
        worker = self._workers.get(number)
        if worker is None and self._pool.outdated:
            # The worker may know the other table.
            self._follow(now_ns)
            worker = self._workers.get(number)
        if worker is None:
            if any(report.kind is ReportKind.READY for report in received):
                # The table had it once, and no longer by the time this collector began.
                self._notify_supervisor(WorkerReleased(number))
            return
        self._agenda.add(worker.model.reference)
        for report in received:
            kind, first, second, _ = report
            if kind is ReportKind.READY:
                if not worker.ready:
                    self._worker_ready(worker, now_ns)
            elif (place := worker.find(first)) < 0:
                if kind is ReportKind.MOST_ROWS:
                    worker.model.roster.list_place(worker)
            elif kind is ReportKind.RUNS_AGAIN:
                worker.next_ns = 0
                self._dispatcher.arm_batch_timeout(worker, now_ns)
            elif kind in _DROPPED:
                worker.model.counters.add(_DROPPED[kind], second)
                worker.left_out += second
            else:
                self._batch_done(worker, place, report, now_ns)
        if worker.ready:
            self._pool.expected.discard(number)

    def _worker_ready(self, worker: Worker, now_ns: int) -> None:
        worker.ready = True
        if worker.leaving:
            return
        model = worker.model
        model.roster.add(worker)
        model.health.worker_ready(worker.number, now_ns)
        tried = cost_profile.read(self._segment, worker.number)
        model.learn(worker, tried, device_pace.read(self._segment, worker.number))
        if model.spec.state == LOADING and model.roster.ready == model.roster.running:
            self._notify_supervisor(EntryLoaded(model.spec.reference))

    def _batch_done(self, worker: Worker, place: int, report: Report, now_ns: int) -> None:
        kind, _, rows, spent = report
        model, run_ns, places = worker.model, spent.infer_ns, worker.model.spec.places
        mark, requests, costs, priority = worker.batches.pop(place)
        if places:
            worker.began_ns = mark.dispatched_ns
        cycle_ns = max(now_ns - worker.began_ns, 0)
        if run_ns:
            times = model.times
            times.ran(cycle_ns, worker.began_ns, now_ns, model.roster.ready, worker.remote)
            if times.by_size is not None:
                times.by_size.ran(padded_rows(mark.rows, model.policy.sizes), cycle_ns)
        # Rows of a model in steps wait for no company, as each is a batch.
        if run_ns and cycle_ns >= COSTLY_NS and not places:
            # Its report was posted behind the answers, and may have waited to be read.
            posted_ns = worker.began_ns + spent.input_ns + run_ns + spent.output_ns
            model.lingering.answered(mark.rows, cycle_ns, min(posted_ns, now_ns))
        if run_ns and self.gate.on:
            self.gate.charge(requests, costs, run_ns, now_ns)
        if requests[0].model == model.spec.reference:
            self._dispatcher.forget(requests)
        else:
            self._dispatcher.pass_on(self._pool.chain(requests[0].model), requests, now_ns)
        ran = len(requests)
        if worker.left_out:
            ran, rows = max(ran - worker.left_out, 0), min(max(rows, 1), mark.rows)
            worker.left_out = 0
        else:
            rows = mark.rows
        if any(spent):
            shares = class_shares(requests, costs, run_ns) if priority == MIXED else ()
            model.counters.ran(ran, rows, spent, priority, shares)
        model.roster.mark_unavailable(worker)
        if places:
            self._dispatcher.on_row_ended(worker, now_ns)
        elif worker.batches:
            self._dispatcher.on_batch_started(worker, now_ns)
        else:
            self._limits.drop(worker.number)
            idles = not worker.ending and not worker.leaving
            if idles:
                model.roster.mark_idle(worker)
            # Without a ready worker, nothing is left that could count as stuck.
            if idles or not model.roster.ready:
                model.health.disarm_stuck()
        if kind is ReportKind.FAILED:
            model.counters.add(ModelCounter.FAILED)

    def _take_submissions(self, lane: int, references: list[int] | None, now_ns: int) -> None:
        if references is None:
            self._counters.add(CollectorCounter.CORRUPT_RINGS)
            return
        if self._pool.outdated:
            # Who sent them may know the other table.
            self._follow(now_ns)
        requests, spoilt, cancelled, strays = self._read_new(lane, references)
        further: list[Request] = []
        if len(requests) < len(references):
            if is_part(max(references)):
                submitted = set(references)
                references = [*dict.fromkeys(map(without_part, references))]
                requests, spoilt, cancelled, strays = self._read_new(lane, references)
                further = [request for request in requests if request.ref not in submitted]
                self._count_parts(further)
            cancelled += self._in_flight.keys() & references
        if strays or spoilt:
            self._counters.add(CollectorCounter.CORRUPT_SLOTS, strays)
            for ref in spoilt:
                self._refuse_spoilt(ref)
        if self.gate.on:
            parts = {part.ref for part in further}
            requests = self.gate.admit(requests, parts, self._models, now_ns)
        if len(requests) < _FEW or not self._take_in_uniform(requests, now_ns):
            for request in requests:
                if request.ref not in self._in_flight:
                    self._take_in(request, now_ns)
        self._dispatcher.answer_cancelled(cancelled, now_ns)

    def _read_new(self, lane: int, references: list[int]) -> Opened:
        """Read those not yet taken in, as `EngineSlots.read_open` does; it finds none with PART."""
        if not self._in_flight.keys().isdisjoint(references):
            references = [ref for ref in references if ref not in self._in_flight]
        return self._slots.read_open(lane, references)

    def _count_parts(self, requests: list[Request]) -> None:
        for request in requests:
            if (model := self._models.get(request.model)) is not None:
                model.counters.add(ModelCounter.PARTS)

    def _take_in_uniform(self, requests: list[Request], now_ns: int) -> bool:
        """Take in requests to one model; False, with nothing done, if one needs a closer look."""
        refs, models, rows, _, keys, _, starts, _, accepted_ns, due_ns, accounts = columns(requests)
        model, words = self._models.get(models[0]), without_repeats(accounts)
        row_count, earliest_ns = sum(rows), min(due_ns)
        if (
            model is None
            or models.count(models[0]) < len(models)
            or keys.count(keys[0]) < len(keys)
            or max(rows) > model.most_rows
            or self._quarantine.count
            or min(accepted_ns) < now_ns - model.spec.timeout_ns
            or max(accepted_ns) > now_ns
            or (
                (len(words) > 1 or words[0] != model.queues.word)
                and may_be_late(model, row_count - rows[-1], earliest_ns, now_ns)
            )
            or (key := model.grouping.shared_key(starts, keys[0])) is None
            or len(fresh := dict.fromkeys(refs, model.place(key))) < len(refs)
        ):
            return False
        self._in_flight.update(fresh)
        model.take_in(key, requests, row_count, earliest_ns, words)
        return True

    def _refuse_spoilt(self, ref: int) -> None:
        self._counters.add(CollectorCounter.CORRUPT_SLOTS)
        self._slots.answer(ref, Status.CORRUPT, 0, NO_BATCH, 0)

    def _take_in(self, request: Request, now_ns: int) -> None:
        self._in_flight[request.ref] = None
        model = self._models.get(request.model) or self._pool.replacement_of_gone(request.model)
        if model is None:
            self._dispatcher.fail(request, Status.NO_WORKER, UNLOADED, NO_BATCH, now_ns)
            return
        plain = request.rows <= model.most_rows and not self._quarantine.count
        if not plain or request.account != model.queues.word:
            refused = refusal(model, request, self._quarantine, now_ns)
            if refused is not None:
                if refused.status is Status.WORKER_DIED:
                    self._counters.add(CollectorCounter.QUARANTINED)
                model.turned_away(request.rows)
                self._dispatcher.fail(request, refused.status, refused.text, NO_BATCH, now_ns)
                return
        if not now_ns - model.spec.timeout_ns <= request.accepted_ns <= now_ns:
            # An honest frontend has accepted it after the clock was read. A frontend with a wrong
            # clock must not make other requests wait longer.
            earliest_ns = max(now_ns - model.spec.timeout_ns, 0)
            accepted_ns = min(max(request.accepted_ns, earliest_ns), now_ns)
            request = request._replace(accepted_ns=accepted_ns)
        key = model.grouping.key(request) if request.key_bytes else b""
        self._in_flight[request.ref] = model.place(key)
        model.take_in(key, [request], request.rows, request.deadline_ns, (request.account,))
