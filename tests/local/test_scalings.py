"""Reports of an autoscaled number of workers: readiness, Retry-After, messages."""

import errno
import time
from dataclasses import replace

from segment_fixture import local_segment, spec

from ringbatch.engine.config.dimensions import layout_of
from ringbatch.engine.config.settings import ServerConfig
from ringbatch.engine.report.models import table
from ringbatch.engine.report.status import describe
from ringbatch.frontend.metrics.exposition import EngineMetrics
from ringbatch.frontend.page.feed import marks
from ringbatch.shm.descriptors import HeaderWords, ModelWords, WorkerState, WorkerWords
from ringbatch.shm.errors import NO_PLACE_YET
from ringbatch.shm.readiness import ModelState, retry_after_s, state_without_worker
from ringbatch.shm.scalings import Cause, Scalings
from ringbatch.shm.segment import Segment
from ringbatch.shm.snapshot.sample import sample
from ringbatch.shm.snapshot.status import read

S = 1_000_000_000
ELASTIC = replace(spec(workers=(0, 1, 2)), least=0, most=8)


def engine(ready: int = 3, **more: object) -> Segment:
    """Return a segment with one model."""
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


def without_worker(segment: Segment) -> ModelState:
    """The state of its model, which has served before."""
    (model,) = segment.models
    return state_without_worker(segment.words, segment.layout, model, ModelState.SERVING)


def test_a_model_that_the_load_has_left_without_a_worker_is_at_rest_until_it_wakes() -> None:
    assert without_worker(engine(ready=0, workers=())) is ModelState.AT_REST
    assert without_worker(engine(ready=0, workers=(0,))) is ModelState.WAKING
    assert without_worker(engine(ready=0, workers=(0,), least=1)) is ModelState.RESTARTING
    assert without_worker(engine(ready=0, workers=(0,), most=0)) is ModelState.RESTARTING


def test_where_none_can_be_had_it_cannot_wake_and_says_when_that_is_tried_again() -> None:
    segment = engine(ready=0, workers=())
    block(segment).fail(again_ns=12 * S)
    assert without_worker(segment) is ModelState.CANNOT_WAKE
    assert again_s(segment, ModelState.CANNOT_WAKE) == 10
    block(segment).succeed()
    assert without_worker(segment) is ModelState.AT_REST


def test_where_no_process_can_be_started_it_cannot_load_and_says_when_one_is() -> None:
    segment = engine(ready=0, workers=(0, 1))
    for worker in (0, 1):
        segment.words[segment.layout.worker(worker) + WorkerWords.STATE] = WorkerState.READY
        segment.worker_ended(worker)
    for again_ns in (1, 3 * S + 1):
        assert without_worker(segment) is ModelState.RESTARTING
        segment.publish_worker_start(0, errno.ENOMEM, again_ns)
        segment.publish_worker_start(1, errno.ENOMEM, 3 * again_ns)
    assert without_worker(segment) is ModelState.CANNOT_LOAD
    assert again_s(segment, ModelState.CANNOT_LOAD) == 2
    # The workers run, and when they will be ready is unknown.
    segment.publish_worker_start(0, errno=0)
    segment.publish_worker_start(1, errno=0)
    assert without_worker(segment) is ModelState.CANNOT_LOAD
    assert again_s(segment, ModelState.CANNOT_LOAD) == 1


def test_a_worker_that_waits_for_a_place_in_a_cluster_may_be_waited_for() -> None:
    segment = engine(ready=0, workers=(0,))
    for _ in range(9):
        segment.publish_worker_start(0, NO_PLACE_YET)
    assert without_worker(segment) is ModelState.WAKING


def again_s(segment: Segment, state: ModelState) -> int:
    """Seconds, 2 s after the clock began."""
    return retry_after_s(segment.words, segment.layout, segment.models[0], state, 2 * S)


def test_a_worker_is_lost_by_its_death_and_not_back_where_two_successors_were_never_ready() -> None:
    segment = engine(ready=0, workers=(0,))
    state = segment.layout.worker(0) + WorkerWords.STATE
    segment.words[state] = WorkerState.READY
    # The collector has yet to hear of it.
    assert without_worker(segment) is ModelState.WAKING
    segment.worker_ended(0)
    assert without_worker(segment) is ModelState.RESTARTING
    segment.words[state] = WorkerState.LOADING
    assert without_worker(segment) is ModelState.RESTARTING
    segment.worker_ended(0)
    assert without_worker(segment) is ModelState.RESTARTING
    segment.words[state] = WorkerState.LOADING
    segment.worker_ended(0)
    assert without_worker(segment) is ModelState.CANNOT_LOAD
    segment.words[state] = WorkerState.WARMING
    assert without_worker(segment) is ModelState.CANNOT_LOAD
    segment.words[state] = WorkerState.READY
    segment.worker_ended(0)
    assert without_worker(segment) is ModelState.RESTARTING
    segment.enter_worker(0)
    assert without_worker(segment) is ModelState.WAKING


def test_commands_show_the_range_and_the_wanted_number() -> None:
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
