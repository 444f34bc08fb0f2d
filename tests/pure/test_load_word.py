"""What HAProxy is told of an engine: tables and properties."""

import re
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.frontend.load.word import LEAST, UNKNOWN_NS, EngineLoad, ModelLoad, word

MS = 1_000_000


def model(
    answer_ms: int = 0, cycle_ms: int = 10, quickest_ms: int = 10, obstacle: str = ""
) -> ModelLoad:
    return ModelLoad("m", obstacle, answer_ms * MS, cycle_ms * MS, quickest_ms * MS)


@dataclass(frozen=True)
class Case:
    said: bytes
    models: tuple[ModelLoad, ...] = (model(),)
    draining: bool = False


STUCK = "its workers have not finished\na batch\N{HORIZONTAL ELLIPSIS}"
CASES = {
    "idle": Case(b"up 100%\n"),
    "a batch runs": Case(b"up 50%\n", (model(answer_ms=20),)),
    "a queue of ten batches": Case(b"up 10%\n", (model(answer_ms=100),)),
    "slow, and nothing waits": Case(b"up 33%\n", (model(cycle_ms=30),)),
    "slow, and hardly anything waits": Case(b"up 33%\n", (model(answer_ms=1, cycle_ms=30),)),
    "a queue of a thousand batches": Case(b"up 1%\n", (model(answer_ms=10_000),)),
    "quicker than in warm-up": Case(b"up 100%\n", (model(cycle_ms=1),)),
    "never run": Case(b"up 100%\n", (model(cycle_ms=0),)),
    "never warmed up": Case(b"up 25%\n", (model(answer_ms=4 * UNKNOWN_NS // MS, quickest_ms=0),)),
    "the busier of two models": Case(b"up 20%\n", (model(), model(answer_ms=50))),
    "no models": Case(b"up 100%\n", ()),
    "draining": Case(b"up 0%\n", draining=True),
    "draining, with a queue": Case(b"up 0%\n", (model(answer_ms=100),), draining=True),
    "draining, and no worker left": Case(b"up 0%\n", (model(obstacle=STUCK),), draining=True),
    "not ready": Case(
        b"down #m: its workers have not finished a batch?\n", (model(), model(obstacle=STUCK))
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_word_of_an_engine(case: Case) -> None:
    assert word(EngineLoad(case.draining, case.models)) == case.said


times = st.integers(0, 1 << 50)
models = st.builds(ModelLoad, st.just("m"), st.just(""), times, times, times)


@given(st.lists(models, max_size=4))
def test_one_that_serves_gets_some_and_never_more_than_all(found: list[ModelLoad]) -> None:
    load = EngineLoad(draining=False, models=tuple(found))
    assert 1 <= load.percent <= 100
    assert re.fullmatch(rb"up \d{1,3}%\n", word(load))


@given(models, times, times)
def test_a_longer_time_never_gets_more(found: ModelLoad, answer_ns: int, cycle_ns: int) -> None:
    slower = found._replace(
        answer_ns=found.answer_ns + answer_ns, cycle_ns=found.cycle_ns + cycle_ns
    )
    assert slower.percent <= found.percent
    assert slower.wait_ns >= found.wait_ns


@given(models, st.lists(models, max_size=3))
def test_a_further_model_never_gets_it_more(found: ModelLoad, others: list[ModelLoad]) -> None:
    alone, together = (
        EngineLoad(draining=False, models=tuple(models)) for models in ([found], [found, *others])
    )
    assert together.percent <= alone.percent


@given(st.integers(1, 1000), st.integers(1, 50), st.integers(1, 20))
def test_shares_are_inverse_to_the_time_whatever_the_model(
    quickest_ms: int, batches: int, factor: int
) -> None:
    time_ms = quickest_ms * batches
    quick, slow = (
        model(answer_ms=ms, cycle_ms=quickest_ms, quickest_ms=quickest_ms).percent
        for ms in (time_ms, factor * time_ms)
    )
    assert abs(quick - factor * slow) <= factor or slow == LEAST


@given(
    st.lists(
        st.builds(ModelLoad, st.just("m"), st.text(max_size=9), times, times, times), max_size=2
    )
)
def test_whatever_the_reason_it_is_one_line(found: list[ModelLoad]) -> None:
    said = word(EngineLoad(draining=False, models=tuple(found)))
    assert said.endswith(b"\n")
    assert said.count(b"\n") == 1
    assert said.startswith((b"up ", b"down #"))
