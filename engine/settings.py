"""Everything that can be set, each with its default, its legal values and what it bounds.

A field's annotation is its whole definition: the type, the `Kind` that says which values are
legal, and a sentence with the unit. `ringbatch.engine.config` checks documents by them, and the
command line makes its flags and their help from them.
"""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_type_hints

from ringbatch.engine.addresses import origin
from ringbatch.engine.kinds import (
    ADDRESS,
    CPU_SETS,
    CPUS,
    DEVICE,
    DEVICES,
    FILE,
    HEADER_NAMES,
    MODEL,
    NAME,
    OBJECT_PREFIXES,
    PADDINGS,
    SERVER_ADDRESS,
    SWITCH,
    TENSORS,
    TYPE_NAMES,
    VERSION,
    Kind,
    ascending,
    choice,
    number,
    power_of_two,
    whole,
)
from ringbatch.shm.layout import MAX_SLOTS, MAX_WORKERS, PAGE, TASK_WORDS, aligned
from ringbatch.shm.manifest import FIRST_VERSION

MIB: Final = 1 << 20
DAY_S: Final = 24 * 60 * 60
HTTP_GRACE_S: Final = 5.0
"""What a worker gets beyond the time that it gives a model server."""
LARGEST_BATCH: Final = TASK_WORDS // 4
"""Two batches of single instances fit into a task ring, with room to spare."""
RUNTIMES: Final = {
    "python": (".py",),
    "onnx": (".onnx",),
    "sklearn": (".skops", ".pkl", ".joblib"),
    "torch": (".pt2", ".pt", ".pth", ".ts"),
    "http": (),
}
"""The endings by which each runtime knows its files; the last knows addresses instead."""


def runtime_of(path: Path | str) -> str | None:
    """The runtime that knows a file by its ending, or an address."""
    if isinstance(path, str):
        return "http"
    return next((name for name, endings in RUNTIMES.items() if path.suffix in endings), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """The section ``[server]``: the frontends and the memory they share with the engine."""

    host: Annotated[
        str,
        ADDRESS,
        "address on which the frontends listen",
    ] = "127.0.0.1"
    port: Annotated[
        int,
        whole(0, 65535),
        "TCP port on which the frontends listen; 0 takes any free one",
    ] = 8080
    frontends: Annotated[
        int,
        whole(1, 256),
        "number of Gunicorn workers, each with a lane of its own",
    ] = 2
    grpc_port: Annotated[
        int | None,
        whole(0, 65535),
        "TCP port on which gRPC is served, 0 takes any free one; by default there is no gRPC",
    ] = None
    grpc_frontends: Annotated[
        int,
        whole(1, 256),
        "number of processes that serve gRPC, each with a lane of its own",
    ] = 1
    client_lanes: Annotated[
        int,
        whole(0, 64),
        "lanes for programs on this host that use ringbatch.frontend.Client, one for each",
    ] = 2
    max_request_bytes: Annotated[
        int,
        whole(1, 1024 * MIB),
        "bytes of the largest request body; a larger one is refused with 413",
    ] = 16 * MIB
    max_connections: Annotated[
        int,
        whole(1, 1_000_000),
        "connections that one frontend for HTTP serves at once; more are refused with 503",
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
        "requests that one frontend may have in the engine at once; more are refused with 503",
    ] = 1024
    lane_bytes: Annotated[
        int | None,
        whole(1, 65536 * MIB),
        "payload memory of one lane in bytes, at least twice max_request_bytes; "
        "by default that, and no less than 4 MiB",
    ] = None
    shared_memory_prefixes: Annotated[
        tuple[str, ...],
        OBJECT_PREFIXES,
        "how names in /dev/shm may begin that clients register as shared memory; "
        "by default none, and shared memory is off",
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
        "address on which metrics are served, apart from clients",
    ] = "127.0.0.1"
    control_port: Annotated[
        int | None,
        whole(0, 65535),
        "TCP port on which metrics are served, 0 takes any free one; by default none are",
    ] = None
    sidecar: Annotated[
        bool,
        SWITCH,
        "take the predictions of whatever model for the one of the runtime http, and pass on "
        "everything else to its server, as KServe's agent does",
    ] = False
    pass_through: Annotated[
        str | None,
        SERVER_ADDRESS,
        "server to which requests are passed on that are for nothing here; by default that of the "
        "runtime http, where all models are on one",
    ] = None
    placement: Annotated[
        Literal["shared", "auto"],
        choice("shared", "auto"),
        "where processes run: shared, on all CPUs; auto, workers and frontends on CPUs of their "
        "own, where the host has enough",
    ] = "shared"
    frontend_cpus: Annotated[
        str | None,
        CPUS,
        "CPUs of the frontends and the collector; by default those of placement",
    ] = None
    spare_workers: Annotated[
        int | None,
        whole(0, MAX_WORKERS),
        "places for more workers than are configured, for models that are loaded while others "
        "serve; by default as many again, and no fewer than 2",
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
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        choice("debug", "info", "warning", "error"),
        "the least severe messages that are logged",
    ] = "info"

    def worker_places(self, workers: int) -> int:
        """Places for workers, those for that many configured ones included."""
        spare = max(workers, 2) if self.spare_workers is None else self.spare_workers
        return min(workers + spare, MAX_WORKERS)

    @property
    def lane_payload_bytes(self) -> int:
        """`lane_bytes` or what it is by default, in whole pages."""
        if self.lane_bytes is not None:
            return aligned(self.lane_bytes, PAGE)
        return aligned(max(4 * MIB, 2 * self.max_request_bytes), PAGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """One version of a model: a section ``[models.NAME]``, or ``[models.NAME.versions.VERSION]``
    laid over it; `path` is absolute where the configuration was concluded."""

    name: str
    version: str = FIRST_VERSION
    default_version: Annotated[
        str | None,
        VERSION,
        "which of several versions serves requests that name none; by default the highest",
    ] = None
    runtime: Annotated[
        Literal["python", "onnx", "sklearn", "torch", "http"] | None,
        choice(*RUNTIMES),
        "what runs the model file; by default its ending decides: python for .py, onnx for .onnx, "
        "sklearn for .skops, .pkl and .joblib, torch for .pt2, .pt, .pth and .ts; "
        "http for an address",
    ] = None
    path: Annotated[
        Path | str,
        MODEL,
        "the model file; a relative path starts beside the configuration file; or the address of a "
        "model server that is asked with whole batches, http://HOST:PORT, with the path of its "
        "predictions where that is not the usual one",
    ]
    max_batch_size: Annotated[
        int,
        whole(0, LARGEST_BATCH),
        "instances in the largest batch; "
        "0 for a model without a batch dimension, which runs each instance alone",
    ] = 32
    allowed_batch_sizes: Annotated[
        tuple[int, ...],
        ascending(1, LARGEST_BATCH, "[1, 4, 16]"),
        "numbers of instances that batches are padded to, the last being max_batch_size; "
        "by default every number is right",
    ] = ()
    max_batch_elements: Annotated[
        int,
        whole(0, 1 << 40),
        "elements of the largest input in one batch, padding included; 0 for no bound",
    ] = 0
    pad_variable_length: Annotated[
        bool,
        SWITCH,
        "pad dimensions of any size (-1), so that requests of unequal length share batches",
    ] = False
    length_buckets: Annotated[
        tuple[int, ...],
        ascending(1, 1 << 30, "[32, 64, 128]"),
        "sizes that such dimensions are padded to; requests share batches with those of their "
        "bucket; by default the longest of the batch",
    ] = ()
    padding_values: Annotated[
        tuple[str, ...],
        PADDINGS,
        "numbers that inputs are padded with; 0 for every other input",
    ] = ()
    lengths_input: Annotated[
        str | None,
        NAME,
        "input of the model, INT32 or INT64 [], that is fed with the true length of each instance; "
        "clients do not send it",
    ] = None
    warm_up: Annotated[
        bool,
        SWITCH,
        "run every batch size before the first request",
    ] = True
    warm_up_s: Annotated[
        float,
        number(DAY_S, zero=True),
        "seconds that warm-up may take; what would take longer is left out",
    ] = 30.0
    warm_up_length: Annotated[
        int,
        whole(1, 1 << 30),
        "size in warm-up of dimensions of any size, where length_buckets does not say it",
    ] = 16
    warm_up_file: Annotated[
        Path | None,
        FILE,
        "instances to warm up with, JSON as a V1 request; by default they are made up from the "
        "model's inputs",
    ] = None
    max_latency_ms: Annotated[
        float,
        number(1000 * DAY_S, zero=True),
        "milliseconds that the oldest request of a batch waits for company at most",
    ] = 500.0
    timeout_s: Annotated[
        float,
        number(DAY_S, zero=False),
        "seconds from a request's acceptance to its deadline",
    ] = 60.0
    batch_timeout_s: Annotated[
        float | None,
        number(DAY_S, zero=False),
        "seconds that one run of a batch may take before its worker is taken for hung and "
        "replaced; by default a quarter of timeout_s, and no less than 1",
    ] = None
    policy: Annotated[
        Literal["eager", "fixed"],
        choice("eager", "fixed"),
        "when a batch closes: eager, as soon as a worker is idle; "
        "fixed, once it is full or max_latency_ms has passed",
    ] = "eager"
    workers: Annotated[
        int,
        whole(1, 64),
        "number of processes that each hold a copy of the model; by default 4 for the runtime "
        "http, each of which has one batch under way",
    ] = 1
    threads: Annotated[
        int | None,
        whole(1, 1024),
        "BLAS and OpenMP threads of one worker; by default the CPUs divided by the workers",
    ] = None
    device: Annotated[
        str,
        DEVICE,
        "where the runtimes onnx and torch run the model: "
        "cpu, or cuda:0 with the number of a device",
    ] = "cpu"
    inputs: Annotated[
        tuple[str, ...],
        TENSORS,
        "what a TorchScript file takes, which it does not say itself",
    ] = ()
    outputs: Annotated[
        tuple[str, ...],
        TENSORS,
        "what a TorchScript file returns, in its order",
    ] = ()
    autocast: Annotated[
        Literal["off", "BF16", "FP16"],
        choice("off", "BF16", "FP16"),
        "the datatype in which the runtime torch calculates what is about as exact in it",
    ] = "off"
    channels_last: Annotated[
        bool,
        SWITCH,
        "lay out images and weights for the runtime torch with their channels last",
    ] = False
    devices: Annotated[
        tuple[str, ...],
        DEVICES,
        "the same for each worker in turn, so that several may share a device; by default device",
    ] = ()
    cpus: Annotated[
        tuple[str, ...],
        CPU_SETS,
        "CPUs of each worker in turn; by default those of placement",
    ] = ()
    trusted_types: Annotated[
        tuple[str, ...],
        TYPE_NAMES,
        "types that a .skops file may hold beyond those known to be safe",
    ] = ()
    trust_pickle: Annotated[
        bool,
        SWITCH,
        "read a pickle or joblib file, or the pickled parts of a .pt2 file, "
        "which runs the code in it",
    ] = False
    protocol: Annotated[
        Literal["v1", "v2", "v2-json"],
        choice("v1", "v2", "v2-json"),
        "what the runtime http asks the model server in: KServe's V1, V2 with binary tensors, or "
        "V2 in JSON alone",
    ] = "v1"
    forward_headers: Annotated[
        tuple[str, ...],
        HEADER_NAMES,
        "headers that the runtime http passes on over V1; requests that differ in them share no "
        "batch",
    ] = ("authorization",)
    isolate_errors: Annotated[
        bool,
        SWITCH,
        "where the model server answers a batch with 500, ask again for its halves, as is always "
        "done after 400, 413 and 422",
    ] = False
    worker_memory_bytes: Annotated[
        int | None,
        whole(64 * MIB, 1 << 44),
        "bytes of memory that one worker may have for itself, beyond which the model gets "
        "MemoryError; by default there is no limit",
    ] = None
    nan_answers: Annotated[
        Literal["serve", "refuse"],
        choice("serve", "refuse"),
        "what becomes of a request whose answer holds NaN or infinity: serve, it is answered where "
        "the encoding has them; refuse, it fails, alone",
    ] = "serve"
    kserve_errors: Annotated[
        bool,
        SWITCH,
        "answer failures as KServe's batcher does: status 200, a message and null predictions",
    ] = False

    @property
    def default(self) -> bool:
        """Whether it is chosen for requests that name no version."""
        return self.version == self.default_version

    @property
    def platform(self) -> str:
        """`runtime` or what it is by default."""
        runtime = self.runtime or runtime_of(self.path)
        assert runtime is not None, (
            "a configuration is concluded only where something runs the file"
        )
        return runtime

    @property
    def batch_limit_s(self) -> float:
        """`batch_timeout_s` or what it is by default."""
        if self.batch_timeout_s is not None:
            return self.batch_timeout_s
        # A slow model server is not a worker that hangs.
        return self.timeout_s if self.platform == "http" else max(self.timeout_s / 4, 1.0)

    @property
    def hung_after_s(self) -> float:
        """When a worker is replaced: one that waits for a model server gives up first."""
        return self.batch_limit_s + (HTTP_GRACE_S if self.platform == "http" else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All that one engine is told; the models stand in the order of the document."""

    server: ServerConfig = field(default_factory=ServerConfig)
    models: tuple[ModelConfig, ...]

    @property
    def passes_to(self) -> str | None:
        """`pass_through` or what it is by default."""
        if self.server.pass_through is not None:
            return self.server.pass_through
        servers = {origin(m.path) if isinstance(m.path, str) else None for m in self.models}
        return servers.pop() if len(servers) == 1 else None


@dataclass(frozen=True, slots=True)
class Setting:
    """One key of a section; `default` is `dataclasses.MISSING` where a value is needed."""

    key: str
    kind: Kind
    sentence: str
    default: Any


def settings(section: type[ServerConfig] | type[ModelConfig]) -> dict[str, Setting]:
    """The keys of a section in their order; a model's name and version are the section's own."""
    hints = get_type_hints(section, include_extras=True)
    known = {}
    for f in fields(section):
        if f.name not in ("name", "version"):
            kind, sentence = hints[f.name].__metadata__
            known[f.name] = Setting(f.name, kind, sentence, f.default)
    return known
