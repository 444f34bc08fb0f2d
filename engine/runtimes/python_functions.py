"""Functions and switches of a model file, checked before anything calls them.

A wrong one is found when the file is opened, not with the first request.
"""

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from ringbatch.shm.errors import StartupError, type_in_words
from ringbatch.shm.tensor import Tensor

_PLACES: Final = "places"
_GIVEN: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def flag(path: Path, parts: Any, name: str) -> bool:
    """Return a switch of a model file; False if it is not there."""
    value = getattr(parts, name, False)
    if not isinstance(value, bool):
        raise StartupError(f"{path}: `{name}` is {type_in_words(value)}, but it must be a bool")
    return value


def check_kind(path: Path, name: str, function: Callable[..., Any]) -> None:
    """Refuse functions whose call does not run them, such as generators and coroutines."""
    if inspect.ismethod(function) and not inspect.signature(function.__func__).parameters:
        raise StartupError(
            f"{path}: {name}() takes no argument, but a method of Model must take self"
        )
    if inspect.iscoroutinefunction(function):
        raise StartupError(
            f"{path}: `{name}` is an async function, but a worker calls it and awaits nothing; "
            f"write def {name} without async"
        )
    if inspect.isasyncgenfunction(function):
        raise StartupError(
            f"{path}: `{name}` is an async generator, but a worker calls it and awaits nothing; "
            f"write def {name} without async"
        )
    if name != "predict" and inspect.isgeneratorfunction(function):
        raise StartupError(f"{path}: `{name}` yields, but it must return; use return, not yield")


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except ValueError:
        return []


def takes(function: Callable[..., Any], name: str, count: int) -> bool:
    """Return whether a function takes an argument of that name beside so many inputs."""
    return any(
        parameter.name == name and (place >= count or parameter.kind is parameter.KEYWORD_ONLY)
        for place, parameter in enumerate(_parameters(function))
    )


def bound_load(
    path: Path, load: Callable[..., Any], device: str, places: int | None
) -> Callable[[], Any]:
    """Return `load` with the arguments that it takes.

    Args:
        path: of the model file.
        load: takes the device, or nothing; with `places`, it may take an argument of that name.
        device: the worker's.
        places: as in `StepFunctions`.
    """
    parameters = _parameters(load)
    names = [one.name for one in parameters if one.default is one.empty and one.kind in _GIVEN]
    devices = [name for name in names if places is None or name != _PLACES]
    if len(devices) > 1:
        wanted = "or one, the device" if places is None else "the device, places, or both"
        raise StartupError(f"{path}: load({', '.join(names)}) must take no argument, {wanted}")
    if not names:
        return load
    return partial(load, *[device if name in devices else places for name in names])


def check_arguments(
    path: Path,
    name: str,
    function: Callable[..., Any],
    inputs: tuple[Tensor, ...],
    own: Sequence[str],
) -> None:
    """Refuse a function that does not take an argument for each input, and those of its own."""
    try:
        signature = inspect.signature(function)
    except ValueError:
        return
    count = len(inputs) or 1
    try:
        signature.bind(*range(count), **dict.fromkeys(own))
    except TypeError:
        one = "instance" if name == "cost" else "instances"
        wanted = ", ".join(tensor.name for tensor in inputs) or one
        wanted = f"{count} argument{'s' * (count > 1)} ({wanted})"
        raise wrong_arguments(path, name, function, wanted) from None


def wrong_arguments(
    path: Path, name: str, function: Callable[..., Any], wanted: str
) -> StartupError:
    """Return the error of a function that takes other arguments, as its author wrote them."""
    written, behind = function, ""
    if inspect.ismethod(function):
        written, behind = function.__func__, " behind self"
    return StartupError(f"{path}: {name}{inspect.signature(written)} must take {wanted}{behind}")
