"""States of a connection of the fast lane, and the transitions between them.

The clocks' phases (`ringbatch.frontend.http.phases`) are those of both kinds of connection. Here
each state has its phase; besides, a connection in HEAD of which no byte has come is IDLE, and one
whose client does not read is TAKING in any state.
"""

from enum import Enum
from typing import Final

from ringbatch.frontend.http.phases import Phase


class State(Enum):
    """States of a connection within a request."""

    HEAD = "a head is awaited or coming"
    BODY = "a head was read, and its body is gathered"
    RECEIVING = "the body is received straight into its slot"
    ANSWER = "the answer is being made; what comes meanwhile waits"
    EVENTS = "an answer in parts goes out; what comes meanwhile waits"
    HELD = "a refusal waits for its turn; what comes meanwhile waits"
    NEXT = "what came meanwhile waits for the next turn of the event loop"
    ENDED = "what comes is dropped: the connection is to be closed, lost or handed over"


PHASE_OF: Final = {
    State.HEAD: Phase.HEAD,
    State.BODY: Phase.BODY,
    State.RECEIVING: Phase.BODY,
    State.ANSWER: Phase.ANSWER,
    State.EVENTS: Phase.ANSWER,
    State.HELD: Phase.ANSWER,
    State.NEXT: Phase.ANSWER,
    State.ENDED: Phase.TAKING,
}

TRANSITIONS: Final = {
    State.HEAD: {
        "_begin": State.ANSWER,
        "_read_head": State.BODY,
        "_encode": State.ANSWER,
        "_refused": State.HELD,
        "_wait_for_turn": State.NEXT,
        "_hand_over": State.ENDED,
        "_end": State.ENDED,
    },
    State.BODY: {
        "_begin": State.ANSWER,
        "_prepare": State.RECEIVING,
        "_end": State.ENDED,
    },
    State.RECEIVING: {
        "arrived": State.ANSWER,
        "_end": State.ENDED,
    },
    State.ANSWER: {
        "_answer": State.HEAD,
        "_encoded": State.HEAD,
        "begin_events": State.EVENTS,
        "_end": State.ENDED,
    },
    State.EVENTS: {
        "end_events": State.HEAD,
        "_end": State.ENDED,
    },
    State.HELD: {
        "release": State.HEAD,
        "_end": State.ENDED,
    },
    State.NEXT: {
        "_go_on": State.HEAD,
        "_end": State.ENDED,
    },
    State.ENDED: {
        "_end": State.ENDED,
    },
}
"""Transitions: from each state, by the method of `FastLane`, the state that follows; there are no
others. Nothing looks here while requests are served: tests hold the code against it."""
