"""Scenarios of `all.py`: their scripts, and how their runs become rows of the report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

RATES: Final = ("requests_per_s", "p50_ms", "p99_ms")

NAMES: Final[Mapping[str, str]] = {
    "requests_per_s": "requests/s",
    "p50_ms": "p50, ms",
    "p99_ms": "p99, ms",
    "p50_us": "p50, µs",
    "cpu_us": "CPU µs a request",
    "of_ideal": "of the ideal",
    "per_s": "instances/s",
    "per_cpu_s": "a CPU second",
    "requests_a_batch": "requests a batch",
    "model_ms": "model, ms a request",
    "goodput_per_s": "goodput/s",
    "accepted_p50_ms": "p50 of accepted, ms",
    "accepted_p99_ms": "p99 of accepted, ms",
    "refused_p99_ms": "p99 of refused, ms",
    "average_s": "average, s",
    "slowest_s": "slowest, s",
    "total_s": "total, s",
    "ideal": "ideal, s",
    "cpu_fraction": "CPU, cores",
    "voluntary_switches_per_s": "wake-ups/s",
    "pss_mib": "memory (PSS), MiB",
    "pss_bytes": "PSS, bytes",
    "ready_s": "start to ready, s",
    "answered_s": "start to first answer, s",
    "cpu_percent": "idle CPU, % of a core",
    "wake_ups_per_s": "idle wake-ups/s",
    "longest_s": "longest, s",
    "quiet_p99_ms": "p99 without, ms",
    "grown_mib": "memory, MiB more",
    "sent_mib": "sent, MiB",
    "cost": "cost of the later run, of the earlier one's",
    "grid_s": "grid, s",
    "tune_s": "tune, s",
    "of_grid_time": "of the grid's time",
    "of_the_best": "of the best of the grid",
    "of_as_it_was": "of the settings as they were",
}
"""Names of a run's fields in the report; other fields keep their names."""


@dataclass(frozen=True)
class Shape:
    """Table of a scenario: the runs that have every field of `by`.

    Attributes:
        by: fields that tell its rows apart; runs that agree in them are rounds of one row.
        figures: fields that are summed up over the rounds.
        split: a field that holds a run for each of several names; the name becomes this field.
    """

    by: tuple[str, ...]
    figures: tuple[str, ...]
    split: str | None = None


@dataclass(frozen=True)
class Scenario:
    """Scenario: a script of this folder, and its tables.

    Attributes:
        name: name of the script, without its ending.
        about: one sentence for the report.
        shapes: its tables.
        quick: its options in the quick mode.
        quick_minutes: duration of that on two quiet cores, without environments of peers.
        full_minutes: duration with its defaults.
    """

    name: str
    about: str
    shapes: Sequence[Shape]
    quick: str
    quick_minutes: float
    full_minutes: float


SCENARIOS: Final = (
    Scenario(
        "kserve_example",
        "KServe's published example: five clients, cap 32, a wait of 500 ms; and cap 5.",
        [Shape(("peer", "max_batch_size"), ("average_s", "slowest_s", "requests_per_s"))],
        "--seconds 5 --groups 4",
        0.6,
        1,
    ),
    Scenario(
        "redis_table",
        "N images decoded at once, half a second each, then a model of half a second for five.",
        [Shape(("peer", "workers", "images"), ("total_s", "ideal"))],
        "--images 1 10 50",
        0.7,
        2,
    ),
    Scenario(
        "frameworks",
        "All frameworks, JSON: a model of no work, 16 and 784 floats, 16 with heads of their own, "
        "and one of 5 ms a batch and 0.2 ms a row, which no server can ask more than 2,807 times a "
        "second.",
        [Shape(("workload", "peer", "connections"), (*RATES, "cpu_us", "of_ideal"))],
        "--rounds 2 --seconds 1",
        11,
        50,
    ),
    Scenario(
        "together",
        "A fast model beside a slow one that is kept full; eight models at once.",
        [Shape(("peer", "what"), RATES)],
        "--rounds 2 --seconds 1",
        4,
        13,
    ),
    Scenario(
        "startup",
        "From the first process to the first answer; then memory, CPU and wake-ups when idle.",
        [
            Shape(
                ("peer",),
                ("ready_s", "answered_s", "pss_mib", "cpu_percent", "wake_ups_per_s"),
            )
        ],
        "--rounds 2 --seconds 3 --settle 1",
        4,
        13,
    ),
    Scenario(
        "speed",
        "16 floats in, 10 out, JSON: ringbatch in its settings, mosec, no batching; with one head, "
        "and with a traceparent of its own in each request.",
        [Shape(("peer", "connections", "heads"), RATES)],
        "--rounds 2 --seconds 2",
        5,
        11,
    ),
    Scenario(
        "v2",
        "V2 infer requests: 16 floats and 602 KB in binary, 16 floats in JSON.",
        [Shape(("workload", "peer", "connections"), (*RATES, "cpu_us"))],
        "--rounds 2 --seconds 1",
        4,
        14,
    ),
    Scenario(
        "trees",
        "300 trees, a row of 30 numbers, JSON.",
        [Shape(("model", "peer", "connections"), RATES)],
        "--rounds 2 --seconds 2",
        9,
        25,
    ),
    Scenario(
        "chains",
        "Three models of no work: a chain, in turn, in one function; Triton's ensemble.",
        [Shape(("entry", "connections"), (*RATES, "cpu_us"))],
        "--rounds 2 --seconds 2 --connections 1 32",
        2,
        8,
    ),
    Scenario(
        "embeddings",
        "all-MiniLM-L6-v2, texts of very unequal length; short texts alone and beside long ones.",
        [Shape(("server", "result"), RATES, split="result")],
        "--rounds 2 --seconds 5",
        4,
        9,
    ),
    Scenario(
        "lengths",
        "Texts of variable length in one model: batches by exact length, padded, and in buckets.",
        [Shape(("entry",), ("requests_per_s", "requests_a_batch", "model_ms"))],
        "--requests 2000",
        1,
        2,
    ),
    Scenario(
        "overload",
        "An open loop at up to eight times what the model can do; patience of a second.",
        [
            Shape(
                ("entry", "load"),
                ("goodput_per_s", "accepted_p50_ms", "accepted_p99_ms", "refused_p99_ms"),
            )
        ],
        "--seconds 3 --rounds 1 --loads 1 4 8",
        3,
        30,
    ),
    Scenario(
        "batching",
        "A CPU-bound model behind batches, against the same model in a bare loop.",
        [Shape(("model", "entry"), ("per_s", "per_cpu_s"))],
        "--rounds 2 --seconds 2",
        3,
        10,
    ),
    Scenario(
        "client",
        "The client of the shared memory: one round trip, and many under way.",
        [Shape(("entry",), ("p50_us", "requests_per_s"))],
        "",
        1,
        1,
    ),
    Scenario(
        "grpc_unary",
        "Unary calls over gRPC, against a bare echo of grpc.aio.",
        [Shape(("server", "load"), ("requests_per_s",))],
        "--rounds 2 --seconds 3",
        1.5,
        3,
    ),
    Scenario(
        "grpc_triton",
        "Unary calls over gRPC through the whole engine, against Triton.",
        [Shape(("workload", "peer", "load"), ("requests_per_s", "p50_ms", "cpu_us"))],
        "--rounds 2 --seconds 2",
        2,
        5,
    ),
    Scenario(
        "grpc_scaling",
        "Frontends for gRPC, a fifth of a core each.",
        [Shape(("frontends",), ("requests_per_s",))],
        "--seconds 3",
        1.2,
        2,
    ),
    Scenario(
        "scaling",
        "Rates by frontends, workers and lanes, each on a twentieth of a core.",
        [],
        "--rounds 1 --seconds 5",
        7,
        20,
    ),
    Scenario(
        "in_process",
        "The engine's own steps and wake-ups, without sockets.",
        [],
        "--rounds 3",
        3,
        5,
    ),
    Scenario(
        "sidecar",
        "In front of a predictor that runs already, one instance a request.",
        [Shape(("peer", "connections"), RATES)],
        "--rounds 2 --seconds 2",
        2,
        5,
    ),
    Scenario(
        "upstreams",
        "One engine before several servers that take 100 ms a batch.",
        [Shape(("peer",), RATES)],
        "--rounds 2 --seconds 4",
        1.5,
        4,
    ),
    Scenario(
        "floods",
        "A frontend under attack over HTTP/2 and HTTP/1, asked 300 times a second by others.",
        [
            Shape(
                ("attack",),
                ("quiet_p99_ms", "p50_ms", "p99_ms", "cpu_fraction", "grown_mib", "sent_mib"),
            )
        ],
        "--rounds 1 --seconds 3",
        2.5,
        10,
    ),
    Scenario(
        "equal_pairs",
        "Pairs of runs of the same thing, which `ringbatch bench --compare` has to call equal.",
        [Shape(("figure",), ("cost",))],
        "",
        9,
        9,
    ),
    Scenario(
        "tuned",
        "What `ringbatch tune` finds, against every combination that it could have chosen.",
        [
            Shape(
                ("model",),
                ("choices", "grid_s", "tune_s", "of_grid_time", "of_the_best", "of_as_it_was"),
            ),
            Shape(("model", "entry", "settings"), ("requests_per_s",)),
        ],
        "--keep policy frontends --grid-effort 1 --finalists 2 --rounds 2",
        22,
        85,
    ),
    Scenario(
        "heads",
        "A frontend's own CPU time: the same head again, and one of its own in each request.",
        [],
        "--repetitions 200",
        0.3,
        0.6,
    ),
    Scenario(
        "unix_sockets",
        "A closed loop over TCP and over a Unix socket of the same engine.",
        [Shape(("way", "connections"), ("requests_per_s",))],
        "--rounds 3 --seconds 2",
        1,
        2,
    ),
    Scenario("reload", "A model loaded again twenty times under load.", [], "", 1, 1),
    Scenario(
        "idle",
        "ringbatch's processes while nobody asks.",
        [Shape(("title",), ("cpu_fraction", "voluntary_switches_per_s", "pss_bytes"))],
        "--seconds 10",
        0.4,
        0.6,
    ),
    Scenario(
        "page",
        "What the page that shows the engine costs it.",
        [Shape(("watchers",), ("control", "collector"))],
        "--rounds 2 --seconds 8",
        1,
        3,
    ),
)
