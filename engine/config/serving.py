"""What can be set of the frontends and of the memory; see `ringbatch.engine.config.settings`."""

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
    SERVER_ADDRESS,
    SOCKET_MODE,
    SOCKET_PATH,
    SWITCH,
    choice,
    number,
    power_of_two,
    whole,
)
from ringbatch.shm.engine_name import UNNAMED
from ringbatch.shm.layout import MAX_SLOTS, MAX_WORKERS

MIB: Final = 1 << 20
DAY_S: Final = 24 * 60 * 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingConfig:
    """Of the section ``[server]``: the frontends, and the memory they share with the engine."""

    name: Annotated[
        str,
        ENGINE_NAME,
        "the engine's name, for commands and clients; by default its file's stem; no two engines "
        "of a user run with one name, other than ringbatch; its flag is "
        "--engine-name, as --name is the model's",
    ] = UNNAMED
    host: Annotated[
        str,
        LISTENING_ADDRESS,
        'address on which the frontends listen; "unix:/PATH" is a Unix socket instead of TCP, and '
        "port has no meaning then",
    ] = "127.0.0.1"
    port: Annotated[
        int,
        whole(0, 65535),
        "TCP port on which the frontends listen; 0 takes any free one",
    ] = 8080
    unix_socket: Annotated[
        str | None,
        SOCKET_PATH,
        "Unix socket on which the frontends listen beside host and port; by default none",
    ] = None
    unix_socket_mode: Annotated[
        str,
        SOCKET_MODE,
        "permissions of the Unix sockets; whoever may write to one may connect",
    ] = "0660"
    unix_socket_group: Annotated[
        str | None,
        NAME,
        "group of the Unix sockets, such as that of nginx; by default the engine's own",
    ] = None
    share_port: Annotated[
        bool,
        SWITCH,
        "take port and grpc_port beside other engines of this user that do so too; the kernel "
        "gives each a part of the connections, once its models are ready; for an engine on each "
        "NUMA node",
    ] = False
    frontends: Annotated[int, whole(1, 256), "number of Gunicorn workers, which serve HTTP"] = 2
    http2: Annotated[
        bool,
        SWITCH,
        "speak HTTP/2 on port too: with clients that begin with it, that ask for it (Upgrade: "
        "h2c), or, over TLS, that choose it (ALPN)",
    ] = False
    grpc_port: Annotated[
        int | None,
        whole(0, 65535),
        "TCP port on which gRPC is served, 0 takes any free one; by default none",
    ] = None
    grpc_unix_socket: Annotated[
        str | None,
        SOCKET_PATH,
        "Unix socket on which gRPC is served, beside grpc_port or without it; by default none",
    ] = None
    grpc_frontends: Annotated[int, whole(1, 256), "number of processes that serve gRPC"] = 1
    grpc_connection_age_s: Annotated[
        float,
        number(DAY_S, zero=False),
        "seconds after which a client over gRPC is told to connect anew, which costs none of its "
        "calls; a handover takes that long",
    ] = 300.0
    client_lanes: Annotated[
        int,
        whole(0, 64),
        "lanes for programs on this host that use ringbatch.frontend.Client, one for each",
    ] = 2
    max_request_bytes: Annotated[
        int | None,
        whole(1, 1024 * MIB),
        "bytes of the largest request body; a larger one is refused with 413; by default 16 MiB, "
        "and less where /dev/shm is small",
    ] = None
    max_connections: Annotated[
        int,
        whole(1, 1_000_000),
        "connections that one frontend serves at once; more are refused, over HTTP with 503",
    ] = 16384
    idle_timeout_s: Annotated[
        float,
        number(DAY_S, zero=False),
        "seconds that a connection without a request is kept; longer than a load balancer keeps "
        "one, so that it is never the server that closes it just as a request comes",
    ] = 75.0
    max_in_flight: Annotated[
        int,
        power_of_two(MAX_SLOTS),
        "requests that one frontend may have in the engine at once; more are refused with 503; "
        "with several models, half of these places and an eighth of lane_bytes are divided among "
        "them, so that no model takes all",
    ] = 1024
    lane_bytes: Annotated[
        int | None,
        whole(1, 65536 * MIB),
        "bytes of shared memory for the requests and answers of one frontend or client, at "
        "least twice max_request_bytes; by default that, and no less than 4 MiB where /dev/shm "
        "has room",
    ] = None
    shared_memory_prefixes: Annotated[
        tuple[str, ...],
        OBJECT_PREFIXES,
        "how names in /dev/shm may begin that clients register as shared memory; "
        "by default none, and shared memory is off",
    ] = ()
    cors_origins: Annotated[
        tuple[str, ...],
        CORS_ORIGINS,
        "origins whose pages may read answers at ringbatch's own paths (CORS), and, where they are "
        "named, load models; by default none",
    ] = ()
    compress_answers: Annotated[
        bool,
        SWITCH,
        "compress answers of 2 KiB and more for clients that accept gzip or deflate",
    ] = False
    tls_certificate: Annotated[
        Path | None,
        FILE,
        "certificate and those between it and its authority, PEM, with which HTTP and gRPC are "
        "served over TLS 1.2 and 1.3; by default connections are plain",
    ] = None
    tls_key: Annotated[
        Path | None,
        FILE,
        "private key of tls_certificate, PEM, without a password and not readable by everybody",
    ] = None
    tls_client_ca: Annotated[
        Path | None,
        FILE,
        "authorities, PEM, one of which must have signed the certificate that a client shows; by "
        "default clients need none",
    ] = None
    api_keys_file: Annotated[
        Path | None,
        FILE,
        "API keys of which clients must send one, a line each; by default everybody is served",
    ] = None
    control_host: Annotated[
        str,
        ADDRESS,
        "address on which metrics and the page are served, apart from clients",
    ] = "127.0.0.1"
    control_port: Annotated[
        int | None,
        whole(0, 65535),
        "TCP port on which metrics and the page are served, 0 takes any free one; by default "
        "they are not",
    ] = None
    control_tls_certificate: Annotated[
        Path | None,
        FILE,
        "certificate of the control address, as tls_certificate, which it has by default",
    ] = None
    control_tls_key: Annotated[
        Path | None,
        FILE,
        "private key of control_tls_certificate, as tls_key",
    ] = None
    agent_check_port: Annotated[
        int | None,
        whole(0, 65535),
        "TCP port, at the address of the frontends, on which HAProxy's agent-check is told what "
        "share of the requests is right for this engine, 0 takes any free one; by default it is "
        "not",
    ] = None
    sidecar: Annotated[
        bool,
        SWITCH,
        "answer predictions for any model name with the model of the runtime http, and pass "
        "everything else on to its server, as KServe's agent does",
    ] = False
    pass_through: Annotated[
        str | None,
        SERVER_ADDRESS,
        "server to which requests for other paths than those served here are passed on; by default "
        "that of the runtime http, where all models are on one",
    ] = None
    app: Annotated[
        str | None,
        APPLICATION,
        "an ASGI application, such as FastAPI's, that the frontends serve at all paths that do not "
        "begin with /v1/models or /v2 and are not those of texts: the name of a module, which is "
        "looked for beside this file first, and of the application in it; see Routes of your own",
    ] = None
    own_paths: Annotated[
        Literal["keys", "app", "off"],
        choice("keys", "app", "off"),
        "where there is an app, who decides about ringbatch's own paths over HTTP: keys, the API "
        "keys, and without api_keys_file everybody is served; app, the application, which mounts "
        "ringbatch.frontend.endpoints; off, nobody is served; health is open to everybody, and for "
        "gRPC API keys decide alone",
    ] = "keys"
    placement: Annotated[
        Literal["shared", "auto"],
        choice("shared", "auto"),
        "where processes run: shared, on all CPUs; auto, workers and frontends on CPUs of their "
        "own, where the host has enough",
    ] = "shared"
    frontend_cpus: Annotated[
        str | None,
        CPUS,
        'CPUs that the frontends and the collector may use, such as "0-3,8" or "numa:0"; by '
        "default placement decides",
    ] = None
    spare_workers: Annotated[
        int | None,
        whole(0, MAX_WORKERS),
        "room for so many workers beyond those that are configured, for models that are loaded "
        "while others serve; by default as many as are configured, and at least 2",
    ] = None
    model_control: Annotated[
        bool,
        SWITCH,
        "let clients load and unload models over HTTP and gRPC",
    ] = False
    drain_s: Annotated[
        float,
        number(DAY_S, zero=True),
        "seconds that a stop waits for the requests already accepted",
    ] = 30.0
    stop_delay_s: Annotated[
        float,
        number(DAY_S, zero=True),
        "seconds that a stop goes on serving first, while readiness fails and each answer ends its "
        "connection, so that load balancers turn away before any connection is closed",
    ] = 0.0
    hang_timeout_s: Annotated[
        int,
        whole(1, 3600),
        "seconds within which a collector, a gRPC frontend or the metrics server that hangs is "
        "replaced; for workers see batch_timeout_s",
    ] = 2

    def worker_places(self, workers: int) -> int:
        """Places for workers, those for that many configured ones included."""
        spare = max(workers, 2) if self.spare_workers is None else self.spare_workers
        return min(workers + spare, MAX_WORKERS)
