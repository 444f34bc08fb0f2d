"""The collector where the table of models changes: who gets what, and when the old ones may go."""

from dataclasses import replace
from typing import Any

import pytest
from rig import spec
from stand import HandWorker, Stand, eager

from ringbatch.engine.collector.collector import RETRY_NS
from ringbatch.engine.collector.model_pool import PATIENCE_NS
from ringbatch.shm.layout import LANE_TABLE, WORD, ring_size
from ringbatch.shm.model_spec import LOADING, RETIRING, SERVING, ModelSpec
from ringbatch.shm.ring import Inbox
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import Status
from ringbatch.shm.tensor import Tensor

X = (Tensor("x", "FP32", [1]),)
OLD = spec(max_batch_size=4, workers=(0,))
NEW = replace(OLD, index=1, generation=1, workers=(1,))
"""What takes the place of the old one: another place and another worker."""


class Change(Stand):
    """A stand with places to spare, whose table changes.

    Attributes:
        said: what the collector has told the supervisor.
    """

    def __init__(self, *models: ModelSpec) -> None:
        self.said: list[dict[str, Any]] = []
        super().__init__(*models, spare=3)
        for model in models:
            for number in model.workers:
                self.workers[number].ready()
        self.step(0)

    def say(self, **what: Any) -> None:
        self.said.append(what)

    def publish(self, *models: ModelSpec) -> None:
        self.segment.table.publish(models)

    def acknowledge(self, *lanes: int) -> None:
        """What frontends do that have seen the table."""
        for lane in lanes or range(len(self.clients)):
            word = (self.segment.layout.lane(lane) + LANE_TABLE) // WORD
            self.segment.words[word] = self.segment.table.number

    def switch(self) -> None:
        """The new model serves, and the old one retires."""
        self.publish(OLD, replace(NEW, state=LOADING))
        self.step(1)
        self.workers[1].ready()
        self.step(1)
        self.publish(replace(OLD, state=RETIRING), NEW)
        self.step(1)

    def answered(self, lane: int = 0) -> list[Status]:
        return [reply.answer.status for reply in self.clients[lane].collect().values()]


def test_a_model_that_is_loading_is_reported_once_all_its_workers_are_ready() -> None:
    stand = Change(OLD)
    loading = replace(NEW, state=LOADING, workers=(1, 2))
    stand.publish(OLD, loading)
    stand.step(1)
    stand.workers[1].ready()
    stand.step(1)
    assert stand.said == []
    stand.workers[2].ready()
    stand.step(1)
    assert stand.said == [{"loaded": loading.reference}]
    assert (stand.ready_word(1), stand.served_word(1)) == (2, 1)


def test_each_request_goes_to_the_model_it_was_sent_to() -> None:
    stand = Change(OLD)
    stand.send(1)
    stand.step(1)
    held = stand.workers[0].task()
    stand.send(2)
    stand.switch()
    stand.send(3, model=NEW.reference)
    stand.step(2)
    assert stand.running(1) == [3]
    stand.workers[0].finish(held)
    stand.step(3)
    assert stand.running(0) == [2]


def test_the_old_model_is_done_when_nothing_of_it_is_left_and_no_frontend_sends_more() -> None:
    stand = Change(OLD)
    stand.send(1)
    stand.step(1)
    held = stand.workers[0].task()
    stand.switch()
    assert stand.lane_wakes[-2:] == [0, 1], "so that idle frontends look"
    stand.said.clear()
    assert stand.step(5) == 5 + RETRY_NS, "it looks again soon"
    stand.acknowledge()
    stand.step(5)
    assert stand.said == [], "a request runs"
    stand.workers[0].finish(held)
    stand.step(6)
    assert stand.said == [{"drained": OLD.reference}]
    stand.step(7)
    assert stand.said == [{"drained": OLD.reference}], "it is said once"
    stand.publish(NEW)
    stand.step(8)
    assert stand.said[1:] == [{"released": 0}]


def test_a_frontend_that_has_not_seen_the_table_keeps_the_old_model() -> None:
    stand = Change(OLD)
    stand.switch()
    stand.said.clear()
    stand.acknowledge(1)
    stand.step(5)
    stand.send(9)
    stand.acknowledge(0)
    stand.step(6)
    assert stand.said == [], "it sent a request before it had seen the table"
    task = stand.workers[0].task()
    assert stand.payloads(task) == [9]
    stand.workers[0].finish(task)
    stand.step(7)
    assert stand.said == [{"drained": OLD.reference}]


def test_patience_with_a_frontend_that_is_stopped_ends() -> None:
    stand = Change(OLD)
    stand.switch()
    stand.said.clear()
    stand.step(PATIENCE_NS)
    assert stand.said == []
    stand.step(PATIENCE_NS + 1)
    assert stand.said == [{"drained": OLD.reference}]


def test_a_lane_without_an_owner_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    stand = Change(OLD)
    stand.switch()
    stand.said.clear()
    monkeypatch.setattr(Segment, "lane_is_held", lambda _self, lane: lane == 1)
    stand.step(2)
    assert stand.said == []
    stand.acknowledge(1)
    stand.step(3)
    assert stand.said == [{"drained": OLD.reference}]


def test_what_comes_for_a_model_that_is_gone_goes_to_the_one_in_its_place() -> None:
    stand = Change(OLD)
    stand.switch()
    stand.publish(NEW)
    stand.step(2)
    stand.send(4)
    stand.step(3)
    assert stand.running(1) == [4]


@pytest.mark.parametrize(
    "other",
    [{"version": "2"}, {"name": "n"}, {"inputs": X, "outputs": X}, {"max_batch_size": 0}],
)
def test_what_comes_for_a_model_without_a_successor_is_refused(other: dict[str, Any]) -> None:
    stand = Change(OLD)
    stand.publish(replace(NEW, **other))
    stand.step(2)
    stand.send(4)
    stand.step(3)
    assert stand.answered() == [Status.NO_WORKER]
    assert stand.all_free()


def test_a_reference_of_another_generation_is_for_nobody() -> None:
    stand = Change(OLD)
    stand.send(4, model=7 << 16)
    stand.step(3)
    assert stand.answered() == [Status.NO_WORKER]
    assert stand.workers[0].tasks() == []


def test_what_a_retiring_model_cannot_run_any_more_goes_to_its_successor() -> None:
    stand = Change(OLD)
    for number in range(3):
        stand.send(number)
        stand.step(1)
    stand.workers[0].task()
    stand.switch()
    stand.dies(0, 2)
    stand.step(2)
    answers: list[int] = []
    for _ in range(3):
        task = stand.workers[1].task()
        answers += stand.payloads(task)
        stand.workers[1].finish(task)
        stand.step(3)
    assert sorted(answers) == [0, 1, 2]
    stand.acknowledge()
    stand.step(4)
    assert stand.said[-1] == {"drained": OLD.reference}


def test_more_workers_join_and_fewer_leave_when_their_batch_is_done() -> None:
    stand = Change(OLD)
    grown = replace(OLD, workers=(0, 1))
    stand.publish(grown)
    stand.step(1)
    stand.workers[1].ready()
    stand.send(1)
    stand.step(1)
    assert stand.running(1) == [1]
    stand.send(2)
    stand.step(1)
    leaving = stand.workers[0].task()
    stand.publish(replace(OLD, workers=(1,)))
    stand.step(2)
    assert (stand.said, stand.ready_word()) == ([], 1)
    stand.workers[0].finish(leaving)
    stand.step(3)
    assert stand.said == [{"released": 0}]
    stand.send(3)
    stand.step(4)
    assert stand.workers[0].tasks() == []


def test_a_worker_that_dies_while_it_leaves_gives_back_its_batch() -> None:
    stand = Change(replace(OLD, workers=(0, 1)))
    stand.send(1)
    stand.step(1)
    assert stand.running(1) == [1]
    stand.publish(replace(OLD, workers=(0,)))
    stand.step(2)
    stand.dies(1, 3)
    stand.step(3)
    assert stand.said == [{"released": 1}]
    assert stand.running(0) == [1]
    assert stand.ready_word() == 1
    stand.dies(1, 4)


def test_a_number_that_another_model_has_is_no_longer_the_old_worker() -> None:
    stand = Change(OLD)
    stand.send(1)
    stand.step(1)
    stand.workers[0].task()
    stand.publish(replace(NEW, workers=(0,)))
    stand.step(2)
    stand.workers[0] = HandWorker(stand.segment, 0)
    stand.workers[0].ready()
    stand.step(3)
    assert stand.running(0) == [1], "what the old one held is run by the new one"
    assert stand.said == []


def test_limits_change_under_what_was_cut_by_the_old_ones() -> None:
    stand = Change(OLD)
    stand.publish(replace(OLD, max_batch_size=2, state=SERVING))
    stand.send(1, rows=4)
    stand.send(2, rows=1)
    stand.step(1)
    task = stand.workers[0].task()
    assert (stand.payloads(task), task.mark.rows) == ([1], 4)
    stand.workers[0].finish(task)
    stand.publish(replace(OLD, max_batch_size=8))
    stand.send(3, rows=8)
    stand.step(2)
    stand.workers[0].finish(stand.workers[0].task())
    stand.step(3)
    assert stand.running(0) == [3]


def test_who_sends_by_a_table_that_the_collector_has_not_seen_is_understood() -> None:
    stand = Change(OLD)
    layout = stand.segment.layout

    class Late(Inbox):
        """The rings of frontends that see another table after the collector's step has begun."""

        def take(self) -> list[tuple[int, list[int] | None]]:
            if stand.segment.table.number == 1:
                stand.publish(OLD, NEW)
                stand.send(5, model=NEW.reference)
            return super().take()

    words = stand.segment.words
    slots = layout.slots
    rings = Late(words, layout.submission_ring(0), ring_size(slots), layout.lanes, slots)
    stand.collector._submissions = rings
    stand.step(1)
    stand.workers[1].ready()
    stand.step(2)
    assert stand.running(1) == [5]


def test_an_eager_model_beside_the_changed_one_goes_on() -> None:
    other = eager(index=2, name="n", workers=(2,))
    stand = Change(OLD, other)
    stand.publish(other)
    stand.send(1, model=2)
    stand.step(1)
    assert stand.running(2) == [1]
