"""What is particular to the processes that clients reach: Gunicorn's for HTTP, others for gRPC.

Their ports are taken before anything starts, so that a port in use ends the start at once, and are
held until the end, so that they are still there for a frontend that is started anew. Gunicorn's
workers inherit listening sockets. gRPC opens its own, on the port that is held for it; SO_REUSEPORT
lets several do so, and the kernel spreads the connections among them.
"""

import importlib.util
import os
import socket
from collections.abc import Callable
from contextlib import ExitStack

from ringbatch.engine.child import Child
from ringbatch.engine.listener import address, close_to_newcomers, hold, listen_all
from ringbatch.engine.place import Place
from ringbatch.engine.probe import answers_ready
from ringbatch.engine.settings import ServerConfig
from ringbatch.shm.errors import StartupError

LEAN = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
"""Environment of processes that compute nothing: no thread pools, few malloc arenas."""

_HTTP_LANES_EACH = 2
"""Lanes for every Gunicorn worker: while Gunicorn replaces them, old and new run side by side."""
_GRPC_PACKAGES = ("grpc", "google.protobuf")


class Frontends:
    """The frontends of one engine.

    Attributes:
        http: the place of Gunicorn's arbiter, which is the parent of the frontends for HTTP.
        grpc: the places of those for gRPC.

    Args:
        server: what is configured.
        segment_name: of the segment, which is there before any of them is started.

    Raises:
        StartupError: a port cannot be had, or gRPC is wanted and not installed.
    """

    def __init__(self, server: ServerConfig, segment_name: Callable[[], str]) -> None:
        self._server = server
        self._segment_name = segment_name
        self._grpc_port: socket.socket | None = None
        with ExitStack() as undo:
            self._listeners = listen_all(server.host, server.port, server.frontends)
            for listener in self._listeners:
                undo.enter_context(listener)
            if server.grpc_port is not None:
                _expect_grpc()
                self._grpc_port = undo.enter_context(hold(server.host, server.grpc_port))
            self._sockets = undo.pop_all()
        self.http = Place("frontends", self._start_http)
        count = 0 if self._grpc_port is None else server.grpc_frontends
        self.grpc = [self._grpc_place(number) for number in range(count)]

    @property
    def places(self) -> list[Place]:
        """All of them."""
        return [self.http, *self.grpc]

    @property
    def lanes(self) -> int:
        """How many lanes they need."""
        # A frontend for gRPC is started when the one before it has ended.
        return _HTTP_LANES_EACH * self._server.frontends + len(self.grpc)

    def all_serve(self, held_lanes: int) -> bool:
        """Whether every frontend holds a lane, and the one that a connection comes to is ready."""
        if held_lanes < self._server.frontends + len(self.grpc):
            return False
        return all(place.ready_ns for place in self.grpc) and answers_ready(self._listeners[0])

    def welcome(self, models: str) -> str:
        """What a person reads once they serve, with the names of the models."""
        text = f"ringbatch: serving {models} on http://{address(self._listeners[0])}"
        if self._grpc_port is not None:
            text += f"\nringbatch: serving gRPC on {address(self._grpc_port)}"
        return text

    def close_to_newcomers(self) -> None:
        """Have the kernel complete no further connection for HTTP; the frontends for gRPC close
        their own sockets when they are told to stop."""
        for listener in self._listeners:
            close_to_newcomers(listener)
        self.close()

    def close(self) -> None:
        """Let go of the ports."""
        self._sockets.close()

    def _start_http(self) -> Child:
        fds = tuple(listener.fileno() for listener in self._listeners)
        words = self._words(frontends=self._server.frontends)
        words += [f"--listen-fd={fd}" for fd in fds]
        words += ["--compress-answers"] * self._server.compress_answers
        return Child("frontends", "ringbatch.frontend", words, LEAN, pass_fds=fds, controlled=False)

    def _grpc_place(self, number: int) -> Place:
        title = f"grpc frontend {number}"

        def start() -> Child:
            assert self._grpc_port is not None, "there are no places without it"
            words = self._words(address=address(self._grpc_port), number=number)
            return Child(title, "ringbatch.frontend.grpc_server", words, LEAN)

        return Place(title, start)

    def _words(self, **more: object) -> list[str]:
        server = self._server
        arguments = more | {
            "segment": self._segment_name(),
            "max-request-bytes": server.max_request_bytes,
            "drain-s": server.drain_s,
            "log-level": server.log_level,
            "parent-pid": os.getpid(),
        }
        words = [f"--{key}={value}" for key, value in arguments.items()]
        return words + [f"--shared-memory-prefix={p}" for p in server.shared_memory_prefixes]


def _expect_grpc() -> None:
    for package in _GRPC_PACKAGES:
        try:
            found = importlib.util.find_spec(package)
        except ModuleNotFoundError:  # what it would lie in is missing
            found = None
        if found is None:
            raise StartupError(
                f"[server] grpc_port: gRPC needs the package {package}, which is not installed; "
                "pip install 'ringbatch[grpc]'"
            )
