"""Change of an engine's metrics between two looks. Pure."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

_LINE: Final = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Labels = frozenset[tuple[str, str]]
Metrics = Mapping[str, Mapping[Labels, float]]


@dataclass(frozen=True)
class Observed:
    """Work of the engine in a run.

    Attributes:
        batches: how many were run.
        instances: in them.
        reasons: how many were closed for each reason.
        cpu_us: CPU time of each process for an answered request, in microseconds.
        stages_ms: mean time of a request in each stage, in milliseconds.
    """

    batches: int
    instances: int
    reasons: dict[str, int]
    cpu_us: dict[str, float]
    stages_ms: dict[str, float]

    def as_object(self) -> dict[str, Any]:
        """Return the metrics as an object for JSON."""
        return asdict(self)


def parse(text: str) -> Metrics:
    """Return metrics by name and labels, from Prometheus's text form; leave other lines out."""
    found: dict[str, dict[Labels, float]] = {}
    for line in text.splitlines():
        match = None if line.startswith("#") else _LINE.match(line)
        if match is None:
            continue
        name, labels, value = match.groups()
        try:
            number = float(value)
        except ValueError:
            continue
        found.setdefault(name, {})[frozenset(_LABEL.findall(labels or ""))] = number
    return found


def between(earlier: Metrics, later: Metrics, model: str) -> Observed | None:
    """Return the work between two looks; None if no request for the model was answered."""

    def grown(name: str, **labels: str) -> dict[Labels, float]:
        wanted = set(labels.items())
        before = earlier.get(name, {})
        return {
            found: value - before.get(found, 0.0)
            for found, value in later.get(name, {}).items()
            if wanted <= found
        }

    def total(name: str) -> float:
        return sum(grown(name, model=model).values())

    requests = total("ringbatch_request_seconds_count")
    if requests <= 0:
        return None
    whole = total("ringbatch_request_seconds_sum")
    parts = max(total("ringbatch_model_executed_parts_total"), 1.0)
    queue = total("ringbatch_model_queue_seconds_sum") / max(
        total("ringbatch_model_queue_seconds_count"), 1.0
    )
    stages = {
        "waits for its batch": queue,
        "gathered": total("ringbatch_model_input_seconds_total") / parts,
        "model": total("ringbatch_model_infer_seconds_total") / parts,
        "scattered": total("ringbatch_model_output_seconds_total") / parts,
    }
    stages["frontend and wake-ups"] = max(whole / requests - sum(stages.values()), 0.0)
    reasons = {
        dict(labels)["reason"]: int(count)
        for labels, count in grown("ringbatch_model_batches_total", model=model).items()
        if count > 0
    }
    cpu: dict[str, float] = {}
    for labels, seconds in grown("ringbatch_process_cpu_seconds_total").items():
        # Frontends and workers are many; what a role costs is the question.
        role = re.sub(r"( \d+|/\d+)$", "", dict(labels)["process"])
        cpu[role] = cpu.get(role, 0.0) + seconds / requests * 1e6
    return Observed(
        batches=int(total("ringbatch_model_batch_instances_count")),
        instances=int(total("ringbatch_model_batch_instances_sum")),
        reasons=reasons,
        cpu_us={role: value for role, value in cpu.items() if value > 0},
        stages_ms={stage: value * 1e3 for stage, value in stages.items()},
    )
