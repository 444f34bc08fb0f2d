"""Settings of the frontends and of the memory; see `ringbatch.engine.config.settings`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from ringbatch.engine.config.kinds import (
    ADDRESS,
    APPLICATION,
    CORS_ORIGINS,
    CPUS,
    ENGINE_NAME,
    FILE,
    LISTENING_ADDRESS,
    NAME,
    OBJECT_PREFIXES,
    PROXIES,
    SERVER_ADDRESS,
    SOCKET_MODE,
    SOCKET_PATH,
    SWITCH,
    choice,
    number,
    power_of_two,
    whole,
)
from ringbatch.shm.account_limits import MAX_MODEL_S_PER_S, MAX_REQUESTS_PER_S, AccountLimits
from ringbatch.shm.engine_name import UNNAMED
from ringbatch.shm.layout import MAX_SLOTS, MAX_WORKERS

MIB: Final = 1 << 20
DAY_S: Final = 24 * 60 * 60


# The subclass makes the methods, for these fields too: to make them takes milliseconds.
@dataclass(frozen=True, slots=True, kw_only=True, init=False, repr=False, eq=False)
class ServingConfig:
    """Settings of the section ``[server]`` for frontends and for their shared memory."""

    name: Annotated[
        str,
        ENGINE_NAME,
        "the engine's name, for commands and clients. By default it is the stem of the "
        "configuration file. Two engines of a user need different names, unless both are called "
        "ringbatch. The flag is --engine-name, because --name names the model",
    ] = UNNAMED
    host: Annotated[
        str,
        LISTENING_ADDRESS,
        'address on which the frontends listen. "unix:/PATH" is a Unix socket instead of TCP, and '
        "port then has no meaning",
    ] = "127.0.0.1"
    port: Annotated[
        int,
        whole(0, 65535),
        "TCP port of the frontends. 0 takes any free port",
    ] = 8080
    unix_socket: Annotated[
        str | None,
        SOCKET_PATH,
        "Unix socket on which the frontends listen beside host and port. By default there is none",
    ] = None
    unix_socket_mode: Annotated[
        str,
        SOCKET_MODE,
        "permissions of the Unix sockets, in octal. Clients need write permission to connect",
    ] = "0660"
    unix_socket_group: Annotated[
        str | None,
        NAME,
        "group of the Unix sockets, such as that of nginx. By default the engine's own group",
    ] = None
    share_port: Annotated[
        bool,
        SWITCH,
        "share port and grpc_port with other engines of this user that set this too. The kernel "
        "divides the connections among the engines whose models are ready. Meant for one engine "
        "on each NUMA node",
    ] = False
    frontends: Annotated[
        int, whole(1, 256), "number of processes (Gunicorn workers) that serve HTTP"
    ] = 2
    http2: Annotated[
        bool,
        SWITCH,
        "serve HTTP/2 on port too: by prior knowledge, and over TLS by ALPN",
    ] = False
    grpc_port: Annotated[
        int | None,
        whole(0, 65535),
        "TCP port of gRPC. 0 takes any free port. By default there is none",
    ] = None
    grpc_unix_socket: Annotated[
        str | None,
        SOCKET_PATH,
        "Unix socket on which gRPC is served, beside grpc_port or without it. By default there is "
        "none",
    ] = None
    grpc_frontends: Annotated[int, whole(1, 256), "number of processes that serve gRPC"] = 1
    grpc_connection_age_s: Annotated[
        float,
        number(DAY_S, zero=False),
        "seconds after which the server asks a gRPC client to connect anew, at the cost of no "
        "call. A handover takes that long",
    ] = 300.0
    client_lanes: Annotated[
        int,
        whole(0, 64),
        "number of programs on this host that can use ringbatch.Client at the same time. Each "
        "takes one lane of shared memory",
    ] = 2
    max_request_bytes: Annotated[
        int | None,
        whole(1, 1024 * MIB),
        "bytes of the largest request body. A larger body gets 413. By default 16 MiB, and less "
        "if /dev/shm is small",
    ] = None
    max_connections: Annotated[
        int,
        whole(1, 1_000_000),
        "connections that one frontend serves at the same time. Further ones are refused, over "
        "HTTP with 503",
    ] = 16384
    idle_timeout_s: Annotated[
        float,
        number(DAY_S, zero=False),
        "seconds that an idle connection is kept open. Set more than the limit of the load "
        "balancer, so that never the server closes a connection just as a request comes",
    ] = 75.0
    max_in_flight: Annotated[
        int,
        power_of_two(MAX_SLOTS),
        "requests that one frontend may have in the engine at the same time. Further requests get "
        "503. With several models, half of these places and an eighth of lane_bytes are divided "
        "among them, so that no model takes all",
    ] = 1024
    lane_bytes: Annotated[
        int | None,
        whole(1, 65536 * MIB),
        "bytes of shared memory for the requests and answers of one frontend or client, at least "
        "twice max_request_bytes. By default twice that, and at least 4 MiB if /dev/shm has room",
    ] = None
    shared_memory_prefixes: Annotated[
        tuple[str, ...],
        OBJECT_PREFIXES,
        "prefixes of the names in /dev/shm that clients may register as shared memory. By default "
        "there is none, and shared memory is off",
    ] = ()
    cors_origins: Annotated[
        tuple[str, ...],
        CORS_ORIGINS,
        "origins whose pages may read answers at ringbatch's own paths (CORS). Origins listed by "
        "name may also load models. By default there is none",
    ] = ()
    fair_shares: Annotated[
        bool,
        SWITCH,
        "share each model fairly among clients while requests wait. A client is an API key, or "
        "without keys an address. If false, requests go in the order in which they came",
    ] = True
    trusted_proxies: Annotated[
        tuple[str, ...],
        PROXIES,
        "proxies whose header X-Forwarded-For names the client, by address or network. "
        '"unix" stands for all that connect to a Unix socket. By default there is none, and a '
        "proxy counts as one client",
    ] = ()
    account_in_flight: Annotated[
        int | None,
        whole(1, MAX_SLOTS),
        "requests that one client may have in flight at the same time. Further requests get 429. "
        "By default there is no limit",
    ] = None
    account_requests_per_s: Annotated[
        float | None,
        number(MAX_REQUESTS_PER_S, zero=False),
        "requests a second from one client, on average; it may send those of one second at once. "
        "Further requests get 429. By default there is no limit",
    ] = None
    account_model_s_per_s: Annotated[
        float | None,
        number(MAX_MODEL_S_PER_S, zero=False),
        "seconds of models' run time a second for one client, on average. It pays for its share of "
        "each batch. Further requests get 429. By default there is no limit",
    ] = None
    highest_class: Annotated[
        str,
        choice("interactive", "normal", "bulk"),
        "highest class of requests without an API key. With normal, nobody without a key can call "
        "a request interactive. A request that asks for more is served at this class",
    ] = "interactive"
    compress_answers: Annotated[
        bool,
        SWITCH,
        "compress answers of 2 KiB and more for clients that accept gzip or deflate",
    ] = False
    tls_certificate: Annotated[
        Path | None,
        FILE,
        "certificate chain, PEM, for HTTP and gRPC over TLS 1.2 and 1.3. By default connections "
        "are not encrypted",
    ] = None
    tls_key: Annotated[
        Path | None,
        FILE,
        "private key of tls_certificate, PEM, without a password. The file must not be readable "
        "by every user",
    ] = None
    tls_client_ca: Annotated[
        Path | None,
        FILE,
        "certificate authorities, PEM, for client certificates. Each client must then show a "
        "certificate that one of them has signed. By default clients need none",
    ] = None
    api_keys_file: Annotated[
        Path | None,
        FILE,
        "file of API keys, a line each. Each client must then send one of the keys. Behind a key, "
        "weight=N gives it N times the share of one without, class= its requests' usual class and "
        "highest= their highest: interactive, normal or bulk. Limits of the key alone are "
        "in_flight=, requests_per_s= and model_s_per_s=. By default no key is needed",
    ] = None
    control_host: Annotated[
        str,
        ADDRESS,
        "address of the metrics and the page, apart from the address for clients",
    ] = "127.0.0.1"
    control_port: Annotated[
        int | None,
        whole(0, 65535),
        "TCP port of the metrics and the page. 0 takes any free port. By default they are not "
        "served",
    ] = None
    control_tls_certificate: Annotated[
        Path | None,
        FILE,
        "certificate chain, PEM, of the control address. By default that of tls_certificate",
    ] = None
    control_tls_key: Annotated[
        Path | None,
        FILE,
        "private key of control_tls_certificate, PEM. By default that of tls_key",
    ] = None
    agent_check_port: Annotated[
        int | None,
        whole(0, 65535),
        "TCP port, at the address of the frontends, that answers HAProxy's agent-check with the "
        "share of the requests that this engine should get. 0 takes any free port. By default "
        "there is none",
    ] = None
    sidecar: Annotated[
        bool,
        SWITCH,
        "answer predictions for any model name with the model of the runtime http, and pass all "
        "other requests on to its server, as KServe's agent does",
    ] = False
    pass_through: Annotated[
        str | None,
        SERVER_ADDRESS,
        "server that gets the requests for paths that ringbatch does not serve. By default the "
        "server of the runtime http, if all models are on one",
    ] = None
    app: Annotated[
        str | None,
        APPLICATION,
        "ASGI application, such as FastAPI's, that the frontends serve beside ringbatch's own "
        "paths. It is written MODULE:NAME, and the module is looked for beside the configuration "
        "file first",
    ] = None
    own_paths: Annotated[
        Literal["keys", "app", "off"],
        choice("keys", "app", "off"),
        "access to ringbatch's own HTTP paths beside an app. keys: the API keys decide, and "
        "without api_keys_file access is open. app: the application decides, and mounts "
        "ringbatch.frontend.endpoints. off: they are not served. Health is always open. For gRPC "
        "the API keys alone decide",
    ] = "keys"
    placement: Annotated[
        Literal["shared", "auto"],
        choice("shared", "auto"),
        "CPUs of the processes. shared: all processes run on all CPUs. auto: workers and "
        "frontends get CPUs of their own if the host has enough",
    ] = "shared"
    frontend_cpus: Annotated[
        str | None,
        CPUS,
        'CPUs that the frontends and the collector may use, such as "0-3,8" or "numa:0". By '
        "default placement decides",
    ] = None
    spare_workers: Annotated[
        int | None,
        whole(0, MAX_WORKERS),
        "room for workers beyond the configured ones, for models that are loaded while others "
        "serve. By default as many as are configured, and at least 2",
    ] = None
    model_control: Annotated[
        bool,
        SWITCH,
        "let clients load and unload models over HTTP and gRPC",
    ] = False
    drain_s: Annotated[
        float,
        number(DAY_S, zero=True),
        "seconds that a stop waits for the requests already accepted. Then it cuts off the others, "
        "and logs how many these are",
    ] = 30.0
    stop_delay_s: Annotated[
        float,
        number(DAY_S, zero=True),
        "seconds that an engine goes on serving after it is asked to stop. Readiness fails at "
        "once and each answer ends its connection, so that load balancers turn away before any "
        "connection is closed",
    ] = 0.0
    hang_timeout_s: Annotated[
        int,
        whole(1, 3600),
        "seconds after which a hung collector, gRPC frontend or metrics server is replaced. For "
        "workers see batch_timeout_s",
    ] = 2

    def worker_places(self, workers: int) -> int:
        """Return the number of places for workers, with those of that many configured workers."""
        spare = max(workers, 2) if self.spare_workers is None else self.spare_workers
        return min(workers + spare, MAX_WORKERS)

    @property
    def account_limits(self) -> AccountLimits:
        """The limits of every account."""
        return AccountLimits(
            self.account_in_flight, self.account_requests_per_s, self.account_model_s_per_s
        )
