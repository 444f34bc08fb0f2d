"""Figures of chains: load, expected time, counts and instants."""

from chain_harness import House
from chain_models import ABC, LINE

from ringbatch.shm.counters import ModelCounter
from ringbatch.shm.descriptors import ModelWords
from ringbatch.shm.model_counters import Counted
from ringbatch.shm.readiness import ModelState
from ringbatch.shm.slot import Status


def test_frontends_read_the_worst_step_of_a_chain() -> None:
    house = House(LINE, ABC)
    words, layout = house.segment.words, house.segment.layout
    first = layout.model(house.model("abc").index)

    def published() -> tuple[int, ModelState, int]:
        house.step_collector()
        state = ModelState(words[first + ModelWords.STATE])
        return words[first + ModelWords.READY], state, words[first + ModelWords.TAKES]

    assert published() == (1, ModelState.SERVING, 1)
    number = house.send("abc", [[1, 1, 1]])
    for state in (ModelState.RESTARTING, ModelState.RESTARTING):
        house.segment.worker_ended(1)
        house.collector.worker_died(1, house.now_ns)
        assert published() == (0, state, 1)
    house.segment.worker_ended(1)
    house.collector.worker_died(1, house.now_ns)
    assert published() == (0, ModelState.CANNOT_LOAD, 0)
    house.settle()
    answer = house.answers[number]
    assert isinstance(answer, tuple), "the step in its way has no worker, and none is to come"
    assert answer[0] is Status.NO_WORKER


def test_a_chain_expects_the_time_of_all_its_steps() -> None:
    house = House(LINE, ABC)
    words, layout = house.segment.words, house.segment.layout

    def published(name: str) -> int:
        return int(words[layout.model(house.model(name).index) + ModelWords.ANSWER_NS])

    house.run_ns = 1_000
    for name in "abc":
        house.send(name, [[1, 1, 1]])
        house.step_collector()
        house.step_worker("abc".index(name))
        house.step_collector()
        house.collect()
    for name in "abc":
        house.send(name, [[1, 1, 1]])
    house.step_collector()
    assert published("abc") == published("a") + published("b") + published("c") > 0
    house.settle()
    assert published("abc") == 0


def test_requests_count_for_the_chain_and_for_each_step() -> None:
    house = House(LINE, ABC)
    house.send("abc", [[1, 2, 3], [4, 5, 6]])
    house.settle()
    for name in ("abc", "a", "b", "c"):
        counted = Counted(house.segment.words, house.segment.layout, house.model(name).account)
        assert (counted[ModelCounter.REQUESTS], counted[ModelCounter.ROWS]) == (1, 2)


def test_an_answer_says_when_the_first_step_began_and_the_last_one_ended() -> None:
    house = House(LINE, ABC)
    number = house.send("abc", [[1, 2, 3]])
    times = []
    for worker in range(3):
        house.now_ns += 100
        house.step_collector()
        house.now_ns += 10
        times.append(house.now_ns)
        house.step_worker(worker)
    house.settle()
    final = house.final_answers[number]
    assert (final.dispatched_ns, final.began_ns) == (times[0] - 10, times[0])
    assert (final.gathered_ns, final.ran_ns) == (times[0], times[2])
