"""The engine under a random life: clients, collector and workers in one process, in any order.

Workers die in mid-batch, between writing an answer, announcing it and reporting it; collectors
die and are replaced; a third lane's owner writes whatever it likes. Every request carries its own
number, so an answer that reaches another request shows. What happens follows from the seed alone.
"""

import json
import logging
import os
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any
from unittest.mock import patch

import pytest
from rig import FAR_NS, Client, Reply, local_segment, pack, spec, unpack

from ringbatch.engine.collector import MAX_DEATHS, Collector
from ringbatch.engine.model import InvalidInput, Model
from ringbatch.engine.runner import Runner
from ringbatch.engine.worker import Worker
from ringbatch.shm import layout as at
from ringbatch.shm.extents import RESERVE_SHARE
from ringbatch.shm.holder import Alike, BatchMark, Holder
from ringbatch.shm.layout import PAGE, WORD
from ringbatch.shm.ring import Producer
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import FLAG_BITS, WANTED, Status, reference
from ringbatch.shm.tensor import Tensor

SEEDS = range(400)
ACTIONS = 120
SLOTS, LANE_BYTES = 32, 16 * PAGE
GOOD_LANES, HOSTILE_LANE = (0, 1), 2
TYPED, UNTYPED = 0, 1
MODEL_OF = {0: TYPED, 1: TYPED, 2: UNTYPED}
X = Tensor("x", "INT64", [])
SPECS = (
    spec(TYPED, [X], [X], name="typed", max_batch_size=16, workers=(0, 1)),
    spec(
        UNTYPED,
        name="untyped",
        max_batch_size=5,
        max_latency_ns=300,
        policy="fixed",
        workers=(2,),
    ),
)
ADDED = 1_000_000
HARMLESS, REFUSED, POISON, KILLER = range(4)


@pytest.fixture(autouse=True)
def _failures_are_not_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("ringbatch.worker"), "disabled", True)


class Died(BaseException):
    """Ends a worker where it stands."""


def kind_of(number: int) -> int:
    """What a request does to the model, in the last digit of its number."""
    return {7: REFUSED, 8: POISON, 9: KILLER}.get(number % 10, HARMLESS)


def look_at(numbers: list[int]) -> None:
    kinds = {kind_of(number) for number in numbers}
    if KILLER in kinds:
        raise Died
    if POISON in kinds:
        raise RuntimeError("poison")
    if REFUSED in kinds:
        raise InvalidInput("refused")


def predict_typed(x: Any) -> Any:
    look_at([int(value) // 100 for value in x])
    return x + ADDED


def predict_untyped(instances: Any) -> Any:
    look_at([instance["n"] for instance in instances])
    return [{"n": instance["n"], "answer": ADDED} for instance in instances]


MODELS = (
    Model((X,), (X,), lambda: None, predict_typed),
    Model((), (), lambda: None, predict_untyped),
)


class Mortal(Holder):
    """A worker's holder with a fuse: the worker dies at the n-th thing it does from now."""

    fuse = -1

    def answer(
        self, ref: int, status: Status, size: int, mark: BatchMark, finished_ns: int
    ) -> None:
        self.burn()
        super().answer(ref, status, size, mark, finished_ns)
        self.burn()

    def answer_alike(self, alike: Alike, size: int, mark: BatchMark, finished_ns: int) -> None:
        self.burn()
        super().answer_alike(alike, size, mark, finished_ns)
        self.burn()

    def flush(self) -> None:
        self.burn()
        super().flush()
        self.burn()

    def burn(self) -> None:
        self.fuse -= 1
        if self.fuse == 0:
            raise Died


@dataclass
class Sent:
    """A request under way."""

    number: int
    model: int
    rows: int
    deadline_ns: int


class Life:
    """One engine and everything that happens to it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ns = 1_000
        self.segment: Segment = local_segment(*SPECS, lanes=3, slots=SLOTS, lane_bytes=LANE_BYTES)
        self.clients = [Client(self.segment, lane) for lane in GOOD_LANES]
        self.sent: list[dict[int, Sent]] = [{} for _ in GOOD_LANES]
        self.count = 0
        self.deaths = 0
        self.cancelled = 0
        self.longest_cycle_ns = 0
        self.ends: Counter[Status] = Counter()
        self.generations = [0] * SLOTS
        self.first_batch = 0
        self.pids = count(1)
        self.alive: dict[int, int] = {}
        self.begin_engine()

    def begin_engine(self) -> None:
        """A new collector and new workers, after whatever there was before."""
        self.first_batch += 10_000
        self.alive.clear()
        self.collector = Collector(
            self.segment,
            lambda _lane: None,
            lambda _worker: None,
            self.first_batch,
            alive=lambda pid: pid in self.alive.values(),
            end_worker=lambda _worker: None,
        )
        self.workers = [self.new_worker(number) for number in MODEL_OF]

    def new_worker(self, number: int) -> tuple[Worker, Mortal]:
        holder = Mortal(self.segment, number, lambda _lane: None)
        model = MODELS[MODEL_OF[number]]
        runner = Runner(model, "m", holder, lambda: self.now_ns)
        worker = Worker(self.segment, number, runner, holder, holder.burn)
        self.alive[number] = next(self.pids)
        with patch.object(os, "getpid", return_value=self.alive[number]):
            worker.begin()
        return worker, holder

    def act(self) -> None:
        """One thing out of all that may happen."""
        actions: list[tuple[int, Callable[[], object]]] = [
            (30, self.send),
            (4, self.cancel),
            (15, self.collect),
            (25, self.step_collector),
            (25, self.step_worker),
            (4, self.light_fuse),
            (2, self.kill_idle_worker),
            (1, self.kill_collector),
            (10, self.be_hostile),
            (10, self.pass_time),
        ]
        (action,) = self.random.choices(
            [action for _, action in actions], [weight for weight, _ in actions]
        )
        action()

    def send(self) -> None:
        lane = self.random.choice(GOOD_LANES)
        if self.clients[lane].lane.in_flight == SLOTS:
            return
        self.count += 1
        kind = self.random.choices([0, 7, 8, 9], [90, 4, 4, 2])[0]
        number = 10 * self.count + kind
        model = self.random.choice([TYPED, UNTYPED])
        rows = self.random.choice([1, 1, 1, 1, 2, 3])
        wait_ns = self.random.choice([FAR_NS, FAR_NS, self.random.randrange(1, 2_000)])
        if model == TYPED:
            payload, _ = pack([X], [[number * 100 + row for row in range(rows)]])
        else:
            payload = json.dumps([{"n": number, "row": row} for row in range(rows)]).encode()
        slot = self.clients[lane].send(
            payload,
            rows,
            model=model,
            result_bytes=256,
            accepted_ns=self.now_ns,
            deadline_ns=self.now_ns + wait_ns,
        )
        assert slot not in self.sent[lane], "a slot in use was handed out again"
        self.sent[lane][slot] = Sent(number, model, rows, self.now_ns + wait_ns)

    def cancel(self) -> None:
        lane = self.random.choice(GOOD_LANES)
        if self.sent[lane]:
            slot = self.random.choice(list(self.sent[lane]))
            self.clients[lane].lane.cancel(slot)
            del self.sent[lane][slot]
            self.cancelled += 1

    def collect(self) -> None:
        lane = self.random.choice(GOOD_LANES)
        for slot, reply in self.clients[lane].collect().items():
            self.check(self.sent[lane].pop(slot), reply)

    def check(self, sent: Sent, reply: Reply) -> None:
        status = reply.answer.status
        self.ends[status] += 1
        kind = kind_of(sent.number)
        if status is Status.OK:
            assert kind == HARMLESS
            assert self.values(sent, reply) == [sent.number] * sent.rows
        elif status is Status.EXPIRED:
            # Where much waits, what would be late is given up by so much earlier.
            assert sent.deadline_ns <= self.now_ns + self.longest_cycle_ns
        elif status is Status.WORKER_DIED:
            assert self.deaths >= MAX_DEATHS
        else:
            expected = {REFUSED: Status.INVALID, POISON: Status.MODEL_FAILED}
            assert status is expected.get(kind), f"request {sent.number} ended {status!r}"

    def values(self, sent: Sent, reply: Reply) -> list[int]:
        """The number of the request that each row of the answer belongs to."""
        if sent.model == UNTYPED:
            rows = json.loads(reply.data)
            assert all(row["answer"] == ADDED for row in rows)
            return [row["n"] for row in rows]
        (values,) = unpack([X], sent.rows, reply.data)
        assert [int(v - ADDED) % 100 for v in values] == list(range(sent.rows))
        return [int(v - ADDED) // 100 for v in values]

    def step_collector(self) -> int | None:
        until_ns = self.collector.step(self.now_ns)
        cycles_ns = [model.cycle_ns for model in self.collector._models.values()]
        self.longest_cycle_ns = max(self.longest_cycle_ns, *cycles_ns)
        return until_ns

    def step_worker(self) -> None:
        self.run_worker(self.random.choice(list(MODEL_OF)))

    def run_worker(self, number: int) -> int:
        worker, _ = self.workers[number]
        try:
            return worker.step()
        except Died:
            self.bury(number)
            return 1

    def bury(self, number: int) -> None:
        self.deaths += 1
        del self.alive[number]
        if self.random.random() < 0.5:
            self.step_collector()
        self.collector.worker_died(number, self.now_ns)
        self.workers[number] = self.new_worker(number)

    def light_fuse(self) -> None:
        _, holder = self.random.choice(self.workers)
        holder.fuse = self.random.randrange(1, 12)

    def kill_idle_worker(self) -> None:
        self.bury(self.random.choice(list(MODEL_OF)))

    def kill_collector(self) -> None:
        self.deaths += len(self.workers)
        self.begin_engine()

    def be_hostile(self) -> None:
        words, layout, choose = self.segment.words, self.segment.layout, self.random.choice
        slot = self.random.randrange(SLOTS)
        number = HOSTILE_LANE * SLOTS + slot
        first = layout.slot(number) // WORD
        odd = [0, 1, 2, 64, 1 << 20, 1 << 63, (1 << 64) - 1, self.random.getrandbits(64)]
        for field in (at.ROWS, at.MODEL, at.REQUEST_BYTES, at.KEY_BYTES, at.RESULT_CAPACITY):
            words[first + field // WORD] = choose([0, 1, 1, 1, 2, 64, choose(odd)])
        inside = layout.lane_payload(HOSTILE_LANE) + 64 * self.random.randrange(100)
        for field in (at.REQUEST_OFFSET, at.RESULT_OFFSET):
            words[first + field // WORD] = choose([inside, inside, inside, choose(odd)])
        for field in (at.ACCEPTED_NS, at.DEADLINE_NS):
            words[first + field // WORD] = choose([self.now_ns, choose(odd)])
        start = layout.lane_payload(HOSTILE_LANE)
        self.segment.memory[start : start + 512] = self.random.randbytes(512)
        self.generations[slot] += choose([0, 1, 1])
        words[first + at.CONTROL // WORD] = self.generations[slot] << FLAG_BITS | choose(
            [WANTED, WANTED, self.random.randrange(256)]
        )
        ring = layout.submission_ring(HOSTILE_LANE)
        producer = Producer(words, ring, SLOTS)
        with suppress(ValueError):  # its own position may be at the end of all numbers
            producer.offer([reference(self.generations[slot], number), choose(odd)])
        if self.random.random() < 0.05:
            words[(ring + at.RING_TAIL) // WORD] = choose(odd)

    def pass_time(self) -> None:
        self.now_ns += self.random.randrange(1, 500)

    def settle(self) -> None:
        """Let everything that is under way come to its end, without further misfortune."""
        for _, holder in self.workers:
            holder.fuse = -1
        for _ in range(500):
            until_ns = self.step_collector()
            busy = sum(self.run_worker(number) for number in MODEL_OF)
            for lane in GOOD_LANES:
                for slot, reply in self.clients[lane].collect().items():
                    self.check(self.sent[lane].pop(slot), reply)
            in_flight = sum(client.lane.in_flight for client in self.clients)
            if not busy and not in_flight and not self.collector.in_flight:
                return
            if not busy and until_ns is not None and until_ns < FAR_NS:
                self.now_ns = max(self.now_ns, until_ns)
        raise AssertionError(f"still under way: {self.sent}, {self.collector.in_flight} collected")

    def everything_is_free(self) -> bool:
        """Slots and memory: the largest request there may be finds room again."""
        largest = LANE_BYTES - LANE_BYTES // RESERVE_SHARE
        return all(
            client.lane.in_flight == 0 and client.lane.claim(largest, 0) is not None
            for client in self.clients
        )


def live(seed: int) -> Life:
    life = Life(seed)
    try:
        for _ in range(ACTIONS):
            life.act()
        life.settle()
        answered = sum(life.ends.values())
        assert answered + life.cancelled == life.count, "each has one answer or was cancelled"
        assert life.everything_is_free()
    except Exception as failure:
        raise AssertionError(f"seed {seed}: {type(failure).__name__}: {failure}") from failure
    return life


@pytest.mark.parametrize("part", range(8))
def test_every_request_gets_its_own_answer_whatever_happens(part: int) -> None:
    for seed in SEEDS[part::8]:
        live(seed)


def test_such_lives_have_seen_every_kind_of_end() -> None:
    ends: Counter[Status] = Counter()
    for seed in SEEDS[:60]:
        ends += live(seed).ends
    assert set(ends) == {
        Status.OK,
        Status.INVALID,
        Status.MODEL_FAILED,
        Status.EXPIRED,
        Status.WORKER_DIED,
    }
