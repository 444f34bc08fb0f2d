"""Invariants of an engine while time passes, and once nothing happens any more.

It looks at the processes' own objects, past what they show each other, and changes nothing that
it does not put back.
"""

from collections.abc import Sequence
from typing import Final

from simulation.engine import LANE_BYTES, SLOTS, Engine, Frontend
from simulation.machine import MILLISECOND_NS, SECOND_NS
from simulation.on_device import LOOK_AGAIN_S
from simulation.parted import check_answers_have_room, check_parts_are_taken, waits_for_room
from simulation.served import steps_of
from simulation.stepped import check_all_have_ended, check_places, check_rows

from ringbatch.engine.collector.queues import Queues
from ringbatch.engine.collector.takeover import held_by_all
from ringbatch.frontend.request.gateway import SWEEP_NS
from ringbatch.shm.counters import CollectorCounter, Counters
from ringbatch.shm.descriptors import ModelWords, SlotWords
from ringbatch.shm.division import division
from ringbatch.shm.extents import RESERVE_SHARE
from ringbatch.shm.lane import Lane
from ringbatch.shm.model_counters import Counted
from ringbatch.shm.model_readiness import unready_reason
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.readiness import ModelState, refuses, state_without_worker
from ringbatch.shm.slot import State, generation_in, reference, state_of, without_part

_ROUNDING: Final = 1e-6
_TRIED_AGAIN_NS: Final = SWEEP_NS + 100 * MILLISECOND_NS
"""Time from a frontend's failure to find room until it has tried again."""


def is_at_rest(engine: Engine, specs: Sequence[ModelSpec]) -> bool:
    """Return whether all workers are ready, none is stopped, and nothing is in flight."""
    for model in specs:
        word = engine.segment.layout.model(model.index) + ModelWords.READY
        steps = [step for step in specs if step.name in steps_of(model)]
        if engine.raw[word] != min(len(step.workers) for step in steps):
            return False
    if engine.collector is None or engine.collector.in_flight:
        return False
    if engine.unreclaimed or _is_anybody_stopped(engine):
        return False
    if any(map(waits_for_room, engine.slots.values())):
        return False
    lanes = [frontend.lane for frontend in engine.frontends]
    return not any(lane is None or lane.in_flight for lane in lanes)


def _is_anybody_stopped(engine: Engine) -> bool:
    machine = engine.machine
    return any(process.stopped_until_ns > machine.now_ns for process in machine.processes)


def check_sleepers(engine: Engine) -> None:
    """Time is about to pass: nobody who is well sleeps beside something to do.

    Raises:
        AssertionError: somebody does.
    """
    check_answers_have_room(engine)
    if (
        engine.unreclaimed
        or any(not process.asleep for process in engine.machine.processes)
        or _is_anybody_stopped(engine)
    ):
        for frontend in engine.frontends:
            frontend.held_back = None
        return
    for frontend in engine.frontends:
        _check_held_back(frontend, engine.machine.now_ns)
        if frontend.lane is not None:
            assert not frontend.lane.has_news, f"frontend {frontend.number} sleeps on answers"
    check_parts_are_taken(engine)
    check_rows(engine)
    soon_ns = engine.machine.now_ns + int(LOOK_AGAIN_S * SECOND_NS)
    for number, process in engine.workers.items():
        waits = process.bell is engine.worker_bells[number] and number not in engine.stepping
        if process.until_ns is not None and process.until_ns <= soon_ns:
            # It looks again at what its device does.
            continue
        assert not (waits and held_by_all(engine.segment)[number]), (
            f"worker {number} sleeps beside a batch"
        )
    _check_collectors_sleep(engine)


def _check_held_back(frontend: Frontend, now_ns: int) -> None:
    """Assert that a frontend tries again soon what its ring had no room for.

    Room may come without an answer. Then the next sweep of the frontend tries again.
    """
    lane, before = frontend.lane, frontend.held_back
    if lane is None or not lane.held_back:
        frontend.held_back = None
        return
    first = lane._unsubmitted[0]
    if before is None or before[0] != first:
        frontend.held_back = first, now_ns
        return
    waits_ns = now_ns - before[1]
    assert waits_ns <= _TRIED_AGAIN_NS, f"frontend {frontend.number} holds requests back"


def _check_collectors_sleep(engine: Engine) -> None:
    collector = engine.collector
    if collector is None:
        return
    assert not collector._reports.inbox.has_items, "the collector sleeps on a report"
    asked = collector._submissions.has_items
    idle = any(model.roster.idle for model in collector._models.values())
    assert not (asked and idle), "the collector sleeps on requests while a worker is idle"
    for model in collector._models.values():
        _check_turns(model.queues)
        eager = model.policy.eager and model.queues
        if model.spec.places:
            check_places(collector, model)
        else:
            assert not (model.roster.idle and (eager or model.retries)), (
                f"requests of model {model.spec.name} wait while a worker is idle"
            )
        refused = refuses(_state(engine, model.spec)) and not model.retiring
        assert not (refused and (model.queues or model.retries)), (
            f"requests of model {model.spec.name} wait, and no worker is to be expected"
        )
    _check_the_cancelled(engine)


def _check_turns(queues: Queues) -> None:
    """Check that the fair order knows the waiting accounts of a model, and no others.

    No account is ahead of its class.
    """
    waiting = [request for queue in queues for request in queue]
    usage = queues._usage
    if usage is None:
        assert queues._order is None, "requests are in an order without turns"
        assert waiting or not queues._keys, "keys are kept of requests that have left"
        assert waiting or queues.word >= 0, "several accounts are to wait, and none does"
        return
    known = usage._accounts
    assert set(known) == {request.account for request in waiting}, "other accounts are known"
    everything = [] if queues._order is None else [*queues._order]
    orders = [everything, *[[*queue] for queue in queues]]
    for word, account in known.items():
        lines = sum(any(request.account == word for request in order) for order in orders)
        assert account.lines == lines, "an account is taken for waiting elsewhere"
        assert account.used <= account.priority.clock, "an account is ahead of its clock"
        rows = sum(request.rows for request in waiting if request.account == word)
        assert account.waiting == rows, "an account counts with other requests than wait"
        reached = account.used + account.waiting / account.weight
        assert reached <= account.priority.furthest + _ROUNDING, "a line is longer than the longest"
    if queues._order is not None:
        refs = {request.ref for request in waiting}
        assert refs == {request.ref for request in everything}, "the order is another"
        assert refs == queues._keys.keys(), "keys are kept of requests that have left"


def _state(engine: Engine, spec: ModelSpec) -> ModelState:
    """Return the state that follows from a model's workers; of a chain, the published one."""
    words, layout = engine.raw, engine.segment.layout
    first = layout.model(spec.index)
    published = ModelState(words[first + ModelWords.STATE])
    if words[first + ModelWords.READY] or spec.chain is not None:
        return published
    return state_without_worker(words, layout, spec, published)


def is_ready(engine: Engine, spec: ModelSpec) -> bool:
    """Return whether a model counts as ready."""
    now_ns = engine.machine.now_ns
    return not unready_reason(engine.raw, engine.segment.layout, spec, now_ns)


def _check_the_cancelled(engine: Engine) -> None:
    """Assert that cancelled slots that no worker holds are given back before any time passes.

    Only those wait that their frontend could not yet tell the collector of.
    """
    held = held_by_all(engine.segment)
    given = {ref for tasks in held for task in tasks or () for ref in task.references}
    layout = engine.segment.layout
    for frontend in engine.frontends:
        if frontend.lane is None:
            continue
        first = frontend.lane.index * layout.slots
        held_back = frontend.lane._unsubmitted if frontend.lane.held_back else []
        untold = {without_part(ref) for ref in held_back}
        for slot in range(first, first + layout.slots):
            control = engine.raw[layout.slot(slot) + SlotWords.CONTROL]
            done = engine.raw[layout.slot(slot) + SlotWords.DONE]
            if state_of(control, done) is State.CANCELLED:
                ref = reference(generation_in(control), slot)
                assert ref in given | untold, f"slot {slot} waits, whose request is cancelled"


def check_conservation(engine: Engine, specs: Sequence[ModelSpec], *, hangs: bool) -> None:
    """Check that an engine at rest has lost nothing.

    No request is expected to take any time, the counts of classes add up, all memory of the lanes
    is free, and every model finds its slots.

    Args:
        engine: at rest.
        specs: the models that it serves.
        hangs: whether a worker may have been taken for hung.

    Raises:
        AssertionError: something is lost.
    """
    for model in specs:
        word = engine.segment.layout.model(model.index) + ModelWords.ANSWER_NS
        wait_ns = engine.raw[word]
        assert not wait_ns, f"with nothing to do, model {model.name} would take {wait_ns} ns"
        counted = Counted(engine.raw, engine.segment.layout, model.account)
        of_classes = sum(own.parts for own in counted.classes.values()), counted.run_ns
        whole = sum(counted.waits), sum(size.infer_ns for size in counted.sizes)
        assert of_classes == whole, f"the classes of {model.name} have {of_classes} of {whole}"
    check_all_have_ended(engine)
    if not hangs:
        counters = Counters(engine.raw, engine.segment.layout.collector_counters())
        assert not counters[CollectorCounter.WORKERS_HUNG], "one that moves is taken for hung"
    largest = LANE_BYTES - LANE_BYTES // RESERVE_SHARE
    for frontend in engine.frontends:
        assert frontend.lane is not None
        slot = frontend.lane.claim(largest, 0, 0)
        assert slot is not None, "memory of a lane is lost"
        frontend.lane.abort(slot)
        for model in specs:
            _expect_its_part(frontend.lane, model, len(specs))


def _expect_its_part(lane: Lane, model: ModelSpec, models: int) -> None:
    """Assert that, with nothing in flight, a model finds its own slots and those for all."""
    divided = division(SLOTS, LANE_BYTES, models)
    slots: list[int] = []
    while (slot := lane.claim(1, 0, model.reference)) is not None:
        slots.append(slot)
    for slot in slots:
        lane.abort(slot)
    found, wanted = len(slots), SLOTS - divided.slots + divided.own_slots
    assert found == wanted, f"{model.name} finds {found} slots, and {wanted} are its part"
