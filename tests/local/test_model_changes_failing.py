"""Changes that fail, are undone or given up: what serves goes on, and the next has its turn."""

import errno
import signal
from typing import cast

import pytest
from changing_engine import TENSORS, Engine, model

from ringbatch.engine.process.role_events import Signature
from ringbatch.engine.supervisor.change_plan import ChangeFailed
from ringbatch.engine.supervisor.change_runner import ChangeRunner, NotifyTableChanged
from ringbatch.engine.supervisor.child_process import Child
from ringbatch.shm.errors import shortage
from ringbatch.shm.host.control_socket import Order, Report
from ringbatch.shm.model_spec import RETIRING, SERVING
from ringbatch.shm.tensor import Tensor


def test_a_worker_that_fails_before_it_is_entered_changes_nothing() -> None:
    engine = Engine(model())
    number = engine.segment.model_table.number
    engine.order(Order("load", "m"))
    engine.fail(1, "no such module")
    assert engine.reports == [Report("failed", ("m: no such module",))]
    assert engine.segment.model_table.number == number
    assert engine.pool.ended == [1]


def test_a_process_that_cannot_be_started_fails_the_change_alone() -> None:
    engine = Engine(model(workers=2))
    engine.exhausted_from = 2
    engine.order(Order("load", "m"))
    words = f"m: {shortage(errno.EAGAIN)}"
    assert engine.reports == [Report("failed", (words,))]
    assert sorted(engine.pool.workers) == [0, 1]


def test_a_worker_that_fails_to_load_takes_its_entry_with_it() -> None:
    engine = Engine(model(workers=2), spare=2)
    engine.order(Order("load", "m"))
    engine.open(2, 3)
    engine.pool.workers[2].ready_ns = 1
    engine.fail(3, "no memory")
    assert engine.reports == [Report("failed", ("m: no memory",))]
    assert engine.table() == [("m", "1", SERVING, (0, 1))]
    assert engine.pool.ended == [], "the collector knows them, and lets them go"


def test_new_workers_that_find_another_signature_are_not_mixed_with_the_old_ones() -> None:
    engine = Engine(model())
    engine.want(model(workers=2))
    engine.order()
    engine.open(1, says=TENSORS)
    assert engine.reports[0].end == "failed"
    assert "other inputs or outputs; run ringbatch reload --model m" in engine.reports[0].lines[0]
    assert engine.table() == [("m", "1", SERVING, (0,))]


def test_a_change_waits_for_places_only_so_long_and_the_next_has_its_turn() -> None:
    engine = Engine(model(), spare=1)
    for _ in range(2):
        engine.order(Order("load", "m"))
    engine.open(1)
    engine.load(1)
    assert engine.live.limit_ns is not None
    engine.order(Order("unload", "m"))
    engine.now_ns = engine.live.limit_ns - 1
    engine.advance()
    assert len(engine.reports) == 1
    engine.now_ns += 1
    engine.advance()
    _, late, unloaded = engine.reports
    assert late.end == "failed"
    assert "leaves no room; try again later" in late.lines[0]
    assert unloaded.end == "done"
    assert engine.live.limit_ns is None


def test_a_collector_that_never_says_that_a_model_is_loaded_fails_the_change() -> None:
    engine = Engine(model())
    engine.order(Order("load", "m"))
    engine.open(1)
    engine.pool.workers[1].ready_ns = 1
    engine.advance()
    assert engine.reports == []
    assert engine.live.limit_ns is not None
    engine.now_ns = engine.live.limit_ns
    engine.advance()
    assert engine.reports == [Report("failed", ("m: the engine did not come to an end with it",))]
    assert engine.table() == [("m", "1", SERVING, (0,))]


def test_an_unexpected_failure_gives_the_change_up_and_the_next_has_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Engine(model())

    def fault(*_: object) -> None:
        raise ZeroDivisionError

    engine.live.take(Order("load", "m"), engine.reports.append)
    engine.live.take(Order("unload", "m"), engine.reports.append)
    with monkeypatch.context() as faulty:
        faulty.setattr(engine, "start", fault)
        with pytest.raises(ZeroDivisionError):
            engine.advance()
    engine.live.break_off()
    assert engine.live.advance() == [NotifyTableChanged()], (
        "nobody knows what the collector has seen"
    )
    assert len(engine.reports) == 1, "and only then the next has its turn"
    engine.advance()
    failed, unloaded = engine.reports
    assert failed.end == "failed"
    assert "the engine's log says how" in failed.lines[0]
    assert unloaded.end == "done"


def test_a_change_for_which_there_never_is_room_is_refused() -> None:
    engine = Engine(model(), spare=1)
    engine.want(model(), model("n", workers=2))
    engine.order()
    (report,) = engine.reports
    assert report.end == "failed"
    assert "it needs 2 more workers; there is room for 2, and 1 are in use" in report.lines[0]


def test_a_table_without_room_leaves_the_serving_models() -> None:
    engine = Engine(model(), spare=1)
    room = engine.segment.layout.model_table_bytes
    engine.order(Order("load", "m"))
    long = (Tensor("x" * room, "FP32", [1]),)
    engine.open(1, says=Signature(long, long))
    assert "there is no room for more models" in engine.reports[0].lines[0]
    assert (engine.table(), engine.pool.ended) == ([("m", "1", SERVING, (0,))], [1])


def test_one_model_that_fails_does_not_keep_the_others() -> None:
    engine = Engine(model(), spare=3)
    engine.want(model("a"), model(), model("b"))
    engine.order()
    engine.fail(1, "broken")
    engine.open(1)
    engine.load(1)
    assert engine.reports == [Report("failed", ("a: broken", "b: version 1 loaded"))]
    assert engine.table() == [("m", "1", SERVING, (0,)), ("b", "1", SERVING, (1,))]


def test_an_unendable_process_is_ended_when_the_change_is_given_up() -> None:
    """A fault while a change that has failed is undone leaves no process behind."""
    engine = Engine(model(workers=2))
    engine.order(Order("load", "m"))
    faults: list[Exception] = [ZeroDivisionError()]
    processes = [Process(faults), Process(faults)]
    for number, process in enumerate(processes, 2):
        engine.pool.workers[number].child = cast(Child, process)
    with pytest.raises(ZeroDivisionError):
        engine.fail(2, "no memory")
    engine.live.break_off()
    assert [process.signals for process in processes] == [[signal.SIGTERM], [signal.SIGTERM]]
    assert all(engine.pool.workers[n].kill_ns for n in (2, 3)), "who does not end is killed"
    assert [report.end for report in engine.reports] == ["failed"]


class Process:
    """A process that notes what it is sent, where no fault comes first.

    Args:
        faults: raised one after the other, of all processes that share them.
    """

    def __init__(self, faults: list[Exception]) -> None:
        self.signals: list[signal.Signals] = []
        self._faults = faults

    def kill(self, number: signal.Signals) -> None:
        if self._faults:
            raise self._faults.pop()
        self.signals.append(number)


def test_a_change_that_cannot_be_undone_cannot_be_given_up_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Engine(model())

    def fault(*_: object) -> None:
        raise ZeroDivisionError

    engine.order(Order("load", "m"))
    engine.open(1)
    monkeypatch.setattr(engine.segment.model_table, "publish", fault)
    engine.pool.workers[1].failure = "no memory"
    with pytest.raises(ZeroDivisionError):
        engine.advance()
    with pytest.raises(ZeroDivisionError):
        engine.live.break_off()
    assert engine.live.limit_ns is None
    assert [report.end for report in engine.reports] == ["failed"]


def test_a_switched_unsettled_change_cannot_be_given_up_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Engine(model())

    def fault(*_: object) -> None:
        raise ZeroDivisionError

    engine.order(Order("load", "m"))
    monkeypatch.setattr(ChangeRunner, "_settle", fault)
    with pytest.raises(ZeroDivisionError):
        engine.open_and_load(1)
    with pytest.raises(ChangeFailed, match="it could not be undone"):
        engine.live.break_off()
    assert engine.table() == [("m", "1", RETIRING, (0,)), ("m", "1", SERVING, (1,))]
