"""Runs of samples alone and in batches, for ``ringbatch check --parity``."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from ringbatch.engine.ipc.shaping import Lengths
from ringbatch.engine.models.model import refusing
from ringbatch.engine.process.role_commands import Parity
from ringbatch.engine.process.role_events import ParityCompared
from ringbatch.engine.worker.outputs import array_dtype
from ringbatch.engine.worker.parity import Answer, ComparedBatch, batches, compared
from ringbatch.engine.worker.samples import (
    made_up,
    of_default,
    open_dimensions,
    read_instances,
    row_of,
)
from ringbatch.engine.worker.warmup import sizes_to_try
from ringbatch.shm.brain_floats import widened
from ringbatch.shm.errors import StartupError
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.tensor import ANY, Tensor

MADE_UP: Final = 16
"""Samples, if there is no file."""
_SEED: Final = 1


def compare(
    spec: ModelSpec,
    answers: Callable[[Any, int], Sequence[Answer]],
    wanted: Parity,
    path: Path | str,
) -> ParityCompared:
    """Run the model on samples, alone and in company.

    Args:
        spec: the model.
        answers: of the model for values as `Values.rows` gives them, and so many rows.
        wanted: options of the check.
        path: of the model file, for messages.

    Raises:
        StartupError: in words, if there are no samples, or the model fails with one.
    """
    samples, groups = _samples(spec, wanted, path)
    sizes = sizes_to_try(spec.cap, spec.allowed_batch_sizes)
    neighbours = [_long_neighbour(spec, group, samples, wanted.length) for group in groups]
    neighbour_of = {
        number: found for group, found in zip(groups, neighbours, strict=True) for number in group
    }

    def run(batch: ComparedBatch) -> Sequence[Answer]:
        rows = [samples[number] for number in batch.members]
        if batch.neighbours:
            rows.append(neighbour_of[batch.members[0]])
        with refusing(path, _which(batch, wanted)):
            found = answers(_together(spec, rows), len(rows))
        return [_numbers(spec, row) for row in found[: len(batch.members)]]

    outputs = [tensor.name for tensor in spec.outputs] or ["predictions"]
    tried = batches(groups, sizes, spec.allowed_batch_sizes, long=None not in neighbours)
    found = compared(len(samples), outputs, tried, run, wanted.tolerance)
    where = "alone"
    if max(sizes) > 1:
        where += f" and in batches of {', '.join(str(size) for size in sizes if size > 1)}"
    if None not in neighbours and max(sizes) > 1:
        where += ", and beside long neighbours"
    return ParityCompared(
        lines=(f"{len(samples)} samples {where}", *(one.words for one in found)),
        apart=tuple(one.words for one in found if one.excess > 1),
    )


def _numbers(spec: ModelSpec, row: Answer) -> Answer:
    """Return an answer in which BF16 are numbers, and no longer their bits."""
    if not spec.typed:
        return row
    return [
        widened(np.asarray(value)) if tensor.datatype.name == "BF16" else value
        for tensor, value in zip(spec.outputs, row, strict=True)
    ]


def _which(batch: ComparedBatch, wanted: Parity) -> str:
    numbers = ", ".join(str(number + 1) for number in batch.members)
    which = f"sample{'s' * (len(batch.members) > 1)} {numbers} {batch.words}"
    return which if wanted.file else f"{which}, made up as --parity names no file"


def _together(spec: ModelSpec, rows: list[Any]) -> Any:
    if not spec.typed or spec.pad_variable_length:
        return rows
    return [np.concatenate(column) for column in zip(*rows, strict=True)]


def _samples(
    spec: ModelSpec, wanted: Parity, path: Path | str
) -> tuple[list[Any], list[list[int]]]:
    """Return the samples, and the numbers of those that may share a batch."""
    if not spec.typed:
        if not wanted.file:
            raise StartupError(
                f"{path}: declares no inputs, so that nothing can be made up; give --parity a file "
                "with instances"
            )
        instances = read_instances(Path(wanted.file))
        return instances, [list(range(len(instances)))]
    if wanted.file:
        file = Path(wanted.file)
        rows = [
            [row_of(file, t, spec.inputs, one) for t in spec.inputs] for one in read_instances(file)
        ]
    else:
        rows = drawn(spec, wanted.length)
    lengths = (
        Lengths(spec.inputs, spec.outputs, spec.length_buckets)
        if spec.pad_variable_length
        else None
    )
    groups: dict[Any, list[int]] = {}
    for number, row in enumerate(rows):
        own = open_dimensions(spec.inputs, row)
        groups.setdefault(lengths.goal(own) if lengths else own, []).append(number)
    return rows, list(groups.values())


def _lengths(spec: ModelSpec) -> Lengths:
    return Lengths(spec.inputs, spec.outputs, spec.length_buckets)


def drawn(spec: ModelSpec, length: int) -> list[list[Any]]:
    """Return random samples that differ from each other.

    They are normally distributed numbers, whole ones of 0 and 1, and texts of one digit. If lengths
    are padded, open dimensions have several.
    """
    random = np.random.default_rng(_SEED)
    edges = spec.length_buckets or (length,)
    rows = []
    for number in range(MADE_UP):
        edge = edges[number % len(edges)]
        size = max(1, edge - number // len(edges)) if spec.pad_variable_length else edge
        rows.append([_drawn(tensor, size, random) for tensor in spec.inputs])
    return rows


def _drawn(tensor: Tensor, length: int, random: "np.random.Generator") -> Any:
    if tensor.default is not None and tensor.static:
        return of_default(tensor, 1)
    shape = (1, *(length if size == ANY else size for size in tensor.shape))
    dtype = array_dtype(tensor)
    if dtype.kind == "f":
        return random.standard_normal(shape).astype(dtype)
    whole = random.integers(0, 2, shape)
    if tensor.datatype.fixed:
        return whole.astype(dtype)
    texts = np.empty(shape, dtype=object)
    texts.reshape(-1)[:] = [b"%d" % number for number in whole.reshape(-1)]
    return texts


def _long_neighbour(
    spec: ModelSpec, group: Sequence[int], samples: Sequence[Any], length: int
) -> list[Any] | None:
    """Return a row as long as any that may share a batch with these; None if there is none."""
    if not spec.pad_variable_length:
        return None
    lengths = _lengths(spec)
    own = [open_dimensions(spec.inputs, samples[number]) for number in group]
    goal = lengths.goal(own[0])
    longest = max(max(sizes) for sizes in own)
    size = max(goal) if ANY not in goal else max(2 * longest, length)
    row = made_up(spec.inputs, 1, size)
    return row if lengths.goal(open_dimensions(spec.inputs, row)) == goal else samples[group[0]]
