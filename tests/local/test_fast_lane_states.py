"""The fast lane's states: the code does what the table says and nothing else."""

import ast
import asyncio
import sys
from collections.abc import Callable
from math import inf
from types import FunctionType

import pytest
from fuzz import connection as fuzzed
from fuzz.virtual_time import in_virtual_time
from http_harness import ESCAPED, IDLE_TIMEOUT_S, Connection, request
from sources import ROOT

from ringbatch.frontend.http.fast_lane import FastLane
from ringbatch.frontend.http.fast_lane_states import PHASE_OF, TRANSITIONS, State
from ringbatch.frontend.http.phases import LIMITS, Phase
from ringbatch.frontend.http.refusal_pacing import LOOK_NS, TURN_NS, RefusalPacing
from ringbatch.frontend.request.arrival import LARGE_BYTES

Enter = Callable[[Connection], None]
Step = tuple[State, str, State]

FILES = ("frontend/http/fast_lane.py", "frontend/http/lane_connection.py")
SEEDS = 200
BY_TABLE = {(old, by, new) for old, leads in TRANSITIONS.items() for by, new in leads.items()}
SEEN_BY_FUZZ = {
    (State.HEAD, "_read_head", State.BODY),
    (State.HEAD, "_hand_over", State.ENDED),
    (State.HEAD, "_end", State.ENDED),
    (State.BODY, "_begin", State.ANSWER),
    (State.ANSWER, "_answer", State.HEAD),
    (State.ANSWER, "begin_events", State.EVENTS),
    (State.EVENTS, "end_events", State.HEAD),
    (State.HEAD, "_wait_for_turn", State.NEXT),
    (State.NEXT, "_go_on", State.HEAD),
    (State.ENDED, "_end", State.ENDED),
}
HEAD_OF_LARGE = request(
    b"", b"Inference-Header-Content-Length: 2", path=b"/v2/models/m/infer"
).replace(b"Content-Length: 0", b"Content-Length: %d" % (LARGE_BYTES + 2))


def assignments() -> set[tuple[str, str]]:
    """Return each method in the sources that sets the state, with the new state."""
    names = {f"_{state.name}" for state in State}
    nodes = [node for file in FILES for node in ast.walk(ast.parse((ROOT / file).read_text()))]
    found = set()
    for method in (node for node in nodes if isinstance(node, ast.FunctionDef)):
        for node in ast.walk(method):
            if isinstance(node, ast.Assign) and "self._state" in map(ast.unparse, node.targets):
                value = ast.unparse(node.value)
                assert value in names, f"{method.name} sets the state to {value}"
                found.add((method.name, value[1:]))
    return found


def test_the_code_sets_no_state_that_the_table_does_not_have_and_all_that_it_has() -> None:
    assert assignments() - {("__init__", "HEAD")} == {(by, new.name) for _, by, new in BY_TABLE}


def test_every_state_has_its_transitions_and_its_phase() -> None:
    assert set(TRANSITIONS) == set(PHASE_OF) == set(State)
    assert set(PHASE_OF.values()) | {Phase.IDLE, Phase.UNWANTED} == set(Phase)


@pytest.mark.skipif(
    not isinstance(FastLane.tick, FunctionType), reason="compiled code sets attributes unseen"
)
def test_strangers_bytes_lead_through_transitions_of_the_table_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: set[Step] = set()

    class Watched(FastLane):
        @property
        def _state(self) -> State:
            return self.__dict__["_state"]  # type: ignore[no-any-return]

        @_state.setter
        def _state(self, new: State) -> None:
            by = sys._getframe(1).f_code.co_name
            if by != "__init__":
                seen.add((self._state, by, new))
            self.__dict__["_state"] = new

    async def talk() -> None:
        pairs = {asks: fuzzed.Pair(asks_for_keys=asks) for asks in (False, True)}
        for seed in range(SEEDS):
            await fuzzed.live(pairs, seed)

    monkeypatch.setattr(fuzzed, "FastLane", Watched)
    in_virtual_time(talk())
    assert SEEN_BY_FUZZ <= seen <= BY_TABLE


def nothing(_: Connection) -> None:
    """Leave a connection as it begins."""


def half_a_body(connection: Connection) -> None:
    connection.feed(request(b"{}")[:-1])


def half_a_body_into_its_slot(connection: Connection) -> None:
    connection.feed(HEAD_OF_LARGE + b"{}")


def asked(connection: Connection) -> None:
    connection.feed(request(b"{}"))


def asked_for_events(connection: Connection) -> None:
    connection.feed(request(b"{}", b"Accept: text/event-stream"))
    connection.calls[-1].parts(b"1")


def refused_too_often(connection: Connection) -> None:
    for _ in range(2 + LOOK_NS // TURN_NS):
        connection.feed(request(b"{}"))
        connection.calls[-1].reply((503, b"{}", (("retry-after", "1"),)))


def answered_with_more_behind(connection: Connection) -> None:
    connection.feed(2 * request(b"{}"))
    connection.calls[-1].answer()


def closed(connection: Connection) -> None:
    connection.feed(request(b"{}", b"Connection: close"))
    connection.calls[-1].answer()


ENTER: dict[State, Enter] = {
    State.HEAD: nothing,
    State.BODY: half_a_body,
    State.RECEIVING: half_a_body_into_its_slot,
    State.ANSWER: asked,
    State.EVENTS: asked_for_events,
    State.HELD: refused_too_often,
    State.NEXT: answered_with_more_behind,
    State.ENDED: closed,
}


def reply(connection: Connection) -> None:
    if connection.lane._state in (State.ANSWER, State.EVENTS):
        connection.calls[-1].answer()


def too_slow(connection: Connection) -> None:
    limits_s = [limit.time_s for limit in LIMITS.values() if limit.time_s != inf]
    for _ in range(int(max(IDLE_TIMEOUT_S, *limits_s)) + 1):
        connection.lane.tick()


EVENTS: dict[str, Callable[[Connection], None]] = {
    "request": lambda connection: connection.feed(request(b"[]")),
    "half-a-request": lambda connection: connection.feed(request(b"[]")[:-1]),
    "foreign-request": lambda connection: connection.feed(request(b"", path=ESCAPED)),
    "large-body": lambda connection: connection.feed(bytes(LARGE_BYTES)),
    "answer": reply,
    "turn": lambda connection: connection.lane.release(),
    "time": too_slow,
    "stop": lambda connection: connection.lane._close_if_idle(),
    "end": lambda connection: connection.lane.connection_lost(None),
}
LEADS = {
    State.HEAD: {
        "request": State.ANSWER,
        "half-a-request": State.BODY,
        "foreign-request": State.ENDED,
        "large-body": State.ENDED,
        "time": State.ENDED,
        "stop": State.ENDED,
        "end": State.ENDED,
    },
    State.BODY: {
        "request": State.ANSWER,
        "half-a-request": State.ANSWER,
        "foreign-request": State.ANSWER,
        "large-body": State.ANSWER,
        "time": State.ENDED,
        "end": State.ENDED,
    },
    State.RECEIVING: {
        # Its model answers at once.
        "large-body": State.HEAD,
        "time": State.ENDED,
        "end": State.ENDED,
    },
    State.ANSWER: {
        "answer": State.HEAD,
        "end": State.ENDED,
    },
    State.EVENTS: {
        "answer": State.HEAD,
        "end": State.ENDED,
    },
    State.HELD: {
        "turn": State.HEAD,
        "end": State.ENDED,
    },
    State.NEXT: {
        "end": State.ENDED,
    },
    State.ENDED: {},
}
"""Next state by state and event.

Any other event changes nothing: its bytes wait in the buffer or belong to a body, or it is too
late.
"""


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", State)
def test_each_event_leads_from_each_state_to_that_of_the_table(state: State, event: str) -> None:
    async def test() -> None:
        connection = Connection(places=True, pacing=RefusalPacing(lambda: 1))
        ENTER[state](connection)
        assert connection.lane._state is state
        EVENTS[event](connection)
        assert connection.lane._state is LEADS[state].get(event, state)

    asyncio.run(test())
