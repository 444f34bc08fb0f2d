"""Frontend processes: Gunicorn's for HTTP, others for gRPC, and one for the control address."""

import logging
import os
import socket
from contextlib import suppress
from functools import partial

from ringbatch.engine.config.credentials import control_credentials_of, credentials_of
from ringbatch.engine.config.dimensions import request_limit_bytes
from ringbatch.engine.config.exposure_warnings import exposures
from ringbatch.engine.config.settings import ServerConfig
from ringbatch.engine.process.memory_limits import FRONTEND_HEAP, heap_environment
from ringbatch.engine.supervisor.application_check import expect_importable, warn_if_unguarded
from ringbatch.engine.supervisor.child_process import Child
from ringbatch.engine.supervisor.handover import OldEngine, PassedSocket
from ringbatch.engine.supervisor.health_probe import Probe, answers_ready, ask
from ringbatch.engine.supervisor.launching import Launch, execute
from ringbatch.engine.supervisor.listener import BACKLOG, address
from ringbatch.engine.supervisor.listening_sockets import ListeningSockets, url
from ringbatch.engine.supervisor.managed_process import ManagedProcess
from ringbatch.engine.supervisor.package_check import expect_installed
from ringbatch.engine.supervisor.payload_passage import PayloadPassage
from ringbatch.shm.account_limits import NO_LIMITS
from ringbatch.shm.errors import StartupError
from ringbatch.shm.host.credentials import Credentials, key_digests, objection, server_tls
from ringbatch.shm.restarts import Role
from ringbatch.shm.segment import Segment

logger = logging.getLogger("ringbatch.supervisor")

LEAN = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
"""Environment of processes that compute nothing: no thread pools, few malloc arenas."""

_AGE_SPREAD = 1.1
"""Connections over gRPC live up to a tenth longer, so that they do not all end at once."""
_LATE_S = 5.0
"""Allowance for a busy host."""
_GRPC_PACKAGES = ("hpack", "google.protobuf")
_HTTP2_PACKAGES = ("hpack",)
_OTEL_PACKAGES = ("opentelemetry.proto",)
_PASSING_PACKAGES = ("aiohttp",)


class Frontends:
    """The frontends of one engine.

    Attributes:
        http: Gunicorn's arbiter, which is the parent of the frontends for HTTP.
        grpc: the frontends for gRPC.
        control: the server at the control address and of HAProxy's agent-check, if there is one.
        segment_name: of the segment, once it is made; none of them is started before.
        shared: True if another engine listens on the same sockets.

    Args:
        server: the settings.
        pass_through: the server that gets requests with other paths than ringbatch's.
        old_engine: the engine whose sockets they take, if these are at the configured addresses.
        launch: makes the processes.

    Raises:
        StartupError: a port cannot be had, gRPC or tracing is wanted and not installed, a
            certificate, key or file of API keys cannot be used, or `app` cannot be imported.
    """

    def __init__(
        self,
        server: ServerConfig,
        pass_through: str | None = None,
        old_engine: OldEngine | None = None,
        launch: Launch = execute,
    ) -> None:
        self.segment_name = ""
        self._launch = launch
        self.shared = False
        self._server = server
        self._pass_through = pass_through
        self._credentials = credentials_of(server, os.environ)
        self._control_credentials = control_credentials_of(server, os.environ)
        self._expect_credentials()
        self._expect_packages()
        if server.app is not None:
            expect_importable(server.app, LEAN)
        self._payloads = PayloadPassage(server)
        self._sockets = ListeningSockets(server, old_engine)
        self._warn_of_exposures()
        self._probe = Probe(
            lambda: answers_ready(self._sockets.front, tls=self._tls), self._warn_of_silence
        )
        self.http = ManagedProcess("frontends", self._start_http, role=Role.ARBITER)
        count = server.grpc_frontends if server.serves_grpc else 0
        self.grpc = [self._grpc_process(number) for number in range(count)]
        control = ManagedProcess("control", self._start_control, role=Role.CONTROL)
        self.control = [control] if server.has_control_process else []

    @property
    def processes(self) -> list[ManagedProcess]:
        """All processes of frontends."""
        return [self.http, *self.grpc, *self.control]

    @property
    def watched(self) -> list[ManagedProcess]:
        """Processes that report progress to the supervisor; Gunicorn watches its own."""
        return [*self.grpc, *self.control]

    def begun(self, managed: ManagedProcess, segment: Segment) -> bool:
        """Return whether a process, and its children, have imported their modules.

        Beside another engine, the next process starts only then, as imports take CPU time from the
        engine that serves.
        """
        if managed is self.http:
            return segment.serving_lanes() >= self._server.frontends
        return bool(managed.ready_ns)

    def all_serve(self, serving: int) -> bool:
        """Return whether all frontends accept connections, and the one that answers is ready.

        Args:
            serving: how many accept connections. The answer alone does not prove it: it may come
                from another engine on the same sockets.
        """
        if serving < self._server.frontends + len(self.grpc):
            return False
        if not all(managed.ready_ns for managed in (*self.grpc, *self.control)):
            return False
        # Where clients need a certificate the supervisor has none to show.
        return self._credentials.tls_client_ca is not None or self._probe.succeeds()

    def greet(self, models: str) -> None:
        """Print the welcome, and warn if the application leaves ringbatch's paths unguarded.

        Args:
            models: their names.
        """
        with suppress(OSError):  # the reader of standard output may be gone
            print(self.welcome(models), flush=True)
        server, guards = self._server, self._credentials
        guarded = guards.api_keys is not None or guards.tls_client_ca is not None
        if server.app is not None and server.own_paths == "keys" and not guarded:
            warn_if_unguarded(partial(ask, self._sockets.front, "/", tls=self._tls))

    def welcome(self, models: str) -> str:
        """Return the welcome that is printed once they serve, with the names of the models."""
        sockets = self._sockets
        text = f"ringbatch: serving {models} on {self.url}"
        if sockets.http and sockets.http_unix is not None:
            text += f"\nringbatch: serving them on {address(sockets.http_unix)} too"
        for bound in (sockets.grpc, sockets.grpc_unix):
            if bound is not None:
                text += f"\nringbatch: serving gRPC on {address(bound)}"
        if sockets.control is not None:
            secure = self._control_credentials.tls_certificate is not None
            at = url(sockets.control, tls=secure)
            text += f"\nringbatch: serving metrics on {at}/metrics, a page on {at}/"
        if sockets.agent is not None:
            text += f"\nringbatch: answering agent-checks on {address(sockets.agent)}"
        return text

    @property
    def port(self) -> int:
        """HTTP port; 0 if HTTP is on a Unix socket alone."""
        return self._sockets.http[0].getsockname()[1] if self._sockets.http else 0

    @property
    def url(self) -> str:
        """Address of HTTP."""
        return url(self._sockets.front, tls=self._tls)

    def answer(self) -> bool:
        """Return whether a frontend answers at all; takes seconds if none does."""
        # Where clients need a certificate the supervisor has none to show.
        if self._credentials.tls_client_ca is not None:
            return True
        return ask(self._sockets.front, tls=self._tls) is not None

    @property
    def _tls(self) -> bool:
        return self._credentials.tls_certificate is not None

    @property
    def asks_for_keys(self) -> bool:
        """True if clients must send an API key."""
        return self._credentials.api_keys is not None

    def _expect_packages(self) -> None:
        """Check that all packages that the settings need are installed."""
        server = self._server
        if self._pass_through is not None:
            user = "requests that are passed on to a model server"
            expect_installed(user, "http", _PASSING_PACKAGES)
        if server.http2:
            expect_installed("[server] http2: connections over HTTP/2", "http2", _HTTP2_PACKAGES)
        if server.serves_grpc:
            key = "grpc_port" if server.grpc_unix_socket is None else "grpc_unix_socket"
            expect_installed(f"[server] {key}: calls over gRPC", "grpc", _GRPC_PACKAGES)
        if server.trace_endpoint is not None:
            expect_installed("[server] trace_endpoint: traces", "otel", _OTEL_PACKAGES)

    def _expect_credentials(self) -> None:
        """Check certificates and keys before models are loaded, which may take long."""
        clients, control = self._credentials, self._control_credentials
        certificates = {found.tls_certificate: found for found in (control, clients)}
        for certificate, found in certificates.items():
            tls = server_tls(found)
            if tls is not None and (why := objection(tls)) is not None:
                logger.warning("%s: clients may refuse this certificate: %s", certificate, why)
        if clients.api_keys is not None:
            keys = key_digests(clients.api_keys)
            limited = any(options.limits != NO_LIMITS for options in keys.values())
            if limited and not self._server.fair_shares:
                raise StartupError(
                    f"{clients.api_keys}: limits behind a key need [server] fair_shares = true, "
                    "because without it all clients count as one"
                )

    def _warn_of_exposures(self) -> None:
        """Log settings that let strangers in; a start that fails says only why it fails."""
        for exposed, do in exposures(self._server, self._credentials, self._control_credentials):
            logger.warning("%s; %s", exposed, do)

    def _warn_of_silence(self) -> None:
        logger.warning(
            "this process gets no answer from its own frontends at %s/v2/health/ready, and waits "
            "for one; a firewall may be in the way, or the loopback interface be down (ip link set "
            "lo up)",
            self.url,
        )

    def sockets(self) -> list[PassedSocket]:
        """Return the sockets that another engine needs to listen at the same addresses."""
        return self._sockets.passed_on()

    def drain_s(self, *, superseded: bool) -> float:
        """Return how many seconds they may take to stop.

        Args:
            superseded: True if another engine serves in this one's place.
        """
        server = self._server
        leaving = superseded and self._server.serves_grpc
        return server.drain_s + self._leave_s * leaving

    @property
    def _leave_s(self) -> float:
        """Seconds that gRPC clients may take to move to another engine."""
        return _AGE_SPREAD * self._server.grpc_connection_age_s + _LATE_S

    def refuse_new_connections(self) -> None:
        """Have the kernel begin no further connection.

        The frontends for gRPC close their own sockets when they stop.
        """
        if not self.shared and not self._sockets.refuse_new_connections():
            logger.warning(
                "a client that connects in the last moment may be reset: this kernel refuses every "
                "way to refuse new connections first"
            )

    def has_half_open_connections(self) -> bool:
        """Return whether a client is in the midst of connecting."""
        return not self.shared and self._sockets.has_half_open_connections()

    def close(self) -> None:
        """Close the sockets."""
        self._sockets.close(shared=self.shared)
        self._payloads.close()

    def _start_http(self, _again: bool) -> Child:
        if self._server.share_port:
            # Until now, other engines had the port.
            for listener in self._sockets.http:
                listener.listen(BACKLOG)
        fds = tuple(listener.fileno() for listener in self._sockets.http)
        words = self._words(frontends=self._server.frontends)
        words += [f"--listen-fd={fd}" for fd in fds]
        words += _unix(self._sockets.http_unix)
        words += self._payloads.keeping_words
        words += ["--compress-answers"] * self._server.compress_answers
        words += ["--http2"] * self._server.http2
        words += [f"--pass-through={self._pass_through}"] * (self._pass_through is not None)
        words += [f"--own-paths={self._server.own_paths}"]
        words += [f"--cors-origin={origin}" for origin in self._server.cors_origins]
        words += [f"--app={self._server.app}"] * (self._server.app is not None)
        environment = LEAN | heap_environment(os.environ, FRONTEND_HEAP)
        return Child(
            "frontends",
            "ringbatch.frontend",
            words,
            environment,
            pass_fds=(
                *fds,
                *_descriptors(self._sockets.http_unix),
                *_descriptors(self._payloads.writer),
            ),
            controlled=False,
            own_session=self._server.app is not None,
            launch=self._launch,
        )

    def _grpc_process(self, number: int) -> ManagedProcess:
        title = f"grpc frontend {number}"

        def start(_again: bool) -> Child:
            port, shared = self._sockets.grpc, self._sockets.grpc_unix
            words = self._words(address=None if port is None else address(port), number=number)
            words += _unix(shared)
            words += self._payloads.keeping_words
            words += [f"--connection-age-s={self._server.grpc_connection_age_s}"]
            words += [f"--leave-s={self._leave_s}"]
            words += [f"--processes={self._server.grpc_frontends}"]
            environment = LEAN | heap_environment(os.environ, FRONTEND_HEAP)
            module = "ringbatch.frontend.grpc.server"
            fds = (*_descriptors(shared), *_descriptors(self._payloads.writer))
            return Child(
                title, module, words, environment, fds, own_session=False, launch=self._launch
            )

        return ManagedProcess(title, start, role=Role.GRPC_FRONTEND)

    def _start_control(self, _again: bool) -> Child:
        listeners = {"listen-fd": self._sockets.control, "agent-fd": self._sockets.agent}
        fds = {key: bound.fileno() for key, bound in listeners.items() if bound is not None}
        words = [
            f"--segment={self.segment_name}",
            *(f"--{key}={fd}" for key, fd in fds.items()),
            f"--log-level={self._server.log_level}",
            f"--parent-pid={os.getpid()}",
            f"--public-url={self.url}",
        ]
        words += _files(self._control_credentials)
        endpoint = self._server.trace_endpoint
        words += [] if endpoint is None else [f"--trace-endpoint={endpoint}"]
        words += self._payloads.delivery_words
        module = "ringbatch.frontend.metrics.control_server"
        given = (*fds.values(), *_descriptors(self._payloads.reader))
        return Child("control", module, words, LEAN, given, own_session=False, launch=self._launch)

    def _words(self, **more: object) -> list[str]:
        server = self._server
        arguments = more | {
            "segment": self.segment_name,
            "max-request-bytes": request_limit_bytes(server),
            "max-connections": server.max_connections,
            "idle-timeout-s": server.idle_timeout_s,
            "drain-s": server.drain_s,
            "log-level": server.log_level,
            "parent-pid": os.getpid(),
            "access-log": server.access_log,
            "access-log-sample": server.access_log_sample,
            "access-log-slower-than-ms": server.access_log_slower_than_ms,
            "trace-sample": server.trace_sample,
        }
        words = [f"--{key}={value}" for key, value in arguments.items() if value is not None]
        words += ["--server-timing"] * server.server_timing
        words += ["--load-report"] * server.load_report
        words += _files(self._credentials)
        words += [f"--trusted-proxy={proxy}" for proxy in server.trusted_proxies]
        words.append(f"--highest-class={server.highest_class}")
        return words + [f"--shared-memory-prefix={p}" for p in server.shared_memory_prefixes]


def _files(credentials: Credentials) -> list[str]:
    return [f"--{name.replace('_', '-')}={path}" for name, path in credentials.files().items()]


def _descriptors(bound: socket.socket | None) -> tuple[int, ...]:
    return () if bound is None else (bound.fileno(),)


def _unix(bound: socket.socket | None) -> list[str]:
    return [f"--unix-fd={fd}" for fd in _descriptors(bound)]
