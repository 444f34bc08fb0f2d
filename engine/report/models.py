"""Models of a running engine, and the warm-up time of each batch size, for people."""

from collections.abc import Iterable, Sequence

from ringbatch.engine.report.listing import show
from ringbatch.shm import cost_profile, device_notes
from ringbatch.shm.cost_profile import Trial, size_text
from ringbatch.shm.descriptors import ModelWords
from ringbatch.shm.model_spec import ModelSpec, titled, workers_words
from ringbatch.shm.segment import Segment
from ringbatch.shm.tensor import Tensor


def main(engine: str | int | None) -> int:
    """Print the models of one engine, or of every engine of this user."""
    return show(engine, table)


def table(segment: Segment) -> str:
    """Return the models of an attached segment, a paragraph for each."""
    lines: list[str] = []
    for title, spec in titled(segment.models).items():
        ready = segment.words[segment.layout.model(spec.index) + ModelWords.READY]
        held = (
            workers_words(ready, spec.running, spec.limits)
            if spec.chain is None
            else ", then ".join(step.title for step in spec.chain.steps)
        )
        lines += [
            f"{title}: {spec.platform}, {held}",
            f"  {_signature(spec.inputs)} -> {_signature(spec.outputs)}",
            f"  batches: {_batches(spec)}",
            *(_devices(segment, spec) if spec.chain is None else ()),
            *(_times(segment, spec) if spec.chain is None else ()),
        ]
    return "\n".join(lines)


def _devices(segment: Segment, spec: ModelSpec) -> list[str]:
    """Return the notes of the workers on their devices, each once."""
    notes = [device_notes.read(segment, number) for number in spec.workers]
    return [f"  device {note}" for note in dict.fromkeys(notes) if note]


def mean_trials(tried: Iterable[Sequence[Trial]]) -> list[Trial]:
    """Return the mean time of each size over the workers that tried it, by rows and length."""
    times: dict[tuple[int, int], list[int]] = {}
    for trial in (trial for worker in tried for trial in worker):
        times.setdefault((trial.rows, trial.length), []).append(trial.run_ns)
    return [Trial(*size, sum(runs) // len(runs)) for size, runs in sorted(times.items())]


def _times(segment: Segment, spec: ModelSpec) -> list[str]:
    tried = [cost_profile.read(segment, number) for number in spec.workers]
    lines = time_lines(mean_trials(tried))
    return ["  warm-up:", *lines] if lines else ["  warm-up: none"]


def time_lines(trials: Sequence[Trial]) -> list[str]:
    """Return the times of batches, a line for each size."""
    if not trials:
        return []
    rows = [
        (
            size_text(trial.rows, trial.length),
            f"{trial.run_ns / 1e6:.3f} ms",
            f"{trial.rows * 1e9 / max(trial.run_ns, 1):,.0f} instances/s",
        )
        for trial in trials
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "    " + "   ".join(f"{cell:>{w}}" for cell, w in zip(row, widths, strict=True))
        for row in rows
    ]


def _signature(tensors: Sequence[Tensor]) -> str:
    listed = ", ".join(f"{t.name} {t.datatype.name} {list(t.shape)}" for t in tensors)
    return listed or "JSON"


def _batches(spec: ModelSpec) -> str:
    if spec.chain is not None:
        return f"those of its steps; a request holds up to {spec.cap} instances"
    if not spec.batched:
        return "none, each instance runs alone"
    if spec.places:
        return f"in steps, up to {spec.places} rows at once in each worker"
    sizes = ", ".join(map(str, spec.allowed_batch_sizes))
    words = f"of {sizes} instances" if sizes else f"of up to {spec.max_batch_size} instances"
    if spec.max_batch_elements:
        words += f" and up to {spec.max_batch_elements} elements"
    if spec.pad_variable_length:
        edges = ", ".join(map(str, spec.length_buckets)) or "the longest"
        words += f", padded to {edges}"
    return f"{words}, {spec.policy}"
