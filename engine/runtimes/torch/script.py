"""TorchScript files: they hold code and weights, and do not declare their tensors."""

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ringbatch.engine.config.declared_tensors import declared
from ringbatch.engine.models.model import Options, refusing
from ringbatch.engine.runtimes.torch.program import Program
from ringbatch.shm.errors import StartupError


def load_script(path: Path, options: Options, torch: Any) -> Program:
    """Read a TorchScript file onto its device; the options declare its inputs and outputs.

    Raises:
        StartupError: torch cannot read it, or its function does not take the declared inputs; the
            text says which.
    """
    with refusing(path, "torch.jit cannot load it"), warnings.catch_warnings():
        # torch advises authors to export their models; an operator cannot do so.
        warnings.simplefilter("ignore", DeprecationWarning)
        module = torch.jit.load(os.fspath(options.readable(path)), map_location=options.device)
    module.eval()
    arguments = module.forward.schema.arguments[1:]
    if not options.inputs or not options.outputs:
        names = ", ".join(f"{argument.name} ({argument.type})" for argument in arguments)
        raise StartupError(
            f"{path}: TorchScript does not say what its tensors look like; set inputs and outputs, "
            f'such as inputs = ["x FP32 [3, 224, 224]"]; its forward takes {names or "nothing"}'
        )
    inputs = tuple(map(declared, options.inputs))
    outputs = tuple(map(declared, options.outputs))
    for tensor in (*inputs, *outputs):
        if not tensor.datatype.fixed:
            raise StartupError(f"{path}: {tensor.name!r} is BYTES, but torch has no tensors of it")
    _check_arguments(path, arguments, len(inputs))
    if options.channels_last:
        module.to(memory_format=torch.channels_last)

    def run(tensors: Sequence[Any]) -> Any:
        return module(*tensors)

    rows = (None,) if options.max_batch_size else ()
    limits = tuple(
        (*rows, *(size if size >= 0 else None for size in tensor.shape)) for tensor in inputs
    )
    return Program(inputs, outputs, limits, run)


def _check_arguments(path: Path, arguments: Sequence[Any], count: int) -> None:
    least = sum(not argument.has_default_value() for argument in arguments)
    if not least <= count <= len(arguments):
        span = str(least) if least == len(arguments) else f"{least} to {len(arguments)}"
        names = ", ".join(argument.name for argument in arguments)
        raise StartupError(
            f"{path}: inputs has {count} tensors, but its forward takes {span} ({names})"
        )
