"""Settings that all connections of the fast lane in a process share."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from uvicorn.config import Config
from uvicorn.server import ServerState

from ringbatch.frontend.access.recorder import Recorder
from ringbatch.frontend.http.body_budget import BodyBudget
from ringbatch.frontend.http.fallback import FallbackProtocol
from ringbatch.frontend.http.head_reader import HeadReader
from ringbatch.frontend.http.refusal_pacing import RefusalPacing
from ringbatch.frontend.http.response_heads import ResponseHeads
from ringbatch.frontend.request.calls import PredictionService
from ringbatch.frontend.security.accounts import Accounts

CLOSE_GRACE_S: Final = 0.1
"""Seconds that a graceful stop waits for a request that is on its way on an idle connection."""
HANDOVER_GRACE_S: Final = 5.0
"""Seconds of that wait if another engine serves already, so that no operator waits for the stop."""


class UvicornArguments(NamedTuple):
    """Arguments that uvicorn gives to each of its protocols."""

    config: Config
    server_state: ServerState
    app_state: dict[str, Any]
    loop: asyncio.AbstractEventLoop


class Http2Handoff(Protocol):
    """Takes over a connection whose client does not speak HTTP/1."""

    def __call__(
        self,
        data: bytes,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        loop: asyncio.AbstractEventLoop,
    ) -> Any:
        """Return the successor of a connection, used as `FallbackProtocol` is.

        It is None if the connection is HTTP/1's.

        Args:
            data: the first unread bytes of the connection.
            config, server_state, app_state, loop: as uvicorn gives them to its protocols.
        """


@dataclass(slots=True)
class FastLaneSettings:
    """Settings that all connections of a process share.

    Attributes:
        predictions: the service that takes requests.
        heads: reads the heads of requests.
        response_heads: writes those of answers.
        idle_timeout_s: how long a connection without a request is kept.
        count_hand_over: counts a connection that goes to Falcon.
        stopping: True while the server stops; connections may still come that were accepted before.
        leaving: True if clients are to go elsewhere, because the server is to stop.
        close_grace_s: how long a graceful stop waits for a request on an idle connection.
        budget: for the bodies that are gathered.
        recorder: keeps ids, times and log lines of requests.
        accounts: of clients.
        http2_handoff: takes connections of HTTP/2; None without HTTP/2.
        pacing: holds back refusals to clients that ask again too early.
    """

    predictions: PredictionService
    heads: HeadReader
    response_heads: ResponseHeads
    idle_timeout_s: float
    count_hand_over: Callable[[], None]
    stopping: Callable[[], bool]
    leaving: Callable[[], bool]
    close_grace_s: Callable[[], float]
    budget: BodyBudget
    recorder: Recorder
    accounts: Accounts = field(default_factory=lambda: Accounts(on=False))
    http2_handoff: Http2Handoff | None = None
    pacing: RefusalPacing = field(default_factory=RefusalPacing)

    def successor(
        self,
        data: bytes,
        given: UvicornArguments,
        refused: Callable[[int], bytes],
    ) -> Any:
        """Return the protocol that goes on with a connection of another kind.

        Args:
            data: as for an `Http2Handoff`.
            given: its other arguments.
            refused: as of `FallbackProtocol`.
        """
        found = None if self.http2_handoff is None else self.http2_handoff(data, *given)
        if found is None:
            found = FallbackProtocol(*given, close_grace_s=self.close_grace_s, refused=refused)
        return found
