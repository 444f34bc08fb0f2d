"""Changes of the served models: loading, retiring, and the reports on them."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest
from changing_engine import RELOAD, TENSORS, Engine, model

from ringbatch.engine.config.document import ConfigError
from ringbatch.engine.config.settings import Config
from ringbatch.engine.supervisor.model_changes import MAX_ORDERS
from ringbatch.shm.host.control_socket import Order, Report
from ringbatch.shm.model_spec import LOADING, RETIRING, SERVING


def test_a_changed_model_is_loaded_then_serves_while_the_old_one_retires() -> None:
    engine = Engine(model())
    new = model(threads=3)
    engine.want(new)
    engine.order()
    assert engine.table() == [("m", "1", SERVING, (0,))], "nothing is known of it yet"
    engine.open(1)
    assert engine.table() == [("m", "1", SERVING, (0,)), ("m", "1", LOADING, (1,))]
    assert (engine.attached, engine.pool.workers[1].lasting) == ([1], False)
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


def test_a_further_worker_gets_the_file_of_the_others(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text("1")
    engine = Engine(model(path=path))
    engine.want(model(path=path, workers=2))
    engine.order()
    assert engine.files == {1: engine.live.served.files[engine.entry(SERVING).reference]}


def test_an_unchangeable_setting_is_named_and_a_wrong_configuration_changes_nothing() -> None:
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


def test_the_log_has_every_end_of_an_order_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ringbatch.supervisor")
    engine = Engine(model())

    def logged(order: Order = RELOAD) -> list[tuple[str, str]]:
        caplog.clear()
        engine.order(order)
        return [(record.levelname, record.message) for record in caplog.records]

    assert logged() == [("INFO", "reload: nothing has changed")]
    engine.want(model(timeout_s=7.0))
    assert logged() == [("INFO", "m: version 1 adjusted")]
    words = 'load refused: the configuration has no model "n"; there is: m'
    assert logged(Order("load", "n")) == [("WARNING", words)]
    words = 'unload refused: the engine serves no model "n"; there is: m'
    assert logged(Order("unload", "n")) == [("WARNING", words)]
    ((level, words),) = logged(Order("load", "m", max_batch_size=1 << 40))
    assert level == "ERROR"
    assert words.startswith("load refused: max_batch_size")
    engine.wanted = ConfigError("a is wrong", "b is wrong")
    both = [("ERROR", "reload refused: a is wrong"), ("ERROR", "reload refused: b is wrong")]
    assert logged() == both
    engine.wanted = Config(models=(model(),))
    for _ in range(MAX_ORDERS + 1):
        engine.order(Order("load", "m"))
    words = f"load refused: {MAX_ORDERS} changes wait already; try again later"
    assert logged(Order("load", "m")) == [("ERROR", words)]
    assert len(engine.reports) == 7, "the orders that wait have none yet"


def test_an_unchangeable_setting_fails_no_order_for_one_model() -> None:
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


def test_a_repeated_message_of_an_earlier_collector_does_no_harm() -> None:
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
    engine.live.scale(reference, 2, engine.reports.append)
    engine.advance()
    assert not engine.live.can_scale(reference)
    assert sorted(engine.pool.workers) == [0, 1]
