"""Decoders take time in proportion to their input, and little of the event loop's."""

from collections.abc import Callable, Iterator
from copy import copy

import pytest
from fuzz import bodies, growth
from fuzz.bodies import CONNECTIONS, Talk
from fuzz.decoders import TARGETS
from fuzz.growth import NAMES, check_bound, check_growth
from fuzz.limits import Overrun
from fuzz.turns import Turns
from tiers import exhaustive, only

from ringbatch.frontend.grpc import large_messages
from ringbatch.frontend.http.content_coding import Expander
from ringbatch.frontend.http.fallback import FallbackProtocol
from ringbatch.frontend.http.fast_lane import FastLane
from ringbatch.frontend.http.fast_lane_states import State

MANY_SEEDS = {**dict.fromkeys(TARGETS, 25), **dict.fromkeys(CONNECTIONS, 12)}
"""A seed of a connection takes a second, and `run.py` tries as many as there is time for."""
SEEDS_OF_GROWTH = {**MANY_SEEDS, **dict.fromkeys(CONNECTIONS, 6)}
"""The growth of a connection's time shows in any of its seeds, the longest turn in some alone."""
SEEDS_FOR_A_DEFECT = 40
QUICK = sorted({*NAMES} - {"http/1.1 pipelined", "grpc calls", "grpc control"})
"""The other connections take two thirds of the time, as each of their requests is answered."""


@pytest.mark.parametrize("target", only({name: name for name in NAMES}, *QUICK))
def test_time_grows_no_more_than_the_input(target: str) -> None:
    check_growth(target, 0)


@exhaustive
@pytest.mark.parametrize("target", NAMES)
def test_time_grows_no_more_than_any_of_many_inputs(target: str) -> None:
    for seed in range(1, SEEDS_OF_GROWTH[target]):
        check_growth(target, seed)


@exhaustive
@pytest.mark.parametrize("target", NAMES)
def test_reading_on_the_event_loop_takes_bounded_steps(target: str) -> None:
    for seed in range(MANY_SEEDS[target]):
        try:
            check_bound(target, seed)
        except Overrun as failure:
            raise Overrun(f"seed {seed}: {failure}") from failure


@pytest.mark.parametrize("kind", CONNECTIONS)
def test_bytes_of_connections_are_read(kind: str) -> None:
    answers = []
    for seed in range(10):
        turns = Turns()
        answers.append(Talk(kind, seed).of_size(1 << 12)(turns))
        turns.close()
    assert any(answers)


def test_a_quadratic_decoder_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(data: bytes) -> None:
        for start in range(0, len(data), 8):
            max(data[start:])

    monkeypatch.setattr(growth, "reader_of", lambda *_: read)
    monkeypatch.setattr(growth, "SMALL_BYTES", 1 << 12)
    with pytest.raises(Overrun):
        check_growth("v1 open", 0)


@exhaustive
def test_a_slow_decoder_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(data: bytes) -> None:
        for byte in data * 100:
            hex(byte)

    monkeypatch.setattr(growth, "reader_of", lambda *_: read)
    with pytest.raises(Overrun):
        check_bound("v1 open", 0)


def overrun(check: Callable[[str, int], object], kind: str) -> bool:
    """Return whether any connection of a kind takes too much time or memory."""
    for seed in range(SEEDS_FOR_A_DEFECT):
        try:
            check(kind, seed)
        except Overrun:
            return True
    return False


@exhaustive
def test_chunks_that_are_joined_one_by_one_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def on_body(connection: FallbackProtocol, body: bytes) -> None:
        connection.url += body
        usual(connection, body)

    usual = FallbackProtocol.on_body
    monkeypatch.setattr(FallbackProtocol, "on_body", on_body)
    assert overrun(check_growth, "http/1.1 chunks")


@exhaustive
@pytest.mark.parametrize("kind", ["http/1.1 gzip", "http/2 gzip", "grpc gzip"])
def test_expanding_all_at_once_is_caught(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    def steps(expander: Expander, data: bytes) -> Iterator[None]:
        # zlib on a quick processor makes the longest body within the bound, but not four of them.
        for _ in range(3):
            spare = copy(expander)
            spare._stream, spare._body = expander._stream.copy(), bytearray()
            [*usual(spare, data)]
        return iter([*usual(expander, data)][:0])

    usual = Expander.steps
    monkeypatch.setattr(Expander, "steps", steps)
    assert overrun(check_bound, kind)


@exhaustive
def test_requests_that_are_all_served_in_one_turn_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def advance(lane: FastLane) -> None:
        usual(lane)
        while lane._buffer and lane._state is State.NEXT:
            lane._state = State.HEAD
            usual(lane)

    usual = FastLane._advance
    monkeypatch.setattr(FastLane, "_advance", advance)
    # Of an event loop's largest read, a quick interpreter serves all requests within the bound.
    monkeypatch.setattr(bodies, "_READS", (growth.LARGEST_BYTES,))
    assert overrun(check_bound, "http/1.1 pipelined")


@exhaustive
def test_fields_without_number_before_a_tensor_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_messages, "MAX_FIELDS", 1 << 30)
    assert overrun(check_bound, "grpc data")
