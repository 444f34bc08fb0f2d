"""The python runtime: a model file, checked and made callable.

A model file is plain Python. It declares `inputs` and `outputs`, loads in `load()` or
`load(device)`, and answers in `predict`; a class `Model` with the same four does as well. Without
`inputs`, `predict` takes a list of JSON values and returns a list of the same length, and
`cost(instance)` may return the cost of one of them. A `predict` that takes `request` as well gets
the request context, such as parameters and headers. One that yields instead of returning answers in
parts. With `on_device` it takes and returns tensors of torch.

A model in steps has `begin`, `step` and perhaps `end` in place of `predict`: rows join and end
between any two steps, see `ringbatch.engine.models.model.StepFunctions`. If `begin` takes `rows` as
well, the model makes no states: it gets the numbers of its rows' places.
"""

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeGuard

from ringbatch.engine.models.model import Model, Options, refusing
from ringbatch.engine.runtimes.device_tensors import with_tensors
from ringbatch.engine.runtimes.python_functions import (
    bound_load,
    check_arguments,
    check_kind,
    flag,
    takes,
)
from ringbatch.engine.runtimes.python_module import import_file
from ringbatch.engine.runtimes.python_steps import (
    has_no_predict,
    is_in_steps,
    resumes_in,
    step_functions,
)
from ringbatch.shm.errors import StartupError, type_in_words
from ringbatch.shm.tensor import Tensor

_REQUEST: Final = "request"
_ROWS: Final = "rows"


def open_python(path: Path, options: Options) -> Model:
    """Open a model file; see `ringbatch.engine.runtimes.opening.open_model`."""
    content, places = options.readable(path), options.max_batch_size
    model = import_model(path, content, options.device, places)
    if options.headers and not model.asks:
        name = "begin" if model.in_steps else "predict"
        raise StartupError(
            f"{path}: headers are configured, but {name} does not ask what requests say; have it "
            "take one more argument, request"
        )
    return model


def import_model(
    path: Path, content: Path | None = None, device: str = "cpu", places: int = 1
) -> Model:
    """Run a model file and look up its parts; `load` is not called.

    Args:
        path: its present or former place, beside the modules that it imports.
        content: the file to read its text from; by default `path`.
        device: for a `load` that takes it.
        places: of a model in steps, the rows that a worker runs at once.

    Raises:
        StartupError: the file is wrong; the text says how, and at which line if there is one.
    """
    module = import_file(path, content or path)
    source = getattr(module, "Model", None)
    parts = _instance(path, source) if _is_served(source, module) else module
    in_steps = is_in_steps(path, parts)
    name = "begin" if in_steps else "predict"
    main, load = _functions(path, parts, name)
    inputs, outputs = _signature(path, parts)
    asks = takes(main, _REQUEST, len(inputs) or 1)
    numbered = in_steps and takes(main, _ROWS, len(inputs) or 1)
    own = [argument for argument, taken in ((_REQUEST, asks), (_ROWS, numbered)) if taken]
    check_arguments(path, name, main, inputs, own)
    ready = bound_load(path, load, device, places if numbered else None)
    called = _with_context(main) if asks else main
    cost = _cost(path, parts, inputs) if in_steps or not inputs else None
    if in_steps:
        resumes = resumes_in(path, parts, inputs, outputs)
        steps = step_functions(path, parts, called, resumes, places if numbered else None)
        return Model(
            inputs,
            outputs,
            ready,
            has_no_predict,
            asks=asks,
            cost=cost,
            in_parts=True,
            steps=steps,
        )
    in_parts = inspect.isgeneratorfunction(main)
    model = Model(inputs, outputs, ready, called, asks=asks, cost=cost, in_parts=in_parts)
    captured = flag(path, parts, "cuda_graph")
    if flag(path, parts, "on_device"):
        return with_tensors(path, model, device, batched=places > 0, captured=captured)
    if captured:
        raise StartupError(f"{path}: `cuda_graph` is True, so `on_device` must be as well")
    return model


def _functions(path: Path, parts: Any, name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the function of that name, which answers, and `load`; raises as `import_model`."""
    main = getattr(parts, name, None)
    if not callable(main):
        fault = "is no function" if main is not None else "is missing"
        raise StartupError(
            f"{path}: `{name}` {fault}; a model file needs a function predict, or a class Model "
            "with a method predict; a model in steps has begin and step in its place"
        )
    load: Callable[..., Any] = getattr(parts, "load", _nothing)
    if not callable(load):
        raise StartupError(f"{path}: `load` is {type_in_words(load)}, but it must be a function")
    for one, function in ((name, main), ("load", load)):
        check_kind(path, one, function)
    return main, load


def _signature(path: Path, parts: Any) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return the inputs and outputs of a model file; raises as `import_model`."""
    inputs = _tensors(path, "inputs", getattr(parts, "inputs", ()))
    if inputs and all(tensor.default is not None for tensor in inputs):
        raise StartupError(
            f"{path}: every input has a default, so that a request could be empty; leave one "
            "without"
        )
    outputs = _tensors(path, "outputs", getattr(parts, "outputs", ()))
    if bool(inputs) != bool(outputs):
        missing, given = ("outputs", "inputs") if inputs else ("inputs", "outputs")
        raise StartupError(f"{path}: `{given}` is there, so `{missing}` must be as well")
    return inputs, outputs


def _cost(path: Path, parts: Any, inputs: tuple[Tensor, ...]) -> Callable[..., Any] | None:
    """Return the checked function `cost` of a model file; None if it has none."""
    cost: Callable[..., Any] | None = getattr(parts, "cost", None)
    if not callable(cost):
        return None
    check_kind(path, "cost", cost)
    check_arguments(path, "cost", cost, inputs, ())
    return cost


def _with_context(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that passes its last argument on as `request`."""

    def call(*arguments: Any, **more: Any) -> Any:
        return function(*arguments[:-1], request=arguments[-1], **more)

    return call


def _is_served(model: object, module: Any) -> TypeGuard[type]:
    """Return whether an object is the class to serve.

    An imported class, such as Keras's, is not if the file has a `predict` of its own.
    """
    if not inspect.isclass(model):
        return False
    return model.__module__ == module.__name__ or not hasattr(module, "predict")


def _instance(path: Path, model: type) -> Any:
    with refusing(path, "Model()"):
        return model()


def _tensors(path: Path, name: str, value: object) -> tuple[Tensor, ...]:
    wanted = f"{path}: `{name}` must be a list of ringbatch.engine.Tensor, found"
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise StartupError(f"{wanted} {type_in_words(value)}")
    for item in value:
        if not isinstance(item, Tensor):
            raise StartupError(f"{wanted} a list with {type_in_words(item)}")
    tensors: tuple[Tensor, ...] = tuple(value)
    names = [tensor.name for tensor in tensors]
    for tensor in tensors:
        if tensor.default is not None and name == "outputs":
            raise StartupError(
                f"{path}: output {tensor.name!r} has a default, but only inputs can be left out"
            )
        if tensor.padding is not None and name == "inputs":
            raise StartupError(
                f"{path}: input {tensor.name!r} has a padding, but that is for outputs; what "
                "inputs are padded with is the setting padding_values"
            )
        if names.count(tensor.name) > 1:
            raise StartupError(f"{path}: `{name}` has two tensors named {tensor.name!r}")
    return tensors


def _nothing() -> None:
    """Do nothing, in place of a missing `load`."""
