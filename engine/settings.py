"""Everything that can be set, each with its default, its legal values and what it bounds.

A field's annotation is its whole definition: the type, the `Kind` that says which values are
legal, and a sentence with the unit. `ringbatch.engine.config` checks documents by them, and the
command line makes its flags and their help from them.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_type_hints

from ringbatch.shm.layout import MAX_SLOTS, MAX_WORKERS, PAGE, TASK_WORDS, aligned
from ringbatch.shm.manifest import FIRST_VERSION

MIB: Final = 1 << 20
DAY_S: Final = 24 * 60 * 60
RUNTIMES: Final = {
    "python": (".py",),
    "onnx": (".onnx",),
    "sklearn": (".skops", ".pkl", ".joblib"),
}
"""The endings by which each runtime knows its files."""


@dataclass(frozen=True, slots=True)
class Kind:
    """The legal values of one setting.

    Attributes:
        words: completes the sentence "it must be ...".
        accepts: whether a value, as TOML gives it, is legal.
        store: what the configuration holds for a legal value.
        metavar: stands for the value in the command line's help; empty for a switch.
        numeric: whether a flag's text is read as a number.
        several: whether it is a list, and its flag is given once for each item.
    """

    words: str
    accepts: Callable[[Any], bool]
    store: Callable[[Any], Any]
    metavar: str
    numeric: bool = False
    several: bool = False


def _is_whole(value: object) -> bool:
    # To Python, true is the number 1; to whoever writes `workers = true`, it is a slip.
    return isinstance(value, int) and not isinstance(value, bool)


def _whole(least: int, most: int) -> Kind:
    def accepts(value: Any) -> bool:
        return _is_whole(value) and least <= value <= most

    return Kind(f"a whole number from {least} to {most}", accepts, int, "N", numeric=True)


def _power_of_two(most: int) -> Kind:
    def accepts(value: Any) -> bool:
        return _is_whole(value) and 1 <= value <= most and value.bit_count() == 1

    words = f"a power of two up to {most}, such as 512, 1024 or 2048"
    return Kind(words, accepts, int, "N", numeric=True)


def _number(most: int, *, zero: bool) -> Kind:
    def accepts(value: Any) -> bool:
        if not _is_whole(value) and not isinstance(value, float):
            return False
        return (value >= 0 if zero else value > 0) and bool(value <= most)

    words = f"a number from 0 to {most}" if zero else f"a number above 0, at most {most}"
    return Kind(words, accepts, float, "X", numeric=True)


def _choice(*names: str) -> Kind:
    words = " or ".join(f'"{name}"' for name in names)
    metavar = "{" + ",".join(names) + "}"
    return Kind(words, lambda value: value in names, str, metavar)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_model_file(value: Any) -> bool:
    return _is_text(value) and "://" not in value and "\0" not in value


def _are_object_prefixes(value: object) -> bool:
    return isinstance(value, list | tuple) and all(
        isinstance(item, str) and _OBJECT_PREFIX.fullmatch(item) is not None for item in value
    )


def _is_device(value: object) -> bool:
    return isinstance(value, str) and _DEVICE_NAME.fullmatch(value) is not None


def _are_type_names(value: object) -> bool:
    return isinstance(value, list | tuple) and all(
        isinstance(item, str) and all(part.isidentifier() for part in item.split("."))
        for item in value
    )


_OBJECT_PREFIX: Final = re.compile(r"/?[A-Za-z0-9._-]{1,200}")
_OBJECT_PREFIXES: Final = Kind(
    'a list such as ["/myapp_"], of beginnings of 1 to 200 letters, digits, dots, dashes and '
    "underscores each",
    _are_object_prefixes,
    tuple,
    "NAME",
    several=True,
)
_DEVICE_NAME: Final = re.compile(r"cpu|cuda:[0-9]{1,3}")
_DEVICE: Final = Kind('"cpu", or "cuda:0" with the number of a device', _is_device, str, "DEVICE")
_TYPE_NAMES: Final = Kind(
    'a list such as ["sklearn.tree._tree.Tree"], of full names of types',
    _are_type_names,
    tuple,
    "TYPE",
    several=True,
)
VERSION_WORDS: Final = "1 to 64 letters, digits, dots, dashes or underscores, and not . or .."
_VERSION_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_ADDRESS: Final = Kind("an address or a host name", _is_text, str, "ADDRESS")
_SWITCH: Final = Kind("true or false", lambda value: isinstance(value, bool), bool, "")
_MODEL_FILE: Final = Kind("the path of a model file", _is_model_file, Path, "FILE")


def is_version(value: object) -> bool:
    """Whether a version may be called that, in a URL and in a file alike."""
    named = isinstance(value, str) and _VERSION_NAME.fullmatch(value) is not None
    return named and value not in {".", ".."}


def runtime_of(path: Path) -> str | None:
    """The runtime that knows a file by its ending."""
    return next((name for name, endings in RUNTIMES.items() if path.suffix in endings), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """The section ``[server]``: the frontends and the memory they share with the engine."""

    host: Annotated[
        str,
        _ADDRESS,
        "address on which the frontends listen",
    ] = "127.0.0.1"
    port: Annotated[
        int,
        _whole(0, 65535),
        "TCP port on which the frontends listen; 0 takes any free one",
    ] = 8080
    frontends: Annotated[
        int,
        _whole(1, 256),
        "number of Gunicorn workers, each with a lane of its own",
    ] = 2
    grpc_port: Annotated[
        int | None,
        _whole(0, 65535),
        "TCP port on which gRPC is served, 0 takes any free one; by default there is no gRPC",
    ] = None
    grpc_frontends: Annotated[
        int,
        _whole(1, 256),
        "number of processes that serve gRPC, each with a lane of its own",
    ] = 1
    client_lanes: Annotated[
        int,
        _whole(0, 64),
        "lanes for programs on this host that use ringbatch.frontend.Client, one for each",
    ] = 2
    max_request_bytes: Annotated[
        int,
        _whole(1, 1024 * MIB),
        "bytes of the largest request body; a larger one is refused with 413",
    ] = 16 * MIB
    max_in_flight: Annotated[
        int,
        _power_of_two(MAX_SLOTS),
        "requests that one frontend may have in the engine at once; more are refused with 503",
    ] = 1024
    lane_bytes: Annotated[
        int | None,
        _whole(1, 65536 * MIB),
        "payload memory of one lane in bytes, at least twice max_request_bytes; "
        "by default that, and no less than 4 MiB",
    ] = None
    shared_memory_prefixes: Annotated[
        tuple[str, ...],
        _OBJECT_PREFIXES,
        "how names in /dev/shm may begin that clients register as shared memory; "
        "by default none, and shared memory is off",
    ] = ()
    compress_answers: Annotated[
        bool,
        _SWITCH,
        "compress answers of 2 KiB and more for clients that accept gzip or deflate",
    ] = False
    spare_workers: Annotated[
        int | None,
        _whole(0, MAX_WORKERS),
        "places for more workers than are configured, for models that are loaded while others "
        "serve; by default as many again, and no fewer than 2",
    ] = None
    model_control: Annotated[
        bool,
        _SWITCH,
        "let clients load and unload models over HTTP and gRPC",
    ] = False
    drain_s: Annotated[
        float,
        _number(DAY_S, zero=True),
        "seconds that a stop waits for the requests already accepted",
    ] = 30.0
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        _choice("debug", "info", "warning", "error"),
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
        Kind(f"the name of a version, {VERSION_WORDS}", is_version, str, "VERSION"),
        "which of several versions serves requests that name none; by default the highest",
    ] = None
    runtime: Annotated[
        Literal["python", "onnx", "sklearn"] | None,
        _choice(*RUNTIMES),
        "what runs the model file; by default its ending decides: python for .py, onnx for .onnx, "
        "sklearn for .skops, .pkl and .joblib",
    ] = None
    path: Annotated[
        Path,
        _MODEL_FILE,
        "the model file; a relative path starts beside the configuration file",
    ]
    max_batch_size: Annotated[
        int,
        # A batch of single instances still has to fit into a task ring, with room to spare.
        _whole(0, TASK_WORDS // 2),
        "instances in the largest batch; "
        "0 for a model without a batch dimension, which runs each instance alone",
    ] = 32
    max_latency_ms: Annotated[
        float,
        _number(1000 * DAY_S, zero=True),
        "milliseconds that the oldest request of a batch waits for company at most",
    ] = 500.0
    timeout_s: Annotated[
        float,
        _number(DAY_S, zero=False),
        "seconds from a request's acceptance to its deadline",
    ] = 60.0
    batch_timeout_s: Annotated[
        float | None,
        _number(DAY_S, zero=False),
        "seconds that one run of a batch may take before its worker is taken for hung and "
        "replaced; by default a quarter of timeout_s, and no less than 1",
    ] = None
    policy: Annotated[
        Literal["eager", "fixed"],
        _choice("eager", "fixed"),
        "when a batch closes: eager, as soon as a worker is idle; "
        "fixed, once it is full or max_latency_ms has passed",
    ] = "eager"
    workers: Annotated[
        int,
        _whole(1, 64),
        "number of processes that each hold a copy of the model",
    ] = 1
    threads: Annotated[
        int | None,
        _whole(1, 1024),
        "BLAS and OpenMP threads of one worker; by default the CPUs divided by the workers",
    ] = None
    device: Annotated[
        str,
        _DEVICE,
        "where the runtime onnx runs the model: cpu, or cuda:0 with the number of a device",
    ] = "cpu"
    trusted_types: Annotated[
        tuple[str, ...],
        _TYPE_NAMES,
        "types that a .skops file may hold beyond those known to be safe",
    ] = ()
    trust_pickle: Annotated[
        bool,
        _SWITCH,
        "read a pickle or joblib file, which runs the code in it",
    ] = False
    kserve_errors: Annotated[
        bool,
        _SWITCH,
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
        return (
            max(self.timeout_s / 4, 1.0) if self.batch_timeout_s is None else self.batch_timeout_s
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All that one engine is told; the models stand in the order of the document."""

    server: ServerConfig = field(default_factory=ServerConfig)
    models: tuple[ModelConfig, ...]


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
