"""Reading a running engine's counters, from outside and without asking it.

Everything counted stands in the segment; this attaches to it, reads and detaches. The engine
does not notice.
"""

from collections.abc import Iterable
from typing import Final

from ringbatch.engine.report.gpus import look
from ringbatch.engine.report.listing import show
from ringbatch.shm.engines import running
from ringbatch.shm.model_spec import FILE_DIFFERS, workers_words
from ringbatch.shm.segment import Segment
from ringbatch.shm.snapshot.gpus import UsedGpu, used_gpus
from ringbatch.shm.snapshot.status import EngineStatus, read
from ringbatch.shm.upstreams import ServerCounts

_WORDS: Final = {
    "handed_over": "connections that left the fast lane",
    "quarantined": "requests refused because they ended workers",
    "steps": "wake-ups",
    "workers_hung": "workers that hung",
}
"""Names of counters for people, if theirs do not say it."""


def snapshot(engine: str | int) -> EngineStatus:
    """Return the counters of the engine of that name, or whose supervisor has that process id.

    Raises:
        StartupError: no such engine runs, or it is another user's.
    """
    with running(engine) as (segment, *_):
        return read(segment)


def describe(status: EngineStatus, gpus: Iterable[UsedGpu] = ()) -> str:
    """Return the counters for people, a paragraph for each model, and the GPUs of workers."""
    lines = []
    for name, model in status.models.items():
        lines += [
            f"{name}: {workers_words(model.ready, model.workers, model.limits)}"
            + f", beside {model.spares} spare" * bool(model.spares)
            + f"; {FILE_DIFFERS}; ringbatch reload takes what is there now" * model.file_differs,
            f"  answered {model.answered}, errors {model.refused}",
            f"  requests {model.requests}, instances {model.rows}, dropped {model.dropped}, "
            f"retried {model.retried}, failed batches {model.failed}",
            f"  mean wait for a batch {model.wait_ms:.3f} ms, mean run of a batch "
            f"{model.run_ms:.3f} ms, {_expected(model.answer_ms)}",
            f"  batches by reason: {_counts(model.batches)}",
            f"  batches by size:   {_counts(model.batch_rows)}",
            *[f"  restarts by case:  {_counts(model.restarts)}"] * bool(model.restarts),
            *(_server(server) for server in model.servers),
        ]
    lines += [
        f"frontends: {_counts(_in_words(status.frontends))}",
        f"collector: {_counts(_in_words(status.collector))}",
    ]
    lines += [
        f"worker {number} ({status.states[number]}): batches {counts['batches']}, "
        f"instances {counts['rows']}, time in the model {counts['run_ns'] / 1e9:.3f} s"
        for number, counts in status.workers.items()
    ]
    lines += map(_gpu, gpus)
    return "\n".join(lines)


def _gpu(used: UsedGpu) -> str:
    gpu = used.gpu
    memory = None if gpu.used_bytes is None else f"memory {_gib(gpu.used_bytes)}"
    if memory is not None and gpu.total_bytes is not None:
        memory += f" of {_gib(gpu.total_bytes)}"
    slowed = None if gpu.slowed is None else ", ".join(gpu.slowed)
    parts = [
        None if gpu.busy is None else f"busy {gpu.busy:.0%}",
        memory,
        None if gpu.temperature_c is None else f"{gpu.temperature_c} °C",
        None if slowed is None else f"throttled: {slowed}" if slowed else "not throttled",
    ]
    workers = f"worker{'s' * (len(used.workers) > 1)} {', '.join(map(str, used.workers))}"
    return f"GPU {gpu.uuid} of {workers}: {', '.join(filter(None, parts)) or 'no figures'}"


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"


def _server(server: ServerCounts) -> str:
    state = "down" if server.state.down else f"{server.state.outstanding} batches under way"
    pace = f", {server.state.took_ns / 1e6:.3f} ms a batch" * bool(server.state.took_ns)
    return (
        f"  model server {server.name}: {state}{pace}; sent {server.batches}, "
        f"failed {server.failures}, refused {server.refusals}"
    )


def _expected(answer_ms: float) -> str:
    if not answer_ms:
        return "no requests wait"
    return f"a request sent now is answered in about {answer_ms:.3f} ms"


def _in_words(counts: dict[str, int]) -> dict[str, int]:
    return {_WORDS.get(label, label.replace("_", " ")): n for label, n in counts.items()}


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{label} {count}" for label, count in counts.items()) or "none"


def main(engine: str | int | None) -> int:
    """Print the counters of one engine, or of every engine of this user."""
    return show(engine, _text)


def _text(segment: Segment) -> str:
    # First, as it reads the models.
    status = read(segment)
    return describe(status, used_gpus(segment, look))
