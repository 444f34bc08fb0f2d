"""The Gunicorn worker that is a frontend: uvicorn's server on uvloop, the fast lane, a lane."""

import asyncio
import logging
import os
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from gunicorn.arbiter import Arbiter
from setproctitle import setproctitle
from uvicorn.config import Config
from uvicorn.server import Server
from uvicorn_worker import UvicornWorker

from ringbatch.frontend.access.recorder import Recorder, recording
from ringbatch.frontend.access.sampling import AccessSettings
from ringbatch.frontend.falcon.app import create_app
from ringbatch.frontend.http.asgi import App
from ringbatch.frontend.http.body_budget import BodyBudget
from ringbatch.frontend.http.connection_limit import at_most
from ringbatch.frontend.http.fast_lane import FastLane
from ringbatch.frontend.http.fast_lane_settings import (
    CLOSE_GRACE_S,
    HANDOVER_GRACE_S,
    FastLaneSettings,
)
from ringbatch.frontend.http.head_reader import HeadReader
from ringbatch.frontend.http.kept_lane import KeptLane
from ringbatch.frontend.http.refusal_pacing import RefusalPacing
from ringbatch.frontend.http.response_heads import ResponseHeads
from ringbatch.frontend.http.router import Router
from ringbatch.frontend.http.server import TickingServer
from ringbatch.frontend.http.tracked_app import TrackedApp
from ringbatch.frontend.load.load_reports import LoadReports
from ringbatch.frontend.payloads.recorder import PayloadRecorder, payload_recorder
from ringbatch.frontend.payloads.settings import Keeping
from ringbatch.frontend.request.attachment import Attachment
from ringbatch.frontend.routes.mounted import Mounted, OwnPaths
from ringbatch.frontend.security.accounts import Accounts
from ringbatch.frontend.security.api_keys import ApiKeys
from ringbatch.frontend.security.credentials import Security
from ringbatch.frontend.v2.regions import SharedMemory
from ringbatch.shm.account import PriorityClass
from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.errors import StartupError
from ringbatch.shm.host.credentials import Credentials
from ringbatch.shm.host.descriptors import connections_allowed
from ringbatch.shm.host.process import pass_over_operators_signals, settle
from ringbatch.shm.tallies import Protocol

log = logging.getLogger("ringbatch.frontend")

ROLE: Final = "frontend"
"""Name of the process's role in the log."""
_PROTOCOLS: Final = {False: ("http/1.1",), True: ("h2", "http/1.1")}
"""Protocols over TLS."""


@dataclass(frozen=True, slots=True)
class FrontendOptions:
    """Options of a frontend, from the supervisor.

    Attributes:
        segment: the segment's name.
        max_request_bytes: longer bodies are refused.
        drain_s: how long a graceful stop may take.
        shared_memory_prefixes: prefixes that the names of clients' objects must have.
        compress_answers: True to compress large answers for clients that accept it.
        credentials: the server's, and those that clients must have.
        max_connections: that are served at once.
        idle_timeout_s: how long a connection without a request is kept.
        pass_through: the server that gets requests with other paths than ours.
        access: settings of the request log.
        app: the user's own application, see `ringbatch.frontend.routes.loading`.
        http2: True if HTTP/2 is spoken too.
        own_paths: the access to ringbatch's own paths, beside an application.
        cors_origins: origins whose pages may read answers.
        unix_fd: a listening Unix socket, which all frontends share; None if there is none.
        keeping: settings of the payload log, and the descriptor that takes it; None
            without a payload log.
        trusted_proxies: whose header names the client, see `Accounts`.
        highest: the highest class of requests without a key.
    """

    segment: str
    max_request_bytes: int
    drain_s: float
    shared_memory_prefixes: tuple[str, ...] = ()
    compress_answers: bool = False
    credentials: Credentials = field(default_factory=Credentials)
    max_connections: int = 1 << 14
    idle_timeout_s: float = 75.0
    pass_through: str | None = None
    access: AccessSettings = field(default_factory=AccessSettings)
    app: str | None = None
    http2: bool = False
    own_paths: OwnPaths = "keys"
    cors_origins: tuple[str, ...] = ()
    unix_fd: int | None = None
    keeping: tuple[Keeping, int] | None = None
    trusted_proxies: tuple[str, ...] = ()
    highest: PriorityClass = PriorityClass.INTERACTIVE

    @property
    def fast_lane_bytes(self) -> int:
        """Longest request body that the fast lane takes.

        If the application decides about predictions, the fast lane takes none, not even empty ones.
        """
        return self.max_request_bytes if self.own_paths == "keys" else -1


class FrontendWorker(UvicornWorker):  # type: ignore[misc]
    """Frontend process, as a Gunicorn worker. Gunicorn's application is a `FrontendOptions`."""

    CONFIG_KWARGS: Final[dict[str, Any]] = {
        "loop": "uvloop",
        "lifespan": "off",
        "ws": "none",
        "interface": "asgi3",
        "access_log": False,
        "proxy_headers": False,
        "server_header": False,
    }

    frontend_index: int
    """Number of this frontend, from 0; a replacement has that of the dead one."""
    started_s: float
    """Monotonic time of its fork."""

    def init_signals(self) -> None:
        """Set signal handlers; called by Gunicorn."""
        super().init_signals()
        pass_over_operators_signals()

    async def _serve(self) -> None:
        try:
            await self._attend()
        except StartupError as error:
            # Others may serve on, so this ends no other frontend.
            self.log.error("a frontend cannot start: %s", error)
            sys.exit(1)

    async def _attend(self) -> None:
        # What clients send is counted, not logged, at uvicorn's own word.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        options: FrontendOptions = self.wsgi
        frontend, security = _opened(options)
        setproctitle(f"ringbatch: frontend {frontend.lane.index}")
        self._install_sigquit_handler()
        service, keys = frontend.service, security.keys
        accounts = frontend.accounts(options.trusted_proxies, keys, options.highest)
        budget = BodyBudget.of(options.max_request_bytes)
        try:
            app, closings = await frontend.application(
                options, keys, accounts, budget, heartbeat=self.notify
            )
        except StartupError as error:
            self.log.error("a frontend cannot start: %s", error)
            sys.exit(Arbiter.WORKER_BOOT_ERROR)
        reports = LoadReports(frontend.segment, time.monotonic_ns)
        recorder, writer = recording(options.access, service.engine, ROLE, reports)
        recorder.account_name = accounts.name
        payloads = payload_recorder(options.keeping, recorder, frontend.lane)
        config: Config = self.config
        nobody = service.tallies.nobody[Protocol.HTTP]
        config.app = TrackedApp(app, recorder, nobody, payloads)
        # A little less than Gunicorn's own limit, after which it kills.
        config.timeout_graceful_shutdown = options.drain_s * 0.9  # type: ignore[assignment]
        heads = frontend.head_reader(options, keys, accounts)
        server = TickingServer(
            config,
            security,
            keys_changed=heads.forget,
            leaving=lambda: service.stopping,
            serving=frontend.lane.publish_serving,
        )
        settings = frontend.settings(server, options, heads, budget, recorder)
        settings.accounts = accounts
        if options.http2:
            # Only here, because it needs a package that others do without.
            from ringbatch.frontend.streams.connection import http2_handoff

            settings.http2_handoff = partial(http2_handoff, settings)
        config.http = frontend.fast_lane(  # type: ignore[assignment]
            server, options, settings, payloads
        )
        settle()
        # Gunicorn's own objects would be closed after the event loop has closed their sockets.
        # Their descriptors may belong to other files by then.
        await server.serve(sockets=[*(one.sock for one in self.sockets), *_shared(options.unix_fd)])
        for close in closings:
            await close()
        if payloads is not None:
            payloads.close()
        frontend.close()
        writer.close()
        if not server.started:
            sys.exit(Arbiter.WORKER_BOOT_ERROR)


def _opened(options: FrontendOptions) -> tuple["Frontend", Security]:
    """Attach a frontend and read its credentials; end the process if one of them is impossible."""
    try:
        security = Security(options.credentials, _PROTOCOLS[options.http2])
        shared = SharedMemory(options.shared_memory_prefixes, options.max_request_bytes)
        frontend = Frontend.open(options.segment, shared)
    except StartupError as error:
        log.error("a frontend cannot start: %s", error)
        sys.exit(Arbiter.WORKER_BOOT_ERROR)
    frontend.service.load_generators()
    counters = frontend.lane.counters
    security.failed_handshakes.count = partial(counters.add, LaneCounter.TLS_FAILED)
    return frontend, security


def _shared(descriptor: int | None) -> list[socket.socket]:
    """Return this process's object for the Unix socket that all frontends share."""
    if descriptor is None:
        return []
    shared = socket.socket(fileno=os.dup(descriptor))
    shared.setblocking(False)
    return [shared]


class Frontend(Attachment):
    """A lane and the service on it, for HTTP."""

    def accounts(
        self, trusted_proxies: Sequence[str], keys: ApiKeys | None, highest: PriorityClass
    ) -> Accounts:
        """Return the accounts of clients, which are the same in all frontends of an engine."""
        segment = self.segment
        fair = segment.shares_fairly
        return Accounts(segment.identity, trusted_proxies, keys, highest=highest, on=fair)

    async def application(
        self,
        options: FrontendOptions,
        keys: ApiKeys | None,
        accounts: Accounts,
        budget: BodyBudget,
        *,
        heartbeat: Callable[[], None],
    ) -> tuple[App, list[Callable[[], Awaitable[None]]]]:
        """Start the ASGI application: ringbatch's own, or one that has it as a part.

        Args:
            options: of this process.
            keys: API keys one of which a client must send; None to serve every client.
            accounts: of clients.
            budget: for the bodies that are gathered.
            heartbeat: called once a second while the user's own application starts.

        Returns:
            The application, and what is to be called once its server has stopped.

        Raises:
            StartupError: the user's own application cannot start.
        """
        router = Router()
        own = create_app(
            self.service,
            options.max_request_bytes,
            compress_answers=options.compress_answers,
            keys=keys,
            budget=budget,
            router=router,
            settings=partial(self.service.settings, options.access.trace_sample),
            cors_origins=options.cors_origins,
            accounts=accounts,
        )
        app: App = own
        closings: list[Callable[[], Awaitable[None]]] = []
        if options.pass_through is not None:
            # Only here, because it needs a package that others do without.
            from ringbatch.frontend.proxy.pass_through_app import with_pass_through

            app = passing = with_pass_through(own, router, self.service, options.pass_through, keys)
            closings.append(passing.close)
        if options.app is not None:
            # An application that parses its command line finds none of ringbatch's arguments there.
            del sys.argv[1:]
            app = mounted = Mounted(
                own, options.app, self.service, keys, options.own_paths, accounts
            )
            await mounted.start(heartbeat)
            closings.append(mounted.close)
        return app, closings

    def head_reader(
        self, options: FrontendOptions, keys: ApiKeys | None, accounts: Accounts
    ) -> HeadReader:
        """Return the reader of the heads of the fast lane's requests."""
        return HeadReader(
            options.fast_lane_bytes,
            compress_answers=options.compress_answers,
            keys=keys,
            origins=self.service.origins,
            cors_origins=options.cors_origins,
            accounts=accounts,
        )

    def settings(
        self,
        server: Server,
        options: FrontendOptions,
        heads: HeadReader,
        budget: BodyBudget,
        recorder: Recorder,
    ) -> FastLaneSettings:
        """Return the settings that its connections share."""
        return FastLaneSettings(
            predictions=self.service,
            heads=heads,
            response_heads=ResponseHeads(server.server_state, recorder.ids),
            idle_timeout_s=options.idle_timeout_s,
            count_hand_over=partial(self.lane.counters.add, LaneCounter.HANDED_OVER),
            stopping=lambda: server.should_exit,
            leaving=lambda: self.service.stopping,
            close_grace_s=lambda: self._close_grace_s(options.drain_s),
            budget=budget,
            recorder=recorder,
            pacing=RefusalPacing(
                count_held=partial(self.lane.counters.add, LaneCounter.REFUSALS_HELD)
            ),
        )

    def fast_lane(
        self,
        server: Server,
        options: FrontendOptions,
        settings: FastLaneSettings,
        payloads: PayloadRecorder | None,
    ) -> Callable[..., asyncio.BaseProtocol]:
        """Return the factory of the protocol of every connection."""
        most = connections_allowed(options.max_connections, log)
        lane: Callable[..., FastLane] = partial(FastLane, settings)
        if payloads is not None:
            lane = partial(KeptLane, payloads, settings)
        return at_most(most, lane, server.server_state)

    def _close_grace_s(self, drain_s: float) -> float:
        if self.superseded:
            return max(CLOSE_GRACE_S, min(HANDOVER_GRACE_S, drain_s / 2))
        return CLOSE_GRACE_S
