"""What is told of a number of workers that the load decides."""

import time
from dataclasses import replace

from segment_fixture import local_segment, spec

from ringbatch.engine.config.dimensions import layout_of
from ringbatch.engine.config.settings import ServerConfig
from ringbatch.engine.report.models import table
from ringbatch.engine.report.status import describe
from ringbatch.frontend.metrics.exposition import EngineMetrics
from ringbatch.frontend.page.feed import marks
from ringbatch.frontend.request.readiness import obstacle_of
from ringbatch.shm.descriptors import HeaderWords, ModelWords, WorkerWords
from ringbatch.shm.scalings import Cause, Scalings
from ringbatch.shm.segment import Segment
from ringbatch.shm.snapshot.sample import sample
from ringbatch.shm.snapshot.status import read

ELASTIC = replace(spec(workers=(0, 1, 2)), least=0, most=8)


def engine(ready: int = 3, **more: object) -> Segment:
    """With one model."""
    segment = local_segment(ELASTIC, spare=8)
    segment.models = (replace(ELASTIC, **more),)  # type: ignore[arg-type]
    segment.model_table.publish(segment.models)
    segment.name = "/ringbatch.test.1.0"
    segment.words[segment.layout.model(0) + ModelWords.READY] = ready
    segment.words[HeaderWords.COLLECTOR_NS] = time.monotonic_ns()
    return segment


def block(segment: Segment) -> Scalings:
    found = Scalings(segment.words, segment.layout, segment.models[0].account)
    found.open()
    return found


def obstacle(segment: Segment) -> str:
    now_ns = segment.words[HeaderWords.COLLECTOR_NS]
    return obstacle_of(segment.words, segment.layout, segment.models[0], now_ns)


def test_a_model_that_the_load_has_left_without_a_worker_can_answer() -> None:
    assert obstacle(engine(ready=0, workers=())) == ""
    assert "no worker holds it" in obstacle(engine(ready=0, workers=(0,), least=1))
    assert "no worker holds it" in obstacle(engine(ready=0, workers=(0,), most=0))


def test_where_none_can_be_started_it_cannot() -> None:
    segment = engine(ready=0, workers=())
    block(segment).fail(failed=True)
    assert "no worker holds it" in obstacle(segment)
    block(segment).fail(failed=False)
    assert obstacle(segment) == ""
    refused = engine(ready=0, workers=(0,))
    refused.words[refused.layout.worker(0) + WorkerWords.ERRNO] = 12
    assert "no worker holds it" in obstacle(refused)


def test_commands_say_the_range_and_what_is_on_its_way() -> None:
    assert "m: 3 of 0 to 8 workers ready\n" in describe(read(engine()))
    assert "m: 2 of 0 to 8 workers ready, 3 wanted\n" in describe(read(engine(ready=2)))
    assert "m: python, 3 of 0 to 8 workers ready" in table(engine())


def test_decisions_are_metrics() -> None:
    segment = engine()
    block(segment).count(Cause.LATE)
    block(segment).want(5)
    families = {f.name: f for f in EngineMetrics(segment, "").collect({})}
    scalings = families["ringbatch_model_scalings"].text(as_open=False)
    assert 'model="m",version="1",direction="up",reason="late"} 1' in scalings
    assert 'direction="held",reason="memory"} 0' in scalings
    wanted = families["ringbatch_model_wanted_workers"].text(as_open=False)
    assert 'ringbatch_model_wanted_workers{model="m",version="1"} 5' in wanted
    fixed = {f.name for f in EngineMetrics(engine(most=0), "").collect({})}
    assert "ringbatch_model_scalings" not in fixed


def test_decisions_are_marks_on_the_page() -> None:
    segment = engine()
    before = sample(segment, 1)
    block(segment).count(Cause.IDLE)
    assert marks(before, sample(segment, 2)) == [{"words": "m, 3: fewer workers: fewer suffice"}]


def test_the_segment_has_places_for_the_most() -> None:
    server = ServerConfig(spare_workers=0)
    assert layout_of(server, (replace(ELASTIC, workers=(0,)),)).workers == 8
    assert layout_of(server, (replace(ELASTIC, workers=(0,), spares=2),)).workers == 10
