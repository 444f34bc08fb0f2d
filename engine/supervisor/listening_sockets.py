"""All listening sockets of an engine: taken before any process starts, held until the end.

So a port in use ends a start at once, and a restarted frontend finds the sockets. Gunicorn's
workers inherit the sockets for HTTP. Frontends for gRPC open their own TCP sockets on the port that
is held for them; SO_REUSEPORT lets several do so, and the kernel spreads the connections among
them. A Unix socket has one queue, which all frontends of its kind share.
"""

import os
import socket
from contextlib import ExitStack

from ringbatch.engine.config.settings import ServerConfig
from ringbatch.engine.supervisor.handover import OldEngine, PassedSocket
from ringbatch.engine.supervisor.listener import (
    address,
    half_open,
    hold,
    is_at,
    listen_all,
    listen_for_agent,
    listen_for_control,
    refuse_new_connections,
)
from ringbatch.engine.supervisor.unix_listener import is_at_path, listen_at
from ringbatch.engine.systemd.sockets import expect, passed


class ListeningSockets:
    """Listening sockets of one engine.

    Attributes:
        http: over TCP, one for each frontend or one for all; empty if HTTP has a Unix socket alone.
        http_unix: the Unix socket for HTTP; None if there is none.
        grpc: holds the port of gRPC; None if there is none.
        grpc_unix: the Unix socket for gRPC; None if there is none.
        control, agent: of the control address and of HAProxy's agent-check; None if there is none.

    Args:
        server: the settings.
        old_engine: the engine whose sockets are taken over if their addresses are the same.

    Raises:
        StartupError: an address cannot be had.
    """

    def __init__(self, server: ServerConfig, old_engine: OldEngine | None) -> None:
        self._old_engine = old_engine
        with ExitStack() as undo:
            self._undo = undo
            self._fresh: list[socket.socket] = []
            """Unix sockets whose files were made here."""
            given = [undo.enter_context(one) for one in passed(os.environ, os.getpid())]
            self._held_by_systemd = bool(given)
            self.http: list[socket.socket] = []
            self.http_unix: socket.socket | None = None
            if given:
                expect(given, server.tcp_host, server.port, server.frontends, server.http_socket)
                self.http = [one for one in given if one.family != socket.AF_UNIX]
                self.http_unix = next((one for one in given if one not in self.http), None)
            else:
                self._listen(server)
            self.grpc: socket.socket | None = None
            if server.grpc_port is not None:
                self.grpc = self._held(server, server.grpc_port)
            self.grpc_unix = self._unix("grpc-unix", "grpc_unix_socket", server)
            self.control = self.agent = None
            if server.control_port is not None:
                host, port = server.control_host, server.control_port
                (self.control,) = self._taken("control", host, port) or [
                    undo.enter_context(listen_for_control(host, port))
                ]
            if server.agent_check_port is not None:
                host, port = server.host, server.agent_check_port
                (self.agent,) = self._taken("agent", host, port) or [
                    undo.enter_context(listen_for_agent(host, port))
                ]
            self._undo = undo.pop_all()

    @property
    def front(self) -> socket.socket:
        """A socket for HTTP: the first of the ports, or else the Unix socket."""
        found = self.http[0] if self.http else self.http_unix
        assert found is not None, "HTTP is served somewhere"
        return found

    def passed_on(self) -> list[PassedSocket]:
        """Return the sockets that another engine needs to listen at the same addresses."""
        others = {
            "http-unix": self.http_unix,
            "grpc": self.grpc,
            "grpc-unix": self.grpc_unix,
            "control": self.control,
            "agent": self.agent,
        }
        found = [PassedSocket(use, bound) for use, bound in others.items() if bound is not None]
        return [*(PassedSocket("http", listener) for listener in self.http), *found]

    def refuse_new_connections(self) -> bool:
        """Have the kernel begin no further connection; return whether it can.

        Connections still wait in systemd's sockets, for the next engine. The frontends for gRPC
        close their own sockets.
        """
        closed = [refuse_new_connections(listener) for listener in self._doors()]
        return all(closed)

    def has_half_open_connections(self) -> bool:
        """Return whether a client is in the midst of connecting, as happens over TCP alone."""
        tcp = [one for one in self._doors() if one.family != socket.AF_UNIX]
        return half_open({listener.getsockname()[1] for listener in tcp})

    def close(self, *, shared: bool) -> None:
        """Close all sockets here.

        Args:
            shared: True if another engine listens on them too.
        """
        for bound in [] if shared else self._fresh:
            refuse_new_connections(bound)
        self._undo.close()

    def _doors(self) -> list[socket.socket]:
        ours = [] if self._held_by_systemd else [*self.http, self.http_unix]
        doors = [*ours, self.grpc_unix, self.control, self.agent]
        return [one for one in doors if one is not None]

    def _listen(self, server: ServerConfig) -> None:
        host = server.tcp_host
        if host is not None:
            self.http = self._taken("http", host, server.port)
        if host is not None and not self.http:
            self.http = listen_all(host, server.port, server.frontends, beside=server.share_port)
            for listener in self.http:
                self._undo.enter_context(listener)
        key = "host" if host is None else "unix_socket"
        self.http_unix = self._unix("http-unix", key, server)

    def _held(self, server: ServerConfig, port: int) -> socket.socket:
        taken = self._taken("grpc", server.host, port)
        return (
            taken[0]
            if taken
            else self._undo.enter_context(hold(server.host, port, beside=server.share_port))
        )

    def _unix(self, use: str, key: str, server: ServerConfig) -> socket.socket | None:
        path = server.grpc_unix_socket if key == "grpc_unix_socket" else server.http_socket
        if path is None:
            return None
        if self._old_engine is not None:
            for found in self._old_engine.take(use, lambda bound: is_at_path(bound, path)):
                return self._undo.enter_context(found)
        mode, group = int(server.unix_socket_mode, 8), server.unix_socket_group
        self._fresh.append(self._undo.enter_context(listen_at(key, path, mode, group)))
        return self._fresh[-1]

    def _taken(self, use: str, host: str, port: int) -> list[socket.socket]:
        if self._old_engine is None:
            return []
        found = self._old_engine.take(use, lambda bound: is_at(bound, host, port))
        return [self._undo.enter_context(bound) for bound in found]


def url(bound: socket.socket, *, tls: bool) -> str:
    """Return the URL of a socket for HTTP, as users read it."""
    text = address(bound)
    return text if bound.family == socket.AF_UNIX else f"{'https' if tls else 'http'}://{text}"
