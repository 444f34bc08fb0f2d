"""The engine with one thing wrong at a time, each of which the simulation must find.

A mutant is a function of the engine in which one piece of text is replaced by another. Where a
change of the engine moves that text, the mutant says so and is to be written anew.
"""

import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from ringbatch.engine.collector import Collector
from ringbatch.engine.worker import Worker
from ringbatch.frontend.gateway import Gateway
from ringbatch.shm.holder import Holder
from ringbatch.shm.lane import Lane


@dataclass(frozen=True)
class Mutant:
    """One change: in the method of that name, `right` becomes `wrong`."""

    owner: type
    method: str
    right: str
    wrong: str

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The engine has the defect."""
        function = inspect.unwrap(getattr(self.owner, self.method))
        source = textwrap.dedent(inspect.getsource(function))
        where = f"{self.owner.__name__}.{self.method}"
        assert source.count(self.right) == 1, f"{where} has no single {self.right!r} any more"
        with patch.object(self.owner, self.method, _compiled(function, self._changed(source))):
            yield

    def _changed(self, source: str) -> str:
        return source.replace(self.right, self.wrong)


def _compiled(function: Callable[..., Any], source: str) -> Callable[..., Any]:
    names: dict[str, Any] = {}
    # The annotations of a method may name its own class.
    exec(f"from __future__ import annotations\n{source}", function.__globals__, names)
    (changed,) = (value for name, value in names.items() if callable(value))
    result: Callable[..., Any] = changed
    return result


MUTANTS = {
    "a frontend takes an answer to an earlier request": Mutant(
        Lane,
        "collect",
        "[*map(expected.pop, references, repeat(_NO_SLOT))]",
        "[expected.pop(next((ref for ref in expected if (ref ^ word) % (1 << SLOT_BITS) == 0), 0),"
        " _NO_SLOT) for word in references]",
    ),
    "the collector takes in a request of an earlier generation": Mutant(
        Holder,
        "read_open",
        "if control >> FLAG_BITS == generation != words[first + _DONE_WORD] >> FLAG_BITS:",
        "if control >> FLAG_BITS != words[first + _DONE_WORD] >> FLAG_BITS:",
    ),
    "the collector sleeps without a second look": Mutant(
        Collector,
        "may_sleep",
        "return not (self.rung_for_requests and self.has_news())",
        "return True",
    ),
    "an answer is announced before DONE": Mutant(
        Holder,
        "answer",
        "self._words[first] = done_word(ref >> SLOT_BITS, status)\n"
        "    self._answered.setdefault(slot >> self._lane_shift, []).append(ref)",
        "self._answered.setdefault(slot >> self._lane_shift, []).append(ref)\n"
        "    self.flush()\n"
        "    self._words[first] = done_word(ref >> SLOT_BITS, status)",
    ),
    "answers to requests that are alike are announced before DONE": Mutant(
        Holder,
        "answer_alike",
        "words[first + slot * _SLOT_WORDS] = ref >> SLOT_BITS << FLAG_BITS | status",
        "self._answered.setdefault(slot >> self._lane_shift, []).append(ref)\n"
        "            self.flush()\n"
        "            words[first + slot * _SLOT_WORDS] = ref >> SLOT_BITS << FLAG_BITS | status",
    ),
    "a cancelled slot is free at once": Mutant(
        Lane, "cancel", "self._cancelled.add(slot)", "self.release(slot)"
    ),
    "a lane's next owner takes every slot for free": Mutant(
        Lane, "_take_over", "state_of(control, done) is State.FREE", "True"
    ),
    "what a dead worker had answered is run again": Mutant(
        Collector, "_unanswered", "if self._holder.repeat(request.ref):", "if False:"
    ),
    "what a dead worker held is forgotten": Mutant(
        Collector, "_unanswered", "left.append(request)", "pass"
    ),
    "what a dead worker was to go on with is forgotten": Mutant(
        Collector,
        "_take_back",
        "model.again.add(filter(None, map(self._unanswered, behind)))",
        "for request in (r for batch in behind for r in batch.requests):\n"
        "        del known[request.ref]",
    ),
    "deaths are not counted": Mutant(
        Collector, "_take_back", "KILLED if killed and not hung else CRASHED", "0"
    ),
    "a collector forgets what the one before had queued": Mutant(
        Collector, "_adopt", "self._adopted.append(ref)", "pass"
    ),
    "a collector does not announce what was answered before it": Mutant(
        Collector, "_adopt", "self._holder.repeat(ref)", "pass"
    ),
    "a collector leaves the estimate of the one before": Mutant(
        Collector, "__init__", "self._dispatcher.tell_backlog(model)", "pass"
    ),
    "a hung worker's batch is taken back before its death": Mutant(
        Collector,
        "_watch",
        "self._end_worker(worker.number)",
        "self._end_worker(worker.number)\n"
        "    self._take_back(worker, now_ns, hung=True, killed=False)",
    ),
    "a dead worker is taken for ready": Mutant(
        Collector, "_take_reports", "if self._alive(first):", "if True:"
    ),
    "a worker runs what was meant for the one before": Mutant(
        Worker, "__init__", "self._tasks.skip()", "pass"
    ),
    "a worker does not ring for its report": Mutant(
        Worker, "_report", "self._wake_collector()", "pass"
    ),
    "frontends are not rung for answers": Mutant(Holder, "flush", "self._wake_lane(lane)", "pass"),
    "requests that find no room are not announced later": Mutant(
        Lane, "collect", "if self._held_back:", "if False:"
    ),
    "what found no room is announced only with the next answer": Mutant(
        Gateway, "sweep", "if self.lane.held_back:", "if False:"
    ),
    "no timer for a deadline": Mutant(
        Gateway, "expect", "if waiter.deadline_ns < self._timer_ns:", "if False:"
    ),
    "what is overdue keeps its waiter": Mutant(
        Gateway, "sweep", "self.cancel(slot)", "self.lane.cancel(slot)"
    ),
}
