"""Counts and states of model servers that workers write into the segment."""

from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families
from segment_fixture import spec

from ringbatch.frontend.metrics.families import encoded
from ringbatch.frontend.metrics.upstreams import upstream_metrics
from ringbatch.shm.descriptors import (
    HeaderWords,
    ModelWords,
    WorkerState,
    WorkerWords,
)
from ringbatch.shm.layout import Layout
from ringbatch.shm.model_readiness import standing
from ringbatch.shm.readiness import ModelState
from ringbatch.shm.segment import Segment
from ringbatch.shm.upstream_words import UPSTREAMS
from ringbatch.shm.upstreams import DOWN_AFTER, OwnUpstreams, Upstreams

NOW = 10_000_000_000
A, B, C = 11, 22, 33
NAMES = {A: "http://a:1", B: "http://b:1"}
WORKERS = 3


@pytest.fixture
def segment() -> Segment:
    layout = Layout(
        lanes=1, slots=1, lane_bytes=4096, workers=WORKERS, models=1, model_table_bytes=64
    )
    return Segment.local(layout, ())


@pytest.fixture
def workers(segment: Segment) -> list[OwnUpstreams]:
    own = [OwnUpstreams(segment.words, segment.layout, number) for number in range(WORKERS)]
    for number, worker in enumerate(own):
        worker.begin()
        worker.know(NAMES)
        set_state(segment, number, WorkerState.READY)
    return own


def set_state(segment: Segment, number: int, state: WorkerState) -> None:
    segment.words[segment.layout.worker(number) + WorkerWords.STATE] = state


def under_way(segment: Segment) -> tuple[int, ...]:
    states = Upstreams(segment.words, segment.layout).states(NAMES, NOW)
    return tuple(state.outstanding for state in states.values())


def test_batches_under_way_are_those_of_all_workers(
    segment: Segment, workers: list[OwnUpstreams]
) -> None:
    workers[0].sent(A, NOW - 5)
    workers[1].sent(A, NOW - 7)
    workers[2].sent(B, NOW)
    assert under_way(segment) == (2, 1)
    assert workers[0].own_states([A], NOW)[A].oldest_ns == NOW - 7
    workers[1].over()
    assert under_way(segment) == (1, 1)


def test_a_worker_that_dies_with_a_batch_leaves_nothing_under_way(
    segment: Segment, workers: list[OwnUpstreams]
) -> None:
    workers[0].sent(A, NOW)
    segment.worker_ended(0)
    assert under_way(segment) == (0, 0)
    again = OwnUpstreams(segment.words, segment.layout, 0)
    set_state(segment, 0, WorkerState.READY)
    again.begin()
    assert under_way(segment) == (0, 0)


def test_one_workers_findings_hold_for_all(workers: list[OwnUpstreams]) -> None:
    workers[0].failed(A, NOW, DOWN_AFTER, of_batch=True)
    assert workers[1].own_states([A, B], NOW)[A].down
    assert not workers[1].own_states([A, B], NOW)[B].down
    workers[2].answered(A, NOW + 1)
    assert not any(worker.own_states([A], NOW + 1)[A].down for worker in workers)


def test_failures_of_several_workers_add_up(workers: list[OwnUpstreams]) -> None:
    for number, worker in enumerate(workers):
        assert not worker.own_states([A], NOW)[A].down
        worker.failed(A, NOW + number, 1, of_batch=True)
    assert workers[0].own_states([A], NOW)[A].down


def test_a_loading_worker_counts_its_own_findings_only(
    segment: Segment, workers: list[OwnUpstreams]
) -> None:
    set_state(segment, 1, WorkerState.LOADING)
    workers[1].failed(A, NOW, DOWN_AFTER, of_batch=True)
    assert workers[1].own_states([A], NOW)[A].down
    assert not workers[0].own_states([A], NOW)[A].down


def test_counts_are_sums_and_outlive_a_worker(
    segment: Segment, workers: list[OwnUpstreams]
) -> None:
    for worker in workers[:2]:
        worker.sent(A, NOW)
        worker.refused(A, NOW + 9)
    workers[2].sent(A, NOW)
    workers[2].failed(A, NOW, 1, of_batch=True)
    workers[2].failed(B, NOW, 1, of_batch=False)
    segment.worker_ended(2)
    again = OwnUpstreams(segment.words, segment.layout, 2)
    again.begin()
    again.know(NAMES)
    reader = Upstreams(segment.words, segment.layout)
    found = {server.name: server[1:4] for server in reader.counts(range(WORKERS), NOW)}
    assert found == {"http://a:1": (3, 1, 2), "http://b:1": (0, 0, 0)}


def shown(segment: Segment, *numbers: int) -> dict[tuple[str, ...], float]:
    """The metrics of a model's servers, by name and the values of labels."""
    model = replace(spec(workers=numbers), platform="http")
    text, _ = encoded(upstream_metrics(segment, [model]), "")
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_counters_are_of_each_worker_so_that_none_falls_where_a_model_has_others(
    segment: Segment, workers: list[OwnUpstreams]
) -> None:
    workers[0].sent(A, NOW)
    workers[0].failed(A, NOW, 1, of_batch=True)
    for _ in range(2):
        workers[1].sent(A, NOW)
    workers[1].refused(A, NOW)
    name = "ringbatch_upstream_batches_total"
    before = shown(segment, 0, 1)
    assert before[name, "m", "http://a:1", "1", "0"] == 1
    assert before[name, "m", "http://a:1", "1", "1"] == 2
    assert before["ringbatch_upstream_failed_batches_total", "m", "http://a:1", "1", "0"] == 1
    assert before["ringbatch_upstream_refused_batches_total", "m", "http://a:1", "1", "1"] == 1
    after = shown(segment, 1, 2)
    assert {key: after[key] for key in after if key[0] == name} == {
        (name, "m", "http://a:1", "1", "1"): 2,
        (name, "m", "http://a:1", "1", "2"): 0,
        (name, "m", "http://b:1", "1", "1"): 0,
        (name, "m", "http://b:1", "1", "2"): 0,
    }
    assert after["ringbatch_upstream_up", "m", "http://a:1", "1"] == 1


def test_a_server_that_is_no_longer_there_is_forgotten(
    segment: Segment, workers: list[OwnUpstreams]
) -> None:
    workers[0].sent(A, NOW)
    for worker in workers:
        worker.know({B: NAMES[B], C: "http://c:1"})
    workers[0].answered(A, NOW)
    reader = Upstreams(segment.words, segment.layout)
    assert [s.name for s in reader.counts(range(WORKERS), NOW)] == ["http://b:1", "http://c:1"]
    assert workers[0].own_states([C], NOW)[C].answered_ns == 0, "the place of another"


def test_a_model_is_not_ready_where_every_worker_takes_all_servers_for_down(
    segment: Segment, workers: list[OwnUpstreams]
) -> None:
    words, layout = segment.words, segment.layout
    words[HeaderWords.COLLECTOR_NS] = NOW
    words[layout.model(0) + ModelWords.STATE] = ModelState.SERVING

    def why() -> str:
        places = map(layout.worker, range(WORKERS))
        return standing(words, layout.model(0), NOW, places).why

    for worker in workers[:2]:
        worker.publish_down(2)
    assert why() == ""
    segment.worker_ended(2)
    assert why() == "none of its 2 model servers answers"
    workers[0].publish_down(0)
    assert why() == ""


def test_a_worker_knows_as_many_as_there_is_room_for(workers: list[OwnUpstreams]) -> None:
    names = dict.fromkeys(range(1, UPSTREAMS + 1), "http://" + "h" * 300)
    workers[0].know(names)
    assert len(workers[0].counts([0], NOW)) == UPSTREAMS
    workers[0].failed(UPSTREAMS, NOW, DOWN_AFTER, of_batch=True)
    assert workers[0].own_states([UPSTREAMS], NOW)[UPSTREAMS].down
