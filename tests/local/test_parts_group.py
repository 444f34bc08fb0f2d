"""Requests in parts that are one for their client: all of them end, or one fails, or it leaves."""

from typing import Any, Final

from frontend_harness import FrontendHarness, untyped

from ringbatch.frontend.codec.outcome import Answer
from ringbatch.frontend.request.codec import Read, V1Codec
from ringbatch.frontend.request.parts_task import EnoughParts, InParts
from ringbatch.shm.engine_slots import BatchMark
from ringbatch.shm.errors import InvalidRequest
from ringbatch.shm.slot import Reason, Status
from ringbatch.shm.tallies import ends_of

END: Final[Any] = "end"


class Repeated(V1Codec):
    """V1, with the one part of each request several times."""

    count = 3

    def read(self, name: str, body: Any, framing: Any) -> Read[Answer]:
        model, parts, rendering, timeout_ns, level = super().read(name, body, framing)
        return model, parts * self.count, rendering, timeout_ns, level


class Group:
    """A client's request that is several, and the engine's side of these."""

    def __init__(self, count: int = 3, body: bytes = b'{"instances": [1]}') -> None:
        self.harness = FrontendHarness(untyped(in_parts=True))
        self.parts: list[tuple[int, bytes]] = []
        self.over: list[int] = []
        self.replies: list[Any] = []
        self.codes: list[int] = []
        """The status of the request that ended last, at each reply."""
        self.enough = self.refuses_end_of = -1
        codec = Repeated(self.harness.service)
        codec.count = count
        self.call = self.harness.service.pipeline.start(
            codec,
            "echo",
            body,
            None,
            self._reply,
            in_parts=InParts(lambda _answer: None, END, several=self),
        )
        self.harness.loop.turn()
        wanted = self.harness.engine_slots.wanted
        self.requests = [one for one in self.harness.taken() if wanted(one.ref)]
        slots_of = self.harness.engine_slots
        self._writers = [slots_of.part_writer(one, 7) for one in self.requests]

    def _reply(self, answer: Any) -> None:
        self.replies.append(answer)
        self.codes.append(self.harness.service.engine.outcomes.last().code)

    def take(self, number: int, part: Answer) -> None:
        self.parts.append((number, part[1]))
        if number == self.enough:
            raise EnoughParts

    def end(self, number: int) -> None:
        if number == self.refuses_end_of:
            raise InvalidRequest("no end, please")
        self.over.append(number)

    def part(self, number: int, text: bytes) -> None:
        slots = self.harness.engine_slots
        assert self._writers[number].write(b"[%b]" % text)
        slots.post_part(self.requests[number].ref)
        slots.flush()

    def answer(self, number: int, status: Status = Status.OK) -> None:
        slots, mark = self.harness.engine_slots, BatchMark(7, 1, Reason.IDLE, 0)
        slots.answer(self.requests[number].ref, status, 0, mark, 0)
        slots.flush()

    def collect(self) -> None:
        self.harness.gateway.collect()

    def given_up(self) -> list[int]:
        slots, now_ns = self.harness.engine_slots, self.harness.loop.now_ns
        gone = slots.given_up([one.ref for one in self.requests], now_ns)
        return [n for n, one in enumerate(self.requests) if one.ref in gone]

    def counted(self) -> tuple[int, int]:
        """Requests answered with 200, and the others that ended."""
        # The gateway does so once nothing is under way for a while.
        self.harness.service.engine.outcomes.settle()
        account = self.harness.service.models["echo"].spec.account
        ends = ends_of(self.harness.segment, [account])[account]
        return ends.answered, ends.ended


def test_parts_go_with_their_number_and_the_reply_is_behind_the_last_end() -> None:
    group = Group()
    assert group.call is not None
    assert group.call.holds[0] == 3
    group.part(2, b"20")
    group.part(0, b"10")
    group.collect()
    group.part(2, b"21")
    group.answer(2)
    group.answer(0)
    group.collect()
    found = {n: [text for number, text in group.parts if number == n] for n in range(3)}
    assert [len(found[n]) for n in range(3)] == [1, 0, 2]
    assert b"10" in found[0][0]
    assert b"20" in found[2][0]
    assert b"21" in found[2][1]
    assert (sorted(group.over), group.replies) == ([0, 2], [])
    group.answer(1)
    group.collect()
    assert (group.over[-1], group.replies, group.codes) == (1, [END], [200])
    assert group.harness.lane.in_flight == 0
    assert group.counted() == (3, 0)


def test_one_that_has_enough_ends_alone() -> None:
    group = Group()
    group.enough = 1
    group.part(1, b"1")
    group.collect()
    assert (group.over, group.replies, group.given_up()) == ([1], [], [1])
    for number, status in enumerate([Status.OK, Status.CANCELLED, Status.OK]):
        group.answer(number, status)
    group.collect()
    assert (sorted(group.over), group.replies) == ([0, 1, 2], [END])
    assert group.counted() == (3, 0)


def test_the_first_error_is_the_reply_and_the_others_are_given_up() -> None:
    group = Group()
    group.part(0, b"1")
    group.collect()
    group.answer(1, Status.WORKER_DIED)
    group.collect()
    ((status, _, _),) = group.replies
    assert (status, group.codes) == (503, [503])
    assert group.given_up() == [0, 2]
    group.part(0, b"2")
    for number in (0, 2):
        group.answer(number, Status.CANCELLED)
    group.collect()
    assert (len(group.parts), group.over, len(group.replies)) == (1, [], 1)
    assert group.harness.lane.in_flight == 0
    assert group.counted() == (0, 3)


def test_an_end_that_cannot_be_taken_fails_all() -> None:
    group = Group()
    group.refuses_end_of = 2
    group.answer(2)
    group.collect()
    ((status, body, _),) = group.replies
    assert (status, b"no end, please" in body) == (400, True)
    assert group.given_up() == [0, 1]


def test_a_client_that_leaves_gives_up_all() -> None:
    group = Group()
    group.answer(0)
    group.collect()
    assert group.call is not None
    group.call.abandon()
    assert group.given_up() == [1, 2]
    for number in (1, 2):
        group.answer(number, Status.CANCELLED)
    group.collect()
    assert (group.over, group.replies) == ([0], [])
    assert group.harness.lane.in_flight == 0
    assert group.counted() == (1, 2)


def test_a_lane_with_no_room_for_the_last_sends_none() -> None:
    group = Group()
    lane = group.harness.lane
    before = lane.in_flight
    again: list[Any] = []
    codec = Repeated(group.harness.service)
    codec.count = lane.capacity - before + 1
    call = group.harness.service.pipeline.start(
        codec,
        "echo",
        b'{"instances": [1]}',
        None,
        again.append,
        in_parts=InParts(lambda _answer: None, END, several=group),
    )
    ((status, body, _),) = again
    assert (call, status) == (None, 503)
    assert b"is used up" in body
    group.harness.loop.turn()
    wanted = [one for one in group.harness.taken() if group.harness.engine_slots.wanted(one.ref)]
    assert wanted == []


def test_more_bytes_than_the_lane_can_hold_are_refused_for_good() -> None:
    group = Group(count=6, body=b'{"instances": ["%b"]}' % (b"x" * 50_000))
    ((status, body, _),) = group.replies
    assert (group.call, status) == (None, 413)
    assert b"lane_bytes" in body


def test_more_than_the_lane_can_hold_are_refused_for_good() -> None:
    group = Group(count=FrontendHarness(untyped(in_parts=True)).lane.capacity + 1)
    ((status, body, _),) = group.replies
    assert (group.call, status) == (None, 413)
    assert b"at most max_in_flight" in body
