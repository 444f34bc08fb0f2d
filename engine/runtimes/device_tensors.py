"""Python model files that take and return tensors of torch, on their worker's device."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ringbatch.engine.models.extras import required
from ringbatch.engine.models.model import Model, Options
from ringbatch.engine.runtimes.torch.program import Program
from ringbatch.engine.runtimes.torch.runtime import check_device, placed_program
from ringbatch.shm.errors import StartupError


def with_tensors(path: Path, model: Model, device: str, *, batched: bool, captured: bool) -> Model:
    """Return a model whose `predict` gets and returns tensors in place of arrays.

    Args:
        path: of the model file, for messages.
        model: as the file has it.
        device: ``cpu``, or ``cuda:N``.
        batched: True if its tensors have a batch dimension.
        captured: True if its runs may be captured as CUDA graphs.

    Raises:
        StartupError: the model is of another kind, or there is no such device or no torch.
    """
    _check_kind(path, model)
    torch = required("torch", "torch", path)
    check_device(path, device, torch)
    predict = model.predict

    def run(tensors: Sequence[Any]) -> Any:
        return predict(*tensors)

    limits = tuple((None,) * (batched + len(tensor.shape)) for tensor in model.inputs)
    program = Program(model.inputs, model.outputs, limits, run)
    no_graphs = "" if captured else "the model file has no cuda_graph = True"
    options = Options(max_batch_size=int(batched), threads=1, device=device)
    placed = placed_program(program, options, torch, no_graphs)
    return replace(model, predict=placed.predict, device=placed.device)


def _check_kind(path: Path, model: Model) -> None:
    found = ""
    if model.in_parts:
        found = "answers in parts" if not model.in_steps else "works in steps"
    elif not model.inputs:
        found = "declares no inputs, so that it gets JSON"
    elif model.asks:
        found = "takes request"
    elif any(not tensor.datatype.fixed for tensor in (*model.inputs, *model.outputs)):
        found = "declares BYTES, of which torch has no tensors"
    if found:
        raise StartupError(
            f"{path}: `on_device` is True, but the model {found}; it is for a predict that takes "
            "and returns numbers"
        )
