"""Model files of models in steps: their functions, and what resumes their rows."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ringbatch.engine.models.model import StepFunctions
from ringbatch.engine.runtimes.python_functions import check_kind, flag, wrong_arguments
from ringbatch.shm.errors import StartupError, type_in_words
from ringbatch.shm.tensor import ANY, Tensor


def is_in_steps(path: Path, parts: Any) -> bool:
    """Return whether a model file's parts are those of a model in steps."""
    found = [name for name in ("begin", "step") if hasattr(parts, name)]
    if not found or hasattr(parts, "predict"):
        return False
    if len(found) == 1:
        missing = "step" if found == ["begin"] else "begin"
        raise StartupError(
            f"{path}: `{found[0]}` is there, so `{missing}` must be as well: a model in steps "
            "needs both, and any other model a predict"
        )
    return True


def step_functions(
    path: Path,
    parts: Any,
    begin: Callable[..., Any],
    resumes: tuple[tuple[str, str], ...],
    places: int | None,
) -> StepFunctions:
    """Return the functions of a model in steps.

    Raises:
        StartupError: one is no function, or takes other arguments.
    """
    end = getattr(parts, "end", _end_nothing)
    state = "state" if places is None else "row"
    for name, function, arguments in (
        ("step", parts.step, (f"{state}s",)),
        ("end", end, (state, "reason")),
    ):
        if not callable(function):
            raise StartupError(
                f"{path}: `{name}` is {type_in_words(function)}, but it must be a function"
            )
        check_kind(path, name, function)
        try:
            inspect.signature(function).bind(*arguments)
        except TypeError:
            wanted = ", ".join(arguments)
            raise wrong_arguments(path, name, function, wanted) from None
    repeatable = flag(path, parts, "repeatable")
    return StepFunctions(begin, parts.step, end, repeatable, resumes, places)


def resumes_in(
    path: Path, parts: Any, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> tuple[tuple[str, str], ...]:
    """Return the pairs of an output and the input that takes its parts so far; see `ModelSpec`.

    Raises:
        StartupError: the model file has others than its inputs and outputs allow.
    """
    given = getattr(parts, "resumable", {})
    if not isinstance(given, Mapping):
        raise StartupError(
            f"{path}: `resumable` is {type_in_words(given)}, but it must be a dict from the name "
            "of an output to the name of the input that takes the parts of it so far"
        )
    by_name = {"output": {t.name: t for t in outputs}, "input": {t.name: t for t in inputs}}
    for pair in given.items():
        for side, name in zip(by_name, pair, strict=True):
            if name not in by_name[side]:
                known = ", ".join(by_name[side]) or "none, as the model file declares none"
                raise StartupError(
                    f"{path}: `resumable` names the {side} {name!r}; {side}s are: {known}"
                )
        _check_resumes(path, by_name["output"][pair[0]], by_name["input"][pair[1]])
    if len({*given.values()}) < len(given):
        raise StartupError(f"{path}: `resumable` names one input for two outputs")
    return tuple(given.items())


def _check_resumes(path: Path, output: Tensor, taken: Tensor) -> None:
    """Refuse an input that cannot hold the joined parts of an output."""
    joins = bool(output.shape) and output.shape[0] == ANY
    fixed = output.shape[1:] if joins else output.shape
    if ANY in fixed:
        raise StartupError(
            f"{path}: `resumable` names the output {output.name!r}, of which only the first "
            f"dimension may be of any size, but its shape is {list(output.shape)}"
        )
    shape, empty = (ANY, *fixed), ()
    found = (taken.datatype, taken.shape, taken.default)
    if found != (output.datatype, shape, empty):
        raise StartupError(
            f"{path}: the input {taken.name!r}, which takes the parts of the output "
            f"{output.name!r}, must be Tensor({taken.name!r}, {output.datatype.name!r}, "
            f"{list(shape)}, default=[])"
        )


def _end_nothing(_state: Any, _reason: str) -> None:
    """Do nothing, in place of a missing `end`."""


def has_no_predict(*_arguments: Any) -> Any:
    """Raise, in place of the `predict` that a model in steps does not have."""
    raise TypeError("a model in steps has no predict")
