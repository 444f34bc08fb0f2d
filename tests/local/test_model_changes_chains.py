"""Changes between a model and the chain of its name: one takes the other's place at once."""

import pytest
from changing_engine import MAPS, RELOAD, Engine, chain, model

from ringbatch.shm.host.control_socket import Order, Report
from ringbatch.shm.model_spec import RETIRING

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
