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

import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any, Final, TypeGuard

from ringbatch.engine.models.model import Model, Options, StepFunctions, failure, refusing
from ringbatch.engine.runtimes.device_tensors import with_tensors
from ringbatch.engine.runtimes.sibling_modules import disable_bytecode_cache
from ringbatch.shm.errors import StartupError
from ringbatch.shm.tensor import ANY, Tensor


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
    module = _import(path, content or path)
    source = getattr(module, "Model", None)
    parts = _instance(path, source) if _is_served(source, module) else module
    in_steps = _is_in_steps(path, parts)
    name = "begin" if in_steps else "predict"
    main = getattr(parts, "begin", None) if in_steps else getattr(parts, "predict", None)
    if not callable(main):
        fault = "is no function" if main is not None else "is missing"
        raise StartupError(
            f"{path}: `{name}` {fault}; a model file needs a function predict, or a class Model "
            "with a method predict; a model in steps has begin and step in its place"
        )
    load: Callable[..., Any] = getattr(parts, "load", _nothing)
    if not callable(load):
        raise StartupError(f"{path}: `load` is {_kind(load)}, but it must be a function")
    for one, function in ((name, main), ("load", load)):
        _check_kind(path, one, function)
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
    asks = _takes(main, _REQUEST, len(inputs) or 1)
    numbered = in_steps and _takes(main, _ROWS, len(inputs) or 1)
    own = [name for name, takes in ((_REQUEST, asks), (_ROWS, numbered)) if takes]
    _check_arguments(path, name, main, inputs, own)
    ready = _ready(path, load, device, places if numbered else None)
    called = _with_context(main) if asks else main
    cost = _cost(path, parts, inputs) if in_steps or not inputs else None
    if in_steps:
        resumes = _resumes(path, parts, inputs, outputs)
        steps = _step_functions(path, parts, called, resumes, places if numbered else None)
        return Model(
            inputs,
            outputs,
            ready,
            _has_no_predict,
            asks=asks,
            cost=cost,
            in_parts=True,
            steps=steps,
        )
    in_parts = inspect.isgeneratorfunction(main)
    model = Model(inputs, outputs, ready, called, asks=asks, cost=cost, in_parts=in_parts)
    captured = _flag(path, parts, "cuda_graph")
    if _flag(path, parts, "on_device"):
        return with_tensors(path, model, device, batched=places > 0, captured=captured)
    if captured:
        raise StartupError(f"{path}: `cuda_graph` is True, so `on_device` must be as well")
    return model


def _cost(path: Path, parts: Any, inputs: tuple[Tensor, ...]) -> Callable[..., Any] | None:
    """Return the checked function `cost` of a model file; None if it has none."""
    cost: Callable[..., Any] | None = getattr(parts, "cost", None)
    if not callable(cost):
        return None
    _check_kind(path, "cost", cost)
    _check_arguments(path, "cost", cost, inputs, ())
    return cost


def _flag(path: Path, parts: Any, name: str) -> bool:
    """Return a switch of a model file; False if it is not there."""
    value = getattr(parts, name, False)
    if not isinstance(value, bool):
        raise StartupError(f"{path}: `{name}` is {_kind(value)}, but it must be a bool")
    return value


def _with_context(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that passes its last argument on as `request`."""

    def call(*arguments: Any, **more: Any) -> Any:
        return function(*arguments[:-1], request=arguments[-1], **more)

    return call


def _is_in_steps(path: Path, parts: Any) -> bool:
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


def _step_functions(
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
            raise StartupError(f"{path}: `{name}` is {_kind(function)}, but it must be a function")
        _check_kind(path, name, function)
        try:
            inspect.signature(function).bind(*arguments)
        except TypeError:
            wanted = ", ".join(arguments)
            raise _wrong_arguments(path, name, function, wanted) from None
    repeatable = _flag(path, parts, "repeatable")
    return StepFunctions(begin, parts.step, end, repeatable, resumes, places)


def _resumes(
    path: Path, parts: Any, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> tuple[tuple[str, str], ...]:
    """Return the pairs of an output and the input that takes its parts so far; see `ModelSpec`.

    Raises:
        StartupError: the model file has others than its inputs and outputs allow.
    """
    given = getattr(parts, "resumable", {})
    if not isinstance(given, Mapping):
        raise StartupError(
            f"{path}: `resumable` is {_kind(given)}, but it must be a dict from the name of an "
            "output to the name of the input that takes the parts of it so far"
        )
    by_name = {"output": {t.name: t for t in outputs}, "input": {t.name: t for t in inputs}}
    for pair in given.items():
        for kind, name in zip(by_name, pair, strict=True):
            if name not in by_name[kind]:
                known = ", ".join(by_name[kind]) or "none, as the model file declares none"
                raise StartupError(
                    f"{path}: `resumable` names the {kind} {name!r}; {kind}s are: {known}"
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


def _has_no_predict(*_arguments: Any) -> Any:
    raise TypeError("a model in steps has no predict")


_REQUEST: Final = "request"
_ROWS: Final = "rows"
_PLACES: Final = "places"
_GIVEN: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class _UncachedSource(SourceFileLoader):
    """Module loader that reads a source text, perhaps from another file, and no compiled cache.

    A cache is recognized by size and second of the last write alone (PEP 3147), which a replaced
    file can share with the new one.
    """

    def __init__(self, name: str, path: Path, content: Path) -> None:
        super().__init__(name, str(path))
        self._content = content

    def get_data(self, path: str) -> bytes:
        return self._content.read_bytes() if path == self.path else super().get_data(path)

    def path_stats(self, path: str) -> Any:
        # Without these, importlib neither reads nor writes a compiled file.
        raise OSError(f"{path} is not looked at")


def _import(path: Path, content: Path) -> Any:
    name = _module_name(path)
    loader = _UncachedSource(name, path, content) if path.suffix == ".py" else None
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None or spec.loader is None:
        raise StartupError(f"{path}: a model file is a Python file and ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.parent))
    disable_bytecode_cache(path.parent)
    with refusing(path):
        try:
            spec.loader.exec_module(module)
        except SyntaxError as error:
            # The line may be in a file that the model file imports.
            line = f"line {error.lineno}: " if error.lineno else ""
            raise StartupError(f"{error.filename or path}: {line}{error.msg}") from None
        except ImportError as error:
            if "no known parent package" not in str(error):
                raise
            raise StartupError(
                f"{failure(path, error)}; a model file imports what lies beside it by its name "
                "alone, without a dot"
            ) from None
    return module


def _module_name(path: Path) -> str:
    """Return the module name of a model file: its stem, or another name if that one is taken.

    Processes of a multiprocessing pool can import the stem from the file's folder.
    """
    name = path.stem
    taken = name in sys.modules or name in sys.stdlib_module_names
    return f"ringbatch_model_{name.replace('.', '_')}" if taken or "." in name else name


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
        raise StartupError(f"{wanted} {_kind(value)}")
    for item in value:
        if not isinstance(item, Tensor):
            raise StartupError(f"{wanted} a list with {_kind(item)}")
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


def _check_kind(path: Path, name: str, function: Callable[..., Any]) -> None:
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


def _takes(function: Callable[..., Any], name: str, count: int) -> bool:
    """Return whether a function takes an argument of that name beside so many inputs."""
    return any(
        parameter.name == name and (place >= count or parameter.kind is parameter.KEYWORD_ONLY)
        for place, parameter in enumerate(_parameters(function))
    )


def _ready(
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


def _check_arguments(
    path: Path,
    name: str,
    function: Callable[..., Any],
    inputs: tuple[Tensor, ...],
    own: Sequence[str],
) -> None:
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
        raise _wrong_arguments(path, name, function, wanted) from None


def _wrong_arguments(
    path: Path, name: str, function: Callable[..., Any], wanted: str
) -> StartupError:
    """Return the error of a function that takes other arguments, as its author wrote them."""
    written, behind = function, ""
    if inspect.ismethod(function):
        written, behind = function.__func__, " behind self"
    return StartupError(f"{path}: {name}{inspect.signature(written)} must take {wanted}{behind}")


def _nothing() -> None:
    """Do nothing, in place of a missing `load`."""


def _kind(value: object) -> str:
    return f"a {type(value).__name__}"
