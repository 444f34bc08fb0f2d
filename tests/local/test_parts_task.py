"""Requests that get parts: each part is passed on, until the end or until there are enough."""

from typing import Any

import orjson
import pytest
from frontend_harness import FrontendHarness, untyped

from ringbatch.frontend.request.codec import V1Codec
from ringbatch.frontend.request.parts_task import EnoughParts, InParts
from ringbatch.shm.engine_slots import BatchMark
from ringbatch.shm.slot import Reason, Status
from ringbatch.shm.tallies import ends_of

END: Any = "end"


class Parted:
    """A request for parts, and the engine's side of it.

    Args:
        enough: the number of parts that its receiver wants.
        raises: what it raises then.
    """

    def __init__(self, enough: int, raises: type[Exception] = EnoughParts) -> None:
        self.harness = FrontendHarness(untyped(in_parts=True))
        self.parts: list[Any] = []
        self.ends: list[Any] = []
        self._enough = enough
        self._raises = raises
        service = self.harness.service
        body = b'{"instances": [1]}'
        self.call = service.pipeline.start(
            V1Codec(service), "echo", body, None, self.ends.append, in_parts=InParts(self._on, END)
        )
        self.harness.loop.turn()
        (self.request,) = self.harness.taken()
        self._writer = self.harness.engine_slots.part_writer(self.request, 7)

    def _on(self, answer: Any) -> None:
        self.parts.append(orjson.loads(answer[1])["predictions"])
        if len(self.parts) == self._enough:
            raise self._raises

    def part(self, value: int) -> None:
        """The worker writes a part."""
        text = orjson.dumps([value])
        assert self._writer.write(text)
        self.harness.engine_slots.post_part(self.request.ref)
        self.harness.engine_slots.flush()

    def is_given_up(self) -> bool:
        """Whether the worker sees that nobody waits for more parts."""
        ref = self.request.ref
        return self.harness.engine_slots.given_up([ref], self.harness.loop.now_ns) == [ref]

    def answer(self, status: Status = Status.OK) -> None:
        """The worker says that the answer is over."""
        mark = BatchMark(7, 1, Reason.IDLE, 0)
        self.harness.engine_slots.answer(self.request.ref, status, 0, mark, 0)
        self.harness.engine_slots.flush()

    def collect(self) -> None:
        """The frontend looks."""
        self.harness.gateway.collect()

    def ends_counted(self) -> tuple[int, int, int]:
        """How many requests were answered with 200, their instances, and how many others ended."""
        account = self.harness.service.models["echo"].spec.account
        ends = ends_of(self.harness.segment, [account])[account]
        return ends.answered, ends.instances, ends.ended


def test_parts_come_in_order_and_then_the_end() -> None:
    parted = Parted(enough=9)
    parted.part(1)
    parted.part(2)
    parted.collect()
    assert (parted.parts, parted.ends) == ([[1], [2]], [])
    parted.part(3)
    parted.answer()
    parted.collect()
    assert (parted.parts, parted.ends) == ([[1], [2], [3]], [END])
    assert parted.harness.lane.in_flight == 0
    assert parted.ends_counted() == (1, 1, 0)


def test_enough_parts_end_the_request_while_its_row_runs() -> None:
    parted = Parted(enough=2)
    for number in (1, 2, 3):
        parted.part(number)
    assert not parted.is_given_up()
    parted.collect()
    assert (parted.parts, parted.ends) == ([[1], [2]], [END])
    assert parted.is_given_up()
    parted.answer(Status.CANCELLED)
    parted.collect()
    assert (parted.parts, parted.ends) == ([[1], [2]], [END])
    assert parted.harness.lane.in_flight == 0
    assert parted.ends_counted() == (1, 1, 0)


def test_enough_parts_may_come_with_the_answer() -> None:
    parted = Parted(enough=1)
    parted.part(1)
    parted.part(2)
    parted.answer()
    parted.collect()
    assert (parted.parts, parted.ends) == ([[1]], [END])
    assert parted.harness.lane.in_flight == 0
    assert parted.ends_counted() == (1, 1, 0)


def test_who_has_had_enough_is_not_told_of_a_deadline() -> None:
    parted = Parted(enough=1)
    parted.part(1)
    parted.collect()
    parted.harness.loop.advance(1 << 40)
    assert parted.ends == [END]
    assert parted.call is not None
    parted.call.abandon()
    assert parted.ends_counted() == (1, 1, 0)


def test_a_receiver_that_fails_fails_its_request(caplog: pytest.LogCaptureFixture) -> None:
    parted = Parted(enough=1, raises=ZeroDivisionError)
    parted.part(1)
    parted.collect()
    ((status, body, _),) = parted.ends
    assert (status, orjson.loads(body)["error"]) == (500, "internal error")
    assert "ZeroDivisionError" in caplog.text
    assert parted.is_given_up()
    parted.answer(Status.CANCELLED)
    parted.collect()
    assert parted.harness.lane.in_flight == 0
    assert parted.ends_counted() == (0, 0, 1)
