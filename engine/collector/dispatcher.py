"""Dispatch of waiting requests to workers.

The collector calls `serve_all` in each step; it serves the models on the agenda. Only
`ringbatch.engine.collector.batching` decides when a batch closes. This module carries the decision
out: it gives the batch to a worker, and answers late or cancelled requests without a worker. It
also publishes the time that a further request would take.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ringbatch.engine.collector.account_gate import AccountGate
from ringbatch.engine.collector.agenda import Agenda
from ringbatch.engine.collector.backlog import standing, together
from ringbatch.engine.collector.batching import Pending, Wait, decide, taking
from ringbatch.engine.collector.chain_model import ChainModel
from ringbatch.engine.collector.instants import Instants
from ringbatch.engine.collector.local_or_remote import LocalRemoteTimes, hold_until
from ringbatch.engine.collector.models import Batch, InFlight, Model, Worker
from ringbatch.engine.collector.queue import Queue
from ringbatch.engine.collector.usage import SEVERAL
from ringbatch.engine.ipc.messages import TOO_LATE, task_words
from ringbatch.shm.account import MIXED, PriorityClass, all_usual, common_class
from ringbatch.shm.chain import step_in
from ringbatch.shm.counters import ModelCounter
from ringbatch.shm.engine_slots import BatchMark, EngineSlots, Request, columns
from ringbatch.shm.lateness import least_bound_ns
from ringbatch.shm.readiness import TABLE, ModelState, first, refuses, state_without_worker
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import Reason, Status
from ringbatch.shm.tuples import unchecked_tuple

UNLOADED = "the model was unloaded or changed while the request was on its way; send it again"
NO_BATCH = BatchMark(0, 0, Reason.DEADLINE, 0)
"""Mark of a request that was in no batch."""
_NORMAL: Final = int(PriorityClass.NORMAL)
_REQUESTS: Final = int(ModelCounter.REQUESTS)
_ROWS: Final = int(ModelCounter.ROWS)


class Dispatcher:
    """The collector's hand that gives out batches.

    Args:
        segment: the memory.
        slots: of all lanes, for the collector.
        in_flight: the requests that the collector has taken in, shared with it.
        agenda: holds the instants at which to look at models again.
        gate: of accounts with limits.
    """

    def __init__(
        self,
        segment: Segment,
        slots: EngineSlots,
        in_flight: InFlight,
        agenda: Agenda,
        gate: AccountGate,
    ) -> None:
        self._segment = segment
        self._agenda = agenda
        self._words = segment.words
        self._slots = slots
        self._in_flight = in_flight
        self._gate = gate
        self.next_batch = 0
        """The number of the batch that is dispatched next."""
        self.limits = Instants()
        """Instants from which a worker's batch has run too long, by the worker's number."""

    def publish_initial_state(self, model: Model) -> None:
        """Publish how many workers a model has, before the first step."""
        if isinstance(model, ChainModel):
            self._serve_chain(model, 0)
        else:
            model.health.publish_worker_count(model.roster.ready)

    def serve_all(self, models: Mapping[int, Model], now_ns: int) -> None:
        """Serve the models on the agenda, and chains after the models of their steps.

        Args:
            models: by reference.
            now_ns: the time.
        """
        chains: dict[int, None] = {}
        for reference in self._agenda.take(now_ns):
            model = models.get(reference)
            if isinstance(model, ChainModel):
                chains[reference] = None
            elif model is not None:
                self._serve(model, now_ns)
                if model.chains:
                    chains.update(dict.fromkeys(model.chains))
        for reference in chains:
            chain = models[reference]
            assert isinstance(chain, ChainModel), "models know chains of the same table"
            self._serve_chain(chain, now_ns)

    def _serve(self, model: Model, now_ns: int) -> None:
        """Dispatch all batches that close now, and put the next instant on the agenda."""
        if model.taken_requests:
            model.counters.add(_REQUESTS, model.taken_requests)
            model.counters.add(_ROWS, model.taken_rows)
            model.taken_requests = model.taken_rows = 0
        roster = model.roster
        if not roster.ready:
            self._serve_without_worker(model, now_ns)
        until_ns = self._serve_retries(model, now_ns) if model.retries else None
        # In steps, requests that run again wait for a worker without rows: one is to become so.
        empties = bool(roster.places and model.retries) and roster.ready >= roster.running
        if model.queues.rows and not empties:
            waits_ns = self._serve_queues(model, now_ns)
            if until_ns is None or (waits_ns is not None and waits_ns < until_ns):
                until_ns = waits_ns
        if model.queues.overtaken:
            # Of requests that were cancelled.
            model.queues.overtaken.clear()
        self._update_backlog(model, now_ns)
        rings = bool(roster.idle) or model.wants_next
        next_ns = model.next_ns
        if next_ns is not None and now_ns >= next_ns:
            rings = True
        elif next_ns is not None and (until_ns is None or next_ns < until_ns):
            until_ns = next_ns
        if until_ns != model.until_ns:
            model.until_ns = until_ns
            self._agenda.wait(model.reference, until_ns)
        if rings != model.rings:
            model.rings = rings
            self._agenda.ring(model.reference, rings=rings)

    def _serve_without_worker(self, model: Model, now_ns: int) -> None:
        """Publish the state of a model without a worker; answer its requests if none will come."""
        if model.retiring:
            return
        health, segment = model.health, self._segment
        health.publish_state(
            state_without_worker(self._words, segment.layout, model.spec, health.state)
        )
        if refuses(health.state):
            for request in model.empty():
                self.fail(request, Status.NO_WORKER, "", NO_BATCH, now_ns)

    def _update_backlog(self, model: Model, now_ns: int) -> None:
        queues, most_ns = model.queues, model.spec.max_queue_wait_ns
        if most_ns:
            model.since_ns, stands = standing(model.since_ns, queues.rows, now_ns)
            most_ns = max(most_ns, least_bound_ns(model.times.cycle_ns)) if stands else 0
        if not model.roster.ready:
            model.health.publish_awaited(awaited=bool(queues.rows or model.retries))
        least_rows, account = 0, queues.word
        if account == SEVERAL:
            least_rows, account = queues.least_rows, queues.account
        backlog = model.expected(queues.rows, least_rows, account, most_ns)
        if backlog != model.backlog:
            model.backlog = backlog
            model.backlog_words.publish(backlog)

    def pass_on(self, chain: ChainModel | None, requests: list[Request], now_ns: int) -> None:
        """Send the unanswered requests of a batch on to the next step of their chain.

        Args:
            chain: of which it was a step; None if there is none any more, or none was.
            requests: of the batch.
            now_ns: the time.
        """
        references = [request.ref for request in requests]
        left = self._slots.open_ones(references)
        if len(left) < len(references):
            going_on = set(left)
            self.forget([request for request in requests if request.ref not in going_on])
            requests = [request for request in requests if request.ref in going_on]
            if not requests:
                return
        if chain is not None and step_in(requests[0].model) + 1 < len(chain.steps):
            chain.pass_on(requests, now_ns)
            self.answer_cancelled(left, now_ns)
            return
        for request in requests:
            self.fail(request, Status.NO_WORKER, UNLOADED, NO_BATCH, now_ns)

    def _serve_chain(self, chain: ChainModel, now_ns: int) -> None:
        """Count a chain's new requests, and publish the health and backlog of its steps."""
        for request in chain.empty() if chain.queues else ():
            self.fail(request, Status.NO_WORKER, UNLOADED, NO_BATCH, now_ns)
        if chain.taken_requests:
            chain.counters.add(_REQUESTS, chain.taken_requests)
            chain.counters.add(_ROWS, chain.taken_rows)
            chain.taken_requests = chain.taken_rows = 0
        steps = [step for step in chain.steps if step is not None]
        state, ready = ModelState.LOADING, 0
        if len(steps) == len(chain.steps):
            state = first([step.health.state for step in steps])
            # One that the load has left without a worker gets one when a request comes.
            ready = min([s.roster.ready or int(TABLE[s.health.state].ready) for s in steps])
        if ready != chain.roster.ready:
            chain.roster.ready = ready
            chain.health.publish_worker_count(ready)
        chain.health.publish_state(state)
        chain.health.as_worst([step.health for step in steps])
        backlog = together([step.backlog for step in steps])
        if chain.backlog != backlog:
            chain.backlog = backlog
            chain.backlog_words.publish(backlog)

    def _serve_retries(self, model: Model, now_ns: int) -> int | None:
        """Dispatch requests that run once more; return when the next one of the rest expires."""
        while model.retries:
            decision = self._decide(model, model.retries.pending(), now_ns)
            if isinstance(decision, Wait):
                break
            self._dispatch(model, model.retries.take(), decision, now_ns)
        self._drop(model, model.retries.expire(now_ns), now_ns)
        return model.retries.earliest_ns

    def _serve_queues(self, model: Model, now_ns: int) -> int | None:
        """Dispatch batches of the queues, and return the instant of the next look.

        If no worker can take a batch now, only deadlines matter.
        """
        queues, idle = model.queues, model.roster.idle
        earliest_ns = queues.earliest_ns
        if earliest_ns is not None and earliest_ns <= now_ns:
            for request in queues.expire(now_ns):
                self._drop_expired(model, request, now_ns)
        until_ns: int | None = None
        while queues.rows and (idle or model.takes_next or model.next_ns is not None):
            wait = self._close(model, queues.first(now_ns), now_ns)
            if wait is not None and idle and len(queues) > 1:
                wait = self._close_another(model, wait, now_ns)
            if wait is not None:
                until_ns = wait.until_ns
                break
        if not queues.rows:
            return None
        earliest_ns = queues.earliest_ns
        if until_ns is None or (earliest_ns is not None and earliest_ns < until_ns):
            return earliest_ns
        return until_ns

    def _close_another(self, model: Model, wait: Wait, now_ns: int) -> Wait | None:
        """Dispatch a batch of a queue that does not go first; return as `_close` does.

        Only three kinds of queues can close: full queues, the queue with the oldest request, and
        the queue with the earliest deadline.
        """
        queues, until_ns = model.queues, wait.until_ns
        while (grown := queues.take_grown()) is not None:
            if self._close(model, grown, now_ns) is None:
                return None
        for queue in (queues.oldest(), queues.most_urgent()):
            other = self._close(model, queue, now_ns)
            if other is None:
                return None
            if until_ns is None or (other.until_ns is not None and other.until_ns < until_ns):
                until_ns = other.until_ns
        return Wait(until_ns)

    def _close(self, model: Model, queue: Queue, now_ns: int) -> Wait | None:
        """Dispatch a batch of a queue if it closes now; else return how long it waits.

        Args:
            model: the owner of the queue.
            queue: a queue that is not empty.
            now_ns: the time.
        """
        queues, policy = model.queues, model.policy
        cap = policy.max_batch_size
        if queue.rows > cap:
            # If more waits than one batch takes, a request that would be answered too late must
            # not take a place in it.
            # Of a model in steps, a client may want the parts that come in time.
            run_ns = 0 if model.spec.places else model.times.cycle_ns
            for request in queues.expire_in(queue, now_ns + run_ns):
                self._drop_expired(model, request, now_ns)
            if not queue.rows:
                return None
        idle = bool(model.roster.idle) or model.next_ns is not None
        pending = queue.pending(cap, others=len(queues) > 1, idle=idle)
        decision = self._decide(model, pending, now_ns)
        if isinstance(decision, Wait):
            return decision
        taken = queues.take(queue, taking(queue.rows, policy))
        queues.end_turn(queue, now_ns)
        self._dispatch(model, taken, decision, now_ns)
        return None

    def _decide(self, model: Model, pending: Pending, now_ns: int) -> Reason | Wait:
        """Return the reason to close a batch of a model's waiting requests now, or the wait."""
        roster, times = model.roster, model.times
        idle_workers = len(roster.idle)
        if roster.places and pending.retry:
            # One of these may kill the worker.
            idle_workers = len([worker for worker in roster.idle if not worker.batches])
        # Where another worker is free or soon will be, those who come back are for that one.
        lingers = model.lingering.watching and idle_workers == roster.ready == 1
        decision = decide(
            pending,
            now_ns,
            model.policy,
            idle_workers,
            takes_next=not idle_workers and model.takes_next,
            next_ns=None if idle_workers else model.next_ns,
            service_ns=times.service_ns,
            usual_ns=times.cycle_ns,
            draining=self._segment.draining,
            linger_until_ns=model.lingering.until_ns if lingers else 0,
        )
        if times.by_place is None or not idle_workers or isinstance(decision, Wait):
            return decision
        until_ns = self._hold_until(model, times.by_place, pending, now_ns)
        return decision if until_ns is None else Wait(until_ns)

    def _hold_until(
        self, model: Model, times: LocalRemoteTimes, pending: Pending, now_ns: int
    ) -> int | None:
        """Return until when a batch waits for a local worker; None if it goes at once.

        If more requests wait than it takes, a remote worker helps all that are behind it.
        """
        crowded = pending.others or pending.rows > model.policy.max_batch_size
        roster = model.roster
        if not roster.idle[-1].remote or pending.retry or crowded:
            return None
        return hold_until(now_ns, [w.began_ns for w in roster.busy if not w.remote], times)

    def _dispatch(self, model: Model, requests: list[Request], reason: Reason, now_ns: int) -> None:
        """Give a batch to a worker, one that is idle before one that is busy."""
        refs, models, rows, _, _, _, _, _, accepted_ns, deadlines_ns, accounts = columns(requests)
        if min(deadlines_ns) <= now_ns or not self._slots.all_wanted(refs):
            requests = self._wanted(model, requests, now_ns)
            if not requests:
                return
            refs, models, rows, *_, accepted_ns, deadlines_ns, accounts = columns(requests)
        if model.queues.overtaken:
            self._mark_overtaken(model, requests)
        row_count = sum(rows)
        mark = unchecked_tuple(BatchMark, (self.next_batch, row_count, reason, now_ns, 0, 0, 0, 0))
        self.next_batch += 1
        idle = bool(model.roster.idle)
        worker = model.roster.take_idle() if idle else model.take_busy()
        priority = _NORMAL if all_usual(accounts) else common_class(accounts)
        divides = self._gate.on or priority == MIXED
        costs = model.queues.costs(requests) if divides else None
        worker.batches.append(unchecked_tuple(Batch, (mark, requests, costs, priority)))
        if idle:
            if worker.places:
                self.on_row_joined(worker, now_ns)
            else:
                self.on_batch_started(worker, now_ns)
        fits = worker.tasks.offer(task_words(mark, refs, models[0]))
        assert fits, "a worker holds two tasks, or one for each place, and its ring has room"
        worker.wake()
        model.counters.dispatched(accepted_ns, now_ns, reason, row_count, priority, accounts)

    def _mark_overtaken(self, model: Model, requests: Iterable[Request]) -> None:
        """Store in the slots of requests, while they are the collector's, who was overtaken."""
        overtaken = model.queues.overtaken
        for request in requests:
            since_ns = overtaken.pop(request.ref, None)
            # A chain's queue is the one of its first step: later waits are part of its run.
            if since_ns is not None and not step_in(request.model):
                self._slots.store_overtaken(request.ref, since_ns)

    def _wanted(self, model: Model, requests: list[Request], now_ns: int) -> list[Request]:
        """Return the requests whose clients still wait; give up the others."""
        is_wanted = self._slots.wanted
        wanted = [r for r in requests if r.deadline_ns > now_ns and is_wanted(r.ref)]
        runs = {request.ref for request in wanted}
        self._drop(model, [r for r in requests if r.ref not in runs], now_ns)
        return wanted

    def answer_cancelled(self, references: Iterable[int], now_ns: int) -> None:
        """Answer the cancelled requests among these that still wait.

        Their slots and memory become free at once. A worker answers the requests that it holds.

        Args:
            references: of requests; some may be unknown here.
            now_ns: the time.
        """
        for ref in references:
            place = self._in_flight.get(ref)
            if place is not None and not self._slots.wanted(ref):
                request = place.model.remove(place.key, ref)
                if request is not None:
                    self._drop(place.model, [request], now_ns)

    def _drop(self, model: Model, requests: list[Request], now_ns: int) -> None:
        self.forget(requests)
        for request in requests:
            status = self._slots.give_up(request, TOO_LATE, NO_BATCH, now_ns)
            expired = status is Status.EXPIRED
            model.counters.add(ModelCounter.EXPIRED if expired else ModelCounter.CANCELLED)

    def _drop_expired(self, model: Model, request: Request, now_ns: int) -> None:
        model.counters.add(ModelCounter.EXPIRED)
        if model.queues.overtaken:
            self._mark_overtaken(model, [request])
        self.fail(request, Status.EXPIRED, TOO_LATE, NO_BATCH, now_ns)

    def arm_batch_timeout(self, worker: Worker, now_ns: int) -> None:
        """Arm the batch timeout: a worker begins a run of its batch."""
        model = worker.model
        self.limits.put(worker.number, now_ns + model.spec.batch_timeout_ns)
        if not model.roster.idle:
            model.health.arm_stuck(now_ns, model.times.cycle_ns, model.spec.batch_timeout_ns)

    def on_batch_started(self, worker: Worker, now_ns: int) -> None:
        """Record that a worker begins with the first batch that it holds."""
        worker.began_ns = now_ns
        if not worker.ending and not worker.leaving:
            worker.model.roster.busy.append(worker)
        if worker.lead_ns:
            worker.model.expect_end(worker)
        self.arm_batch_timeout(worker, now_ns)

    def on_row_joined(self, worker: Worker, now_ns: int) -> None:
        """Record that a worker of a model in steps was given one more batch.

        A worker that hangs gets no more time by what joins it.
        """
        model = worker.model
        model.roster.list_place(worker)
        if len(worker.batches) == 1:
            self.arm_batch_timeout(worker, now_ns)
        elif not model.roster.idle:
            model.health.arm_stuck(now_ns, model.times.cycle_ns, model.spec.batch_timeout_ns)

    def on_row_ended(self, worker: Worker, now_ns: int) -> None:
        """Record that a worker of a model in steps has one batch less."""
        model = worker.model
        model.roster.list_place(worker)
        if worker.batches:
            self.arm_batch_timeout(worker, now_ns)
        else:
            self.limits.drop(worker.number)
        if model.roster.idle or not model.roster.ready:
            model.health.disarm_stuck()

    def fail(
        self, request: Request, status: Status, text: str, mark: BatchMark, now_ns: int
    ) -> None:
        """Answer a request with a text, and forget it."""
        self.forget([request])
        self._slots.fail(request, status, text, mark, now_ns)

    def forget(self, requests: Sequence[Request]) -> None:
        """Forget requests that are answered, or are about to be."""
        for request in requests:
            del self._in_flight[request.ref]
        if self._gate.on:
            self._gate.leave(requests)
