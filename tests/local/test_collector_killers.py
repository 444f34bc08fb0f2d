"""Requests that workers die of: how they are found, what it costs the others, and what is kept."""

import pytest
from rig import Reply
from stand import Stand, eager

from ringbatch.engine.collector.quarantine import REMEMBERED_NS, REPLACED_NS
from ringbatch.frontend.request.readiness import obstacle
from ringbatch.shm.slot import Status

SLOW_NS = 1_000_000_000
HUNG = 1_000


class Life:
    """One worker that dies of some requests, and a clock."""

    def __init__(self, *killers: int, cap: int = 64, killed: bool = False) -> None:
        self.stand = Stand(eager(max_batch_size=cap)).begin()
        self.killers = set(killers)
        self.killed = killed
        self.now_ns = 0
        self.deaths = 0
        self.explained = 0
        self.runs: list[list[int]] = []
        self.replies: dict[int, Reply] = {}

    def go_on(self, run_ns: int = 1) -> None:
        """Until the worker has nothing to do."""
        while True:
            self.stand.step(self.now_ns)
            tasks = self.stand.workers[0].tasks()
            if not tasks:
                break
            (task,) = tasks
            self.runs.append(self.stand.payloads(task))
            self.now_ns += run_ns
            if self.killers & set(self.runs[-1]):
                self.deaths += 1
                self.explained += self.stand.dies(0, self.now_ns, killed=self.killed)
                self.stand.workers[0].ready()
            else:
                self.stand.workers[0].finish(task)
        self.replies |= self.stand.clients[0].collect()

    def statuses(self) -> dict[int, Status]:
        return {slot: reply.answer.status for slot, reply in self.replies.items()}


def test_the_only_request_of_a_batch_is_found_at_the_second_death() -> None:
    life = Life(0)
    life.stand.send(0)
    life.go_on()
    assert (life.deaths, life.explained) == (2, 1)
    assert list(life.statuses().values()) == [Status.WORKER_DIED]
    assert life.stand.all_free()


@pytest.mark.parametrize("killer", [0, 31, 63])
def test_with_slow_runs_a_killer_is_found_in_groups_and_the_good_wait_for_few_runs(
    killer: int,
) -> None:
    life = Life(killer)
    life.stand.send(1000)
    life.go_on(SLOW_NS)
    life.runs.clear()
    slots = [life.stand.send(n, accepted_ns=life.now_ns) for n in range(64)]
    life.go_on(SLOW_NS)
    assert life.deaths == 3
    assert [len(run) for run in life.runs] == [64, *[8] * 8, *[1] * 8]
    statuses = life.statuses()
    assert statuses.pop(slots[killer]) is Status.WORKER_DIED
    assert all(statuses[slot] is Status.OK for slot in slots if slot != slots[killer])
    assert life.stand.all_free()


def test_with_fast_runs_everyone_runs_alone_and_it_takes_no_third_worker() -> None:
    life = Life(5)
    life.stand.send(1000)
    life.go_on(1000)
    slots = [life.stand.send(n) for n in range(64)]
    life.go_on(1000)
    assert life.deaths == 2
    assert [slot for slot, status in life.statuses().items() if status is not Status.OK] == [
        slots[5]
    ]


def test_a_worker_killed_from_outside_weighs_less_and_who_was_there_twice_is_run_again() -> None:
    life = Life(0, killed=True)
    life.stand.send(0)
    life.stand.send(1)
    life.go_on()
    assert life.deaths == 4
    assert sorted(life.statuses().values()) == [Status.OK, Status.WORKER_DIED]


def test_a_worker_that_hung_and_was_killed_died_of_what_it_ran() -> None:
    stand = Stand(eager(batch_timeout_ns=HUNG)).begin()
    slot = stand.send(0)
    now_ns = 0
    for death in range(2):
        stand.step(now_ns)
        stand.workers[0].task()
        now_ns += HUNG
        stand.step(now_ns)
        assert stand.ended == [0] * (death + 1)
        stand.dies(0, now_ns, killed=True)
        stand.workers[0].ready()
    stand.step(now_ns)
    assert stand.clients[0].collect()[slot].answer.status is Status.WORKER_DIED


def test_the_same_request_is_refused_for_a_while_and_takes_no_worker() -> None:
    life = Life(7)
    life.stand.send(7)
    life.go_on()
    life.runs.clear()
    same, other = life.stand.send(7, lane=0), life.stand.send(8)
    life.go_on()
    assert life.runs == [[8]]
    assert life.statuses()[same] is Status.WORKER_DIED
    assert b"the same request" in life.replies[same].data
    assert life.statuses()[other] is Status.OK
    assert life.stand.status().collector["killers"] == 1
    life.now_ns += REMEMBERED_NS
    life.killers.clear()
    life.stand.send(7, accepted_ns=life.now_ns)
    life.go_on()
    assert life.runs == [[8], [7]]
    assert life.stand.all_free()


def test_requests_in_a_group_that_runs_again_expire_each_at_its_own_deadline() -> None:
    stand = Stand(eager(max_batch_size=64)).begin()
    stand.send(0)
    stand.step(0)
    stand.workers[0].finish(stand.workers[0].task())
    stand.step(REPLACED_NS)
    stand.clients[0].collect()
    slots = [
        stand.send(n, deadline_ns=REPLACED_NS + 1000 * (1 + n % 2), accepted_ns=REPLACED_NS)
        for n in range(64)
    ]
    stand.step(REPLACED_NS)
    stand.workers[0].task()
    stand.dies(0, REPLACED_NS + 1)
    assert stand.step(REPLACED_NS + 2) == REPLACED_NS + 1000
    assert stand.step(REPLACED_NS + 1000) == REPLACED_NS + 2000
    early = {slots[n] for n in range(0, 64, 2)}
    replies = stand.clients[0].collect()
    assert {s for s, r in replies.items() if r.answer.status is Status.EXPIRED} == early
    stand.workers[0].ready()
    stand.step(REPLACED_NS + 1001)
    running = stand.running()
    assert all(n % 2 for n in running)
    assert len(running) == 4
    stand.step(REPLACED_NS + 2000)
    assert len(stand.clients[0].collect()) == 32 - len(running)


def test_a_batch_that_takes_another_run_is_not_taken_for_hung() -> None:
    stand = Stand(eager(batch_timeout_ns=HUNG)).begin()
    stand.send(0)
    stand.step(0)
    task = stand.workers[0].task()
    for now_ns in range(HUNG - 1, 20 * HUNG, HUNG - 1):
        stand.workers[0].runs_again(task.mark.batch)
        assert stand.step(now_ns) == now_ns + HUNG
    assert stand.ended == []
    stand.workers[0].runs_again(task.mark.batch + 1)
    stand.step(now_ns + HUNG)
    assert stand.ended == [0], "what is said of another batch counts for nothing"


def test_a_model_whose_only_worker_does_not_come_back_is_not_ready_and_is_again() -> None:
    stand = Stand(eager(batch_timeout_ns=100 * SLOW_NS)).begin()
    offset = stand.segment.layout.model(0)

    def complaint(now_ns: int) -> str:
        stand.step(now_ns)
        return obstacle(stand.segment.words, offset, now_ns)

    stand.send(0)
    assert complaint(SLOW_NS) == ""
    assert "not finished" in complaint(10 * SLOW_NS)
    stand.workers[0].finish(stand.workers[0].task())
    assert complaint(10 * SLOW_NS) == ""


def test_a_crash_loop_is_said_and_a_found_killer_is_none() -> None:
    life = Life(*range(10))
    offset = life.stand.segment.layout.model(0)
    for number in range(3):
        life.stand.send(number, accepted_ns=life.now_ns)
        life.go_on()
    assert obstacle(life.stand.segment.words, offset, life.now_ns) == ""
    for _ in range(3):
        life.stand.dies(0, life.now_ns)
        life.stand.workers[0].ready()
        life.stand.step(life.now_ns)
    complaint = obstacle(life.stand.segment.words, offset, life.now_ns)
    assert "come and go: 3 deaths" in complaint
