"""The Gunicorn worker that is a frontend: uvicorn's server on uvloop, the fast lane, a lane."""

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any, Final

from gunicorn.arbiter import Arbiter
from setproctitle import setproctitle
from uvicorn.config import Config
from uvicorn.server import Server
from uvicorn_worker import UvicornWorker

from ringbatch.frontend.app import create_app
from ringbatch.frontend.attachment import Attachment, settle
from ringbatch.frontend.fastlane import FastLane, FastLaneSettings, ResponseHeads
from ringbatch.frontend.head import HeadReader
from ringbatch.frontend.regions import SharedMemory
from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.errors import StartupError

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
"""Blocked from the fork until the server runs: a stop that came in between would end the process
at once, and reset the connections that wait in its socket's queue."""
_TICK_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class FrontendOptions:
    """What the supervisor tells a frontend.

    Attributes:
        segment: the segment's name.
        max_request_bytes: longer bodies are refused.
        drain_s: how long a graceful stop may take.
        shared_memory_prefixes: how the names of objects may begin that clients share.
        compress_answers: whether large answers are compressed for clients that accept it.
    """

    segment: str
    max_request_bytes: int
    drain_s: float
    shared_memory_prefixes: tuple[str, ...] = ()
    compress_answers: bool = False


class TickingServer(Server):
    """uvicorn's server, woken once a second rather than ten times."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._loop = asyncio.get_running_loop()
        self._exit = asyncio.Event()

    async def startup(self, sockets: list[Any] | None = None) -> None:
        """Listen. Only from here on a signal finds somebody who stops gracefully."""
        await super().startup(sockets)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)

    async def main_loop(self) -> None:
        """Date header, heartbeat and the timeouts of connections, until told to exit."""
        while not await self.on_tick(0):
            for connection in list(self.server_state.connections):
                connection.tick()  # type: ignore[union-attr]
            with suppress(TimeoutError):
                async with asyncio.timeout(_TICK_S):
                    await self._exit.wait()

    async def shutdown(self, sockets: list[Any] | None = None) -> None:
        """Finish what clients take for accepted, which is more than was accepted: closing a
        listening socket resets the connections in its queue."""
        queued = [connection for sock in sockets or () for connection in _accept_all(sock)]
        for listener in (*self.servers, *(sockets or ())):
            listener.close()
        # Before the base class looks which connections there are to wait for.
        await self._join(queued)
        await super().shutdown(sockets)

    async def _join(self, connections: list[socket.socket]) -> None:
        config: Any = self.config
        for connection in connections:
            protocol = partial(
                config.http_protocol_class, config, self.server_state, {}, self._loop
            )
            with suppress(OSError):
                await self._loop.connect_accepted_socket(protocol, connection)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal's handler. Other than the base class's, it does not have the signal raised
        again afterwards: a stop that was asked for is no failure."""
        self.should_exit = True
        self._loop.call_soon_threadsafe(self._exit.set)


def _accept_all(listener: Any) -> Iterator[socket.socket]:
    with suppress(BlockingIOError):
        while True:
            yield listener.accept()[0]


class FrontendWorker(UvicornWorker):  # type: ignore[misc]
    """One frontend process. What Gunicorn takes for its application are `FrontendOptions`."""

    CONFIG_KWARGS: Final[dict[str, Any]] = {
        "loop": "uvloop",
        "lifespan": "off",
        "ws": "none",
        "interface": "asgi3",
        "access_log": False,
        "proxy_headers": False,
        "server_header": False,
    }

    place: int
    """Which of the frontends this is, from 0; a replacement takes the place of the dead."""

    async def _serve(self) -> None:
        # What clients send is counted, not logged, at uvicorn's own word.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        options: FrontendOptions = self.wsgi
        try:
            shared = SharedMemory(options.shared_memory_prefixes, options.max_request_bytes)
            frontend = Frontend.open(options.segment, shared)
        except StartupError as error:
            self.log.error("a frontend cannot start: %s", error)
            sys.exit(Arbiter.WORKER_BOOT_ERROR)
        setproctitle(f"ringbatch: frontend {frontend.lane.index}")
        self._install_sigquit_handler()
        config: Config = self.config
        config.app = create_app(
            frontend.service, options.max_request_bytes, compress_answers=options.compress_answers
        )
        # A little less than Gunicorn's own limit, after which it kills.
        config.timeout_graceful_shutdown = options.drain_s * 0.9  # type: ignore[assignment]
        server = TickingServer(config)
        config.http = frontend.fast_lane(server, options, self.cfg.keepalive)  # type: ignore[assignment]
        settle()
        await server.serve(sockets=self.sockets)
        frontend.close()
        if not server.started:
            sys.exit(Arbiter.WORKER_BOOT_ERROR)


class Frontend(Attachment):
    """A lane and the service on it, for HTTP."""

    def fast_lane(
        self, server: Server, options: FrontendOptions, idle_timeout_s: float
    ) -> Callable[..., FastLane]:
        """What makes a protocol for every connection."""
        settings = FastLaneSettings(
            predict=self.service.predict,
            infer=self.service.infer,
            expect=self.service.expect,
            heads=HeadReader(options.max_request_bytes, compress_answers=options.compress_answers),
            response_heads=ResponseHeads(server.server_state),
            idle_timeout_s=idle_timeout_s,
            handed_over=partial(self.lane.counters.add, LaneCounter.HANDED_OVER),
            stopping=lambda: server.should_exit,
        )
        return partial(FastLane, settings)
