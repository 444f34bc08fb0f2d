"""Recorder of the payload log in a serving process: draws requests, and passes their exchanges on.

A drawn request keeps its body until its answer is written. All others cost a draw.
"""

import asyncio
import random
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from ringbatch.frontend.access.recorder import PROTOCOL_NAMES, Recorder
from ringbatch.frontend.access.sampling import Draw
from ringbatch.frontend.payloads.exchange import PayloadExchange
from ringbatch.frontend.payloads.gathering import Gathering
from ringbatch.frontend.payloads.messages import records
from ringbatch.frontend.payloads.passage import send
from ringbatch.frontend.payloads.settings import Keeping, Send
from ringbatch.frontend.request.outcomes import RequestOutcome
from ringbatch.shm.lane import Lane
from ringbatch.shm.tallies import Protocol

EVENT_ID: Final = b"ce-id"
"""The header in which a client or KServe's router names the event (CloudEvents over HTTP)."""
_TYPE: Final = b"content-type"
_CODING: Final = b"content-encoding"
_JSON: Final = "application/json"
_BINARY: Final = "application/octet-stream"
EXCHANGE_BYTES: Final = 1 << 10
"""Bytes of the events of an exchange, beside its bodies, in round numbers."""


class Kept(NamedTuple):
    """A drawn request.

    Attributes:
        headers: by name in lower case; one that comes twice has any of its values.
        body: as it came, as far as the settings keep it.
        body_bytes: of all of it.
        json_bytes: as in `PayloadExchange`.
        type: its content type, if no header says it.
    """

    headers: Mapping[bytes, bytes]
    body: bytes
    body_bytes: int
    json_bytes: int | None = None
    type: str = _JSON


class Answered(NamedTuple):
    """The answer to a drawn request; as `Kept`, and its content encoding."""

    body: bytes
    body_bytes: int
    json_bytes: int | None = None
    type: str = _JSON
    coding: str = ""


class Ended(NamedTuple):
    """A drawn request and its answer.

    Attributes:
        kept: of the request.
        answered: the answer, as far as it is kept.
        ending: of the request.
        request_id: as its client gets it.
        ended_s: seconds since 1970.
    """

    kept: Kept
    answered: Answered
    ending: RequestOutcome
    request_id: bytes
    ended_s: float


class PayloadRecorder:
    """Payload recorder of a serving process: draws requests, and passes exchanges on.

    Attributes:
        most_bytes: of a body that are kept.
        draw: draws requests.
        draws: draws the next request; returns whether it is kept.

    Args:
        keeping: the settings.
        recorder: of the process, which knows batches.
        pass_on: takes messages; see `messages`.
        lane: of this process.
        loop: of this process.
        wall_s: seconds since 1970.
        chance: random numbers, from 0 up to 1.
    """

    def __init__(
        self,
        keeping: Keeping,
        recorder: Recorder,
        pass_on: Send,
        lane: Lane,
        loop: asyncio.AbstractEventLoop,
        wall_s: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.most_bytes = keeping.body_bytes
        self._headers = [(name.encode("latin-1"), name) for name in sorted(keeping.headers)]
        self._recorder = recorder
        self._events = keeping.events
        self._gathering = Gathering(self._records, pass_on, lane, loop)
        self._wall_s = wall_s
        self.draw = Draw(keeping.sample, chance)
        self.draws = self.draw.hits

    def kept(
        self,
        headers: Mapping[bytes, bytes],
        body: bytes | bytearray,
        json_bytes: int | None = None,
        type: str = _JSON,
    ) -> Kept:
        """Return what is kept of a drawn request; see `Kept`."""
        return Kept(headers, bytes(body[: self.most_bytes]), len(body), json_bytes, type)

    def ended(
        self, kept: Kept, ending: RequestOutcome, request_id: bytes, answered: Answered
    ) -> None:
        """Send a drawn request that has ended.

        Args:
            kept: kept parts of the request.
            ending: its end.
            request_id: as its client gets it.
            answered: its answer; its body may be longer than is kept.
        """
        if len(answered.body) > self.most_bytes:
            answered = answered._replace(body=answered.body[: self.most_bytes])
        size = len(kept.body) + len(answered.body) + EXCHANGE_BYTES
        # The rest is quicker for several at once than now and then for one.
        self._gathering.put(Ended(kept, answered, ending, request_id, self._wall_s()), size)

    def close(self) -> None:
        """Pass on the last exchanges."""
        self._gathering.flush()

    def _records(self, several: Sequence[Ended]) -> bytes:
        return records([self._exchange(*one) for one in several], self._events)

    def _exchange(
        self,
        kept: Kept,
        answered: Answered,
        ending: RequestOutcome,
        request_id: bytes,
        ended_s: float,
    ) -> PayloadExchange:
        tally, headers = ending.tally, kept.headers
        return PayloadExchange(
            _text(headers.get(EVENT_ID, b"")) or _text(request_id),
            _text(request_id),
            self._recorder.batch_id(ending),
            tally.name,
            tally.version,
            PROTOCOL_NAMES[tally.protocol],
            ending.code,
            ended_s - (ending.ended_ns - ending.accepted_ns) / 1e9,
            ended_s,
            _type_of(kept, tally.protocol),
            answered.type,
            _text(headers.get(_CODING, b"")),
            answered.coding,
            kept.body_bytes,
            answered.body_bytes,
            kept.json_bytes,
            answered.json_bytes,
            {name: _text(headers[key]) for key, name in self._headers if key in headers},
            kept.body,
            answered.body,
        )


def payload_recorder(
    given: "tuple[Keeping, int] | None", recorder: Recorder, lane: Lane
) -> PayloadRecorder | None:
    """Return the recorder of a process, on the running loop; None if nothing is kept."""
    if given is None:
        return None
    keeping, descriptor = given
    writer = socket.socket(fileno=descriptor)
    return PayloadRecorder(
        keeping, recorder, partial(send, writer), lane, asyncio.get_running_loop()
    )


def _type_of(kept: Kept, protocol: Protocol) -> str:
    """Return the content type of a request, which many clients get wrong, as nothing reads it."""
    if kept.json_bytes is not None:
        return _BINARY
    stated = _text(kept.headers.get(_TYPE, b""))
    is_json = protocol in (Protocol.V1, Protocol.V2)
    return kept.type if not stated or (is_json and "json" not in stated.lower()) else stated


def _text(value: bytes) -> str:
    return value.decode("latin-1")
