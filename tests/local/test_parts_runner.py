"""Tests engine/worker/parts_runner.py and engine/worker/part_stream.py: answers in parts."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from runner_harness import BEGAN_NS, MARK, Harness
from segment_fixture import unpack

from ringbatch.engine.models.model import InvalidInput, Model
from ringbatch.engine.worker.part_stream import MOST_WAITING
from ringbatch.engine.worker.parts_runner import PATIENCE_NS, PartsRunner
from ringbatch.engine.worker.runner_setup import RunnerSetup
from ringbatch.shm.slot import SLOT_MASK, Status
from ringbatch.shm.tensor import Tensor

COUNT = Tensor("n", "INT64", [1])
OPEN = Tensor("all", "INT64", [-1])
LAST = Tensor("last", "INT64", [1])


class PartsHarness(Harness):
    """A runner whose model yields, with two lanes of clients."""

    def __init__(self, predict: Callable[..., Iterator[Any]], *signature: Any) -> None:
        super().__init__(predict, *signature)
        self.paused = 0
        self.on_pause: Callable[[], object] = lambda: None
        self.again: list[int] = []
        model = Model(self.inputs, self.outputs, lambda: None, predict, in_parts=True)
        self.runner = PartsRunner(
            RunnerSetup(
                model, "m", self.engine_slots, lambda: self.now_ns, run_again=self.again.append
            ),
            pause=self._pause,
        )

    def _pause(self, _seconds: float) -> None:
        self.paused += 1
        self.on_pause()
        self.now_ns += PATIENCE_NS // 10

    def parts(self, ref: int) -> list[bytes]:
        """The parts of a request that are out and not read."""
        slot = ref & SLOT_MASK
        slots = self.segment.layout.slots
        return self.clients[slot // slots].parts(slot % slots)


def numbers(instances: list[int]) -> Iterator[list[int]]:
    for number in range(3):
        yield [10 * instance + number for instance in instances]


def words(instances: list[str]) -> Iterator[list[str]]:
    for number in range(3):
        yield [f"{instance}{number} " for instance in instances]


def test_each_gets_its_own_rows_of_each_yield() -> None:
    harness = PartsHarness(numbers)
    refs = [harness.send_json(f"[{i}]", lane=i % 2, in_parts=True) for i in range(4)]
    refs.append(harness.send_json("[8,9]", rows=2, in_parts=True))
    replies = harness.run(*refs)
    assert [reply.answer.status for reply in replies] == [Status.OK] * 5
    assert [reply.data for reply in replies] == [b""] * 5
    for i, ref in enumerate(refs[:4]):
        assert [json.loads(part) for part in harness.parts(ref)] == [[10 * i + k] for k in range(3)]
    assert [json.loads(part) for part in harness.parts(refs[4])] == [
        [80 + k, 90 + k] for k in range(3)
    ]


def test_a_batch_counts_as_failed_if_one_of_its_requests_has_failed() -> None:
    def predict(instances: list[int]) -> Iterator[list[int]]:
        if instances[0] < 0:
            raise InvalidInput("below 0")
        yield from numbers(instances)

    harness = PartsHarness(predict)
    failed = []
    for instance in (1, -1, 2):
        for in_parts in (True, False):
            harness.run(harness.send_json(f"[{instance}]", in_parts=in_parts))
            failed.append(harness.runner.failed)
    assert failed == [False, False, True, True, False, False]


def test_parts_are_there_before_the_model_goes_on() -> None:
    seen: list[list[bytes]] = []

    def predict(instances: list[str]) -> Iterator[list[str]]:
        for part in words(instances):
            yield part
            seen.append(harness.parts(ref))

    harness = PartsHarness(predict)
    ref = harness.send_json('["a"]', in_parts=True)
    harness.run(ref)
    assert seen == [[b'["a0 "]'], [b'["a1 "]'], [b'["a2 "]']]
    assert harness.wakes == [0] * 4


def test_a_client_that_wants_no_parts_gets_them_joined() -> None:
    harness = PartsHarness(words)
    whole, streamed = (
        harness.send_json('["a","b"]', rows=2),
        harness.send_json('["c"]', in_parts=True),
    )
    joined, ended = harness.run(whole, streamed)
    assert harness.value(joined) == ["a0 a1 a2 ", "b0 b1 b2 "]
    assert ended.data == b""
    assert len(harness.parts(streamed)) == 3


def test_of_parts_that_cannot_be_joined_the_last_one_counts() -> None:
    harness = PartsHarness(numbers)
    (reply,) = harness.run(harness.send_json("[1]"))
    assert harness.value(reply) == [12]


def test_lists_are_joined_end_to_end() -> None:
    harness = PartsHarness(lambda instances: ([[i]] * len(instances) for i in range(3)))
    (reply,) = harness.run(harness.send_json("[0,0]", rows=2))
    assert harness.value(reply) == [[0, 1, 2], [0, 1, 2]]


def typed(n: Any) -> Iterator[dict[str, Any]]:
    reused = np.empty((len(n), 1), "i8")
    for number in range(3):
        reused[:] = n + number
        yield {"all": reused, "last": reused}


def test_open_dimensions_are_joined_and_others_have_the_last_part() -> None:
    harness = PartsHarness(typed, [COUNT], [OPEN, LAST])
    first, second = harness.send_tensor([[5]]), harness.send_tensor([[7], [8]], rows=2)
    replies = harness.run(first, second)
    outputs = harness.outputs
    assert [a.tolist() for a in unpack(outputs, 1, replies[0].data)] == [[[5, 6, 7]], [[7]]]
    assert [a.tolist() for a in unpack(outputs, 2, replies[1].data)] == [
        [[7, 8, 9], [8, 9, 10]],
        [[9], [10]],
    ]


def test_a_part_without_room_waits_and_comes_later() -> None:
    def predict(instances: list[str]) -> Iterator[list[str]]:
        for number in range(40):
            yield [f"{number:0100}"] * len(instances)
            if number % 10 == 9:
                found.extend(harness.parts(ref))

    found: list[bytes] = []
    harness = PartsHarness(predict)
    ref = harness.send_json('["a"]', in_parts=True)
    harness.run(ref)
    found += harness.parts(ref)
    # What waited behind the last read of the ring is there once the frontend reads on.
    assert [int(json.loads(part)[0]) for part in found] == list(range(len(found)))
    assert len(found) > 20


def test_a_frontend_that_takes_no_parts_fails_and_no_other() -> None:
    def predict(instances: list[str]) -> Iterator[list[str]]:
        for _ in range(20):
            yield ["x" * 100] * len(instances)
            harness.parts(good)

    harness = PartsHarness(predict)
    good, idle = (harness.send_json('["a"]', in_parts=True) for _ in range(2))
    kept, failed = harness.run(good, idle)
    assert kept.answer.status is Status.OK
    assert failed.answer.status is Status.CORRUPT
    assert harness.paused


def test_a_frontend_hears_of_the_parts_that_waited() -> None:
    def predict(instances: list[str]) -> Iterator[list[str]]:
        for _ in range(20):
            yield ["x" * 100] * len(instances)

    def read_on() -> None:
        lane = harness.clients[0].lane
        assert lane.collect() == []
        heard.append(lane.parted == {ref & SLOT_MASK})
        lane.parted.clear()
        found.extend(harness.parts(ref))

    heard: list[bool] = []
    found: list[bytes] = []
    harness = PartsHarness(predict)
    ref = harness.send_json('["a"]', in_parts=True)
    harness.on_pause = read_on
    (reply,) = harness.run(ref)
    found += harness.parts(ref)
    assert reply.answer.status is Status.OK
    assert found == [b'["%b"]' % (b"x" * 100)] * 20
    assert len(heard) > 1
    assert all(heard)


def test_only_so_many_parts_wait() -> None:
    def predict(instances: list[str]) -> Iterator[list[str]]:
        for number in range(3 * MOST_WAITING):
            made.append(number)
            yield ["x" * 100] * len(instances)

    made: list[int] = []
    harness = PartsHarness(predict)
    (reply,) = harness.run(harness.send_json('["a"]', in_parts=True))
    assert reply.answer.status is Status.CORRUPT
    assert len(made) < 2 * MOST_WAITING, "nobody waits for more of it"


def test_an_error_behind_a_part_fails_the_requests_that_have_it() -> None:
    def predict(instances: list[str]) -> Iterator[list[str]]:
        yield instances
        raise ValueError("no more")

    harness = PartsHarness(predict)
    begun, whole = harness.send_json('["a"]', in_parts=True), harness.send_json('["b"]')
    first, second = harness.run(begun, whole)
    assert first.answer.status is second.answer.status is Status.MODEL_FAILED
    assert harness.parts(begun) == [b'["a"]']


def test_an_error_before_a_part_runs_the_others_again() -> None:
    def predict(instances: list[str]) -> Iterator[list[str]]:
        if "bad" in instances:
            raise ValueError("a bad one")
        yield instances

    harness = PartsHarness(predict)
    texts = ["a", "bad", "c", "d"]
    refs = [harness.send_json(f'["{text}"]', in_parts=True) for text in texts]
    replies = harness.run(*refs)
    statuses = [reply.answer.status for reply in replies]
    assert statuses == [Status.OK, Status.MODEL_FAILED, Status.OK, Status.OK]
    assert [harness.parts(ref) for ref in refs] == [[b'["a"]'], [], [b'["c"]'], [b'["d"]']]


def test_a_request_of_which_a_part_is_out_never_runs_again() -> None:
    harness = PartsHarness(words)
    ref = harness.send_json('["a"]', in_parts=True)
    request = harness.engine_slots.read(ref)
    assert request is not None
    dead = harness.engine_slots.part_writer(request, 1)
    assert dead.write(b"")
    (reply,) = harness.run(ref)
    assert reply.answer.status is Status.CUT_OFF
    assert harness.parts(ref) == [b""]


def test_the_model_stops_once_nobody_wants_more() -> None:
    ended: list[str] = []

    def predict(instances: list[str]) -> Iterator[list[str]]:
        try:
            yield instances
            for slot in range(2):
                harness.clients[0].lane.cancel(slot % harness.segment.layout.slots)
            for _ in range(9):
                yield instances
            ended.append("by itself")
        finally:
            ended.append("closed")

    harness = PartsHarness(predict)
    refs = [harness.send_json('["a"]', in_parts=True) for _ in range(2)]
    for number, ref in enumerate(refs):
        assert ref & SLOT_MASK == number
    harness.runner.run(refs, MARK, BEGAN_NS)
    harness.engine_slots.flush()
    assert harness.clients[0].collect() == {}
    assert ended == ["closed"]


def test_a_part_that_is_too_large_says_how_much_it_needs() -> None:
    harness = PartsHarness(lambda instances: (["x" * 5000] * len(instances) for _ in range(2)))
    (reply,) = harness.run(harness.send_json('["a"]', in_parts=True))
    assert reply.answer.status is Status.RESULT_TOO_LARGE
    assert reply.answer.size > 10_000


def test_a_model_that_yields_nothing_ends_a_stream_and_fails_an_answer() -> None:
    def predict(_instances: list[str]) -> Iterator[list[str]]:
        yield from ()

    harness = PartsHarness(predict)
    whole, streamed = harness.send_json('["a"]'), harness.send_json('["b"]', in_parts=True)
    failed, ended = harness.run(whole, streamed)
    assert failed.answer.status is Status.MODEL_FAILED
    assert b"yielded nothing" in failed.data
    assert ended.answer.status is Status.OK


def test_the_collector_learns_that_a_long_answer_goes_on() -> None:
    def predict(instances: list[str]) -> Iterator[list[str]]:
        for _ in range(10):
            harness.now_ns += 60_000_000
            yield instances

    harness = PartsHarness(predict)
    harness.run(harness.send_json('["a"]'))
    assert 4 <= len(harness.again) <= 6


def test_a_part_that_is_too_large_behind_others_fails_its_request_alone() -> None:
    def predict(instances: list[str]) -> Iterator[list[str]]:
        for number in range(12):
            yield ["x" * 100] * len(instances)
            if number < 2:
                harness.parts(idle)
            harness.parts(good)
        yield [("x" * 5000 if instance == "idle" else "x") for instance in instances]

    harness = PartsHarness(predict)
    good = harness.send_json('["good"]', in_parts=True)
    idle = harness.send_json('["idle"]', in_parts=True)
    taken: list[bytes] = []
    harness.on_pause = lambda: taken.extend(harness.parts(idle))
    kept, failed = harness.run(good, idle)
    assert kept.answer.status is Status.OK
    assert failed.answer.status is Status.MODEL_FAILED


def test_one_that_raises_behind_a_part_takes_no_other_with_it() -> None:
    def predict(instances: list[str]) -> Iterator[list[str]]:
        yield instances
        if "bad" in instances:
            raise InvalidInput("a bad one")

    harness = PartsHarness(predict)
    bad = harness.send_json('["bad"]', in_parts=True)
    refused, answered = harness.run(bad, harness.send_json('["good"]'))
    assert refused.answer.status is Status.MODEL_FAILED
    assert harness.value(answered) == ["good"]


def test_the_fault_of_one_input_is_no_word_for_the_others() -> None:
    def predict(instances: list[str]) -> Iterator[list[str]]:
        yield instances
        if "secret" in instances:
            raise InvalidInput("secret is not accepted")

    harness = PartsHarness(predict)
    refs = [harness.send_json(f'["{text}"]', in_parts=True) for text in ("secret", "good")]
    for reply, ref in zip(harness.run(*refs), refs, strict=True):
        assert len(harness.parts(ref)) == 1
        assert reply.answer.status is Status.MODEL_FAILED
    memory = bytes(harness.engine_slots.memory)
    assert b"not accepted" not in memory
    assert memory.count(b"it refused one of several requests behind parts of them") == 2
    (alone,) = harness.run(harness.send_json('["secret"]', in_parts=True))
    assert alone.answer.status is Status.INVALID
    assert b"secret is not accepted" in bytes(harness.engine_slots.memory)


def test_a_part_that_only_an_empty_ring_would_take_needs_more_memory() -> None:
    harness = PartsHarness(lambda instances: (["x" * 700] * len(instances) for _ in range(2)))
    ref = harness.send_json('["a"]', in_parts=True)
    (reply,) = harness.run(ref)
    assert reply.answer.status is Status.RESULT_TOO_LARGE
    assert harness.parts(ref) == []
