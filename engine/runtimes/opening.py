"""Opening of model files: from a runtime's name, a path and options to a `Model`.

A runtime is a function of that shape. `ringbatch.engine.config.kinds` has the runtimes, and the
endings of their files. A runtime imports packages beyond the engine's own only when it is called,
which is in a worker.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from ringbatch.engine.models.model import Model, Options, refusing
from ringbatch.engine.runtimes.generator import open_generator
from ringbatch.engine.runtimes.graphs.onnx import open_onnx
from ringbatch.engine.runtimes.graphs.openvino import open_openvino
from ringbatch.engine.runtimes.python import open_python
from ringbatch.engine.runtimes.ray.runtime import open_ray
from ringbatch.engine.runtimes.sklearn import open_sklearn
from ringbatch.engine.runtimes.texts.directory import READERS
from ringbatch.engine.runtimes.texts.runtime import open_text
from ringbatch.engine.runtimes.torch.runtime import open_torch
from ringbatch.engine.runtimes.trees.catboost import open_catboost
from ringbatch.engine.runtimes.trees.lightgbm import open_lightgbm
from ringbatch.engine.runtimes.trees.xgboost import open_xgboost
from ringbatch.engine.runtimes.upstreams.runtime import open_http
from ringbatch.shm.errors import StartupError

OPENERS: Final[dict[str, Callable[[Any, Options], Model]]] = {
    "catboost": open_catboost,
    "generator": open_generator,
    "http": open_http,
    "lightgbm": open_lightgbm,
    "onnx": open_onnx,
    "openvino": open_openvino,
    "python": open_python,
    "ray": lambda path, options: open_ray(path, options, open_model),
    "sklearn": open_sklearn,
    "text": open_text,
    "torch": open_torch,
    "xgboost": open_xgboost,
}


def open_model(runtime: str, path: Path | str, options: Options) -> Model:
    """Open a model file; `load` is not called.

    Args:
        runtime: a key of `OPENERS`.
        path: the model file; for the runtime http the address of a server, as a text.
        options: the model's settings.

    Raises:
        StartupError: the file, its options or the installation is wrong; the text says how.
    """
    of_file = runtime not in READERS
    if isinstance(path, Path) and of_file and not options.readable(path).is_file():
        fault = "is a folder, not a model file" if path.is_dir() else "no such model file"
        raise StartupError(f"{path}: {fault}")
    with refusing(path):
        return OPENERS[runtime](path, options)
