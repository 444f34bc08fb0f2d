"""Opening of model files: from a runtime's name, a path and options to a `Model`.

`ringbatch.engine.config.kinds` has the runtimes, and the endings of their files. A runtime imports
packages beyond the engine's own only when it is called, which is in a worker.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from ringbatch.engine.models.model import Model, Options, refusing
from ringbatch.shm.errors import StartupError

Opener = Callable[[Any, Options], Model]

_OF_DIRECTORIES: Final = ("generator", "text")


def open_model(runtime: str, path: Path | str, options: Options) -> Model:
    """Open a model file; `load` is not called.

    Args:
        runtime: a key of `ringbatch.engine.config.kinds.RUNTIMES`.
        path: the model file; for the runtime http the address of a server, as a text.
        options: the model's settings.

    Raises:
        StartupError: the file, its options or the installation is wrong; the text says how.
    """
    of_file = runtime not in _OF_DIRECTORIES
    if isinstance(path, Path) and of_file and not options.readable(path).is_file():
        fault = "is a folder, not a model file" if path.is_dir() else "no such model file"
        raise StartupError(f"{path}: {fault}")
    with refusing(path):
        return opener_of(runtime)(path, options)


def opener_of(runtime: str) -> Opener:
    """Return the function that opens files of a runtime, which takes a path and options.

    It imports that runtime alone: a worker needs no other.

    Raises:
        KeyError: there is no such runtime.
    """
    match runtime:
        case "catboost":
            from ringbatch.engine.runtimes.trees.catboost import open_catboost

            return open_catboost
        case "generator":
            from ringbatch.engine.runtimes.generator import open_generator

            return open_generator
        case "http":
            from ringbatch.engine.runtimes.upstreams.runtime import open_http

            return open_http
        case "lightgbm":
            from ringbatch.engine.runtimes.trees.lightgbm import open_lightgbm

            return open_lightgbm
        case "onnx":
            from ringbatch.engine.runtimes.graphs.onnx import open_onnx

            return open_onnx
        case "openvino":
            from ringbatch.engine.runtimes.graphs.openvino import open_openvino

            return open_openvino
        case "python":
            from ringbatch.engine.runtimes.python import open_python

            return open_python
        case "ray":
            from ringbatch.engine.runtimes.ray.runtime import open_ray

            return lambda path, options: open_ray(path, options, open_model)
        case "sklearn":
            from ringbatch.engine.runtimes.sklearn import open_sklearn

            return open_sklearn
        case "text":
            from ringbatch.engine.runtimes.texts.runtime import open_text

            return open_text
        case "torch":
            from ringbatch.engine.runtimes.torch.runtime import open_torch

            return open_torch
        case "xgboost":
            from ringbatch.engine.runtimes.trees.xgboost import open_xgboost

            return open_xgboost
    raise KeyError(runtime)
