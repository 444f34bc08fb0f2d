"""Requests that workers die of: how they are found, what it costs the others, and what is kept."""

import pytest
from collector_harness import CollectorHarness, eager
from segment_fixture import FAR_NS, Reply

from ringbatch.engine.collector.quarantine import REMEMBERED_NS, REPLACED_NS
from ringbatch.shm.model_readiness import standing
from ringbatch.shm.slot import Status

SLOW_NS = 1_000_000_000
HUNG = 1_000


class Life:
    """Worker that dies of some requests, and a clock."""

    def __init__(self, *fatal: int, cap: int = 64, killed: bool = False) -> None:
        self.harness = CollectorHarness(eager(max_batch_size=cap)).begin()
        self.fatal = set(fatal)
        self.killed = killed
        self.now_ns = 0
        self.deaths = 0
        self.explained = 0
        self.runs: list[list[int]] = []
        self.replies: dict[int, Reply] = {}

    def go_on(self, run_ns: int = 1) -> None:
        """Go on until the worker has nothing to do."""
        while True:
            self.harness.step(self.now_ns)
            tasks = self.harness.workers[0].tasks()
            if not tasks:
                break
            (task,) = tasks
            self.runs.append(self.harness.payloads(task))
            self.now_ns += run_ns
            if self.fatal & set(self.runs[-1]):
                self.deaths += 1
                self.explained += self.harness.dies(0, self.now_ns, killed=self.killed)
                self.harness.workers[0].ready()
            else:
                self.harness.workers[0].finish(task)
        self.replies |= self.harness.clients[0].collect()

    def statuses(self) -> dict[int, Status]:
        return {slot: reply.answer.status for slot, reply in self.replies.items()}


def test_the_only_request_of_a_batch_is_found_at_the_second_death() -> None:
    life = Life(0)
    life.harness.send(0)
    life.go_on()
    assert (life.deaths, life.explained) == (2, 1)
    assert list(life.statuses().values()) == [Status.WORKER_DIED]
    assert life.harness.all_free()


def test_once_no_request_is_in_quarantine_none_is_looked_at_for_that() -> None:
    life = Life(0)
    life.harness.send(0)
    life.go_on()
    quarantine = life.harness.collector._quarantine
    assert quarantine.count == 1
    life.harness.step(life.now_ns + REMEMBERED_NS - 1)
    assert quarantine.count == 1
    life.harness.step(life.now_ns + REMEMBERED_NS)
    assert quarantine.count == 0


@pytest.mark.parametrize("fatal", [0, 31, 63])
def test_with_slow_runs_a_fatal_request_is_found_in_groups_and_the_good_wait_for_few_runs(
    fatal: int,
) -> None:
    life = Life(fatal)
    life.harness.send(1000)
    life.go_on(SLOW_NS)
    life.runs.clear()
    slots = [life.harness.send(n, accepted_ns=life.now_ns) for n in range(64)]
    life.go_on(SLOW_NS)
    assert life.deaths == 3
    assert [len(run) for run in life.runs] == [64, *[8] * 8, *[1] * 8]
    statuses = life.statuses()
    assert statuses.pop(slots[fatal]) is Status.WORKER_DIED
    assert all(statuses[slot] is Status.OK for slot in slots if slot != slots[fatal])
    assert life.harness.all_free()


def test_with_fast_runs_everyone_runs_alone_and_it_takes_no_third_worker() -> None:
    life = Life(5)
    life.harness.send(1000)
    life.go_on(1000)
    slots = [life.harness.send(n) for n in range(64)]
    life.go_on(1000)
    assert life.deaths == 2
    assert [slot for slot, status in life.statuses().items() if status is not Status.OK] == [
        slots[5]
    ]


def test_a_worker_killed_from_outside_weighs_less_and_its_repeated_suspect_runs_again() -> None:
    life = Life(0, killed=True)
    life.harness.send(0)
    life.harness.send(1)
    life.go_on()
    assert life.deaths == 4
    assert sorted(life.statuses().values()) == [Status.OK, Status.WORKER_DIED]


def test_a_worker_that_hung_and_was_killed_died_of_its_batch() -> None:
    harness = CollectorHarness(eager(batch_timeout_ns=HUNG)).begin()
    slot = harness.send(0)
    now_ns = 0
    for death in range(2):
        harness.step(now_ns)
        harness.workers[0].task()
        now_ns += HUNG
        harness.step(now_ns)
        assert harness.ended == [0] * (death + 1)
        harness.dies(0, now_ns, killed=True)
        harness.workers[0].ready()
    harness.step(now_ns)
    assert harness.clients[0].collect()[slot].answer.status is Status.WORKER_DIED


def test_the_same_request_is_refused_for_a_while_and_takes_no_worker() -> None:
    life = Life(7)
    life.harness.send(7)
    life.go_on()
    life.runs.clear()
    same, other = life.harness.send(7, lane=0), life.harness.send(8)
    life.go_on()
    assert life.runs == [[8]]
    assert life.statuses()[same] is Status.WORKER_DIED
    assert b"the same request" in life.replies[same].data
    assert life.statuses()[other] is Status.OK
    assert life.harness.status().collector["quarantined"] == 1
    life.now_ns += REMEMBERED_NS
    life.fatal.clear()
    life.harness.send(7, accepted_ns=life.now_ns)
    life.go_on()
    assert life.runs == [[8], [7]]
    assert life.harness.all_free()


@pytest.mark.parametrize(("rows", "status"), [(1, Status.WORKER_DIED), (65, Status.INVALID)])
def test_a_request_that_is_refused_counts_once_in_however_many_parts(
    rows: int, status: Status
) -> None:
    life = Life(7)
    life.harness.send(7)
    life.go_on()
    before = life.harness.model()
    lane = life.harness.clients[0].lane
    slots = []
    for part in range(3):
        slot = lane.claim(1, 64, 0)
        assert slot is not None
        slots.append(slot)
        start = lane.request_offset[slot]
        life.harness.segment.memory[start : start + 1] = b"7"
        lane.publish(slot, 0, rows, life.now_ns, FAR_NS, 1, 0)
        if part:
            lane.count_no_more(slot)
    lane.submit()
    life.go_on()
    assert [life.statuses()[slot] for slot in slots] == [status] * 3
    after = life.harness.model()
    assert (before.requests, after.requests) == (1, 2)
    assert after.rows == before.rows + 3 * rows


def test_requests_in_a_group_that_runs_again_expire_each_at_its_own_deadline() -> None:
    harness = CollectorHarness(eager(max_batch_size=64)).begin()
    harness.send(0)
    harness.step(0)
    harness.workers[0].finish(harness.workers[0].task())
    harness.step(REPLACED_NS)
    harness.clients[0].collect()
    slots = [
        harness.send(n, deadline_ns=REPLACED_NS + 1000 * (1 + n % 2), accepted_ns=REPLACED_NS)
        for n in range(64)
    ]
    harness.step(REPLACED_NS)
    harness.workers[0].task()
    harness.dies(0, REPLACED_NS + 1)
    assert harness.step(REPLACED_NS + 2) == REPLACED_NS + 1000
    assert harness.step(REPLACED_NS + 1000) == REPLACED_NS + 2000
    early = {slots[n] for n in range(0, 64, 2)}
    replies = harness.clients[0].collect()
    assert {s for s, r in replies.items() if r.answer.status is Status.EXPIRED} == early
    harness.workers[0].ready()
    harness.step(REPLACED_NS + 1001)
    running = harness.running()
    assert all(n % 2 for n in running)
    assert len(running) == 4
    harness.step(REPLACED_NS + 2000)
    assert len(harness.clients[0].collect()) == 32 - len(running)


def test_a_batch_that_takes_another_run_is_not_taken_for_hung() -> None:
    harness = CollectorHarness(eager(batch_timeout_ns=HUNG)).begin()
    harness.send(0)
    harness.step(0)
    task = harness.workers[0].task()
    for now_ns in range(HUNG - 1, 20 * HUNG, HUNG - 1):
        harness.workers[0].runs_again(task.mark.batch)
        assert harness.step(now_ns) == now_ns + HUNG
    assert harness.ended == []
    harness.workers[0].runs_again(task.mark.batch + 1)
    harness.step(now_ns + HUNG)
    assert harness.ended == [0], "what is said of another batch counts for nothing"


def test_a_model_whose_only_worker_does_not_come_back_is_not_ready_and_is_again() -> None:
    harness = CollectorHarness(eager(batch_timeout_ns=100 * SLOW_NS)).begin()
    offset = harness.segment.layout.model(0)

    def complaint(now_ns: int) -> str:
        harness.step(now_ns)
        return standing(harness.segment.words, offset, now_ns).why

    harness.send(0)
    assert complaint(SLOW_NS) == ""
    assert "not finished" in complaint(10 * SLOW_NS)
    harness.workers[0].finish(harness.workers[0].task())
    assert complaint(10 * SLOW_NS) == ""


def test_a_crash_loop_is_published_and_a_found_fatal_request_is_none() -> None:
    life = Life(*range(10))
    offset = life.harness.segment.layout.model(0)
    for number in range(3):
        life.harness.send(number, accepted_ns=life.now_ns)
        life.go_on()
    assert standing(life.harness.segment.words, offset, life.now_ns).why == ""
    for _ in range(3):
        life.harness.dies(0, life.now_ns)
        life.harness.workers[0].ready()
        life.harness.step(life.now_ns)
    complaint = standing(life.harness.segment.words, offset, life.now_ns).why
    assert "come and go: 3 deaths" in complaint
