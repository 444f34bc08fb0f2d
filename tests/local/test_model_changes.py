"""Orders to change what is served, carried out with workers and a collector played by hand."""

import errno
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any, assert_never, cast

import pytest
from segment_fixture import local_segment

from ringbatch.engine.config.chained import ChainConfig, StepConfig
from ringbatch.engine.config.document import ConfigError
from ringbatch.engine.config.settings import Config, ModelConfig, ServerConfig
from ringbatch.engine.process.role_messages import Signature
from ringbatch.engine.runtimes.model_file import ModelFile
from ringbatch.engine.supervisor.chains import first_chains
from ringbatch.engine.supervisor.change_plan import ChangeFailed
from ringbatch.engine.supervisor.child import Child
from ringbatch.engine.supervisor.model_changes import (
    MAX_ORDERS,
    Effect,
    Introduce,
    ModelChanges,
    ShowTable,
    Start,
)
from ringbatch.engine.supervisor.model_versions import Forwarding, first_entries
from ringbatch.engine.supervisor.process_slot import ProcessSlot
from ringbatch.engine.supervisor.served_models import ServedModels
from ringbatch.engine.supervisor.worker_pool import WorkerPool
from ringbatch.shm.errors import shortage
from ringbatch.shm.host.control_socket import Order, Report
from ringbatch.shm.model_spec import LOADING, RETIRING, SERVING, ModelSpec
from ringbatch.shm.tensor import Tensor

SIGNATURE = Signature((), ())
TENSORS = Signature((Tensor("x", "FP32", [1]),), ())
MAPS = Signature((Tensor("x", "FP32", [1]),), (Tensor("y", "FP32", [1]),))
RELOAD = Order("reload", None)


class Pool(WorkerPool):
    """A worker pool, whose workers are no processes.

    Attributes:
        ended: numbers of those that were ended before the collector knew them.
    """

    def __init__(self, workers: int) -> None:
        super().__init__()
        self.workers = {n: ProcessSlot(f"worker {n}", _nobody, worker=n) for n in range(workers)}
        self.ended: list[int] = []

    def end(self, slot: ProcessSlot) -> None:
        assert slot.worker is not None
        self.ended.append(slot.worker)
        super().end(slot)


def _nobody(_again: bool) -> Any:
    raise AssertionError("nobody is started here")


def model(name: str = "m", **more: Any) -> ModelConfig:
    found = ModelConfig(name=name, runtime="python", path=Path("/m.py"))
    return replace(found, **more)


def chain(name: str, *steps: str) -> ChainConfig:
    return ChainConfig(name=name, steps=tuple(StepConfig(model=step) for step in steps))


class Engine:
    """An engine that serves some models, and what it is told to serve next.

    Attributes:
        wanted: what the configuration says now; an error, where it is wrong.
        reports: what came of each order.
        introduced: numbers of the workers that were told of the segment.
        looks: how often the collector was told to look.
        files: what each worker that was started is to load.
        exhausted_from: the number from which on no process can be started.
    """

    def __init__(
        self,
        *models: ModelConfig,
        spare: int = 2,
        chains: tuple[ChainConfig, ...] = (),
        says: Signature = SIGNATURE,
    ) -> None:
        workers = sum(m.processes for m in models)
        self.pool = Pool(workers)
        signatures = dict.fromkeys(range(workers), says)
        entries = first_chains(chains, first_entries(models, signatures, Forwarding()))
        self.segment = local_segment(*entries, spare=spare)
        config = Config(models=models, chains=chains)
        self.wanted: Config | ConfigError = config
        self.reports: list[Report] = []
        self.introduced: list[int] = []
        self.looks = 0
        self.files: dict[int, ModelFile] = {}
        self.exhausted_from = 1 << 10
        self.now_ns = 0
        self.live = ModelChanges(
            self.pool,
            ServedModels(
                self.segment, entries, models, [ModelFile(m.path) for m in models], chains
            ),
            config.server,
            self._reread,
            Forwarding(),
            lambda: self.now_ns,
        )

    def _reread(self) -> Config:
        if isinstance(self.wanted, ConfigError):
            raise self.wanted
        return self.wanted

    def advance(self) -> None:
        """What the supervisor does after each turn of its loop."""
        while effects := self.live.advance():
            for effect in effects:
                self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Start():
                self.start(effect)
            case Introduce(slot):
                assert slot.worker is not None
                slot.known = True
                self.introduced.append(slot.worker)
            case ShowTable():
                self.looks += 1
            case _:
                assert_never(effect)

    def start(self, start: Start) -> None:
        assert start.number not in self.pool.workers
        self.files[start.number] = start.file
        slot = ProcessSlot(f"{start.model.name}/{start.index}", _nobody, worker=start.number)
        self.pool.add(start.number, slot)
        if start.number >= self.exhausted_from:
            slot.failure = shortage(errno.EAGAIN)

    def want(
        self, *models: ModelConfig, chains: tuple[ChainConfig, ...] = (), **server: Any
    ) -> None:
        self.wanted = Config(server=ServerConfig(**server), models=models, chains=chains)

    def order(self, order: Order = RELOAD) -> None:
        self.live.take(order, self.reports.append)
        self.advance()

    @property
    def serving(self) -> list[tuple[str, bool]]:
        """The names that serve, and whether each is a chain."""
        _, models = self.segment.model_table.read()
        return [(s.name, s.chain is not None) for s in models if s.state == SERVING]

    def table(self) -> list[tuple[str, str, str, tuple[int, ...]]]:
        _, models = self.segment.model_table.read()
        return [(s.name, s.version, s.state, s.workers) for s in models]

    def entry(self, state: str = LOADING) -> ModelSpec:
        _, models = self.segment.model_table.read()
        (found,) = (spec for spec in models if spec.state == state)
        return found

    def open(self, *numbers: int, says: Signature = SIGNATURE) -> None:
        """Workers have opened their files."""
        for number in numbers:
            self.pool.workers[number].signature = says
        self.advance()

    def load(self, *numbers: int) -> None:
        """Workers are ready, and the collector has heard it."""
        for number in numbers:
            self.pool.workers[number].ready_ns = 1
        self.advance()
        _, models = self.segment.model_table.read()
        for spec in models:
            if spec.state == LOADING:
                self.live.loaded(spec.reference)
        self.advance()

    def open_and_load(self, *numbers: int) -> None:
        self.open(*numbers)
        self.load(*numbers)

    def fail(self, number: int, words: str) -> None:
        self.pool.workers[number].failure = words
        self.advance()

    def retire(self) -> None:
        """The collector is done with what retires, and its workers are gone."""
        spec = self.entry(RETIRING)
        self.live.drained(spec.reference)
        for number in spec.workers:
            del self.pool.workers[number]
        self.advance()


def test_a_changed_model_is_loaded_then_serves_while_the_old_one_retires() -> None:
    engine = Engine(model())
    new = model(threads=3)
    engine.want(new)
    engine.order()
    assert engine.table() == [("m", "1", SERVING, (0,))], "nothing is known of it yet"
    engine.open(1)
    assert engine.table() == [("m", "1", SERVING, (0,)), ("m", "1", LOADING, (1,))]
    assert (engine.introduced, engine.pool.workers[1].lasting) == ([1], False)
    number = engine.segment.model_table.number
    engine.load(1)
    assert engine.segment.model_table.number == number + 1, "the switch is one store"
    assert engine.table() == [("m", "1", RETIRING, (0,)), ("m", "1", SERVING, (1,))]
    assert engine.reports == [Report("done", ("m: version 1 loaded",))]
    assert [engine.pool.workers[n].lasting for n in (0, 1)] == [False, True]
    engine.retire()
    assert engine.table() == [("m", "1", SERVING, (1,))]
    assert engine.looks == 3
    engine.order()
    assert engine.reports[1] == Report("done", ("nothing has changed",))


def test_it_does_not_serve_before_the_collector_knows_that_it_is_ready() -> None:
    engine = Engine(model())
    engine.order(Order("load", "m"))
    engine.open(1)
    engine.pool.workers[1].ready_ns = 1
    engine.advance()
    assert engine.table()[1] == ("m", "1", LOADING, (1,))
    engine.live.loaded(engine.entry().reference)
    engine.advance()
    assert engine.table()[1] == ("m", "1", SERVING, (1,))


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
    assert "other inputs or outputs; run ringbatch reload m" in engine.reports[0].lines[0]
    assert engine.table() == [("m", "1", SERVING, (0,))]


def test_a_model_may_have_other_inputs_after_a_reload() -> None:
    engine = Engine(model())
    engine.order(Order("load", "m"))
    engine.open(1, says=TENSORS)
    engine.load(1)
    assert [tensor.name for tensor in engine.entry(SERVING).inputs] == ["x"]


def test_limits_and_fewer_workers_take_no_new_ones() -> None:
    engine = Engine(model(workers=2))
    engine.want(model(workers=1, max_batch_size=5, policy="fixed"))
    engine.order()
    entry = engine.entry(SERVING)
    assert (entry.workers, entry.max_batch_size, entry.policy) == ((0,), 5, "fixed")
    assert [engine.pool.workers[n].lasting for n in (0, 1)] == [True, False]
    assert engine.reports == [Report("done", ("m: version 1 adjusted",))]
    engine.order()
    assert engine.reports[1:] == [Report("done", ("nothing has changed",))]


def test_more_workers_are_entered_before_they_load_and_taken_back_where_one_fails() -> None:
    engine = Engine(model())
    engine.want(model(workers=3, timeout_s=7.0))
    engine.order()
    engine.open(1, 2)
    entry = engine.entry(SERVING)
    assert (entry.workers, entry.timeout_ns) == ((0, 1, 2), 60_000_000_000)
    engine.fail(1, "no memory")
    assert engine.table() == [("m", "1", SERVING, (0,))]
    assert engine.reports[0].end == "failed"
    for number in (1, 2):
        del engine.pool.workers[number]
    engine.order()
    engine.open(1, 2)
    engine.load(1, 2)
    entry = engine.entry(SERVING)
    assert (entry.workers, entry.timeout_ns) == ((0, 1, 2), 7_000_000_000)


def test_a_change_waits_until_those_that_retire_have_left_their_places() -> None:
    engine = Engine(model(), spare=1)
    for _ in range(2):
        engine.order(Order("load", "m"))
    engine.open(1)
    engine.load(1)
    assert len(engine.reports) == 1
    engine.retire()
    assert sorted(engine.pool.workers) == [0, 1], "the free number was taken at once"
    engine.open(0)
    engine.load(0)
    assert [report.end for report in engine.reports] == ["done", "done"]


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


def test_what_fails_as_nobody_expects_is_given_up_and_the_next_has_its_turn(
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
    assert engine.live.advance() == [ShowTable()], "nobody knows what the collector has seen"
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


def test_a_table_without_room_leaves_what_serves() -> None:
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


def test_models_stand_in_the_order_of_the_configuration() -> None:
    engine = Engine(model("a"), model("b"), model("c"))
    engine.want(model("b"), model("a", threads=2))
    engine.order()
    engine.open(3)
    engine.load(3)
    assert [name for name, _, state, _ in engine.table() if state == SERVING] == ["b", "a"]


def test_versions_go_and_come_with_their_model() -> None:
    one, two = model(version="1"), model(version="2")
    engine = Engine(one, two)
    engine.order(Order("unload", "m"))
    assert {state for *_, state, _ in engine.table()} == {RETIRING}
    assert engine.reports == [Report("done", ("m: version 1 unloaded, version 2 unloaded",))]
    engine.order(Order("unload", "m"))
    words = 'the engine serves no model "m"; there is: none'
    assert engine.reports[1] == Report("unknown", (words,))
    engine.order()
    engine.open(2, 3)
    engine.load(2, 3)
    assert engine.reports[2].lines == ("m: version 1 loaded, version 2 loaded",)


def test_the_version_that_is_chosen_changes_without_loading() -> None:
    one, two = model(version="1"), model(version="2")
    engine = Engine(one, two)
    engine.want(*(replace(m, default_version="1") for m in (one, two)))
    engine.order()
    _, models = engine.segment.model_table.read()
    assert [spec.default for spec in models] == [True, False]


def test_a_model_whose_file_was_replaced_is_loaded_again(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text("1")
    engine = Engine(model(path=path))
    engine.order()
    path.write_text("22")
    engine.order()
    engine.open(1)
    engine.load(1)
    engine.retire()
    engine.order()
    assert [report.lines for report in engine.reports] == [
        ("nothing has changed",),
        ("m: version 1 loaded",),
        ("nothing has changed",),
    ]


def test_that_a_file_differs_stands_in_the_table_until_it_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text("1")
    engine = Engine(model(path=path))
    first = engine.entry(SERVING).reference
    path.write_text("22")
    engine.live.differ({first, 99})
    assert engine.entry(SERVING).file_differs
    assert engine.live.served.differing == {first}
    number = engine.segment.model_table.number
    engine.live.differ({first})
    assert engine.segment.model_table.number == number, "nothing new was said"
    engine.order()
    engine.live.differ(set())
    assert engine.live.served.differing == {first}, "amid a change the table is left alone"
    engine.open_and_load(1)
    assert not engine.entry(SERVING).file_differs


def test_a_further_worker_is_given_what_the_others_have(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text("1")
    engine = Engine(model(path=path))
    engine.want(model(path=path, workers=2))
    engine.order()
    assert engine.files == {1: engine.live.served.files[engine.entry(SERVING).reference]}


def test_what_cannot_change_is_named_and_a_wrong_configuration_changes_nothing() -> None:
    engine = Engine(model())
    engine.want(model(), port=1, frontends=9)
    engine.order()
    ways = "ringbatch handover takes {}, and so does a restart"
    words = f"[server] frontends, port: not taken, because the engine runs; {ways.format('them')}"
    assert engine.reports == [Report("failed", (words,))]
    engine.wanted = ConfigError("a is wrong", "b is wrong")
    engine.order()
    assert engine.reports[1] == Report("failed", ("a is wrong", "b is wrong"))
    engine.want(model())
    engine.order(Order("load", "n"))
    assert engine.reports[2].end == "unknown"
    engine.order()
    assert engine.reports[3] == Report("done", ("nothing has changed",))
    engine.want(model(timeout_s=7.0), port=1)
    engine.order()
    words = f"[server] port: not taken, because the engine runs; {ways.format('it')}"
    assert engine.reports[4] == Report("failed", (words, "m: version 1 adjusted"))
    assert engine.live.served.models[engine.entry(SERVING).reference].timeout_s == 7.0


def test_what_cannot_change_is_no_failure_of_an_order_for_one_model() -> None:
    engine = Engine(model())
    engine.want(model(timeout_s=7.0), port=1)
    engine.order(Order("load", "m"))
    engine.open_and_load(1)
    assert engine.reports[0].end == "done"
    assert engine.reports[0].lines[0].startswith("[server] port: not taken")


def test_orders_wait_for_their_turn_up_to_a_number_and_hear_of_the_end() -> None:
    engine = Engine(model())
    for _ in range(MAX_ORDERS + 2):
        engine.order(Order("load", "m"))
    assert [report.end for report in engine.reports] == ["failed"]
    engine.live.abandon()
    assert len(engine.reports) == MAX_ORDERS + 2
    assert set(engine.reports[1:]) == {Report("failed", ("the engine is stopping",))}
    engine.advance()


def test_what_an_earlier_collector_says_twice_does_no_harm() -> None:
    engine = Engine(model())
    engine.order(Order("load", "m"))
    engine.open(1)
    engine.load(1)
    old = engine.entry(RETIRING)
    for _ in range(2):
        engine.live.drained(old.reference)
    engine.live.drained(engine.entry(SERVING).reference)
    assert engine.table() == [("m", "1", SERVING, (1,))]


def test_a_place_of_the_segment_is_wiped_before_another_model_has_it() -> None:
    engine = Engine(model())
    first = engine.segment.layout.model(1)
    engine.segment.words[first] = 7
    engine.order(Order("load", "m"))
    assert engine.segment.words[first] == 7
    engine.open(1)
    assert engine.segment.words[first] == 0


@pytest.mark.parametrize("old", ["python", "http"])
def test_a_model_that_another_server_runs_over_v1_does_not_change_live(old: str) -> None:
    others = model(runtime="http", path="http://127.0.0.1:1")
    engine = Engine(others if old == "http" else model())
    engine.want(model() if old == "http" else others)
    engine.order()
    (report,) = engine.reports
    assert (report.end, report.lines) == (
        "failed",
        ("m: a model that another server runs cannot change; restart the engine",),
    )
    assert engine.table() == [("m", "1", "serving", tuple(range(others.processes)))]


def test_a_model_that_another_server_runs_over_v1_may_have_other_numbers_of_workers() -> None:
    others = model(runtime="http", path="http://127.0.0.1:1", workers=(1, 3))
    engine = Engine(others)
    ((reference, _),) = engine.live.served.models.items()
    engine.live.scale(reference, 2)
    engine.advance()
    assert not engine.live.idle
    assert sorted(engine.pool.workers) == [0, 1]


def test_who_could_not_be_ended_is_when_the_change_is_given_up() -> None:
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


def test_what_cannot_even_be_undone_is_no_more_to_be_given_up_alone(
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


def test_what_is_switched_and_not_settled_is_no_more_to_be_given_up_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Engine(model())

    def fault(*_: object) -> None:
        raise ZeroDivisionError

    engine.order(Order("load", "m"))
    monkeypatch.setattr(engine.live, "_settle", fault)
    with pytest.raises(ZeroDivisionError):
        engine.open_and_load(1)
    with pytest.raises(ChangeFailed, match="it could not be undone"):
        engine.live.break_off()
    assert engine.table() == [("m", "1", RETIRING, (0,)), ("m", "1", SERVING, (1,))]


CHAINED = Order("load", "c")


@pytest.mark.parametrize("order", [CHAINED, RELOAD])
@pytest.mark.parametrize("version", ["1", "2"])
def test_a_model_takes_the_place_of_the_chain_of_its_name_once_it_is_loaded(
    order: Order, version: str
) -> None:
    engine = Engine(model("a"), chains=(chain("c", "a"),), says=MAPS)
    engine.want(model("a"), model("c", version=version))
    engine.order(order)
    assert engine.serving == [("a", False), ("c", True)]
    engine.open(1, says=MAPS)
    assert engine.serving == [("a", False), ("c", True)]
    number = engine.segment.model_table.number
    engine.load(1)
    assert engine.segment.model_table.number == number + 1, "the switch is one store"
    assert engine.serving == [("a", False), ("c", False)]
    assert engine.entry(RETIRING).chain is not None
    assert engine.reports == [Report("done", (f"c: version {version} loaded",))]
    engine.retire()
    engine.order()
    assert engine.reports[1] == Report("done", ("nothing has changed",))


@pytest.mark.parametrize("order", [CHAINED, RELOAD])
def test_a_chain_serves_on_where_the_model_of_its_name_is_not_loaded(order: Order) -> None:
    engine = Engine(model("a"), chains=(chain("c", "a"),), says=MAPS)
    engine.want(model("a"), model("c"))
    engine.order(order)
    engine.fail(1, "no such module")
    assert engine.reports == [Report("failed", ("c: no such module",))]
    assert engine.serving == [("a", False), ("c", True)]


@pytest.mark.parametrize("order", [CHAINED, RELOAD])
def test_a_chain_takes_the_place_of_the_model_of_its_name(order: Order) -> None:
    engine = Engine(model("a"), model("c", version="2", workers=2), says=MAPS)
    engine.want(model("a"), chains=(chain("c", "a"),))
    number = engine.segment.model_table.number
    engine.order(order)
    assert engine.segment.model_table.number == number + 1, "the switch is one store"
    assert engine.reports == [Report("done", ("c: loaded",))]
    assert engine.serving == [("a", False), ("c", True)]
    assert [engine.pool.workers[n].lasting for n in (0, 1, 2)] == [True, False, False]
    engine.retire()
    engine.order()
    assert engine.reports[1] == Report("done", ("nothing has changed",))


@pytest.mark.parametrize("order", [CHAINED, RELOAD])
def test_a_model_serves_on_where_the_chain_of_its_name_does_not_fit(order: Order) -> None:
    engine = Engine(model("a"), model("c"))
    engine.want(model("a"), chains=(chain("c", "a"),))
    engine.order(order)
    (report,) = engine.reports
    assert report.end == "failed"
    assert "declares no inputs and outputs" in report.lines[0]
    assert engine.serving == [("a", False), ("c", False)]
    assert engine.pool.workers[1].lasting


def test_a_chain_takes_no_place_of_a_step_that_another_chain_needs() -> None:
    engine = Engine(model("a"), model("c"), chains=(chain("d", "c"),), says=MAPS)
    engine.want(model("a"), chains=(chain("c", "a"), chain("d", "c")))
    engine.order(CHAINED)
    words = "c: c is needed by chain 'd', whose step 1 it is; unload d first"
    assert engine.reports == [Report("failed", (words,))]
    assert engine.serving == [("a", False), ("c", False), ("d", True)]


def test_a_chain_waits_for_the_place_of_a_step_of_one_that_retires() -> None:
    engine = Engine(model("a"), model("c"), chains=(chain("d", "c"),), says=MAPS)
    engine.want(model("a"), chains=(chain("c", "a"),))
    engine.order()
    assert engine.serving == [("a", False), ("c", False)]
    engine.retire()
    assert engine.serving == [("a", False), ("c", True)]
    assert engine.reports == [Report("done", ("d: unloaded", "c: loaded"))]


def test_a_chain_takes_no_place_of_a_model_that_another_server_runs_over_v1() -> None:
    others = model("c", runtime="http", path="http://127.0.0.1:1")
    engine = Engine(model("a"), others, says=MAPS)
    engine.want(model("a"), chains=(chain("c", "a"),))
    engine.order(CHAINED)
    words = "c: a model that another server runs cannot change; restart the engine"
    assert engine.reports == [Report("failed", (words,))]
    assert engine.serving == [("a", False), ("c", False)]
