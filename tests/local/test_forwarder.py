"""Forwarded batches, stepped by hand: the requests' answers, and blame for failures."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import segment_fixture

from ringbatch.engine.models.model import ServerFailed
from ringbatch.engine.worker.bisect import PROBES
from ringbatch.engine.worker.forwarder import Forwarder
from ringbatch.frontend.v1.forwarded import ForwardedRequests
from ringbatch.shm.engine_slots import BatchMark, EngineSlots
from ringbatch.shm.forward_envelope import KEY_BYTES, Envelope
from ringbatch.shm.model_spec import Forward
from ringbatch.shm.ring import Consumer
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import Reason, Status

FORWARD = Forward("/p", (), any_path=False)
SPEC = replace(segment_fixture.spec(), forward=FORWARD)
REQUESTS = ForwardedRequests(SPEC, FORWARD)
FRONT_BYTES = KEY_BYTES + len('/p\n\n{"instances":\n}')
Predictions = Callable[[Sequence[bytes]], list[bytes]]


class Server:
    """Model server with scripted answers that remembers its requests."""

    def __init__(self) -> None:
        self.asked: list[list[bytes]] = []
        self.until_ns: list[int] = []
        self.targets: list[bytes] = []
        self.answer: Predictions = list

    def predictions(
        self, asked: Envelope, lists: Sequence[bytes], rows: Sequence[int], until_ns: int
    ) -> list[bytes]:
        assert [text.count(b",") + 1 for text in lists] == list(rows)
        self.asked.append(list(lists))
        self.until_ns.append(until_ns)
        self.targets.append(asked.target)
        return self.answer(lists)


class Harness:
    """A lane, a forwarder and its server."""

    def __init__(self) -> None:
        self.segment: Segment = segment_fixture.local_segment(SPEC)
        self.client = segment_fixture.Client(self.segment)
        self.server = Server()
        self.now_ns = 1
        engine_slots = EngineSlots(self.segment, 0, lambda _lane: None)
        self.again: list[int] = []
        self.forwarder = Forwarder(
            self.server, "m", engine_slots, lambda: self.now_ns, self.again.append
        )
        self._engine_slots = engine_slots
        layout = self.segment.layout
        self._taken = Consumer(self.segment.words, layout.submission_ring(0), layout.slots)

    def send(self, body: bytes, origin: bytes | None = None, **more: Any) -> int:
        ((rows, payload, _),), _ = REQUESTS.parse(body, origin)
        return self.client.send(bytes(payload), rows, key_bytes=KEY_BYTES, **more)

    def run(self) -> dict[int, segment_fixture.Reply]:
        """Run everything sent as one batch, and return the replies."""
        self.forwarder.run(self._taken.take(), BatchMark(7, 3, Reason.FULL, 5), 6)
        self._engine_slots.flush()
        return self.client.collect()


@pytest.fixture
def harness() -> Harness:
    return Harness()


def statuses(replies: dict[int, segment_fixture.Reply]) -> list[Status]:
    return [replies[slot].answer.status for slot in sorted(replies)]


def test_a_batch_is_asked_for_at_once_and_everybody_gets_his_own(harness: Harness) -> None:
    slots = [harness.send(b) for b in (b'{"instances":[1]}', b'{"instances": [2.0, 3]}')]
    replies = harness.run()
    assert harness.server.asked == [[b"[1]", b"[2.0, 3]"]]
    assert [replies[slot].data for slot in slots] == [b"[1]", b"[2.0, 3]"]
    assert statuses(replies) == [Status.OK, Status.OK]
    assert {reply.answer.batch for reply in replies.values()} == {7}
    assert not harness.forwarder.failed


def test_an_answer_says_when_the_server_was_asked_and_when_it_had_answered(
    harness: Harness,
) -> None:
    def answered(lists: Sequence[bytes]) -> list[bytes]:
        harness.now_ns += 100
        return list(lists)

    harness.server.answer = answered
    slot = harness.send(b'{"instances":[1]}')
    answer = harness.run()[slot].answer
    assert (answer.dispatched_ns, answer.began_ns, answer.gathered_ns) == (5, 6, 1)
    assert (answer.ran_ns, answer.finished_ns, answer.attempts) == (101, 101, 1)


def test_the_server_is_waited_for_as_long_as_anybody_waits(harness: Harness) -> None:
    for deadline_ns in (50, 90, 70):
        harness.send(b'{"instances":[1]}', deadline_ns=deadline_ns)
    harness.run()
    assert harness.server.until_ns == [90]


def test_an_answer_without_room_says_how_much_it_needs(harness: Harness) -> None:
    small = harness.send(b'{"instances":[1]}', result_bytes=2)
    fits = harness.send(b'{"instances":[2]}')
    replies = harness.run()
    assert replies[small].answer.status is Status.RESULT_TOO_LARGE
    assert replies[small].answer.size == 3
    assert replies[fits].data == b"[2]"


@pytest.mark.parametrize(
    "status",
    [Status.SERVER_DOWN, Status.SERVER_BROKEN, Status.SERVER_MISCOUNTED, Status.EXPIRED],
)
def test_a_failure_of_the_server_is_everybodys_and_asked_for_once(
    harness: Harness, status: Status
) -> None:
    def fail(_lists: Sequence[bytes]) -> list[bytes]:
        raise ServerFailed(status, "it is so")

    harness.server.answer = fail
    for _ in range(3):
        harness.send(b'{"instances":[1]}')
    replies = harness.run()
    assert statuses(replies) == [status] * 3
    assert {reply.data for reply in replies.values()} == {b"it is so"}
    assert len(harness.server.asked) == 1
    assert harness.forwarder.failed


@pytest.mark.parametrize("kind", [OverflowError, SystemError, UnicodeDecodeError])
def test_an_unforeseen_error_of_an_answer_fails_its_batch_alone(
    harness: Harness, kind: type[Exception]
) -> None:
    def fail(_lists: Sequence[bytes]) -> list[bytes]:
        raise kind.__new__(kind)

    harness.server.answer = fail
    for _ in range(3):
        harness.send(b'{"instances":[1]}')
    replies = harness.run()
    assert statuses(replies) == [Status.SERVER_BROKEN] * 3
    text = f"the model server's answer led to {kind.__name__}; see the server's log"
    assert {reply.data.decode() for reply in replies.values()} == {text}
    assert len(harness.server.asked) == 1
    harness.server.answer = list
    harness.send(b'{"instances":[1]}')
    assert statuses(harness.run()) == [Status.OK]


def test_an_answer_that_there_is_no_memory_for_is_asked_for_in_halves(harness: Harness) -> None:
    def fill(lists: Sequence[bytes]) -> list[bytes]:
        if b"[13]" in lists:
            raise MemoryError
        return list(lists)

    harness.server.answer = fill
    slots = [harness.send(b'{"instances":[%d]}' % n) for n in (11, 12, 13, 14)]
    replies = harness.run()
    text = b"there is no memory for the model server's answer"
    assert [replies[slot].data for slot in slots] == [b"[11]", b"[12]", text, b"[14]"]
    assert replies[slots[2]].answer.status is Status.SERVER_BROKEN


def test_an_instance_that_the_server_refuses_is_its_own_requests_failure(harness: Harness) -> None:
    def refuse(lists: Sequence[bytes]) -> list[bytes]:
        if b"[13]" in lists:
            raise ServerFailed(Status.SERVER_ANSWERED, "400 \nno 13", isolates=True)
        return list(lists)

    harness.server.answer = refuse
    slots = [harness.send(b'{"instances":[%d]}' % n) for n in (11, 12, 13, 14)]
    replies = harness.run()
    assert [replies[slot].data for slot in slots] == [b"[11]", b"[12]", b"400 \nno 13", b"[14]"]
    assert replies[slots[2]].answer.status is Status.SERVER_ANSWERED
    assert len(harness.server.asked) == 5
    assert harness.again == [7] * 4


@pytest.mark.parametrize("status", [Status.SERVER_BROKEN, Status.SERVER_MISCOUNTED])
def test_an_answer_that_is_of_no_use_because_of_one_instance_fails_that_one_alone(
    harness: Harness, status: Status
) -> None:
    def spoil(lists: Sequence[bytes]) -> list[bytes]:
        if b"[13]" in lists:
            raise ServerFailed(status, "it holds NaN", isolates=True)
        return list(lists)

    harness.server.answer = spoil
    slots = [harness.send(b'{"instances":[%d]}' % n) for n in range(17)]
    replies = harness.run()
    assert [replies[slot].answer.status for slot in slots] == [
        status if n == 13 else Status.OK for n in range(17)
    ]


def test_a_server_whose_answers_are_never_of_use_is_soon_asked_no_more(harness: Harness) -> None:
    def spoil(_lists: Sequence[bytes]) -> list[bytes]:
        raise ServerFailed(Status.SERVER_BROKEN, "it is no JSON", isolates=True)

    harness.server.answer = spoil
    for n in range(32):
        harness.send(b'{"instances":[%d]}' % n)
    assert statuses(harness.run()) == [Status.SERVER_BROKEN] * 32
    assert len(harness.server.asked) == 3 + PROBES


def test_a_client_that_has_gone_is_not_asked_for_again(harness: Harness) -> None:
    def refuse(_lists: Sequence[bytes]) -> list[bytes]:
        harness.now_ns = 60
        raise ServerFailed(Status.SERVER_ANSWERED, "400 \nno", isolates=True)

    harness.server.answer = refuse
    for _ in range(2):
        harness.send(b'{"instances":[1]}', deadline_ns=50)
    assert statuses(harness.run()) == [Status.EXPIRED] * 2
    assert len(harness.server.asked) == 1


def test_a_payload_that_was_changed_costs_its_own_request_alone(harness: Harness) -> None:
    lane = harness.client.lane
    good = harness.send(b'{"instances":[1]}')
    bad = {
        "no list": harness.send(b'{"instances":[2]}'),
        "another envelope": harness.send(b'{"instances":[3]}', b"/q\n"),
        "a length beyond the payload": harness.send(b'{"instances":[4]}'),
        "no end": harness.send(b'{"instances":[5]}'),
    }
    memory, starts = harness.client.memory, lane.request_offset
    memory[starts[bad["no list"]] + FRONT_BYTES] = 0
    memory[starts[bad["no end"]] + FRONT_BYTES + len("[5")] = 0
    memory[starts[bad["a length beyond the payload"]] + 7] = 255
    replies = harness.run()
    assert replies[good].data == b"[1]"
    assert {replies[slot].answer.status for slot in bad.values()} == {Status.CORRUPT}
    assert harness.server.asked == [[b"[1]"]]


@pytest.mark.parametrize(("place", "value"), [(7, 255), (FRONT_BYTES, 0), (FRONT_BYTES + 2, 0)])
def test_nothing_is_asked_for_where_nothing_can_be_read(
    harness: Harness, place: int, value: int
) -> None:
    slot = harness.send(b'{"instances":[1]}')
    harness.client.memory[harness.client.lane.request_offset[slot] + place] = value
    assert statuses(harness.run()) == [Status.CORRUPT]
    assert harness.server.asked == []


def test_an_envelope_under_the_key_of_another_is_not_taken_for_it(harness: Harness) -> None:
    """Nor is it remembered as what that key stands for."""
    forged = harness.send(b'{"instances":[1]}')
    start = harness.client.lane.request_offset[forged]
    harness.client.memory[start + KEY_BYTES + 1] = ord("q")
    sound = harness.send(b'{"instances":[2]}')
    replies = harness.run()
    assert replies[sound].answer.status is Status.CORRUPT
    harness.send(b'{"instances":[3]}')
    harness.run()
    assert harness.server.targets == [b"/q", b"/p"]


def test_a_request_that_fails_alone_leaves_the_others_in_order(harness: Harness) -> None:
    slots = [harness.send(b'{"instances":[%d]}' % n, result_bytes=64) for n in range(5)]
    memory, starts = harness.client.memory, harness.client.lane.request_offset
    for number in (0, 3):
        memory[starts[slots[number]] + 7] = 255
    replies = harness.run()
    assert harness.server.asked == [[b"[1]", b"[2]", b"[4]"]]
    expected = [Status.CORRUPT, Status.OK, Status.OK, Status.CORRUPT, Status.OK]
    assert [replies[slot].answer.status for slot in slots] == expected
    assert [replies[slots[n]].data for n in (1, 2, 4)] == [b"[1]", b"[2]", b"[4]"]


def test_envelopes_are_distinguished_between_batches(harness: Harness) -> None:
    for origin in (b"/p\n", b"/q\n", b"/p\n"):
        harness.send(b'{"instances":[1]}', origin)
        harness.run()
    assert harness.server.targets == [b"/p", b"/q", b"/p"]
