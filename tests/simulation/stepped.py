"""Invariants of models in steps, see `ringbatch.engine.worker.steps_worker`."""

from simulation.engine import Engine

from ringbatch.engine.collector.collector import Collector
from ringbatch.engine.collector.models import Model
from ringbatch.engine.collector.takeover import held_by_all
from ringbatch.shm.joined import JoinedRows
from ringbatch.shm.slot import Reason


def check_rows(engine: Engine) -> None:
    """Check that, while all healthy processes sleep, workers and collector agree on the held rows.

    Raises:
        AssertionError: they do not, or a worker sleeps beside a row that could go on.
    """
    held = held_by_all(engine.segment)
    for number, stepping in engine.stepping.items():
        own = {ref for task in held[number] or () for ref in task.references}
        process, runner = engine.workers[number], stepping.runner
        if process.bell is engine.worker_bells[number]:
            rows, joining = runner._rows, [*runner._joining.values()]
            assert own == {*rows, *runner._joining}, (
                f"worker {number} sleeps, and a row is not its own"
            )
            assert all(row.paused_ns for row in rows.values()), (
                f"worker {number} sleeps beside a row that can go on"
            )
            cost = sum(row.cost for row in (*rows.values(), *joining[:1]))
            assert not joining or cost > runner._limits.most_cost > 0, (
                f"worker {number} sleeps beside a row that could begin"
            )
            wakes = process.until_ns is not None
            assert wakes or not own, f"worker {number} sleeps for ever beside a row"
        if engine.collector is not None:
            given = _given(engine.collector, number)
            # The owner of a lane may publish anew in a slot whose request has no answer.
            own = {*engine.collector._slots.open_ones([*own])}
            assert given == own, f"worker {number} holds {own}, and the collector thinks {given}"


def _given(collector: Collector, number: int) -> set[int]:
    worker = collector._workers[number]
    refs = [request.ref for batch in worker.batches for request in batch.requests]
    return {*collector._slots.open_ones(refs)}


def check_places(collector: Collector, model: Model) -> None:
    """Assert that no request to a model in steps waits for a place that is free.

    Those that run again wait for a worker without any row, and all others for these.
    """
    workers = [worker for worker in collector._workers.values() if worker.model is model]
    spares = model.roster.spares
    able = [w for w in workers if w.ready and not (w.ending or w.leaving or w in spares)]
    empty = [worker for worker in able if not worker.batches]
    assert not (empty and model.retries), f"what runs again waits beside {len(empty)} empty workers"
    if model.retries or not model.queues:
        return
    for worker in able:
        again = any(batch.mark.reason is Reason.RETRY for batch in worker.batches)
        most_rows = worker.most_rows() or model.spec.places
        full = again or len(worker.batches) >= min(model.spec.places, most_rows)
        assert full, f"requests of model {model.spec.name} wait while a place is free"


def check_all_have_ended(engine: Engine) -> None:
    """Assert that, with nothing in flight, no row is left anywhere, and all places are free."""
    left = JoinedRows(engine.segment).by_worker()
    assert not left, f"rows are left: {left}"
    assert engine.collector is not None
    for number, stepping in engine.stepping.items():
        assert not stepping.states, f"worker {number} has not ended {stepping.states}"
        assert not stepping.runner.held, f"worker {number} has rows"
        worker = engine.collector._workers[number]
        assert not worker.batches, f"worker {number} is to hold {worker.batches}"
        assert worker in worker.model.roster.idle, f"worker {number} has no free place"
