"""Refusals on the fast lane that wait for their turn, over a transport that records."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from http_harness import ESCAPED, Connection, Transport, request, scenario, until

from ringbatch.frontend.codec.outcome import JSON, Headers
from ringbatch.frontend.http.fast_lane_states import State
from ringbatch.frontend.http.lane_connection import MAX_WAITING_BYTES
from ringbatch.frontend.http.refusal_pacing import LONGEST_NS, LOOK_NS, TURN_NS, RefusalPacing

AT_ONCE = 1 + LOOK_NS // TURN_NS
"""Refusals of a client that comes back at once before one waits: the first, and those whose turn
is too soon to wait for."""
RETRY_AFTER: Headers = (*JSON, ("retry-after", "1"))
ASK = request(b"{}")


class Refused:
    """Connection whose every request is refused, and its clock."""

    def __init__(self, **given: Any) -> None:
        self.now_ns = 1_000_000_000_000
        self.pacing = RefusalPacing(lambda: self.now_ns)
        self.connection = Connection(pacing=self.pacing, **given)
        self.transport = self.connection.transport

    @property
    def answers(self) -> int:
        return self.transport.written.count(b"HTTP/1.1 ")

    def ask(self, text: bytes = ASK, status: int = 503, headers: Headers = RETRY_AFTER) -> None:
        before = len(self.connection.calls)
        self.connection.feed(text)
        assert len(self.connection.calls) == before + 1
        self.connection.calls[-1].reply((status, b"{}", headers))

    def ask_until_one_waits(self) -> None:
        for number in range(AT_ONCE):
            assert self.answers == number
            self.ask()
        assert self.answers == AT_ONCE
        self.ask()
        assert self.answers == AT_ONCE

    async def turn(self) -> None:
        """Let the time pass that a refusal waits at most."""
        self.now_ns += LONGEST_NS
        await until(lambda: not self.pacing._held)
        await self.connection.settle()


@scenario
async def test_a_client_that_comes_back_at_once_waits_for_its_turn() -> None:
    refused = Refused()
    refused.ask_until_one_waits()
    await refused.turn()
    assert refused.answers == AT_ONCE + 1
    assert refused.transport.written.count(b"503 Service Unavailable") == AT_ONCE + 1
    assert refused.transport.written.count(b"retry-after: 1\r\n") == AT_ONCE + 1
    # And it is served as before.
    refused.ask(status=200, headers=JSON)
    assert refused.answers == AT_ONCE + 2


@pytest.mark.parametrize("status", [429, 503])
def test_both_kinds_of_refusals_wait(status: int) -> None:
    async def test() -> None:
        refused = Refused()
        for _ in range(2 * AT_ONCE):
            if refused.connection.lane._held is None:
                refused.ask(status=status)
        assert refused.answers == AT_ONCE

    asyncio.run(test())


@pytest.mark.parametrize(
    ("status", "headers"), [(503, JSON), (400, RETRY_AFTER), (200, JSON), (504, JSON)]
)
def test_other_answers_do_not_wait(status: int, headers: Headers) -> None:
    async def test() -> None:
        refused = Refused()
        for _ in range(3 * AT_ONCE):
            refused.ask(status=status, headers=headers)
        assert refused.answers == 3 * AT_ONCE

    asyncio.run(test())


@scenario
async def test_a_patient_client_is_refused_at_once() -> None:
    refused = Refused()
    refused.ask_until_one_waits()
    await refused.turn()
    for number in range(3 * AT_ONCE):
        refused.now_ns += 1_000_000_000
        refused.ask()
        assert refused.answers == AT_ONCE + 2 + number


@scenario
async def test_the_first_refusal_of_another_connection_comes_at_once() -> None:
    refused = Refused()
    refused.ask_until_one_waits()
    lane, transport = refused.connection.another(), Transport()
    transport.protocol = lane
    lane.connection_made(transport)
    lane.data_received(ASK)
    refused.connection.calls[-1].reply((503, b"{}", RETRY_AFTER))
    assert transport.written.startswith(b"HTTP/1.1 503 ")
    # Its second one has a turn, like anybody's.
    lane.data_received(ASK)
    refused.connection.calls[-1].reply((503, b"{}", RETRY_AFTER))
    assert transport.written.count(b"HTTP/1.1 503 ") == 1


@scenario
async def test_a_request_with_little_time_is_refused_before_that_is_over() -> None:
    refused = Refused()
    refused.ask_until_one_waits()
    await refused.turn()
    for _ in range(AT_ONCE - 1):
        refused.ask()
    assert refused.answers == 2 * AT_ONCE
    outcomes: Any = refused.connection.lane._outcomes
    outcomes.deadline_ns = refused.now_ns + LOOK_NS
    refused.ask()
    assert refused.answers == 2 * AT_ONCE + 1
    outcomes.deadline_ns = 0
    refused.ask()
    assert refused.answers == 2 * AT_ONCE + 1


@scenario
async def test_requests_that_come_meanwhile_wait() -> None:
    refused = Refused()
    refused.ask_until_one_waits()
    calls = len(refused.connection.calls)
    refused.connection.feed(ASK)
    refused.connection.feed(request(bytes(2 * MAX_WAITING_BYTES))[: 2 * MAX_WAITING_BYTES])
    await refused.connection.settle()
    assert len(refused.connection.calls) == calls
    assert not refused.transport.reading, "no more is read ahead than of a request under way"
    await refused.turn()
    assert refused.answers == AT_ONCE + 1
    assert len(refused.connection.calls) == calls + 1


@scenario
async def test_requests_sent_together_are_refused_at_once() -> None:
    refused = Refused()
    refused.connection.feed(3 * AT_ONCE * ASK)
    for number in range(3 * AT_ONCE):
        refused.connection.calls[number].reply((503, b"{}", RETRY_AFTER))
        await refused.connection.settle()
        assert refused.answers == number + 1


def stop(refused: Refused) -> None:
    refused.connection.lane.shutdown()


def leave(refused: Refused) -> None:
    refused.connection.lane.leave()


@pytest.mark.parametrize("end", [stop, leave])
def test_a_stop_sends_the_refusal_and_closes(end: Callable[[Refused], None]) -> None:
    async def test() -> None:
        refused = Refused()
        refused.ask_until_one_waits()
        end(refused)
        assert refused.answers == AT_ONCE + 1
        assert refused.transport.written.count(b"connection: close\r\n") == 1
        assert refused.transport.closed
        await refused.turn()
        assert refused.answers == AT_ONCE + 1

    asyncio.run(test())


@scenario
async def test_a_connection_that_is_to_close_is_refused_at_once() -> None:
    refused = Refused()
    for _ in range(AT_ONCE):
        refused.ask()
    refused.ask(request(b"{}", b"Connection: close"))
    assert refused.answers == AT_ONCE + 1
    assert refused.transport.closed


@scenario
async def test_a_client_that_leaves_meanwhile_gets_nothing() -> None:
    refused = Refused()
    refused.ask_until_one_waits()
    refused.transport.close()
    await refused.turn()
    assert refused.answers == AT_ONCE
    assert refused.connection.lane._state is State.ENDED
    assert refused.connection.ended == [], "its request was counted as refused"


@scenario
async def test_a_request_of_another_kind_behind_it_goes_to_falcon() -> None:
    refused = Refused()
    refused.ask_until_one_waits()
    refused.connection.feed(request(b"{}", path=ESCAPED))
    await refused.connection.settle()
    assert refused.transport.written.count(b"falcon") == 0
    await refused.turn()
    assert refused.transport.written.endswith(b"falcon")
    assert refused.connection.handed_over == 1
