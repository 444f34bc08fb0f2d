"""Orders to change what is served, carried out with workers and a collector played by hand."""

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rig import local_segment

from ringbatch.engine.config import ConfigError
from ringbatch.engine.entries import Forwarding, first_entries
from ringbatch.engine.live import MAX_ORDERS, LiveChanges, stamp
from ringbatch.engine.place import Place
from ringbatch.engine.settings import Config, ModelConfig, ServerConfig
from ringbatch.shm.control import Order, Report
from ringbatch.shm.manifest import LOADING, RETIRING, SERVING, ModelSpec

SIGNATURE: dict[str, Any] = {"inputs": [], "outputs": []}
TENSORS = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1]}], "outputs": []}
RELOAD = Order("reload", None)


class Crew:
    """The supervisor, which starts nobody.

    Attributes:
        introduced: numbers of those that were told of the segment.
        dismissed: numbers of those that were sent away before the collector knew them.
        looks: how often the collector was told to look.
        exhausted_from: the number from which on no process can be started.
    """

    def __init__(self, workers: int) -> None:
        self.workers = {n: Place(f"worker {n}", _nobody, worker=n) for n in range(workers)}
        self.introduced: list[int] = []
        self.dismissed: list[int] = []
        self.looks = 0
        self.exhausted_from = 1 << 10

    def hire(self, number: int, model: ModelConfig, index: int) -> None:
        assert number not in self.workers
        place = Place(f"{model.name}/{index}", _nobody, worker=number)
        place.lasting = place.known = False
        self.workers[number] = place
        if number >= self.exhausted_from:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    def introduce(self, place: Place) -> None:
        assert place.worker is not None
        self.introduced.append(place.worker)

    def dismiss(self, place: Place) -> None:
        assert place.worker is not None
        self.dismissed.append(place.worker)
        del self.workers[place.worker]

    def table_changed(self) -> None:
        self.looks += 1


def _nobody() -> Any:
    raise AssertionError("nobody is started here")


def model(name: str = "m", **more: Any) -> ModelConfig:
    found = ModelConfig(name=name, runtime="python", path=Path("/m.py"))
    return replace(found, **more)


class Engine:
    """An engine that serves some models, and what it is told to serve next.

    Attributes:
        wanted: what the configuration says now; an error, where it is wrong.
        reports: what came of each order.
    """

    def __init__(self, *models: ModelConfig, spare: int = 2) -> None:
        workers = sum(m.workers for m in models)
        self.crew = Crew(workers)
        signatures = dict.fromkeys(range(workers), SIGNATURE)
        entries = first_entries(models, signatures, Forwarding())
        self.segment = local_segment(*entries, spare=spare)
        config = Config(models=models)
        self.wanted: Config | ConfigError = config
        self.reports: list[Report] = []
        self.live = LiveChanges(
            self.crew,
            self.segment,
            config,
            entries,
            map(stamp, models),
            self._reread,
            Forwarding(),
        )

    def _reread(self) -> Config:
        if isinstance(self.wanted, ConfigError):
            raise self.wanted
        return self.wanted

    def want(self, *models: ModelConfig, **server: Any) -> None:
        self.wanted = Config(server=ServerConfig(**server), models=models)

    def order(self, order: Order = RELOAD) -> None:
        self.live.take(order, self.reports.append)
        self.live.advance()

    def table(self) -> list[tuple[str, str, str, tuple[int, ...]]]:
        _, models = self.segment.table.read()
        return [(s.name, s.version, s.state, s.workers) for s in models]

    def entry(self, state: str = LOADING) -> ModelSpec:
        _, models = self.segment.table.read()
        (found,) = (spec for spec in models if spec.state == state)
        return found

    def open(self, *numbers: int, says: dict[str, Any] = SIGNATURE) -> None:
        """Workers have opened their files."""
        for number in numbers:
            self.crew.workers[number].signature = says
        self.live.advance()

    def load(self, *numbers: int) -> None:
        """Workers are ready, and the collector has heard it."""
        for number in numbers:
            self.crew.workers[number].ready_ns = 1
        self.live.advance()
        _, models = self.segment.table.read()
        for spec in models:
            if spec.state == LOADING:
                self.live.loaded(spec.reference)
        self.live.advance()

    def open_and_load(self, *numbers: int) -> None:
        self.open(*numbers)
        self.load(*numbers)

    def fail(self, number: int, words: str) -> None:
        self.crew.workers[number].failure = words
        self.live.advance()

    def retire(self) -> None:
        """The collector is done with what retires, and its workers are gone."""
        spec = self.entry(RETIRING)
        self.live.drained(spec.reference)
        for number in spec.workers:
            del self.crew.workers[number]
        self.live.advance()


def test_a_changed_model_is_loaded_then_serves_while_the_old_one_retires() -> None:
    engine = Engine(model())
    new = model(threads=3)
    engine.want(new)
    engine.order()
    assert engine.table() == [("m", "1", SERVING, (0,))], "nothing is known of it yet"
    engine.open(1)
    assert engine.table() == [("m", "1", SERVING, (0,)), ("m", "1", LOADING, (1,))]
    assert (engine.crew.introduced, engine.crew.workers[1].lasting) == ([1], False)
    number = engine.segment.table.number
    engine.load(1)
    assert engine.segment.table.number == number + 1, "the switch is one store"
    assert engine.table() == [("m", "1", RETIRING, (0,)), ("m", "1", SERVING, (1,))]
    assert engine.reports == [Report("done", ("m: version 1 loaded",))]
    assert [engine.crew.workers[n].lasting for n in (0, 1)] == [False, True]
    engine.retire()
    assert engine.table() == [("m", "1", SERVING, (1,))]
    assert engine.crew.looks == 3
    engine.order()
    assert engine.reports[1] == Report("done", ("nothing has changed",))


def test_it_does_not_serve_before_the_collector_knows_that_it_is_ready() -> None:
    engine = Engine(model())
    engine.order(Order("load", "m"))
    engine.open(1)
    engine.crew.workers[1].ready_ns = 1
    engine.live.advance()
    assert engine.table()[1] == ("m", "1", LOADING, (1,))
    engine.live.loaded(engine.entry().reference)
    engine.live.advance()
    assert engine.table()[1] == ("m", "1", SERVING, (1,))


def test_a_worker_that_fails_before_it_is_entered_changes_nothing() -> None:
    engine = Engine(model())
    number = engine.segment.table.number
    engine.order(Order("load", "m"))
    engine.fail(1, "no such module")
    assert engine.reports == [Report("failed", ("m: no such module",))]
    assert engine.segment.table.number == number
    assert engine.crew.dismissed == [1]


def test_a_process_that_cannot_be_started_fails_the_change_alone() -> None:
    engine = Engine(model(workers=2))
    engine.crew.exhausted_from = 2
    engine.order(Order("load", "m"))
    words = "m: no process can be started: Resource temporarily unavailable"
    assert engine.reports == [Report("failed", (words,))]
    assert sorted(engine.crew.workers) == [0, 1]


def test_a_worker_that_fails_to_load_takes_its_entry_with_it() -> None:
    engine = Engine(model(workers=2), spare=2)
    engine.order(Order("load", "m"))
    engine.open(2, 3)
    engine.crew.workers[2].ready_ns = 1
    engine.fail(3, "no memory")
    assert engine.reports == [Report("failed", ("m: no memory",))]
    assert engine.table() == [("m", "1", SERVING, (0, 1))]
    assert engine.crew.dismissed == [], "the collector knows them, and lets them go"


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
    assert [engine.crew.workers[n].lasting for n in (0, 1)] == [True, False]
    assert engine.reports == [Report("done", ("m: version 1 adjusted",))]


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
        del engine.crew.workers[number]
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
    assert sorted(engine.crew.workers) == [0, 1], "the free number was taken at once"
    engine.open(0)
    engine.load(0)
    assert [report.end for report in engine.reports] == ["done", "done"]


def test_a_change_for_which_there_never_is_room_is_refused() -> None:
    engine = Engine(model(), spare=1)
    engine.want(model(), model("n", workers=2))
    engine.order()
    (report,) = engine.reports
    assert report.end == "failed"
    assert "it needs 2 more places for workers; there are 2, and 1 are in use" in report.lines[0]


def test_a_table_without_room_leaves_what_serves() -> None:
    engine = Engine(model(), spare=1)
    room = engine.segment.layout.manifest_bytes
    engine.order(Order("load", "m"))
    long = {"name": "x" * room, "datatype": "FP32", "shape": [1]}
    engine.open(1, says={"inputs": [long], "outputs": [long]})
    assert "there is no room for more models" in engine.reports[0].lines[0]
    assert (engine.table(), engine.crew.dismissed) == ([("m", "1", SERVING, (0,))], [1])


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
    _, models = engine.segment.table.read()
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


def test_what_cannot_change_is_named_and_a_wrong_configuration_changes_nothing() -> None:
    engine = Engine(model())
    engine.want(model(), port=1, frontends=9)
    engine.order()
    words = "[server] frontends, port: cannot change while the engine runs; restart it"
    assert engine.reports == [Report("done", (words,))]
    engine.wanted = ConfigError("a is wrong", "b is wrong")
    engine.order()
    assert engine.reports[1] == Report("failed", ("a is wrong", "b is wrong"))
    engine.want(model())
    engine.order(Order("load", "n"))
    assert engine.reports[2].end == "unknown"


def test_orders_wait_for_their_turn_up_to_a_number_and_hear_of_the_end() -> None:
    engine = Engine(model())
    for _ in range(MAX_ORDERS + 2):
        engine.order(Order("load", "m"))
    assert [report.end for report in engine.reports] == ["failed"]
    engine.live.abandon()
    assert len(engine.reports) == MAX_ORDERS + 2
    assert set(engine.reports[1:]) == {Report("failed", ("the engine is stopping",))}
    engine.live.advance()


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
    engine.segment.memory[first] = 7
    engine.order(Order("load", "m"))
    assert engine.segment.memory[first] == 7
    engine.open(1)
    assert engine.segment.memory[first] == 0


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
    assert engine.table() == [("m", "1", "serving", tuple(range(others.workers)))]
