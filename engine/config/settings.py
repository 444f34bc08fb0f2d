"""All settings, each with its default, its legal values and its bounds.

What is set of the frontends and of the memory is defined in `ringbatch.engine.config.serving`, of a
model's file and of its batches in `ringbatch.engine.config.batched`, and the rest here.

A field's annotation is its whole definition: the type, the `Kind` that says which values are legal,
and a sentence with the unit. `ringbatch.engine.config.document` checks documents by them, and the
command line makes its flags and their help from them.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal

from ringbatch.engine.config import worker_places
from ringbatch.engine.config.addresses import is_address, origin, unix_path
from ringbatch.engine.config.batched import BatchedConfig
from ringbatch.engine.config.chained import ChainConfig
from ringbatch.engine.config.kinds import (
    ANSWERS,
    CLASS_NAMES,
    CPU_SETS,
    DEVICE,
    DEVICES,
    FILE,
    HEADER_NAMES,
    NAME,
    RAY_ADDRESS,
    RAY_RESOURCES,
    SWITCH,
    TENSORS,
    TRACE_ADDRESS,
    TYPE_NAMES,
    choice,
    count_or_range,
    number,
    runtime_of,
    whole,
)
from ringbatch.engine.config.payload_logging import PayloadConfig
from ringbatch.engine.config.serving import DAY_S, MIB

WAITING_GRACE_S: Final = 5.0
"""Seconds for a worker beyond those that it gives a model server or an actor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig(PayloadConfig):
    """The section ``[server]``, with logs, response headers and traces."""

    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        choice("debug", "info", "warning", "error"),
        "least severe level of the messages that are logged. debug is for ringbatch alone, "
        "because libraries would log keys",
    ] = "info"
    log_format: Annotated[
        Literal["text", "json"],
        choice("text", "json"),
        "form of the log's lines, for all processes: text, or a JSON object each",
    ] = "text"
    access_log: Annotated[
        Literal["off", "failures", "all"],
        choice("off", "failures", "all"),
        "requests that are logged. off: none. failures: those with a status from 400 on, up to 10 "
        "a second for each frontend. all: these, and access_log_sample of the others",
    ] = "failures"
    access_log_sample: Annotated[
        float,
        number(1, zero=True),
        'share of the requests that access_log = "all" logs, from 0 to 1',
    ] = 1.0
    access_log_slower_than_ms: Annotated[
        float | None,
        number(1000 * DAY_S, zero=True),
        "milliseconds after which a request counts as slow, and is logged as failures are. 0 logs "
        "no slow requests. By default 1000, or ten times the median of the model's requests if "
        "that is more",
    ] = None
    server_timing: Annotated[
        bool,
        SWITCH,
        "send the header Server-Timing with every answer. By default only clients that send "
        "X-Server-Timing: 1 get it",
    ] = False
    load_report: Annotated[
        bool,
        SWITCH,
        "send a load report (ORCA, the header endpoint-load-metrics) with every answer. By "
        "default only clients that send endpoint-load-metrics-format get it",
    ] = False
    trace_endpoint: Annotated[
        str | None,
        TRACE_ADDRESS,
        "OpenTelemetry collector that gets the spans of requests and batches, by OTLP over HTTP. "
        "The process at control_port sends them. By default nothing is traced",
    ] = None
    trace_sample: Annotated[
        float,
        number(1, zero=True),
        "share of the requests without a traceparent that are traced, from 0 to 1. For a request "
        "with a traceparent its flag decides",
    ] = 0.01

    @property
    def has_control_process(self) -> bool:
        """True if there is a process for the control address and other work without clients."""
        wants = (self.control_port, self.agent_check_port, self.payload_log)
        return any(value is not None for value in wants)

    @property
    def tcp_host(self) -> str | None:
        """The host on which the frontends listen; None if a Unix socket stands in its place."""
        return self.host if unix_path(self.host) is None else None

    @property
    def http_socket(self) -> str | None:
        """The path of the Unix socket on which HTTP is served; None if there is none."""
        return unix_path(self.host) or self.unix_socket

    @property
    def serves_grpc(self) -> bool:
        """True if gRPC is served."""
        return self.grpc_port is not None or self.grpc_unix_socket is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig(BatchedConfig):
    """Version of a model: a section ``[models.NAME]``, or a version's section laid over it.

    That is ``[models.NAME.versions.VERSION]``. `path` is absolute once the configuration is
    concluded.
    """

    workers: Annotated[
        int | tuple[int, int],
        count_or_range(64),
        "number of processes that each hold a copy of the model. [1, 8] or [0, 8] gives the "
        "fewest and the most, and the load decides. By default the runtime http has 4 for each "
        "address in path, and at most 64. Each has one batch under way",
    ] = 1
    target_wait_ms: Annotated[
        float | None,
        number(1000 * DAY_S, zero=False),
        "predicted milliseconds to an answer above which workers are started, if workers is a "
        "range. By default the time of three recent batches, and at most a quarter of timeout_s",
    ] = None
    scale_up_after_s: Annotated[
        float,
        number(3600, zero=True),
        "seconds that the prediction must be above target_wait_ms before workers are started",
    ] = 2.0
    scale_down_after_s: Annotated[
        float,
        number(DAY_S, zero=False),
        "seconds that fewer workers must have sufficed before the others are stopped",
    ] = 60.0
    spares: Annotated[
        int,
        whole(0, 64),
        "further processes that hold a copy of the model and wait. One takes over at once if a "
        "worker dies, and the next process to start waits in its place",
    ] = 0
    threads: Annotated[
        int | None,
        whole(1, 1024),
        "BLAS and OpenMP threads of one worker. By default the CPUs divided by the workers",
    ] = None
    device: Annotated[
        str,
        DEVICE,
        "device on which the runtimes onnx, text and torch run the model, and the argument of "
        "load(device) in a Python model file. It is cpu, or cuda:0 with the number of a device",
    ] = "cpu"
    inputs: Annotated[
        tuple[str, ...],
        TENSORS,
        "inputs of a TorchScript model, because its file does not declare them",
    ] = ()
    outputs: Annotated[
        tuple[str, ...],
        TENSORS,
        "outputs of a TorchScript model, in the order in which it returns them",
    ] = ()
    autocast: Annotated[
        Literal["off", "BF16", "FP16"],
        choice("off", "BF16", "FP16"),
        "datatype, BF16 or FP16, that the runtime torch uses for operations that lose little "
        "precision by it, and in which the runtime openvino computes. off uses the model's own",
    ] = "off"
    channels_last: Annotated[
        bool,
        SWITCH,
        "lay out images and weights with their channels last, for the runtime torch",
    ] = False
    cuda_graphs: Annotated[
        Literal["auto", "off", "required"],
        choice("auto", "off", "required"),
        "capture runs of an exported program as CUDA graphs. auto: if that works and their answers "
        "equal those of runs without one. required: otherwise the model is not served. Graphs are "
        "for the sizes in allowed_batch_sizes, by default powers of two. Other batches are padded",
    ] = "auto"
    columns: Annotated[
        Literal["auto", "named", "matrix"],
        choice("auto", "named", "matrix"),
        "form in which a model takes the columns of its table. named: an input for each. matrix: "
        "all in x. auto: named if a column holds categories or texts, or if a scikit-learn model "
        "was fitted on a DataFrame",
    ] = "auto"
    answers: Annotated[
        tuple[str, ...],
        ANSWERS,
        "outputs of a model of the runtimes sklearn, xgboost, lightgbm and catboost. By default "
        "label and probabilities for a classifier, else y",
    ] = ()
    iterations: Annotated[
        int,
        whole(0, 1 << 20),
        "rounds of boosting that answers are made of. With 0 they are those up to the best "
        "iteration if the file knows it, else all",
    ] = 0
    class_names: Annotated[
        tuple[str, ...],
        CLASS_NAMES,
        "names of a classifier's labels, in the order of its classes. By default those in its "
        "file, else 0, 1 and so on",
    ] = ()
    truncate: Annotated[
        bool,
        SWITCH,
        "cut a text off after the tokens that the model takes. Otherwise such a text is refused",
    ] = True
    devices: Annotated[
        tuple[str, ...],
        DEVICES,
        'device of each worker, in order, such as ["cuda:0", "cuda:1"]. Several workers may share '
        "one. By default each has that of device",
    ] = ()
    cpus: Annotated[
        tuple[str, ...],
        CPU_SETS,
        'CPUs of each worker, in order, such as ["0-3", "numa:0"]. By default placement decides',
    ] = ()
    trusted_types: Annotated[
        tuple[str, ...],
        TYPE_NAMES,
        "types that a .skops file may hold beyond those known to be safe",
    ] = ()
    trust_pickle: Annotated[
        bool,
        SWITCH,
        "read a pickle or joblib file, or the pickled parts of a .pt2 file. Reading runs the code "
        "in it",
    ] = False
    protocol: Annotated[
        Literal["v1", "v2", "v2-json"],
        choice("v1", "v2", "v2-json"),
        "protocol that the runtime http speaks with the model server. v1: KServe's V1. v2: V2 "
        "with binary tensors. v2-json: V2 in JSON alone",
    ] = "v1"
    forward_headers: Annotated[
        tuple[str, ...],
        HEADER_NAMES,
        "headers of requests that the runtime http passes on over V1. Requests that differ in "
        "them share no batch",
    ] = ("authorization",)
    headers: Annotated[
        tuple[str, ...],
        HEADER_NAMES,
        "headers of requests, over gRPC metadata, that predict(x, request) of a model file can "
        "read",
    ] = ()
    isolate_errors: Annotated[
        bool,
        SWITCH,
        "if the model server answers a batch with 500, ask again for its halves; it is always "
        "done after 400, 413 and 422",
    ] = False
    ray_workers: Annotated[
        int | tuple[int, int] | None,
        count_or_range(64),
        "number of further workers whose model runs in an actor of a Ray cluster, or the fewest "
        "and the most, [0, 8]. They take the batches that the workers here cannot. By default "
        "there are none",
    ] = None
    ray_address: Annotated[
        str,
        RAY_ADDRESS,
        "address of the Ray cluster, HOST:PORT. auto is the cluster that this host belongs to",
    ] = "auto"
    ray_namespace: Annotated[str, NAME, "namespace of the actors in the cluster"] = "ringbatch"
    ray_cpus: Annotated[
        float,
        number(1024, zero=True),
        "CPUs of the cluster that each actor reserves",
    ] = 1.0
    ray_gpus: Annotated[
        float,
        number(1024, zero=True),
        "GPUs of the cluster that each actor reserves",
    ] = 0.0
    ray_resources: Annotated[
        tuple[str, ...],
        RAY_RESOURCES,
        'other resources of the cluster that each actor reserves, such as ["accelerator=1"]',
    ] = ()
    ray_scheduling: Annotated[
        Literal["spread", "default"],
        choice("spread", "default"),
        "distribution of actors over nodes. spread: evenly. default: as Ray decides",
    ] = "spread"
    ray_placement_group: Annotated[
        str | None,
        NAME,
        "placement group of the cluster, in ray_namespace, for the actors. By default there is "
        "none",
    ] = None
    ray_keep_s: Annotated[
        float,
        number(DAY_S, zero=True),
        "seconds that an actor without its worker keeps the model loaded for the next worker. 0 "
        "ends the actor with its worker",
    ] = 3600.0
    retry: Annotated[
        Literal["safe", "always"],
        choice("safe", "always"),
        "batches that go to another model server if the first one gave no answer. safe: those "
        "that it refused with 429 or 503, or for which it takes no connection, even after a kept "
        "connection ended without a byte of an answer. always: also those that it may have run, "
        "because the connection ended or the server was taken for down",
    ] = "safe"
    upstream_ca: Annotated[
        Path | None,
        FILE,
        "certificate authorities, PEM, for model servers at https. By default those of the system",
    ] = None
    upstream_certificate: Annotated[
        Path | None,
        FILE,
        "client certificate for model servers at https, PEM. By default there is none",
    ] = None
    upstream_key: Annotated[
        Path | None,
        FILE,
        "private key of upstream_certificate, PEM, without a password",
    ] = None
    worker_memory_bytes: Annotated[
        int | None,
        whole(64 * MIB, 1 << 44),
        "bytes of memory that one worker may use for itself. Beyond them the model gets "
        "MemoryError. By default there is no limit",
    ] = None
    nan_answers: Annotated[
        Literal["serve", "refuse"],
        choice("serve", "refuse"),
        "treatment of answers with NaN or infinity. serve: they are sent if the encoding can "
        "express them. refuse: the request with such an answer fails, alone",
    ] = "serve"
    kserve_errors: Annotated[
        bool,
        SWITCH,
        "answer failures as KServe's batcher does: status 200, a message and null predictions",
    ] = False

    @property
    def default(self) -> bool:
        """True if it is chosen for requests that name no version."""
        return self.version == self.default_version

    @property
    def platform(self) -> str:
        """The configured `runtime`, or its default."""
        runtime = self.runtime or runtime_of(self.path)
        assert runtime is not None, (
            "a configuration is concluded only where something runs the file"
        )
        return runtime

    @property
    def loader(self) -> str:
        """The runtime that reads the model file, here or in a Ray cluster."""
        found = runtime_of(self.path) if self.platform == "ray" else self.platform
        assert found is not None, "a configuration is concluded only where something reads the file"
        return found

    @property
    def in_ray(self) -> tuple[bool, ...]:
        """Flags of the workers, in order: true for one that drives an actor in a Ray cluster."""
        if self.platform == "ray":
            return (True,) * worker_places.most(self.workers)
        return worker_places.in_ray(self.workers, self.ray_workers or 0)

    def is_in_ray(self, index: int) -> bool:
        """Return whether one of its workers drives a Ray actor; a spare is as the first one.

        Args:
            index: of the worker.
        """
        kinds = self.in_ray
        return kinds[index if index < len(kinds) else 0]

    def waits(self, index: int) -> bool:
        """Return whether one of its workers waits while others compute.

        Args:
            index: of the worker.
        """
        return self.platform == "http" or self.is_in_ray(index)

    @property
    def fewest_workers(self) -> int:
        """Lower bound of workers (autoscaling)."""
        return worker_places.fewest(self.workers) + worker_places.fewest(self.ray_workers or 0)

    @property
    def most_workers(self) -> int:
        """Upper bound of workers (autoscaling)."""
        return worker_places.most(self.workers) + worker_places.most(self.ray_workers or 0)

    @property
    def follows_load(self) -> bool:
        """True if the load decides how many workers run."""
        return isinstance(self.workers, tuple) or isinstance(self.ray_workers, tuple)

    @property
    def processes(self) -> int:
        """Worker processes at the start, spares among them.

        There is at least one, which reports the model's inputs and outputs.
        """
        return max(self.fewest_workers, 1) + self.spares

    @property
    def most_processes(self) -> int:
        """Worker processes that ever hold it at once, spares among them."""
        return self.most_workers + self.spares

    def processes_near(self, running: int) -> int:
        """Return the number of worker processes, with spares, if so many workers run now.

        Args:
            running: as the load has it, which may lie outside of the range.
        """
        return min(max(running, self.fewest_workers), self.most_workers) + self.spares

    @property
    def batch_limit_s(self) -> float:
        """`batch_timeout_s`, or its default."""
        if self.batch_timeout_s is not None:
            return self.batch_timeout_s
        # A slow model server is not a worker that hangs.
        return self.timeout_s if self.platform == "http" else max(self.timeout_s / 4, 1.0)

    @property
    def hung_after_s(self) -> float:
        """Seconds until a worker counts as hung: one that waits for others gives up first."""
        waits = self.platform == "http" or any(self.in_ray)
        return self.batch_limit_s + (WAITING_GRACE_S if waits else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Configuration of one engine, with models and chains in the order of the document.

    Each of the `notices` is a line on a setting that is legal and has no effect.
    """

    server: ServerConfig = field(default_factory=ServerConfig)
    models: tuple[ModelConfig, ...]
    chains: tuple[ChainConfig, ...] = ()
    notices: tuple[str, ...] = field(default=(), compare=False)

    @property
    def names(self) -> list[str]:
        """Names of all models and chains, each once."""
        names = [*(model.name for model in self.models), *(chain.name for chain in self.chains)]
        return [*dict.fromkeys(names)]

    @property
    def passes_to(self) -> str | None:
        """`pass_through`, or its default."""
        if self.server.app is not None:
            return None
        if self.server.pass_through is not None:
            return self.server.pass_through
        paths = [m.path for m in self.models]
        servers = {origin(p) if isinstance(p, str) and is_address(p) else None for p in paths}
        return servers.pop() if len(servers) == 1 else None
