"""The engine with one thing wrong at a time, each of which the simulation must find.

See `simulation.mutation`.
"""

from typing import Final

from simulation.device_mutants import DEVICE_MUTANTS
from simulation.mutation import Late, Mutant, Several
from simulation.steps_mutants import STEPS_MUTANTS

from ringbatch.engine.collector import account_limits, takeover
from ringbatch.engine.collector.account_gate import AccountGate
from ringbatch.engine.collector.account_limits import AccountLimiter
from ringbatch.engine.collector.agenda import Agenda
from ringbatch.engine.collector.collector import Collector
from ringbatch.engine.collector.dead_batches import DeadBatches
from ringbatch.engine.collector.dispatcher import Dispatcher
from ringbatch.engine.collector.fair_order import FairOrder
from ringbatch.engine.collector.models import Model
from ringbatch.engine.collector.queues import Queues
from ringbatch.engine.collector.usage import Usage
from ringbatch.engine.worker.forwarder import Forwarder
from ringbatch.engine.worker.parts_runner import PartsRunner
from ringbatch.engine.worker.runner import Runner
from ringbatch.engine.worker.worker import Worker
from ringbatch.frontend.request.gateway import Gateway
from ringbatch.frontend.request.parts_task import RequestInParts
from ringbatch.shm.engine_slots import EngineSlots
from ringbatch.shm.lane import Lane
from ringbatch.shm.model_counters import ModelCounters
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot_memory import SlotMemory

GOES_ON: Final = "a dead worker's batch goes on from the answers that its collector began"
LIES_OVER: Final = "the text of an error lies over tensors that earlier steps have kept"
DONE_FIRST: Final = "the answer of a chain is DONE before its size"
CHAIN_MUTANTS: Final[dict[str, Mutant | Late]] = {
    "an answered request goes on to the next step": Mutant(
        Dispatcher, "pass_on", "left = self._slots.open_ones(references)", "left = references"
    ),
    "a request that a step is done with waits for nothing": Mutant(
        Dispatcher, "pass_on", "chain.pass_on(requests, now_ns)", "pass"
    ),
    "a collector takes a step under way for the one behind it": Mutant(
        takeover, "requests_of", "_replace(model=asked)", "_replace(model=asked + (1 << 56))"
    ),
    "a step in the middle is run twice": Mutant(
        Worker,
        "step",
        "runner.run(references, mark, now_ns, asked)",
        "runner.run(references, mark, now_ns, asked)\n"
        "        if asked >> 56 == 1:\n"
        "            runner.run(references, mark, now_ns, asked)",
    ),
    "a request that a step passes on waits though it is cancelled": Mutant(
        Dispatcher, "pass_on", "self.answer_cancelled(left, now_ns)", "pass"
    ),
    LIES_OVER: Mutant(Runner, "_fail", "place.kept_bytes(request) if", "0 if"),
    GOES_ON: Mutant(Collector, "_adopt_worker", "references = []", "pass"),
    DONE_FIRST: Late(
        EngineSlots,
        "answer_later_step",
        "PACKED_BATCH.pack_into(",
        "store_release[first_done + slot * _SLOT_WORDS] =",
    ),
}
"""Mutants that are wrong with chains alone."""

NO_GUARD: Final = "a request of which a part is out runs again"
PARTS_LEFT: Final = "parts that are left behind the last notice are not read"
WISH_LEFT: Final = "a lane's next owner leaves the wish for parts of a dead one"
PARTS_MUTANTS: Final[dict[str, Mutant | Late | Several]] = {
    NO_GUARD: Several(
        (
            Mutant(
                DeadBatches, "_unanswered", "elif self._slots.part_is_out(request.ref):", "elif 0:"
            ),
            Mutant(PartsRunner, "_run_readable", "if stream.part_is_out", "if False"),
        )
    ),
    "nobody hears of a part": Mutant(
        EngineSlots,
        "post_part",
        "self._notices.add(slot_of(ref) >> self._lane_shift, ref)",
        "pass",
    ),
    PARTS_LEFT: Mutant(RequestInParts, "answered", "self._pass_all(slot)", "pass"),
    WISH_LEFT: Mutant(Lane, "_take_over", "self.words[first + SlotWords.PARTS_OF] = 0", "pass"),
}
"""Mutants that are wrong with answers in parts alone."""

LIMIT_MUTANTS: Final[dict[str, Mutant | Late]] = {
    "an account may have one request more in flight": Mutant(
        account_limits, "_refusal", "standing.in_flight >= most", "standing.in_flight > most"
    ),
    "an answered request stays in flight": Mutant(
        Dispatcher, "forget", "self._gate.leave(requests)", "pass"
    ),
    "an account is forgotten with its requests in flight": Mutant(
        AccountLimiter, "_begin", "if not standing.at_rest(now_ns):", "if False:"
    ),
    "a collector does not count requests that workers hold": Mutant(
        Collector, "_adopt_worker", "self.gate.hold(requests, now_ns)", "pass"
    ),
    "a collector does not count requests from before it": Mutant(
        Collector, "_requeue", "self.gate.hold([request], now_ns)", "pass"
    ),
    "a refusal at a limit is not counted": Mutant(
        AccountGate, "_refuse", "self._counters.add(_COUNTERS[limit])", "pass"
    ),
}
"""Mutants that are wrong with limits of accounts alone."""

MUTANTS: Final[dict[str, Mutant | Late | Several]] = {
    "a frontend takes an answer to an earlier request": Mutant(
        Lane,
        "collect",
        "[*map(expected.pop, references, repeat(_NO_SLOT))]",
        "[expected.pop(next((ref for ref in expected if (ref ^ word) % (1 << SLOT_BITS) == 0), 0),"
        " _NO_SLOT) for word in references]",
    ),
    "the collector takes in a request of an earlier generation": Mutant(
        EngineSlots,
        "read_open",
        "if control >> FLAG_BITS == ref >> SLOT_BITS != load_acquire[first + _DONE] >> FLAG_BITS:",
        "if control >> FLAG_BITS != load_acquire[first + _DONE] >> FLAG_BITS:",
    ),
    "the collector sleeps without a second look": Mutant(
        Collector,
        "prepare_to_sleep",
        "return not (self.rung_for_requests and self.has_news())",
        "return True",
    ),
    "an answer is posted before DONE": Mutant(
        EngineSlots,
        "answer",
        "self._store_release[first + _DONE] = done_word(ref, status)\n"
        "    self._answered.setdefault(slot >> self._lane_shift, []).append(ref)",
        "self._answered.setdefault(slot >> self._lane_shift, []).append(ref)\n"
        "    self.flush()\n"
        "    self._store_release[first + _DONE] = done_word(ref, status)",
    ),
    "answers to requests that are alike are posted before DONE": Mutant(
        EngineSlots,
        "answer_uniform",
        "store_release[done + slot * step] = word",
        "ref = reference(generation_in(word), slot)\n"
        "            self._answered.setdefault(slot >> self._lane_shift, []).append(ref)\n"
        "            self.flush()\n"
        "            store_release[done + slot * step] = word",
    ),
    "many answers that are alike are posted before DONE": Mutant(
        EngineSlots,
        "answer_uniform",
        "refs = np.array(references, dtype=np.uint64)\n",
        "refs = np.array(references, dtype=np.uint64)\n"
        "        for ref in references:\n"
        "            self._answered.setdefault(self.lane_of(ref), []).append(ref)\n"
        "        self.flush()\n",
    ),
    "a request is published before its bytes": Late(
        Lane, "send", "memory[request] = payload", "self._store_release[control] ="
    ),
    "a request is published before its header": Late(
        Lane, "send", "_store_header(", "self._store_release[control] ="
    ),
    "an answer is DONE before its details": Late(
        EngineSlots,
        "answer",
        "_store_details(",
        "self._store_release[first + _DONE] =",
    ),
    "a few answers that are alike are DONE before their details": Late(
        EngineSlots, "answer_uniform", "store(memory,", "store_release[done + slot * step] ="
    ),
    "many answers that are alike are DONE before their details": Late(
        EngineSlots, "answer_uniform", "self._details[slots] =", "self._dones[slots] ="
    ),
    "a forwarded answer is DONE before its bytes": Late(
        Forwarder, "_answer_each", "if fits:", "answer("
    ),
    "a refusal is DONE before its text": Late(
        EngineSlots, "fail", "self.memory[start:start + len(message)] =", "if kept_bytes is None:"
    ),
    "answers of a typed model are DONE before their numbers": Mutant(
        Runner,
        "_run_uniform",
        "size = codec.write_uniform(results, uniform)\n",
        "size = 8 * sizes.rows\n"
        "        slots.answer_uniform(uniform, _OK, size, mark, self._clock_ns())\n"
        "        codec.write_uniform(results, uniform)\n"
        "        return True, None\n",
    ),
    "a cancelled slot is free at once": Mutant(
        Lane, "cancel", "self._cancelled.add(slot)", "self.release(slot)"
    ),
    "a cancelled request is not submitted again": Mutant(
        Lane,
        "cancel",
        "self._unsubmitted.append(as_part(reference(generation, self._first_slot + slot)))",
        "pass",
    ),
    "nobody rings for a cancelled request": Mutant(
        Lane, "submit", "if withdraws or self.words", "if self.words"
    ),
    "a cancelled request is submitted a second time though it was not a first": Mutant(
        Lane, "submit", "if withdraws:\n", "if False:\n"
    ),
    "the collector looks at the new alone": Mutant(
        Collector, "_take_submissions", "cancelled += self._in_flight.keys() & references", "pass"
    ),
    "the collector takes in a cancelled request": Mutant(
        EngineSlots, "read_open", "if flags & DROPPED:", "if False:"
    ),
    "a collector takes over a cancelled request": Mutant(
        Collector, "_requeue", "self._dispatcher.answer_cancelled([ref], now_ns)", "pass"
    ),
    "a dead worker's request waits though it is cancelled": Mutant(
        DeadBatches,
        "take_back",
        "self._dispatcher.answer_cancelled([request.ref for request in left], now_ns)",
        "pass",
    ),
    "a cancelled request is answered though a worker holds it": Mutant(
        Dispatcher,
        "answer_cancelled",
        "place.model.remove(place.key, ref)",
        "place.model.remove(place.key, ref) or self._slots.read(ref)",
    ),
    "a lane's next owner takes every slot for free": Mutant(
        Lane, "_take_over", "state_of(control, done) is State.FREE", "True"
    ),
    "a request that a dead worker had answered is run again": Mutant(
        DeadBatches, "_unanswered", "if self._slots.repeat(request.ref):", "if False:"
    ),
    "a dead worker's running batch is forgotten": Mutant(
        DeadBatches, "_unanswered", "left.append(request)", "pass"
    ),
    "a dead worker's next batch is forgotten": Mutant(
        DeadBatches,
        "take_back",
        "model.run_again([requests])",
        "for request in requests:\n"
        "                del in_flight[request.ref]\n"
        "            continue",
    ),
    "deaths are not counted": Mutant(
        DeadBatches, "take_back", "KILLED if killed and not hung else CRASHED", "0"
    ),
    "a collector forgets requests that its predecessor had queued": Mutant(
        Collector, "_adopt_slots", "self._to_requeue.append(ref)", "pass"
    ),
    "a collector does not post answers from before it": Mutant(
        Collector, "_adopt_slots", "self._slots.repeat(ref)", "pass"
    ),
    "a collector leaves the estimate of the one before": Mutant(
        Collector, "start", "model.backlog_words.publish(model.backlog)", "pass"
    ),
    "a hung worker's batch is taken back before its death": Mutant(
        Collector,
        "_watch",
        "self._end_worker(number)",
        "self._end_worker(number)\n"
        "        self._dead.take_back(worker, now_ns, hung=True, killed=False)",
    ),
    "a collector takes in requests that workers hold": Mutant(
        Collector,
        "_adopt",
        "self._adopt_worker(number, held, now_ns)",
        "self._adopt_worker(number, [], now_ns)",
    ),
    "a collector looks at the rings of workers after the slots": Mutant(
        Collector,
        "_adopt",
        "self._submissions.skip()",
        "self._submissions.skip()\n    self._adopt_slots()",
    ),
    "a collector counts on no worker of before": Mutant(
        Collector, "_adopt_worker", "if ready:\n        self", "if False:\n        self"
    ),
    "a worker that has said twice that it is ready is two": Mutant(
        Collector, "_take_reports", "if not worker.ready:", "if True:"
    ),
    "nobody rings for batches that the previous collector gave": Mutant(
        Collector, "_adopt_worker", "worker.wake()", "pass"
    ),
    "a dead worker still says that it is ready": Mutant(
        Segment,
        "worker_ended",
        "store_release(words, first + WorkerWords.STATE, WorkerState.ABSENT)",
        "pass",
    ),
    "requests wait for a worker that is not to be expected": Mutant(
        Dispatcher, "_serve_without_worker", "if refuses(health.state):", "if False:"
    ),
    "reclaiming leaves the dead worker's tasks": Mutant(
        takeover, "reclaim", "_ring(segment, worker).skip()", "pass"
    ),
    "a worker lets go of a batch before it has answered": Mutant(
        Worker,
        "step",
        "before_ns = runner.run_ns",
        "self._tasks.release(size)\n        size = 0\n        before_ns = runner.run_ns",
    ),
    "a worker does not ring for its report": Mutant(
        Worker, "_report", "self._wake_collector()", "pass"
    ),
    "frontends are not rung for answers": Mutant(
        EngineSlots, "flush", "self._wake_lane(lane)", "pass"
    ),
    "requests that find no room are not submitted later": Mutant(
        Lane, "collect", "if self._held_back:", "if False:"
    ),
    "a request without room is submitted only with the next answer": Mutant(
        Gateway, "sweep", "if self.lane.held_back:", "if False:"
    ),
    "requests of a model that has nothing to do starve": Mutant(
        Model, "take_in", "self.agenda.add(self.reference)", "pass"
    ),
    "requests behind a batch starve": Mutant(
        Collector, "_take_reports", "self._agenda.add(worker.model.reference)", "pass"
    ),
    "a model is not looked at when its instant comes": Mutant(
        Agenda, "wait", "self._until_ns.put(reference, until_ns)", "pass"
    ),
    "a model is looked at only when its instant comes": Mutant(
        Agenda, "take", "found[reference] = None", "found = {reference: None}"
    ),
    "requests do not ring for a model that is idle again": Mutant(
        Agenda, "ring", "self._ringing.add(reference)", "pass"
    ),
    "a new collector looks at no model": Mutant(
        Collector, "start", "self._agenda.add_all(self._models)", "pass"
    ),
    "a worker that hangs is waited for": Mutant(
        Dispatcher,
        "arm_batch_timeout",
        "self.limits.put(worker.number, now_ns + model.spec.batch_timeout_ns)",
        "pass",
    ),
    "a worker that has reported is watched": Mutant(
        Collector, "_batch_done", "self._limits.drop(worker.number)", "pass"
    ),
    "nobody expects a worker in place of a dead one": Mutant(
        Collector, "_mark_not_ready", "self._pool.expected.add(worker.number)", "pass"
    ),
    "one model may have all slots": Mutant(SlotMemory, "divide", "len(accounts)", "1"),
    "one model may have the slots of all others": Mutant(
        SlotMemory, "_lend", "slots >= divided.own_slots", "False"
    ),
    "a lent slot comes back for all": Mutant(
        SlotMemory, "_free_memory", "(self._spare if too_few else self._free)", "self._free"
    ),
    "a model's own slots are lent once": Mutant(
        SlotMemory, "_take_back", "slots - own_slots, used", "slots, used"
    ),
    "accounts take turns though nobody waits": Mutant(
        Queues, "_forget_turns", "if not self.rows:", "if False:"
    ),
    "a request that has left keeps its turn": Mutant(
        Queues, "_forget_turns", "self._order.remove(request.ref)", "pass"
    ),
    "a later request has no turn": Mutant(
        Queues, "extend", "self._order.add(requests, rows, words)", "pass"
    ),
    "an account that has left stays known": Mutant(FairOrder, "_leave", "self._usage.end", "id"),
    "a request that has left counts as waiting": Mutant(
        FairOrder, "_leave", "self._usage.left(line.account, cost)", "pass"
    ),
    "a longer line does not count as the longest": Mutant(
        Usage, "came", "max(priority.furthest, account.used", "(account.used"
    ),
    "the time of a mixed batch counts for its classes and once more": Mutant(
        ModelCounters, "ran", "priority, own_ns = _NORMAL, 0", "priority = _NORMAL"
    ),
    "each class of a mixed batch waits for all": Mutant(
        ModelCounters, "_waited", " if class_of(word) is each", ""
    ),
    "no timer for a deadline": Mutant(
        Gateway, "wait_for", "if waiter.deadline_ns < self._look_ns:", "if False:"
    ),
    "an overdue request keeps its waiter": Mutant(
        Gateway, "sweep", "self.cancel(slot)", "self.lane.cancel(slot)"
    ),
    **CHAIN_MUTANTS,
    **LIMIT_MUTANTS,
    **PARTS_MUTANTS,
    **STEPS_MUTANTS,
    **DEVICE_MUTANTS,
}
