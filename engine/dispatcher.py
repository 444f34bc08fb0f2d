"""Which of the requests that wait go to which worker now.

`serve` is asked for each model whenever anything may have changed. The decisions are those of
`ringbatch.engine.batching`; here they are carried out: a batch goes to a worker, what is too late
or no longer wanted is answered without one, and the time that a further request would take is told.
"""

from ringbatch.engine.backlog import estimate
from ringbatch.engine.batching import Wait, decide, taking
from ringbatch.engine.members import Batch, Model, Worker
from ringbatch.engine.messages import TOO_LATE, task_words
from ringbatch.engine.queues import Queue
from ringbatch.shm.counters import BATCHES_BY_REASON, BATCHES_BY_ROWS, ModelCounter, rows_bucket
from ringbatch.shm.holder import BatchMark, Holder, Request, columns
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import Reason, Status
from ringbatch.shm.tuples import new_tuple

NO_BATCH = BatchMark(0, 0, Reason.DEADLINE, 0)
"""What is said of the batch of a request that was in none."""


class Dispatcher:
    """The collector's hand that gives out batches.

    Args:
        segment: the memory.
        holder: the collector's.
        known: the collector's: by reference, the requests taken in and not yet answered.
        first_batch: the number of the first batch.
    """

    def __init__(
        self, segment: Segment, holder: Holder, known: dict[int, int], first_batch: int
    ) -> None:
        self._segment = segment
        self._words = segment.words
        self._holder = holder
        self._known = known
        self._batch = first_batch

    def serve(self, model: Model, now_ns: int) -> int | None:
        """Dispatch what can be; the instant by which something else must happen."""
        if model.taken_requests:
            model.counters.add(ModelCounter.REQUESTS, model.taken_requests)
            model.counters.add(ModelCounter.ROWS, model.taken_rows)
            model.taken_requests = model.taken_rows = 0
        until_ns = self._serve_again(model, now_ns) if model.again else None
        if model.queues:
            waits_ns = self._serve_queues(model, now_ns)
            if until_ns is None or (waits_ns is not None and waits_ns < until_ns):
                until_ns = waits_ns
        self._publish_backlog(model)
        return until_ns

    def _publish_backlog(self, model: Model) -> None:
        idle, ready = len(model.idle), model.ready
        backlog = estimate(
            model.queues.rows,
            model.policy.max_batch_size,
            idle,
            ready,
            model.cycle_ns,
            behind=ready - idle - len(model.busy),
        )
        if backlog != model.backlog:
            model.backlog = backlog
            self.tell_backlog(model)

    def tell_backlog(self, model: Model) -> None:
        """Say in the segment how long a request to a model would take."""
        self._words[model.row_word] = model.backlog.row_ns
        self._words[model.answer_word] = model.backlog.answer_ns

    def _serve_again(self, model: Model, now_ns: int) -> int | None:
        """Dispatch what runs once more; the instant by which some of the rest expires."""
        while model.again and model.idle:
            self._dispatch(model, model.again.take(), Reason.RETRY, now_ns)
        self._drop(model, model.again.expire(now_ns), now_ns)
        return model.again.earliest_ns

    def _serve_queues(self, model: Model, now_ns: int) -> int | None:
        """Dispatch what can be of what waits for the first time; when to look again."""
        until_ns, first = None, True
        for queue in model.queues:
            # Where more waits than one batch takes, none of its places is for an answer that
            # would come too late.
            crowded = queue.rows > model.policy.max_batch_size
            for request in queue.expire(now_ns + model.cycle_ns * crowded):
                self._drop_expired(model, request, now_ns)
            wait_ns = self._serve_queue(model, queue, now_ns, first=first)
            if wait_ns is not None:
                first = False
                until_ns = wait_ns if until_ns is None else min(until_ns, wait_ns)
        model.queues.drop_empty()
        return until_ns

    def _serve_queue(self, model: Model, queue: Queue, now_ns: int, *, first: bool) -> int | None:
        """Dispatch what can be of one queue; when to look again, None once it is empty.

        Args:
            model: whose queue it is.
            queue: of requests that may share a batch.
            now_ns: the time.
            first: whether no older request waits in another.
        """
        policy = model.policy
        while queue.rows:
            if not model.idle:
                cap = policy.max_batch_size
                if not (first and queue.rows >= cap and model.takes_next):
                    return queue.earliest_ns
                self._dispatch(model, queue.take(cap), Reason.FULL, now_ns)
                continue
            decision = decide(
                queue.pending(policy.max_batch_size, len(model.queues) > 1),
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
            self._dispatch(model, taken, decision, now_ns)
        return None

    def _dispatch(self, model: Model, requests: list[Request], reason: Reason, now_ns: int) -> None:
        """Give a batch to a worker, one that is idle before one that is busy."""
        refs, _, rows, _, _, _, _, _, accepted_ns, deadlines_ns = columns(requests)
        if min(deadlines_ns) <= now_ns or not self._holder.all_wanted(refs):
            requests = self._wanted(model, requests, now_ns)
            if not requests:
                return
            refs, _, rows, _, _, _, _, _, accepted_ns, deadlines_ns = columns(requests)
        mark = new_tuple(BatchMark, (self._batch, sum(rows), reason, now_ns))
        self._batch += 1
        idle = bool(model.idle)
        worker = model.idle.pop() if idle else model.busy.pop(0)
        worker.batches.append(new_tuple(Batch, (mark, requests)))
        if idle:
            self.begins(worker, now_ns)
        fits = worker.tasks.offer(task_words(mark, refs))
        assert fits, "a worker holds two tasks, and its ring has room for the largest"
        worker.wake()
        counters = model.counters
        counters.add(ModelCounter.WAIT_NS, now_ns * len(refs) - sum(accepted_ns))
        counters.add(BATCHES_BY_REASON + reason)
        counters.add(BATCHES_BY_ROWS + rows_bucket(mark.rows))
        if reason is Reason.RETRY:
            counters.add(ModelCounter.RETRIED, len(refs))

    def _wanted(self, model: Model, requests: list[Request], now_ns: int) -> list[Request]:
        """Those for which somebody still waits; the others are given up."""
        is_wanted = self._holder.wanted
        wanted = [r for r in requests if r.deadline_ns > now_ns and is_wanted(r.ref)]
        runs = {request.ref for request in wanted}
        self._drop(model, [r for r in requests if r.ref not in runs], now_ns)
        return wanted

    def _drop(self, model: Model, requests: list[Request], now_ns: int) -> None:
        for request in requests:
            del self._known[request.ref]
            status = self._holder.give_up(request, TOO_LATE, NO_BATCH, now_ns)
            expired = status is Status.EXPIRED
            model.counters.add(ModelCounter.EXPIRED if expired else ModelCounter.CANCELLED)

    def _drop_expired(self, model: Model, request: Request, now_ns: int) -> None:
        model.counters.add(ModelCounter.EXPIRED)
        self.fail(request, Status.EXPIRED, TOO_LATE, NO_BATCH, now_ns)

    def runs(self, worker: Worker, now_ns: int) -> None:
        """A worker begins a run of its batch."""
        model = worker.model
        worker.limit_ns = now_ns + model.spec.batch_timeout_ns
        if not model.idle:
            model.health.all_busy(now_ns, model.cycle_ns, model.spec.batch_timeout_ns)

    def begins(self, worker: Worker, now_ns: int) -> None:
        """A worker begins with the first batch that it holds."""
        worker.began_ns = now_ns
        if not worker.ending and not worker.leaving:
            worker.model.busy.append(worker)
        self.runs(worker, now_ns)

    def fail(
        self, request: Request, status: Status, text: str, mark: BatchMark, now_ns: int
    ) -> None:
        """Answer a request with a text, and forget it."""
        del self._known[request.ref]
        self._holder.fail(request, status, text, mark, now_ns)
