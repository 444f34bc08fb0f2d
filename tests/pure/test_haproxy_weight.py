"""Weight of an engine for HAProxy: tables and properties."""

import re
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.frontend.load.haproxy_weight import EngineLoad, ModelLoad, word
from ringbatch.frontend.load.slowdown import Pace


def model(slowdown: float = 1.0, batches: float = 0.0, obstacle: str = "") -> ModelLoad:
    return ModelLoad("m", obstacle, 0, Pace(slowdown, batches))


@dataclass(frozen=True)
class Case:
    word_text: bytes
    models: tuple[ModelLoad, ...] = (model(),)
    draining: bool = False


STUCK = "its workers have not finished\na batch\N{HORIZONTAL ELLIPSIS}"
CASES = {
    "idle": Case(b"up 100%\n"),
    "a batch runs": Case(b"up 100%\n", (model(batches=2),)),
    "three batches until the answer": Case(b"up 44%\n", (model(batches=3),)),
    "ten": Case(b"up 4%\n", (model(batches=10),)),
    "a thousand": Case(b"up 1%\n", (model(batches=1000),)),
    "half as quick, and nothing waits": Case(b"up 17%\n", (model(slowdown=2),)),
    "a third as quick": Case(b"up 6%\n", (model(slowdown=3, batches=2),)),
    "a third as quick, and much waits": Case(b"up 1%\n", (model(slowdown=3, batches=4),)),
    "the busier of two models": Case(b"up 25%\n", (model(), model(batches=4))),
    "no models": Case(b"up 100%\n", ()),
    "draining": Case(b"up 0%\n", draining=True),
    "draining, with a queue": Case(b"up 0%\n", (model(batches=9),), draining=True),
    "draining, and no worker left": Case(b"up 0%\n", (model(obstacle=STUCK),), draining=True),
    "not ready": Case(
        b"down #m: its workers have not finished a batch?\n", (model(), model(obstacle=STUCK))
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_word_of_an_engine(case: Case) -> None:
    assert word(EngineLoad(case.draining, case.models)) == case.word_text


times = st.integers(0, 1 << 50)
slowdowns = st.floats(1.0, 1e9)
queues = st.floats(0.0, 1e9)
paces = st.builds(Pace, slowdowns, queues)
models = st.builds(ModelLoad, st.just("m"), st.just(""), times, paces)


@given(st.lists(models, max_size=4))
def test_one_that_serves_gets_some_and_never_more_than_all(found: list[ModelLoad]) -> None:
    load = EngineLoad(draining=False, models=tuple(found))
    assert 1 <= load.percent <= 100
    assert re.fullmatch(rb"up \d{1,3}%\n", word(load))


@given(models, slowdowns, queues)
def test_a_slower_engine_never_gets_more(found: ModelLoad, times: float, batches: float) -> None:
    pace = Pace(found.pace.slowdown * times, found.pace.batches + batches)
    slower = found._replace(pace=pace)
    assert slower.percent <= found.percent


@given(models, st.lists(models, max_size=3))
def test_a_further_model_never_gets_it_more(found: ModelLoad, others: list[ModelLoad]) -> None:
    alone, together = (
        EngineLoad(draining=False, models=tuple(models)) for models in ([found], [found, *others])
    )
    assert together.percent <= alone.percent


@given(
    st.lists(
        st.builds(ModelLoad, st.just("m"), st.text(max_size=9), times, paces),
        max_size=2,
    )
)
def test_any_reason_is_one_line(found: list[ModelLoad]) -> None:
    word_text = word(EngineLoad(draining=False, models=tuple(found)))
    assert word_text.endswith(b"\n")
    assert word_text.count(b"\n") == 1
    assert word_text.startswith((b"up ", b"down #"))
