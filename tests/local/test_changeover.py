"""Changes of the model table in the collector: routing of requests, and the end of old models."""

from dataclasses import replace
from typing import Any

import pytest
from collector_harness import CollectorHarness, HandWorker, eager
from segment_fixture import spec

from ringbatch.engine.collector.collector import RETRY_NS
from ringbatch.engine.collector.model_pool import PATIENCE_NS
from ringbatch.engine.process.role_events import (
    EntryDrained,
    EntryLoaded,
    ModelEvent,
    WorkerReleased,
)
from ringbatch.shm.descriptors import LaneWords
from ringbatch.shm.layout import ring_size
from ringbatch.shm.model_spec import LOADING, RETIRING, SERVING, ModelSpec
from ringbatch.shm.readiness import ModelState, publish
from ringbatch.shm.ring import Inbox
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import Status
from ringbatch.shm.tensor import Tensor

X = (Tensor("x", "FP32", [1]),)
OLD = spec(max_batch_size=4, workers=(0,))
NEW = replace(OLD, index=1, generation=1, workers=(1,))
"""Successor of the old model: another place in the table and another worker."""


class Change(CollectorHarness):
    """A stand with places to spare, whose table changes.

    Attributes:
        news: messages from the collector to the supervisor.
    """

    def __init__(self, *models: ModelSpec) -> None:
        self.news: list[ModelEvent] = []
        super().__init__(*models, spare=3)
        for model in models:
            for number in model.workers:
                self.workers[number].ready()
        self.step(0)

    def notify(self, message: ModelEvent) -> None:
        self.news.append(message)

    def publish(self, *models: ModelSpec) -> None:
        self.segment.model_table.publish(models)

    def acknowledge(self, *lanes: int) -> None:
        """Acknowledge the model table as frontends do that have seen it."""
        for lane in lanes or range(len(self.clients)):
            word = self.segment.layout.lane(lane) + LaneWords.MODEL_TABLE
            self.segment.words[word] = self.segment.model_table.number

    def switch(self) -> None:
        """Let the new model serve and the old one retire."""
        self.publish(OLD, replace(NEW, state=LOADING))
        self.step(1)
        self.workers[1].ready()
        self.step(1)
        self.publish(replace(OLD, state=RETIRING), NEW)
        self.step(1)

    def answered(self, lane: int = 0) -> list[Status]:
        return [reply.answer.status for reply in self.clients[lane].collect().values()]


def test_a_model_that_is_loading_is_reported_once_all_its_workers_are_ready() -> None:
    harness = Change(OLD)
    loading = replace(NEW, state=LOADING, workers=(1, 2))
    harness.publish(OLD, loading)
    harness.step(1)
    harness.workers[1].ready()
    harness.step(1)
    assert harness.news == []
    harness.workers[2].ready()
    harness.step(1)
    assert harness.news == [EntryLoaded(loading.reference)]
    assert (harness.ready_word(1), harness.takes_word(1)) == (2, 1)


def test_each_request_goes_to_the_model_it_was_sent_to() -> None:
    harness = Change(OLD)
    harness.send(1)
    harness.step(1)
    held = harness.workers[0].task()
    harness.send(2)
    harness.switch()
    harness.send(3, model=NEW.reference)
    harness.step(2)
    assert harness.running(1) == [3]
    harness.workers[0].finish(held)
    harness.step(3)
    assert harness.running(0) == [2]


def test_the_old_model_is_done_when_nothing_of_it_is_left_and_no_frontend_sends_more() -> None:
    harness = Change(OLD)
    harness.send(1)
    harness.step(1)
    held = harness.workers[0].task()
    harness.switch()
    assert harness.lane_wakes[-2:] == [0, 1], "so that idle frontends look"
    harness.news.clear()
    assert harness.step(5) == 5 + RETRY_NS, "it looks again soon"
    harness.acknowledge()
    harness.step(5)
    assert harness.news == [], "a request runs"
    harness.workers[0].finish(held)
    harness.step(6)
    assert harness.news == [EntryDrained(OLD.reference)]
    harness.step(7)
    assert harness.news == [EntryDrained(OLD.reference)], "it is said once"
    harness.publish(NEW)
    harness.step(8)
    assert harness.news[1:] == [WorkerReleased(0)]


def test_a_frontend_that_has_not_seen_the_table_keeps_the_old_model() -> None:
    harness = Change(OLD)
    harness.switch()
    harness.news.clear()
    harness.acknowledge(1)
    harness.step(5)
    harness.send(9)
    harness.acknowledge(0)
    harness.step(6)
    assert harness.news == [], "it sent a request before it had seen the table"
    task = harness.workers[0].task()
    assert harness.payloads(task) == [9]
    harness.workers[0].finish(task)
    harness.step(7)
    assert harness.news == [EntryDrained(OLD.reference)]


def test_patience_with_a_frontend_that_is_stopped_ends() -> None:
    harness = Change(OLD)
    harness.switch()
    harness.news.clear()
    harness.step(PATIENCE_NS)
    assert harness.news == []
    harness.step(PATIENCE_NS + 1)
    assert harness.news == [EntryDrained(OLD.reference)]


def test_a_lane_without_an_owner_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Change(OLD)
    harness.switch()
    harness.news.clear()
    monkeypatch.setattr(Segment, "lane_is_held", lambda _self, lane: lane == 1)
    harness.step(2)
    assert harness.news == []
    harness.acknowledge(1)
    harness.step(3)
    assert harness.news == [EntryDrained(OLD.reference)]


def test_a_request_for_a_replaced_model_goes_to_its_successor() -> None:
    harness = Change(OLD)
    harness.switch()
    harness.publish(NEW)
    harness.step(2)
    harness.send(4)
    harness.step(3)
    assert harness.running(1) == [4]


@pytest.mark.parametrize(
    "other",
    [{"version": "2"}, {"name": "n"}, {"inputs": X, "outputs": X}, {"max_batch_size": 0}],
)
def test_a_request_for_a_model_without_a_successor_is_refused(other: dict[str, Any]) -> None:
    harness = Change(OLD)
    harness.publish(replace(NEW, **other))
    harness.step(2)
    harness.send(4)
    harness.step(3)
    assert harness.answered() == [Status.NO_WORKER]
    assert harness.all_free()


def test_a_reference_of_another_generation_is_for_nobody() -> None:
    harness = Change(OLD)
    harness.send(4, model=7 << 16)
    harness.step(3)
    assert harness.answered() == [Status.NO_WORKER]
    assert harness.workers[0].tasks() == []


def test_unrun_requests_of_a_retiring_model_go_to_its_successor() -> None:
    harness = Change(OLD)
    for number in range(3):
        harness.send(number)
        harness.step(1)
    harness.workers[0].task()
    harness.switch()
    harness.dies(0, 2)
    harness.step(2)
    answers: list[int] = []
    for _ in range(3):
        task = harness.workers[1].task()
        answers += harness.payloads(task)
        harness.workers[1].finish(task)
        harness.step(3)
    assert sorted(answers) == [0, 1, 2]
    harness.acknowledge()
    harness.step(4)
    assert harness.news[-1] == EntryDrained(OLD.reference)


def test_more_workers_join_and_fewer_leave_when_their_batch_is_done() -> None:
    harness = Change(OLD)
    grown = replace(OLD, workers=(0, 1))
    harness.publish(grown)
    harness.step(1)
    harness.workers[1].ready()
    harness.send(1)
    harness.step(1)
    assert harness.running(1) == [1]
    harness.send(2)
    harness.step(1)
    leaving = harness.workers[0].task()
    harness.publish(replace(OLD, workers=(1,)))
    harness.step(2)
    assert (harness.news, harness.ready_word()) == ([], 1)
    harness.workers[0].finish(leaving)
    harness.step(3)
    assert harness.news == [WorkerReleased(0)]
    harness.send(3)
    harness.step(4)
    assert harness.workers[0].tasks() == []


def test_a_worker_that_dies_while_it_leaves_gives_back_its_batch() -> None:
    harness = Change(replace(OLD, workers=(0, 1)))
    harness.send(1)
    harness.step(1)
    assert harness.running(1) == [1]
    harness.publish(replace(OLD, workers=(0,)))
    harness.step(2)
    harness.dies(1, 3)
    harness.step(3)
    assert harness.news == [WorkerReleased(1)]
    assert harness.running(0) == [1]
    assert harness.ready_word() == 1
    harness.dies(1, 4)


def test_a_number_that_another_model_has_is_no_longer_the_old_worker() -> None:
    harness = Change(OLD)
    harness.send(1)
    harness.step(1)
    harness.workers[0].task()
    harness.publish(replace(NEW, workers=(0,)))
    harness.step(2)
    harness.workers[0] = HandWorker(harness.segment, 0)
    harness.workers[0].ready()
    harness.step(3)
    assert harness.running(0) == [1], "what the old one held is run by the new one"
    assert harness.news == []


def test_limits_change_under_requests_that_were_cut_by_old_ones() -> None:
    harness = Change(OLD)
    harness.publish(replace(OLD, max_batch_size=2, state=SERVING))
    harness.send(1, rows=4)
    harness.send(2, rows=1)
    harness.step(1)
    task = harness.workers[0].task()
    assert (harness.payloads(task), task.mark.rows) == ([1], 4)
    harness.workers[0].finish(task)
    harness.publish(replace(OLD, max_batch_size=8))
    harness.send(3, rows=8)
    harness.step(2)
    harness.workers[0].finish(harness.workers[0].task())
    harness.step(3)
    assert harness.running(0) == [3]


def test_a_request_by_a_newer_table_than_the_collectors_is_understood() -> None:
    harness = Change(OLD)
    layout = harness.segment.layout

    class Late(Inbox):
        """The rings of frontends that see another table after the collector's step has begun."""

        def take(self) -> list[tuple[int, list[int] | None]]:
            if harness.segment.model_table.number == 1:
                publish(words, layout.model(NEW.index), ModelState.SERVING)
                harness.publish(OLD, NEW)
                harness.send(5, model=NEW.reference)
            return super().take()

    words = harness.segment.words
    slots = layout.slots
    rings = Late(words, layout.submission_ring(0), ring_size(slots), layout.lanes, slots)
    harness.collector._submissions = rings
    harness.step(1)
    harness.workers[1].ready()
    harness.step(2)
    assert harness.running(1) == [5]


def test_an_eager_model_beside_the_changed_one_goes_on() -> None:
    other = eager(index=2, name="n", workers=(2,))
    harness = Change(OLD, other)
    harness.publish(other)
    harness.send(1, model=2)
    harness.step(1)
    assert harness.running(2) == [1]
