"""Everything that can be set, each with its default, its legal values and what it bounds.

A field's annotation is its whole definition: the type, the `Kind` that says which values are legal,
and a sentence with the unit. `ringbatch.engine.config.document` checks documents by them, and the
command line makes its flags and their help from them.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal

from ringbatch.engine.config.addresses import origin
from ringbatch.engine.config.kinds import (
    CPU_SETS,
    DEVICE,
    DEVICES,
    FILE,
    HEADER_NAMES,
    MODEL,
    NAME,
    PADDINGS,
    RUNTIMES,
    SWITCH,
    TENSORS,
    TRACE_ADDRESS,
    TYPE_NAMES,
    VERSION,
    ascending,
    choice,
    number,
    runtime_of,
    whole,
)
from ringbatch.engine.config.serving import DAY_S, MIB, ServingConfig
from ringbatch.shm.descriptors import TASK_WORDS
from ringbatch.shm.model_spec import FIRST_VERSION

HTTP_GRACE_S: Final = 5.0
"""What a worker gets beyond the time that it gives a model server."""
LARGEST_BATCH: Final = TASK_WORDS // 4
"""Two batches of single instances fit into a task ring, with room to spare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig(ServingConfig):
    """The section ``[server]``: with that, what is logged, told and traced."""

    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        choice("debug", "info", "warning", "error"),
        "the least severe messages that are logged",
    ] = "info"
    log_format: Annotated[
        Literal["text", "json"],
        choice("text", "json"),
        "the form of the log's lines, whatever process they are of: text, or a JSON object each",
    ] = "text"
    access_log: Annotated[
        Literal["off", "failures", "all"],
        choice("off", "failures", "all"),
        "which requests are logged: off, none; failures, those that get a status from 400 on, up "
        "to 10 a second for each frontend; all, these and access_log_sample of the others",
    ] = "failures"
    access_log_sample: Annotated[
        float,
        number(1, zero=True),
        'share of the requests that access_log = "all" logs, from 0 to 1',
    ] = 1.0
    access_log_slower_than_ms: Annotated[
        float,
        number(1000 * DAY_S, zero=True),
        "milliseconds; a request that took longer is logged too, as failures are; 0 for none",
    ] = 0.0
    server_timing: Annotated[
        bool,
        SWITCH,
        "tell with every answer where its time went, in the header Server-Timing; by default only "
        "whoever asks with X-Server-Timing: 1 is told",
    ] = False
    trace_endpoint: Annotated[
        str | None,
        TRACE_ADDRESS,
        "OpenTelemetry collector to which spans of requests and batches are sent, by OTLP over "
        "HTTP, from the process at control_port; by default nothing is traced",
    ] = None
    trace_sample: Annotated[
        float,
        number(1, zero=True),
        "share of the requests without a traceparent that are traced, from 0 to 1; with one, its "
        "flag decides",
    ] = 0.01


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
        "numbers of instances that batches are padded to, the last being max_batch_size; by "
        "default batches are not padded",
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
        "sizes that dimensions of any size are padded to; requests share batches with those of "
        "their bucket; by default each batch is padded to its longest instance",
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
    load_timeout_s: Annotated[
        float,
        number(DAY_S, zero=False),
        "seconds that a worker may take to open its model file, again to load the model, and for "
        "warm-up beyond warm_up_s, before it is taken for hung and ended",
    ] = 600.0
    warm_up: Annotated[
        Literal["required", "try", "off"],
        choice("required", "try", "off"),
        "run every batch size before the first request: required, a model that fails at one is not "
        "served; try, it is served all the same, with a warning; off, nothing is run",
    ] = "required"
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
        "milliseconds that the oldest request of a batch waits at most for others to join it while "
        "a worker is idle, under policy fixed; has no effect under eager",
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
        "fixed, once one is and the batch is full or its oldest request has waited max_latency_ms",
    ] = "eager"
    workers: Annotated[
        int,
        whole(1, 64),
        "number of processes that each hold a copy of the model; by default 4 for the runtime "
        "http, each of which has one batch under way",
    ] = 1
    spares: Annotated[
        int,
        whole(0, 64),
        "further processes that hold a copy and wait, one of which goes on at once where a worker "
        "dies; the next one to be started then waits in its place",
    ] = 0
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
        "inputs of a TorchScript model, which its file does not declare",
    ] = ()
    outputs: Annotated[
        tuple[str, ...],
        TENSORS,
        "outputs of a TorchScript model, in the order in which it returns them",
    ] = ()
    autocast: Annotated[
        Literal["off", "BF16", "FP16"],
        choice("off", "BF16", "FP16"),
        "the datatype that the runtime torch uses for operations that lose little precision in it",
    ] = "off"
    channels_last: Annotated[
        bool,
        SWITCH,
        "lay out images and weights for the runtime torch with their channels last",
    ] = False
    devices: Annotated[
        tuple[str, ...],
        DEVICES,
        "the device of each worker, in order; several may share one; by default that of device",
    ] = ()
    cpus: Annotated[
        tuple[str, ...],
        CPU_SETS,
        "CPUs of each worker, in order; by default those of placement",
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
    def processes(self) -> int:
        """Worker processes that hold it, spares among them."""
        return self.workers + self.spares

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
    """All that one engine is told; the models stand in the order of the document. Each of the
    `notices` is a line on a setting that is legal and has no effect."""

    server: ServerConfig = field(default_factory=ServerConfig)
    models: tuple[ModelConfig, ...]
    notices: tuple[str, ...] = field(default=(), compare=False)

    @property
    def passes_to(self) -> str | None:
        """`pass_through` or what it is by default."""
        if self.server.pass_through is not None:
            return self.server.pass_through
        servers = {origin(m.path) if isinstance(m.path, str) else None for m in self.models}
        return servers.pop() if len(servers) == 1 else None
