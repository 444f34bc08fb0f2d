"""Loaded torch models of any kind of file, and the tensors of an exported program.

An exported program declares inputs and outputs: names and datatypes, and for each dimension a
number or a symbol with a range. torch itself does not check those ranges in a run.
"""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ringbatch.engine.models.batch_dimension import NO_BATCH, instance_shape
from ringbatch.engine.models.extras import required
from ringbatch.engine.models.model import Options, refusing
from ringbatch.engine.runtimes.torch.file_kinds import pickled_words
from ringbatch.shm.errors import StartupError
from ringbatch.shm.tensor import ANY, Tensor

DATATYPES: Final = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "bfloat16": "BF16",
    "float32": "FP32",
    "float64": "FP64",
}
"""Datatypes by the name of a torch dtype."""

_SAFE_LOAD: Final = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"


@dataclass(frozen=True, slots=True)
class Program:
    """A model that torch can run.

    Attributes:
        inputs: in the order in which `run` takes them.
        outputs: as `run` returns them.
        limits: for each input, the largest size of each dimension, the batch's included, from the
            file; None without a limit.
        run: takes a torch tensor for each input; returns a tensor, a sequence or a mapping.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    limits: tuple[tuple[int | None, ...], ...]
    run: Callable[[Sequence[Any]], Any]


def load_program(path: Path, options: Options, torch: Any) -> Program:
    """Read a .pt2 file and put it on its device.

    Raises:
        StartupError: torch cannot read it, or its inputs and outputs are not tensors with a batch
            dimension; the text says which.
    """
    pytree = required("torch.utils._pytree", "torch", path)
    exported = _loaded(path, options, torch)
    if options.device != "cpu":
        passes = required("torch.export.passes", "torch", path)
        with refusing(path, f"it cannot be put on {options.device}"):
            exported = passes.move_to_device_pass(exported, options.device)
    specs = [spec.arg for spec in exported.graph_signature.input_specs if _is_given(spec)]
    nodes = {node.name: node.meta.get("val") for node in exported.graph.nodes}
    taken = [index for index, arg in enumerate(specs) if _is_tensor(arg)]
    constants = [getattr(arg, "value", None) for arg in specs]
    reader = _Reader(path, options.max_batch_size, exported.range_constraints)
    inputs = [(specs[index].name, nodes[specs[index].name]) for index in taken]
    if not inputs:
        raise StartupError(f"{path}: the model has no inputs, so there is nothing to ask it")
    returned = [spec.arg for spec in exported.graph_signature.output_specs if _is_answer(spec)]
    given = [index for index, arg in enumerate(returned) if _is_tensor(arg)]
    structure = pytree.tree_unflatten(list(range(len(returned))), exported.call_spec.out_spec)
    names = dict(_names(structure))
    outputs = [(names[index], nodes[returned[index].name]) for index in given]
    if not outputs:
        raise StartupError(f"{path}: the model returns no tensor")
    if options.autocast != "off":
        _forget_datatypes(exported, torch)
    module = exported.module()
    if options.channels_last:
        module.to(memory_format=torch.channels_last)
    in_spec = exported.call_spec.in_spec

    def run(tensors: Sequence[Any]) -> Any:
        leaves = list(constants)
        for index, tensor in zip(taken, tensors, strict=True):
            leaves[index] = tensor
        args, kwargs = pytree.tree_unflatten(leaves, in_spec)
        results = pytree.tree_leaves(module(*args, **kwargs))
        return [results[index] for index in given]

    taking = tuple(reader.tensor("input", *one) for one in inputs)
    returning = tuple(reader.tensor("output", *one) for one in outputs)
    reader.check_outputs([value for _, value in inputs], outputs)
    limits = tuple(reader.limits(value) for _, value in inputs)
    return Program(taking, returning, limits, run)


def _loaded(path: Path, options: Options, torch: Any) -> Any:
    with (
        refusing(path, "torch.export cannot load it"),
        _pickles(options.trust_pickle),
        warnings.catch_warnings(),
        # Given a path, torch reads only files that end in .pt2.
        options.readable(path).open("rb") as file,
    ):
        # Older versions of torch warn so about their own way to read a file.
        warnings.filterwarnings("ignore", "The given buffer is not writable")
        try:
            return torch.export.load(file)
        except torch.serialization.pickle.UnpicklingError:
            if options.trust_pickle:
                raise
            raise StartupError(pickled_words(path, "a part of it")) from None


class _Reader:
    """Reader of tensors as the file declares them.

    A `value` has a dtype, and a shape of numbers and symbols.
    """

    def __init__(self, path: Path, max_batch_size: int, ranges: Mapping[Any, Any]) -> None:
        self._path = path
        self._max_batch_size = max_batch_size
        self._ranges = ranges

    def tensor(self, role: str, name: str, value: Any) -> Tensor:
        subject = f"{self._path}: {role} {name!r}"
        dtype = str(value.dtype).removeprefix("torch.")
        if dtype not in DATATYPES:
            raise StartupError(f"{subject} is {dtype}, which cannot be served")
        shape = [size if isinstance(size, int) else ANY for size in value.shape]
        if self._max_batch_size and shape and shape[0] == ANY:
            self._check_batch(subject, role, value.shape[0])
        return Tensor(name, DATATYPES[dtype], instance_shape(subject, shape, self._max_batch_size))

    def _check_batch(self, subject: str, role: str, size: Any) -> None:
        if not size.node.expr.is_symbol:
            raise StartupError(
                f"{subject} has a first dimension of {size.node.expr}, but a batch can have any "
                f"size; export the model with a dynamic batch dimension, {NO_BATCH}"
            )
        most = self._most(size)
        if role == "input" and most is not None and most < self._max_batch_size:
            raise StartupError(
                f"{subject} has a batch dimension of at most {most}, but max_batch_size is "
                f"{self._max_batch_size}; set max_batch_size = {most}"
            )

    def check_outputs(self, inputs: Sequence[Any], outputs: Sequence[tuple[str, Any]]) -> None:
        """Refuse outputs whose open first dimension is not the batch of any input."""
        batches = {str(value.shape[0]) for value in inputs if len(value.shape)}
        for name, value in outputs:
            if self._max_batch_size and str(value.shape[0]) not in batches:
                raise StartupError(
                    f"{self._path}: output {name!r} has a first dimension of {value.shape[0]}, "
                    f"which is not the batch of the inputs; return one row for each, {NO_BATCH}"
                )

    def limits(self, value: Any) -> tuple[int | None, ...]:
        return tuple(size if isinstance(size, int) else self._most(size) for size in value.shape)

    def _most(self, size: Any) -> int | None:
        """Return the largest size of an open dimension.

        A smallest size is no limit: torch notes 2 for every dimension that it found to be dynamic
        by itself, and runs with 1.
        """
        found = self._ranges.get(size.node.expr)
        return int(found.upper) if found is not None and found.upper.is_Integer else None


def _is_given(spec: Any) -> bool:
    return bool(spec.kind.name == "USER_INPUT")


def _is_answer(spec: Any) -> bool:
    return bool(spec.kind.name == "USER_OUTPUT")


def _is_tensor(arg: Any) -> bool:
    return type(arg).__name__ == "TensorArgument"


def _names(structure: Any, name: str = "") -> Iterator[tuple[int, str]]:
    """Yield each output's index and name: the keys or fields on the way to it.

    An output without any is `y`, and several are `y0`, `y1`, and so on.
    """
    if isinstance(structure, int):
        yield structure, name or "y"
        return
    if isinstance(structure, Mapping):
        parts = [(str(key), value) for key, value in structure.items()]
    elif hasattr(structure, "_fields"):
        parts = [(field, getattr(structure, field)) for field in structure._fields]
    elif not name and len(structure) == 1:
        parts = [("", structure[0])]
    else:
        parts = [(f"{'' if name else 'y'}{index}", part) for index, part in enumerate(structure)]
    for own, part in parts:
        yield from _names(part, f"{name}_{own}" if name else own)


def _forget_datatypes(exported: Any, torch: Any) -> None:
    """Remove the assertions on datatypes, as autocast rightly changes these."""
    check = torch.ops.aten._assert_tensor_metadata.default
    for node in list(exported.graph.nodes):
        if node.op == "call_function" and node.target is check:
            exported.graph.erase_node(node)


@contextmanager
def _pickles(trusted: bool) -> Iterator[None]:
    """Keep torch from running code out of pickles, unless they are trusted.

    Its loader of exported programs otherwise falls back to unsafe loading if the safe one fails.
    """
    before = os.environ.get(_SAFE_LOAD)
    if not trusted:
        os.environ[_SAFE_LOAD] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_SAFE_LOAD, None)
        else:
            os.environ[_SAFE_LOAD] = before
