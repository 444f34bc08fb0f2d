"""Everything that can be set, each with its default, its legal values and what it bounds.

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
"""What a worker gets beyond the time that it gives a model server or an actor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig(PayloadConfig):
    """The section ``[server]``: with that, what is logged, told and traced."""

    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        choice("debug", "info", "warning", "error"),
        "the least severe messages that are logged: debug, info, warning or error; debug is for "
        "ringbatch alone, as libraries would log keys",
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
        float | None,
        number(1000 * DAY_S, zero=True),
        "milliseconds; a request that took longer is logged too, as failures are; 0 for none; by "
        "default 1000, or ten times the median of what the model's requests take, if that is more",
    ] = None
    server_timing: Annotated[
        bool,
        SWITCH,
        "tell with every answer where its time went, in the header Server-Timing; by default only "
        "whoever asks with X-Server-Timing: 1 is told",
    ] = False
    load_report: Annotated[
        bool,
        SWITCH,
        "tell with every answer how busy the engine is, in the header endpoint-load-metrics "
        "(ORCA); by default only whoever asks with endpoint-load-metrics-format is told",
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

    @property
    def has_control_process(self) -> bool:
        """Whether there is a process for what is not for clients."""
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
        """Whether gRPC is served."""
        return self.grpc_port is not None or self.grpc_unix_socket is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig(BatchedConfig):
    """One version of a model: a section ``[models.NAME]``, or ``[models.NAME.versions.VERSION]``
    laid over it; `path` is absolute where the configuration was concluded."""

    workers: Annotated[
        int | tuple[int, int],
        count_or_range(64),
        "number of processes that each hold a copy of the model, or the fewest and the most, "
        "[1, 8] or [0, 8], between which the load decides; by default, for the runtime http, 4 for "
        "each address in path and at most 64, each of which has one batch under way",
    ] = 1
    target_wait_ms: Annotated[
        float | None,
        number(1000 * DAY_S, zero=False),
        "milliseconds to its answer, as predicted for a request that comes now, above which "
        "workers are started, where workers is a range; by default what three batches take of "
        "late, and no more than a quarter of timeout_s",
    ] = None
    scale_up_after_s: Annotated[
        float,
        number(3600, zero=True),
        "seconds that the prediction is above target_wait_ms before workers are started",
    ] = 2.0
    scale_down_after_s: Annotated[
        float,
        number(DAY_S, zero=False),
        "seconds that fewer workers would have sufficed before the others are let go",
    ] = 60.0
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
        "where the runtimes onnx, text and torch run the model, and what load(device) of a model "
        "file in Python is told: cpu, or cuda:0 with the number of a device",
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
        "the datatype, BF16 or FP16, that the runtime torch uses for operations that lose little "
        "precision in it, and in which the runtime openvino computes; off for none",
    ] = "off"
    channels_last: Annotated[
        bool,
        SWITCH,
        "lay out images and weights for the runtime torch with their channels last",
    ] = False
    columns: Annotated[
        Literal["auto", "named", "matrix"],
        choice("auto", "named", "matrix"),
        "how a model takes the columns of its table: named, an input for each; matrix, all in x; "
        "auto, named where a column holds categories or texts, or a scikit-learn model was fitted "
        "on a DataFrame",
    ] = "auto"
    answers: Annotated[
        tuple[str, ...],
        ANSWERS,
        "what a model of the runtimes sklearn, xgboost, lightgbm and catboost returns; by default "
        "label and probabilities where it is a classifier, else y",
    ] = ()
    iterations: Annotated[
        int,
        whole(0, 1 << 20),
        "rounds of boosting that answers are made of; by default those up to the best iteration, "
        "where the file knows it, else all",
    ] = 0
    class_names: Annotated[
        tuple[str, ...],
        CLASS_NAMES,
        "what the labels of a classifier are called, in the order of its classes; by default as in "
        "its file, else 0, 1 and so on",
    ] = ()
    truncate: Annotated[
        bool,
        SWITCH,
        "leave out what a text has beyond the tokens that the model takes; else it is refused",
    ] = True
    devices: Annotated[
        tuple[str, ...],
        DEVICES,
        'the device of each worker, in order, such as ["cuda:0", "cuda:1"]; several may share one; '
        "by default that of device, which says for which runtimes it is",
    ] = ()
    cpus: Annotated[
        tuple[str, ...],
        CPU_SETS,
        'CPUs of each worker, in order, such as ["0-3", "numa:0"]; by default those of placement',
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
        "what the runtime http asks the model server in: v1, KServe's V1; v2, V2 with binary "
        "tensors; v2-json, V2 in JSON alone",
    ] = "v1"
    forward_headers: Annotated[
        tuple[str, ...],
        HEADER_NAMES,
        "headers that the runtime http passes on over V1; requests that differ in them share no "
        "batch",
    ] = ("authorization",)
    headers: Annotated[
        tuple[str, ...],
        HEADER_NAMES,
        "headers, over gRPC metadata, that a model file is told whose predict takes request",
    ] = ()
    isolate_errors: Annotated[
        bool,
        SWITCH,
        "where the model server answers a batch with 500, ask again for its halves, as is always "
        "done after 400, 413 and 422",
    ] = False
    ray_workers: Annotated[
        int | tuple[int, int] | None,
        count_or_range(64),
        "number of further workers, beside those of workers, whose model an actor in a Ray cluster "
        "holds, or the fewest and the most, [0, 8]; they take what those here cannot; by default "
        "there are none",
    ] = None
    ray_address: Annotated[
        str,
        RAY_ADDRESS,
        "the Ray cluster, HOST:PORT; auto for the one that this host belongs to",
    ] = "auto"
    ray_namespace: Annotated[str, NAME, "namespace of the actors in the cluster"] = "ringbatch"
    ray_cpus: Annotated[
        float,
        number(1024, zero=True),
        "CPUs of the cluster that each actor has for itself",
    ] = 1.0
    ray_gpus: Annotated[
        float,
        number(1024, zero=True),
        "GPUs of the cluster that each actor has for itself",
    ] = 0.0
    ray_resources: Annotated[
        tuple[str, ...],
        RAY_RESOURCES,
        'other resources of the cluster that each actor has for itself, such as ["accelerator=1"]',
    ] = ()
    ray_scheduling: Annotated[
        Literal["spread", "default"],
        choice("spread", "default"),
        "how actors are put on nodes: spread, evenly; default, as Ray likes",
    ] = "spread"
    ray_placement_group: Annotated[
        str | None,
        NAME,
        "placement group of the cluster, in that namespace, in which the actors are",
    ] = None
    ray_keep_s: Annotated[
        float,
        number(DAY_S, zero=True),
        "seconds that an actor without its worker keeps the model loaded for the next one; 0 ends "
        "it with its worker",
    ] = 3600.0
    retry: Annotated[
        Literal["safe", "always"],
        choice("safe", "always"),
        "which batches that a model server has not answered go to another one: safe, those that it "
        "refused with 429 or 503, or for which it takes no connection, even after one that was "
        "kept has ended without a byte of an answer; always, also those that it may have run, "
        "because the connection ended or the server was taken for down meanwhile",
    ] = "safe"
    upstream_ca: Annotated[
        Path | None,
        FILE,
        "authorities, PEM, one of which must have signed the certificate of a model server at "
        "https; by default those of the system",
    ] = None
    upstream_certificate: Annotated[
        Path | None,
        FILE,
        "certificate that model servers at https are shown, PEM; by default none",
    ] = None
    upstream_key: Annotated[
        Path | None,
        FILE,
        "private key of upstream_certificate, PEM, without a password",
    ] = None
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
    def loader(self) -> str:
        """The runtime that reads the model file, wherever that is done."""
        found = runtime_of(self.path) if self.platform == "ray" else self.platform
        assert found is not None, "a configuration is concluded only where something reads the file"
        return found

    @property
    def in_ray(self) -> tuple[bool, ...]:
        """For each of its workers, in order, whether it drives an actor in a Ray cluster."""
        if self.platform == "ray":
            return (True,) * worker_places.most(self.workers)
        return worker_places.in_ray(self.workers, self.ray_workers or 0)

    def is_in_ray(self, index: int) -> bool:
        """Whether one of its workers does; a spare is as the first one.

        Args:
            index: which.
        """
        kinds = self.in_ray
        return kinds[index if index < len(kinds) else 0]

    def waits(self, index: int) -> bool:
        """Whether one of its workers waits while others compute.

        Args:
            index: which.
        """
        return self.platform == "http" or self.is_in_ray(index)

    @property
    def fewest_workers(self) -> int:
        """That run where there is no load."""
        return worker_places.fewest(self.workers) + worker_places.fewest(self.ray_workers or 0)

    @property
    def most_workers(self) -> int:
        """That run where there is much of it."""
        return worker_places.most(self.workers) + worker_places.most(self.ray_workers or 0)

    @property
    def follows_load(self) -> bool:
        """Whether the load decides how many run."""
        return isinstance(self.workers, tuple) or isinstance(self.ray_workers, tuple)

    @property
    def processes(self) -> int:
        """Worker processes that hold it at the start, spares among them; one at the least, which
        says what the model takes and returns."""
        return max(self.fewest_workers, 1) + self.spares

    @property
    def most_processes(self) -> int:
        """Worker processes that ever hold it at once, spares among them."""
        return self.most_workers + self.spares

    def processes_near(self, running: int) -> int:
        """Worker processes, spares among them, where so many run now.

        Args:
            running: as the load has it, which may lie outside of the range.
        """
        return min(max(running, self.fewest_workers), self.most_workers) + self.spares

    @property
    def batch_limit_s(self) -> float:
        """`batch_timeout_s` or what it is by default."""
        if self.batch_timeout_s is not None:
            return self.batch_timeout_s
        # A slow model server is not a worker that hangs.
        return self.timeout_s if self.platform == "http" else max(self.timeout_s / 4, 1.0)

    @property
    def hung_after_s(self) -> float:
        """When a worker is replaced: one that waits for others gives up first."""
        waits = self.platform == "http" or any(self.in_ray)
        return self.batch_limit_s + (WAITING_GRACE_S if waits else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All that one engine is told, models and chains in the order of the document. Each of the
    `notices` is a line on a setting that is legal and has no effect."""

    server: ServerConfig = field(default_factory=ServerConfig)
    models: tuple[ModelConfig, ...]
    chains: tuple[ChainConfig, ...] = ()
    notices: tuple[str, ...] = field(default=(), compare=False)

    @property
    def names(self) -> list[str]:
        """What all models and chains are called, each once."""
        names = [*(model.name for model in self.models), *(chain.name for chain in self.chains)]
        return [*dict.fromkeys(names)]

    @property
    def passes_to(self) -> str | None:
        """`pass_through` or what it is by default."""
        if self.server.app is not None:
            return None
        if self.server.pass_through is not None:
            return self.server.pass_through
        paths = [m.path for m in self.models]
        servers = {origin(p) if isinstance(p, str) and is_address(p) else None for p in paths}
        return servers.pop() if len(servers) == 1 else None
