"""Numbers of workers change beside each other and beside orders, never twice for one model."""

from pathlib import Path

from changing_engine import Engine, model

from ringbatch.engine.config.settings import ModelConfig
from ringbatch.shm.host.control_socket import Order, Report
from ringbatch.shm.model_spec import LOADING, SERVING

DONE = Report("done", ())


def elastic(name: str, path: Path = Path("/m.py")) -> ModelConfig:
    return model(name, workers=(1, 3), path=path)


def reference(engine: Engine, name: str) -> int:
    found = {spec.name: spec.reference for spec in engine.live.served.entries}
    return found[name]


def scale(engine: Engine, name: str, running: int) -> None:
    engine.live.scale(reference(engine, name), running, engine.reports.append)


def workers(engine: Engine) -> dict[str, tuple[int, ...]]:
    return {name: numbers for name, _, state, numbers in engine.table() if state == SERVING}


def test_several_models_are_scaled_at_once_and_each_is_done_when_its_workers_are() -> None:
    engine = Engine(elastic("a"), elastic("b"), elastic("c"), spare=6)
    scale(engine, "a", 2)
    scale(engine, "b", 3)
    engine.advance()
    assert sorted(engine.pool.workers) == [0, 1, 2, 3, 4, 5]
    engine.open(4, 5)
    engine.load(4, 5)
    assert engine.reports == [DONE]
    assert workers(engine) == {"a": (0,), "b": (1, 4, 5), "c": (2,)}
    scale(engine, "b", 1)
    engine.advance()
    engine.open_and_load(3)
    assert engine.reports == [DONE] * 3
    assert workers(engine) == {"a": (0, 3), "b": (1,), "c": (2,)}
    assert [n for n, managed in sorted(engine.pool.workers.items()) if managed.lasting] == [
        0,
        1,
        2,
        3,
    ]


def test_one_that_fails_leaves_the_others_alone() -> None:
    engine = Engine(elastic("a"), elastic("b"), spare=4)
    scale(engine, "a", 2)
    scale(engine, "b", 2)
    engine.advance()
    engine.open(2, 3)
    engine.fail(2, "no memory")
    assert engine.reports == [Report("failed", ("no memory",))]
    assert workers(engine) == {"a": (0,), "b": (1, 3)}
    assert [engine.live.can_scale(reference(engine, name)) for name in "ab"] == [True, False]
    engine.load(3)
    assert engine.reports[1:] == [DONE]


def test_a_model_is_scaled_while_an_order_loads_another() -> None:
    engine = Engine(elastic("a"), elastic("b"), spare=4)
    engine.order(Order("load", "a"))
    engine.open(2)
    assert not engine.live.can_scale(reference(engine, "a"))
    scale(engine, "b", 2)
    engine.advance()
    engine.open_and_load(3)
    assert engine.reports == [DONE]
    assert ("a", "1", LOADING, (2,)) in engine.table()
    assert ("b", "1", SERVING, (1, 3)) in engine.table()


def test_undoing_one_models_change_leaves_an_order_for_another() -> None:
    engine = Engine(elastic("a"), elastic("b"), spare=4)
    engine.order(Order("load", "a"))
    engine.open(2)
    scale(engine, "b", 2)
    engine.advance()
    engine.open(3)
    engine.fail(3, "no memory")
    assert engine.reports == [Report("failed", ("no memory",))]
    assert ("a", "1", LOADING, (2,)) in engine.table()
    engine.load(2)
    assert engine.reports[1].end == "done"


def test_an_order_for_a_model_waits_until_it_is_scaled() -> None:
    engine = Engine(elastic("a"), elastic("b"), spare=4)
    scale(engine, "a", 2)
    engine.advance()
    engine.order(Order("load", "a"))
    assert sorted(engine.pool.workers) == [0, 1, 2]
    engine.open_and_load(2)
    assert engine.reports == [DONE]
    assert sorted(engine.pool.workers) == [0, 1, 2, 3, 4], "as many as it has now"
    engine.open_and_load(3, 4)
    assert workers(engine) == {"a": (3, 4), "b": (1,)}


def test_a_model_that_is_unloaded_is_scaled_first() -> None:
    engine = Engine(elastic("a"), elastic("b"), spare=4)
    scale(engine, "a", 2)
    gone = reference(engine, "a")
    engine.order(Order("unload", "a"))
    engine.open_and_load(2)
    assert [report.end for report in engine.reports] == ["done", "done"]
    assert workers(engine) == {"b": (1,)}
    assert not engine.live.can_scale(gone)


def test_a_change_of_the_files_is_reported_while_a_model_is_scaled(tmp_path: Path) -> None:
    (path := tmp_path / "m.py").write_text("1")
    engine = Engine(elastic("a", path), elastic("b"), spare=4)
    scale(engine, "a", 2)
    engine.advance()
    differing = {reference(engine, "a")}
    engine.live.differ(differing)
    engine.open(2)
    assert engine.live.served.differing == differing
    engine.load(2)
    assert (engine.reports, engine.live.served.differing) == ([DONE], differing)
    scale(engine, "a", 3)
    engine.advance()
    engine.open(3)
    engine.live.differ(set())
    engine.fail(3, "no memory")
    assert engine.live.served.differing == set()


def test_a_fault_undoes_all_changes_under_way_and_every_caller_hears_of_it() -> None:
    engine = Engine(elastic("a"), elastic("b"), elastic("c"), spare=6)
    scale(engine, "a", 2)
    scale(engine, "b", 2)
    engine.order(Order("load", "c"))
    engine.open(3, 4)
    assert len(engine.table()) == 3
    engine.live.break_off()
    assert [report.end for report in engine.reports] == ["failed"] * 3
    assert workers(engine) == {"a": (0,), "b": (1,), "c": (2,)}
    assert all(engine.live.can_scale(reference(engine, name)) for name in "abc")


def test_a_number_is_given_to_one_model_though_its_worker_is_gone_already() -> None:
    engine = Engine(elastic("a"), elastic("b"), spare=4)
    scale(engine, "a", 2)
    engine.advance()
    del engine.pool.workers[2]
    scale(engine, "b", 2)
    engine.advance()
    assert sorted(engine.pool.workers) == [0, 1, 3]
