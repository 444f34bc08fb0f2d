"""The engine with one thing wrong at a time that models in steps alone need."""

from typing import Final

from simulation.mutation import Late, Mutant, Several

from ringbatch.engine.collector import models, takeover
from ringbatch.engine.collector.collector import Collector
from ringbatch.engine.collector.dead_batches import DeadBatches
from ringbatch.engine.collector.dispatcher import Dispatcher
from ringbatch.engine.collector.model_pool import ModelPool
from ringbatch.engine.worker import join_limits
from ringbatch.engine.worker.row_states import RowNumbers
from ringbatch.engine.worker.steps_runner import StepsRunner
from ringbatch.engine.worker.steps_worker import StepsWorker
from ringbatch.shm.joined import JoinedRows

FIRST_ALONE: Final = "a dead worker of a model in steps is to have run its first row alone"
PLACES_STAY: Final = "workers keep the places of an earlier table"
PAUSED_BLOCK: Final = "a row that waits for room holds up the others"
SLOTS_FIRST: Final = "a collector looks at slots before rings"
HELD_TWICE: Final = "a request in ring and slot is held twice"
SPOILT: Final = "rows go on in states that a step may have spoilt"
PARTS_KEPT: Final = "a row that begins again keeps the parts of before"
GIVEN_UP: Final = "a row that nobody waits for goes on"
FAIL_AGAIN: Final = "rows that begin again come together to the step that has failed"
RECLAIM: Final = "reclaiming leaves the dead worker's live rows"
RELEASED_FIRST: Final = "a worker lets go of a task before its slots name it"
TOO_DEAR: Final = "live rows cost more than they may"
STARVES: Final = "rows that cost little go before one that waits"
ROOM_UNTOLD: Final = "a worker does not say that it has room for more rows"
ROOM_UNHEARD: Final = "a collector does not hear that a worker has room for more rows"
NOT_TO_THE_EMPTY: Final = "a retried row goes where most places are free"
WAIT_UNWANTED: Final = "rows wait that nobody waits for"
SAME_NUMBER: Final = "two rows have one number"
LOST_NUMBER: Final = "rows that could not begin keep their numbers"
EMPTY_SENT: Final = "a part with nothing in it is sent"
SILENT_UNCOUNTED: Final = "steps without a part do not count where rows begin again"
PIECE_MUTANTS: Final[dict[str, Mutant | Late | Several]] = {
    EMPTY_SENT: Mutant(StepsRunner, "_hand_out", "self._codec.empty_rows(results) if", "() if"),
    SILENT_UNCOUNTED: Mutant(StepsRunner, "_step", "row.steps += 1", "row.steps = len(row.parts)"),
}
"""Mutants in rows that take steps before their first part."""
COST_MUTANTS: Final[dict[str, Mutant | Late | Several]] = {
    TOO_DEAR: Mutant(
        join_limits, "beginning", "live_cost > most_cost", "live_cost > most_cost + 1"
    ),
    STARVES: Mutant(
        StepsRunner,
        "_beginning",
        "return rows[:",
        "cost = self.live_cost\n"
        "    if self._limits.most_cost:\n"
        "        return [r for r in rows if cost + r.cost <= self._limits.most_cost][:1]\n"
        "    return rows[:",
    ),
    ROOM_UNTOLD: Mutant(
        StepsWorker, "_publish_room", "self._report(ReportKind.MOST_ROWS, NO_BATCH_NUMBER)", "pass"
    ),
    ROOM_UNHEARD: Mutant(
        Collector, "_take_reports", "if kind is ReportKind.MOST_ROWS:", "if False:"
    ),
    NOT_TO_THE_EMPTY: Mutant(models, "_emptiness", "not worker.batches, worker", "False, worker"),
    WAIT_UNWANTED: Mutant(
        StepsRunner, "_drop_given_up", "[*self._rows, *self._joining]", "[*self._rows]"
    ),
    SAME_NUMBER: Mutant(RowNumbers, "begin", "heappop(self._free)", "self._free[0]"),
    LOST_NUMBER: Mutant(RowNumbers, "begin", "self._release(rows)", "pass"),
}
"""Mutants in rows that have costs or numbers."""
OTHERS_FORGOTTEN: Final = "to forget a worker stores in slots that others are joining"
STEPS_MUTANTS: Final[dict[str, Mutant | Late | Several]] = {
    RECLAIM: Mutant(takeover, "reclaim", "JoinedRows(segment).forget(worker)", "pass"),
    RELEASED_FIRST: Late(
        StepsWorker,
        "_take_tasks",
        "for mark, references, _ in found:\n    for ref in references:",
        "self._tasks.release(",
    ),
    OTHERS_FORGOTTEN: Mutant(
        JoinedRows,
        "forget",
        "in self._open():",
        "in enumerate(self._load_acquire[self._every].tolist()):",
    ),
    SLOTS_FIRST: Mutant(
        takeover,
        "held_by_all",
        "found = [_in_ring(segment, worker) for worker in range(segment.layout.workers)]\n"
        "    for worker, batches in JoinedRows(segment).by_worker().items():",
        "joined = JoinedRows(segment).by_worker()\n"
        "    found = [_in_ring(segment, worker) for worker in range(segment.layout.workers)]\n"
        "    for worker, batches in joined.items():",
    ),
    "a later request in a slot is taken for held": Mutant(
        JoinedRows,
        "_open",
        "first, ref = self._first(slot), reference(joined >> SLOT_BITS, slot)",
        "first = self._first(slot)\n"
        "            generation = words[first + SlotWords.CONTROL] >> 8\n"
        "            joined = generation << SLOT_BITS | joined & SLOT_MASK\n"
        "            ref = reference(joined >> SLOT_BITS, slot)",
    ),
    HELD_TWICE: Mutant(takeover, "_together", "if ref not in in_ring", "if True"),
    "a retried row goes to a worker with live rows": Mutant(
        Dispatcher, "_decide", "if roster.places and pending.retry:", "if False:"
    ),
    "rows join others that run again": Mutant(
        models.Worker, "has_place", "self.batches[0].mark.reason is Reason.RETRY", "False"
    ),
    FIRST_ALONE: Mutant(
        DeadBatches,
        "take_back",
        "len(worker.batches) if worker.places or worker.lead_ns else 1",
        "1",
    ),
    "a freed place is not given out again": Mutant(
        models.Roster, "list_place", "if worker.has_place:", "if not worker.batches:"
    ),
    PLACES_STAY: Mutant(ModelPool, "follow", "worker.model.roster.list_place(worker)", "pass"),
    "there are more rows than places": Mutant(
        models.Worker, "has_place", "self.free_places > 0", "self.free_places >= 0"
    ),
    "a row is reported as if it were the first": Mutant(
        models.Worker, "find", "if self.places else", "if False else"
    ),
    "a new collector finds no live rows": Mutant(
        takeover, "held_by_all", "if tasks is not None:", "if False:"
    ),
    PAUSED_BLOCK: Mutant(
        StepsRunner, "step", "    if rows:\n", "    if rows and len(rows) == len(self._rows):\n"
    ),
    "a row that has ended keeps its state": Mutant(
        StepsRunner, "_finish", "self._leave(row, DONE)", "self._rows.pop(row.request.ref, None)"
    ),
    SPOILT: Mutant(StepsRunner, "_find_to_blame", "if self._steps.repeatable and", "if"),
    FAIL_AGAIN: Mutant(StepsRunner, "_find_to_blame", "in range(count)", "in range(1)"),
    PARTS_KEPT: Mutant(StepsRunner, "_find_to_blame", "row.parts.clear()", "pass"),
    GIVEN_UP: Mutant(StepsRunner, "_drop_given_up", "[*self._rows, *self._joining]", "[]"),
    "a batch is reported with its first answer": Mutant(
        Collector, "_batch_done", "worker.batches.pop(place)", "worker.batches.pop(0)"
    ),
    **COST_MUTANTS,
    **PIECE_MUTANTS,
}
"""Mutants of models in steps, by name."""
