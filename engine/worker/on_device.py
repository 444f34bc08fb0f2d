"""Placing of a model's batches on its device, before the worker takes any.

The findings are reported once, in the log and in the worker's note for `ringbatch models`.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from ringbatch.engine.devices.batch_run import BatchRun, is_placeable
from ringbatch.engine.devices.port import Device, MemoryRefused
from ringbatch.engine.models.model import Model, refusing
from ringbatch.engine.worker.graph_check import capture, graph_sizes
from ringbatch.engine.worker.parity_run import MADE_UP, drawn
from ringbatch.shm.device_pace import Pace
from ringbatch.shm.errors import StartupError
from ringbatch.shm.model_spec import ModelSpec

logger = logging.getLogger("ringbatch.worker")

_MEASURED_ROWS: Final = 8
"""Rows of the batches that are copied to find the quicker way."""
_DISPATCH_NS: Final = 200_000
"""Time from the collector's decision to give a batch until the worker copies its rows."""


@dataclass(frozen=True, slots=True)
class OnDevice:
    """A model whose batches go through its device.

    Attributes:
        run: runs them.
        sizes: the numbers of rows of its graphs, ascending; none without graphs.
        note: findings of the check of the device, for people.
        pace: for the collector.
    """

    run: BatchRun
    sizes: tuple[int, ...]
    note: str
    pace: Pace


def placed(
    model: Model,
    spec: ModelSpec,
    memory: memoryview,
    payload_byte: int,
    *,
    path: Path | str,
    graphs: str,
    warm: bool,
    clock_ns: Callable[[], int],
) -> OnDevice | None:
    """Place a model's batches on its device, if rows of its inputs have known sizes.

    Args:
        model: loaded.
        spec: the same as the model table has it.
        memory: the segment's.
        payload_byte: where requests' memory starts in it.
        path: of the model file, for messages.
        graphs: the setting ``cuda_graphs``.
        warm: whether there is a warm-up, which is when graphs are captured.
        clock_ns: the monotonic clock.

    Raises:
        StartupError: graphs are required and there are none, or the device has no room for a few
            rows.
    """
    device = model.device
    if device is None:
        return None
    if not spec.batched or not is_placeable(model.inputs):
        why = "its inputs have open dimensions" if spec.batched else "it has no batches"
        _require(graphs, path, why)
        return None
    # Copies of weights that `load` has begun are in neither of the device's queues.
    device.drain()
    run = BatchRun(device, model.inputs, memory, payload_byte)
    words = f"{device.name}: {_way_in(run, device, min(spec.cap, _MEASURED_ROWS), path, clock_ns)}"
    sizes, graph_words = _graphs(run, device, model, spec, graphs, warm)
    if not sizes:
        _require(graphs, path, graph_words)
        graph_words = f"no CUDA graphs: {graph_words}"
    note = f"{words}; {graph_words}"
    logger.info("%s", note)
    pace = Pace(run.copies_ns(spec.cap) + _DISPATCH_NS, len(sizes))
    return OnDevice(run, tuple(sizes), note, pace)


def _require(graphs: str, path: Path | str, why: str) -> None:
    if graphs == "required":
        raise StartupError(
            f'{path}: cuda_graphs is "required", but there are none: {why}; "auto" serves the '
            "model without"
        )


def _way_in(
    run: BatchRun, device: Device, rows: int, path: Path | str, clock_ns: Callable[[], int]
) -> str:
    """Choose the way of rows to the device; return it in words."""
    refusal = ""
    try:
        run.register()
    except MemoryRefused as refused:
        refusal = f"{device.name} refuses: {refused}"
    with refusing(path, f"copies of {rows} rows to {device.name}"):
        run.measure(rows, clock_ns)
    if refusal:
        return f"rows are gathered in page-locked memory ({refusal})"
    ways = [f"rows of {', '.join(run.straight)} straight from requests"] if run.straight else []
    if run.gathered:
        ways.append(f"rows of {', '.join(run.gathered)} gathered, which is quicker")
    return ", ".join(ways)


def _graphs(
    run: BatchRun, device: Device, model: Model, spec: ModelSpec, graphs: str, warm: bool
) -> tuple[list[int], str]:
    """Capture graphs, if they are wanted; return their sizes, and the words for it."""
    why = 'cuda_graphs is "off"' if graphs == "off" else device.no_graphs
    if not why and not warm:
        why = 'warm_up is "off"'
    if why:
        return [], why
    sizes = graph_sizes(spec.cap, spec.allowed_batch_sizes)
    before = device.held_bytes()
    why = capture(run, [tensor.name for tensor in model.outputs], sizes, _values(spec))
    if why:
        return [], why
    taken = (device.held_bytes() - before) / 2**20
    ascending = sizes[::-1]
    return ascending, f"CUDA graphs of {', '.join(map(str, ascending))} rows, {taken:.0f} MiB"


def _values(spec: ModelSpec) -> Callable[[int, int], Sequence[Any]]:
    """Return what makes up rows that differ from each other."""
    samples = drawn(spec, 1)

    def values(rows: int, first: int) -> Sequence[Any]:
        chosen = [samples[(first + row) % MADE_UP] for row in range(rows)]
        return [np.concatenate(column) for column in zip(*chosen, strict=True)]

    return values
